"""Objects as the API server has them, asked over one kept connection as the cluster's administrator. What waits looks often, and a kubectl
process for every look would cost the machine more than what is waited for. What a user does goes through kubectl all the same (kit.py)."""

import functools
import http.client
import json
import ssl
import threading
import urllib.parse

import local_cluster

LIMIT = 30  # seconds an answer may take
_kept = threading.local()


class ApiError(OSError):
    """An answer that is not 2xx: status, and the body's message."""

    def __init__(self, status, message):
        super().__init__(f"{status}: {message}")
        self.status = status


@functools.cache
def _administrator():
    pki = local_cluster.RUN / "pki"
    context = ssl.create_default_context(cafile=pki / "ca.crt")
    context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
    return context


def forget():
    """The cluster is another one now."""
    _kept.__dict__.clear()
    _administrator.cache_clear()
    _kinds.cache_clear()


def _ask_once(path, accept):
    connection = getattr(_kept, "connection", None)
    if connection is None:
        connection = _kept.connection = http.client.HTTPSConnection(local_cluster.API_SERVER, 6443, timeout=LIMIT, context=_administrator())
    try:
        connection.request("GET", path, headers={"Accept": accept})
        answer = connection.getresponse()
        body = json.loads(answer.read() or "{}")
    except (http.client.HTTPException, OSError) as error:
        connection.close()
        _kept.connection = None
        raise OSError(f"GET {path}: {error}") from error
    if answer.status // 100 != 2:
        raise ApiError(answer.status, body.get("message", ""))
    return body


def _ask(path, accept="application/json"):
    try:
        return _ask_once(path, accept)
    except ApiError:
        raise
    except OSError:  # a kept connection may have been closed meanwhile
        return _ask_once(path, accept)


@functools.cache
def _kinds():
    """What may name a kind, as for kubectl (but for its short names): {name: (path of its group and version, plural, whether it has a namespace)}."""
    found = {}
    for root in ("/api", "/apis"):
        groups = _ask(root, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")["items"]
        for group in groups:
            name = group["metadata"].get("name", "")
            version = group["versions"][0]
            path = f"{root}/{name}/{version['version']}" if name else f"{root}/{version['version']}"
            for resource in version["resources"]:
                kind = (path, resource["resource"], resource["scope"] == "Namespaced")
                for word in (resource["resource"], resource.get("singularResource", "")):
                    found.setdefault(word, kind)
                    found.setdefault(f"{word}.{name}", kind)
    return found


def get(kind, name=None, ns="default", selector=None):
    """One object, or the list of items (ns None: of all namespaces); None when the named object does not exist."""
    path, plural, namespaced = _kinds()[kind]
    where = f"{path}/namespaces/{ns}/{plural}" if namespaced and ns else f"{path}/{plural}"
    try:
        if name:
            return _ask(f"{where}/{name}")
        items = _ask(where + ("?labelSelector=" + urllib.parse.quote(selector) if selector else ""))["items"]
    except ApiError as error:
        if name and error.status == 404:
            return None
        raise
    return items

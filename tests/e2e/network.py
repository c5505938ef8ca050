"""Faults of the network between two components of the local cluster, by nftables on the node where they meet, always undone.

    with network.broken(network.agent_store("node1"), network.CUT): ...

A path is matched by connection tracking, so open connections are hit as well as new ones, and a Service's address tells who asks: pods
and the agent reach the API server at its Service, kubelet and kube-proxy at its own address."""

import contextlib
import dataclasses
import itertools

import kit

CUT = "drop"  # no packet either way
ANSWERS_LOST = "ct direction reply drop"  # half-open: requests arrive, answers do not
REQUESTS_LOST = "ct direction original drop"
RESET = "ct direction original meta l4proto tcp reject with tcp reset"
_numbers = itertools.count(1)


def slow(kilobytes_per_second):
    """Packets over this rate are lost, so that TCP slows down to it (the kernel has no netem)."""
    return f"limit rate over {kilobytes_per_second} kbytes/second burst 64 kbytes drop"


@dataclasses.dataclass(frozen=True)
class Path:
    """Connections between two components: matched on `node` in these hooks."""

    name: str
    node: str
    match: tuple  # nft expressions, any of which may match
    hooks: tuple = ("input", "output", "forward")


LOCAL = ("input", "output")  # of the node's own processes, not of its pods


def _node_address(node):
    return next(a["address"] for a in kit.get("node", node)["status"]["addresses"] if a["type"] == "InternalIP")


def _service(name, ns):
    return kit.get("service", name, ns)["spec"]["clusterIP"]


def _api_service():
    return _service("kubernetes", "default")


def _api_address():
    slices = kit.get("endpointslices.discovery.k8s.io", selector="kubernetes.io/service-name=kubernetes")
    return slices[0]["endpoints"][0]["addresses"][0]


def _pods(component):
    return [p["status"]["podIP"] for p in kit.component_pods(component) if p["status"].get("podIP")]


def agent_api(node):
    return Path("agent and API server", node, (f"ct original ip daddr {_api_service()}",), LOCAL)


def agent_store(node):
    return Path("agent and store", node, (f"ct original ip daddr {_service('holdfast-store', kit.SYSTEM)}",), LOCAL)


def kubelet_api(node):
    """Also kube-proxy's, and what the API server asks of the kubelet (logs, exec)."""
    api, address = _api_address(), _node_address(node)
    return Path("kubelet and API server", node,
                (f"ct original ip daddr {api} ct original proto-dst 6443",
                 f"ct original ip saddr {api} ct original ip daddr {address} ct original proto-dst 10250"), LOCAL)


def agent_kubelet(node):
    """The call that makes a checkpoint; both are on the node's own address."""
    address = _node_address(node)
    return Path("agent and kubelet", node, (f"ct original ip saddr {address} ct original ip daddr {address} ct original proto-dst 10250",), LOCAL)


def api_webhooks():
    return Path("API server and webhooks", kit.SYSTEM_NODE,
                tuple(f"ct original ip saddr {_api_address()} ct original ip daddr {ip} ct original proto-dst 9443" for ip in _pods("controller")))


def controller_api():
    """Both replicas', and not the webhooks."""
    api = _api_service()
    return Path("controller and API server", kit.SYSTEM_NODE, tuple(f"ct original ip saddr {ip} ct original ip daddr {api}" for ip in _pods("controller")))


def controller_store():
    store = _service("holdfast-store", kit.SYSTEM)
    return Path("controller and store", kit.SYSTEM_NODE, tuple(f"ct original ip saddr {ip} ct original ip daddr {store}" for ip in _pods("controller")))


def store_api():
    api = _api_service()
    return Path("store and API server", kit.SYSTEM_NODE, tuple(f"ct original ip saddr {ip} ct original ip daddr {api}" for ip in _pods("store")))


@contextlib.contextmanager
def broken(path, how):
    table = f"holdfast_test_{next(_numbers)}"
    rules = []
    for hook in path.hooks:
        rules.append(f"add chain inet {table} {hook} {{ type filter hook {hook} priority -5; }}")
        rules += [f"add rule inet {table} {hook} {match} {how}" for match in path.match]
    try:
        kit.on_node(path.node, "nft", "-f", "-", stdin="\n".join([f"add table inet {table}", *rules]) + "\n")
        yield
    finally:
        kit.on_node(path.node, "nft", "delete", "table", "inet", table, check=False)


def heal_all():
    """Undoes what a killed test left."""
    script = "for t in $(nft list tables inet | grep -o 'holdfast_test_[0-9]*'); do nft delete table inet $t; done; true"
    for node in (*kit.WORKERS, kit.SYSTEM_NODE):
        kit.on_node(node, "sh", "-c", script, check=False)

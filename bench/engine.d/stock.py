"""The stock path: kubelet checkpoint, archive, OCI image, registry, pull by another node's containerd, restore by the CRI. From node1 to node3, which run
containerd 2.1.9, the last whose CRI restores without an option (node2's 2.4 has no code for it any more).

Where the local cluster makes it cheaper than a real one, it stays so: the registry runs on the machine that pulls, containerd's first copy of the images goes to a
/tmp in memory, the archive becomes the layer without being unpacked, and the old pod goes while the image is being made.
"""

import contextlib
import http.client
import json
import os
import pathlib
import shutil
import ssl
import subprocess
import time

import kit
import local_cluster
import meter

FROM, TO = "node1", "node3"
PORT = 5000
CRIU = "/opt/bench-criu"
KUBELET_LIMIT = 600  # seconds
CONFIG = """version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {folder}}}, delete: {{enabled: true}}}}
http: {{addr: "0.0.0.0:{port}"}}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: %(name)s, labels: {app: bench-stock}}
spec:
  nodeName: %(node)s
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 30
  tolerations: [{operator: Exists}]
  containers: [{name: holder, image: "%(image)s", imagePullPolicy: %(pull)s, args: %(args)s}]
"""


def address(node):
    return next(a["address"] for a in kit.get("node", node)["status"]["addresses"] if a["type"] == "InternalIP")


@contextlib.contextmanager
def criu_in_path(source):
    """Holdfast's agent put the link in /usr/local/bin on the workers; node3 has no agent."""
    there, link = kit.node_path(TO, CRIU), kit.node_path(TO, "/usr/local/bin/criu")
    shutil.rmtree(there, ignore_errors=True)
    shutil.copytree(source, there, symlinks=True)
    link.unlink(missing_ok=True)
    link.symlink_to(f"{CRIU}/criu")
    try:
        yield
    finally:
        link.unlink(missing_ok=True)
        shutil.rmtree(there, ignore_errors=True)


class Registry:
    """Docker's registry in node3's network: `here` is what node3 calls it, `afar` everybody else."""

    def __init__(self, program, folder):
        self.here, self.afar = f"127.0.0.1:{PORT}", f"{address(TO)}:{PORT}"
        self._program, self._folder, self._process = program, folder, None

    def __enter__(self):
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        config = self._folder / "config.yml"
        config.write_text(CONFIG.format(folder=self._folder / "data", port=PORT))
        with open(self._folder / "log", "w") as log:
            self._process = subprocess.Popen(["nsenter", f"--net=/run/netns/{local_cluster.BRIDGE}-{TO}", str(self._program), "serve", str(config)],
                                             stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, "OTEL_TRACES_EXPORTER": "none"})
        kit.wait("the registry", self._answers, 20)
        return self

    def _answers(self):
        connection = http.client.HTTPConnection(self.afar, timeout=5)
        connection.request("GET", "/v2/")
        return connection.getresponse().status == 200

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def empty(self):
        shutil.rmtree(self._folder / "data", ignore_errors=True)


def ask_kubelet(pod):
    """The archive's path on the node."""
    pki = local_cluster.RUN / "pki"
    context = ssl.create_default_context(cafile=pki / "ca.crt")
    context.check_hostname = False
    context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
    connection = http.client.HTTPSConnection(address(FROM), 10250, timeout=KUBELET_LIMIT, context=context)
    connection.request("POST", f"/checkpoint/default/{pod}/holder?timeout={KUBELET_LIMIT}")
    answer = connection.getresponse()
    body = answer.read().decode()
    if answer.status != 200:
        raise kit.Failure(f"kubelet of {FROM}: {answer.status}: {body}")
    return json.loads(body)["items"][0]


def ctr(node, *words, timeout=120):
    return kit.on_node(node, "ctr", "-n", "k8s.io", "images", *words, timeout=timeout)


def publish(registry, image):
    """The process's own image, into the registry and as if node1 had pulled it from there: 2.1.9 pulls the base image of a checkpoint at each restore."""
    there = f"{registry.afar}/base:1"
    ctr(FROM, "tag", "--force", image, there)
    ctr(FROM, "push", "--plain-http", there)
    digest = next(line.split()[2] for line in ctr(FROM, "ls", f"name=={image}").splitlines()[1:])
    pulled = f"{registry.here}/base:1"
    for name in (pulled, f"{registry.here}/base@{digest}"):
        ctr(FROM, "tag", "--force", image, name)
    return pulled


def images_of(node, part):
    """References of the images of this name, and of all that point to the same."""
    rows = [line.split() for line in ctr(node, "ls").splitlines()[1:]]
    digests = {row[2] for row in rows if part in row[0]}
    return [row[0] for row in rows if row[2] in digests]


def clean(registry):
    kit.kubectl("delete", "pods", "-l", "app=bench-stock", "-n", "default", "--wait=true", "--timeout=120s", timeout=150)
    kit.on_node(FROM, "sh", "-c", "rm -f /var/lib/kubelet/checkpoints/checkpoint-bench-stock*")
    left = images_of(TO, registry.here)
    if left:
        ctr(TO, "rm", "--sync", *left)
    registry.empty()


def move(push, registry, image, mebibytes, seed):
    """One drain by this path: {what: value}, in seconds and bytes. `push`: the command that makes the image."""
    name, reference = "bench-stock", f"moved/holder:{seed}"
    try:
        base = publish(registry, image)
        kit.apply(POD % {"name": name, "node": FROM, "image": base, "pull": "IfNotPresent", "args": json.dumps([str(mebibytes), str(seed)])})
        kit.wait(f"{name} holds its memory", lambda: "ready" in meter.said(name), 180)
        written = meter.Written()
        began = time.time()
        kit.kubectl("cordon", FROM)
        archive_path = kit.node_path(FROM, ask_kubelet(name))
        dumped = time.time()
        with subprocess.Popen([*map(str, push), str(archive_path), "holder", f"{registry.afar}/{reference}"], stderr=subprocess.PIPE, text=True) as pushing:
            try:
                frozen = meter.freeze(name, began)  # while its log is there
                kit.drain(FROM)
                _, why = pushing.communicate(timeout=900)
            finally:
                pushing.kill()
        stored = time.time()
        if pushing.returncode != 0:
            raise kit.Failure(f"the image was not pushed: {why}")
        kit.apply(POD % {"name": f"{name}-again", "node": TO, "image": f"{registry.here}/{reference}", "pull": "Always", "args": "[]"})
        kit.wait("it is restored", lambda: kit.is_ready(kit.get("pod", f"{name}-again")), 600)
        gap = meter.gap_around(f"{name}-again", stored)
        files, disk = written.until_now()
        return {"frozen": frozen.seconds, "gap": gap.seconds, "drain": gap.first - began, "dump": dumped - began, "store": stored - dumped,
                "restore": gap.first - stored, "files": files, "disk": disk, "archive": archive_path.stat().st_size}
    finally:
        kit.kubectl("uncordon", FROM)
        clean(registry)


def criu_version():
    return kit.on_node(FROM, "criu", "--version").splitlines()[0]


def containerd_version(node):
    return kit.get("node", node)["status"]["nodeInfo"]["containerRuntimeVersion"]


def programs(root, folder):
    """Builds the registry and what pushes; both are kept by Go's cache."""
    go = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "holdfast" / "go" / "bin"  # where install-deps.sh puts it
    env = {"PATH": f"{go}:{os.environ['PATH']}", "CGO_ENABLED": "0", "GOBIN": str(folder), "GOFLAGS": "-buildvcs=false"}
    source = root / "bench" / "engine.d" / "images"
    kit.run("go", "build", "-o", folder / "push", ".", cwd=source, env=env, timeout=900)
    kit.run("go", "install", "tool", cwd=source, env=env, timeout=900)
    return folder / "push", folder / "registry"

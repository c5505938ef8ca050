"""What a hostile neighbour does beside a drain, for as long as a block lasts: peers that trickle (hole 4), and a sidecar that swaps folders of a shared volume
for links into the node (hole 1). All of it is bounded, and ends by itself."""

import contextlib
import json
import subprocess

import kit
import local_cluster

PEERS = 1000
CANARY = "/srv/holdfast-canary"  # a folder of each worker that no pod has, and its one file
SECRET = "of the node alone"

# Opens so many connections, begins a handshake or a request on each, and sends a byte of it a second; opens anew what is cut.
TRICKLE = """
import socket, sys, time
peers, seconds = int(sys.argv[1]), float(sys.argv[2])
targets = [(a.rsplit(':', 1)[0], int(a.rsplit(':', 1)[1])) for a in sys.argv[3:]]
def connected(s):
    try:
        return bool(s.getpeername())
    except OSError:
        return False
end, open_ = time.monotonic() + seconds, {}
while time.monotonic() < end:
    for n in range(peers):
        try:
            if n not in open_:
                s = open_[n] = socket.socket()
                s.setblocking(False)
                s.connect_ex(targets[n % len(targets)])
            else:
                open_[n].send(b'\\x16' if n % 3 else b'G')
        except OSError as error:
            if not isinstance(error, BlockingIOError):
                open_.pop(n).close()
    time.sleep(1)
    print(sum(map(connected, open_.values())), flush=True)
"""

# Swaps a folder of the volume for a link to the node's canary, without end, a third of the time.
RACE = """
import ctypes, os, time
libc = ctypes.CDLL(None, use_errno=True)
os.chdir('/shared')
n = 0
while True:
    n += 1
    folder, link = b'folder%d' % (n % 8), b'link%d' % (n % 8)
    if n % 500 < 8:
        os.makedirs(folder, exist_ok=True)
        if not os.path.lexists(link):
            os.symlink('CANARY', link)
    libc.renameat2(-100, folder, -100, link, 2)
    if n % 200 == 0:
        time.sleep(0.002)
""".replace("CANARY", CANARY)


def _targets():
    store = kit.get("service", "holdfast-store", kit.SYSTEM)["spec"]["clusterIP"]
    agents = [a["address"] for node in kit.WORKERS for a in kit.get("node", node)["status"]["addresses"] if a["type"] == "InternalIP"]
    webhooks = [pod["status"]["podIP"] for pod in kit.component_pods("controller") if pod["status"].get("podIP")]
    return [f"{store}:8443", f"{store}:8443", *(f"{a}:9464" for a in agents), *(f"{a}:9443" for a in webhooks)]


@contextlib.contextmanager
def trickling(seconds=120):
    """A thousand such connections from one node, to store, agents and webhooks, until the block is over."""
    enter = ["nsenter", "-t", str(local_cluster.node_pid(kit.SYSTEM_NODE)), "--net", "--", "prlimit", "--nofile=4096", "python3", "-c", TRICKLE]
    process = subprocess.Popen([*enter, str(PEERS), str(seconds), *_targets()], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        there = process.stdout.readline()  # a second after they began
        if int(there or 0) < PEERS / 4:
            raise kit.Failure(f"of {PEERS} peers that trickle only {there.strip() or 0} came through: {process.stderr.read() if process.poll() else ''}")
        yield
        if process.poll() not in (None, 0):
            raise kit.Failure(f"the peers that trickle ended: {process.stderr.read()}")
    finally:
        process.kill()
        process.communicate()


def with_racing_sidecar(text, image):
    """The counter's YAML, with a volume that it shares with a native sidecar that races and is left out of its checkpoints."""
    sidecar = {
        "name": "racer", "image": image, "restartPolicy": "Always", "command": ["python3", "-c", RACE],
        "resources": {"requests": {"cpu": "10m"}, "limits": {"cpu": "100m", "memory": "64Mi"}},
        "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
    }
    shared = f"      volumes: [{{name: shared, emptyDir: {{}}}}]\n      initContainers: [{json.dumps(sidecar)}]\n      containers:\n        - name: counter\n"
    mounted = shared + "          volumeMounts: [{name: shared, mountPath: /shared}]\n"
    changed = text.replace("      containers:\n        - name: counter\n", mounted)
    protect = '    holdfast.dev/protect: "true"\n'
    assert changed != text and protect in text
    return changed.replace(protect, protect + "    holdfast.dev/containers: counter\n")


def put_canaries():
    for node in kit.WORKERS:
        kit.on_node(node, "sh", "-c", f"rm -rf {CANARY} && mkdir -p {CANARY} && printf '%s' '{SECRET}' > {CANARY}/secret")


def host_touched():
    """What of the node came into a pod's volume, and what of a pod came to the node. Lines."""
    found = []
    for node in kit.WORKERS:
        there = kit.on_node(node, "sh", "-c", f"cd {CANARY} && find . | sort | tr '\\n' ' ' && cat secret", check=False)
        if there != f". ./secret {SECRET}":
            found.append(f"{node}: {CANARY} is not as it was: {there}")
        inside = kit.on_node(node, "sh", "-c", "find /var/lib/kubelet/pods/*/volumes/kubernetes.io~empty-dir -xdev -type f -name secret 2>/dev/null", check=False)
        found += [f"{node}: a file of the node is in a pod's volume: {line}" for line in inside.splitlines()]
    return found


@contextlib.contextmanager
def small_landing(node, mebibytes=4):
    """The node has so much room for dumps, on disk and in memory, until the block is over. Its agent is started anew before and after, so that it sees
    the same folder as the node."""
    folder = "/var/lib/holdfast/landing"

    def new_agent():
        pod = next(p for p in kit.component_pods("agent") if p["spec"]["nodeName"] == node)
        kit.kubectl("delete", "pod", pod["metadata"]["name"], "-n", kit.SYSTEM, "--wait=true")
        kit.kubectl("rollout", "status", "daemonset/holdfast-agent", "-n", kit.SYSTEM, "--timeout=90s", timeout=120)

    kit.on_node(node, "mount", "-t", "tmpfs", "-o", f"size={mebibytes}m,mode=0700", "tmpfs", folder)
    try:
        new_agent()
        kit.on_node(node, "mount", "-o", f"remount,size={mebibytes}m", kit.LANDING_MEMORY)
        yield
    finally:
        kit.on_node(node, "umount", "-l", folder, check=False)
        new_agent()

"""The real software that must survive a move, an entry each: what runs, and what is true before and after. test_compatibility.py moves them;
docs/compatibility.md shows them (`python3 tests/e2e/workloads.py` prints its table).

Each says of itself, as JSON {"same", "grows", "errors"}: what must be as it was at first, what must go on, and what it found wrong (it looks at
all of its own state, all the time). The programs are in tests/workloads: scripts/ (mounted at /w) and programs/ (in the image)."""

import dataclasses
import json
import pathlib
import sys

SOURCES = pathlib.Path(__file__).resolve().parents[1] / "workloads"
PROTECT = {"holdfast.dev/protect": "true"}
EMPTY_DIRS = {"data": {}, "mem": {"medium": "Memory"}}


@dataclasses.dataclass(frozen=True)
class Workload:
    name: str
    what: str  # software, and what of it is looked at
    run: dict  # container: its command
    batch: str
    last_act: bool = False  # `touch finish` after the last move has it do what it held back, and say "received"
    look: str = ""  # a command that prints the JSON; else it lies in the file `now`
    state: str = "/run"  # the folder of `now` and `finish`
    pod: dict = dataclasses.field(default_factory=dict)  # members of the pod's spec
    container: dict = dataclasses.field(default_factory=dict)  # members of each container's
    image: str = "common"
    sidecars: tuple = ()  # those of `run` that are native sidecars
    inits: dict = dataclasses.field(default_factory=dict)  # those of `run` that are init containers: further members of each

    def look_command(self):
        return self.look or f"cat {self.state}/now"


@dataclasses.dataclass(frozen=True)
class Refusal:
    name: str
    what: str
    run: dict
    says: str  # part of the reason
    pod: dict = dataclasses.field(default_factory=dict)
    image: str = "common"
    state: str = "/run"
    container: dict = dataclasses.field(default_factory=dict)
    sidecars: tuple = ()
    inits: dict = dataclasses.field(default_factory=dict)


def python(script, *arguments):
    return {"main": ["python3", f"/w/{script}.py", *arguments]}


def bash(script):
    return {"main": ["bash", f"/w/{script}.sh"]}


def program(name):
    return {"main": [f"/opt/workloads/{name}"]}


def both(script, first, second, *arguments):
    return {role: ["python3", f"/w/{script}.py", role, *arguments] for role in (first, second)}


USER = {"securityContext": {"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000}}
RESTRICTED = {"securityContext": {"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000, "runAsNonRoot": True, "supplementalGroups": [2000, 3000],
                                  "seccompProfile": {"type": "RuntimeDefault"}}}
LOCKED = {"securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}}
SECCOMP = {"securityContext": {**USER["securityContext"], "seccompProfile": {"type": "RuntimeDefault"}}}
AT_DATA = {"state": "/data", "container": {"env": [{"name": "W", "value": "/data"}]}}

WORKLOADS = [
    Workload("redis", "Redis 7: 20 000 keys, a client in MULTI, a subscriber, one in BLPOP; afterwards BGSAVE", python("redis"), "servers", last_act=True),
    Workload("memcached", "memcached 1.6: 5 000 items with flags, one connection", python("memcached"), "servers"),
    Workload("postgresql", "PostgreSQL 15: an open transaction with a cursor, a temporary table, a prepared statement; then COMMIT, VACUUM", python("postgresql"), "servers",
             last_act=True, pod=USER, **AT_DATA),
    Workload("mariadb", "MariaDB 10.11 under seccomp RuntimeDefault: an open transaction with row locks, a session variable; then COMMIT", python("mariadb"), "servers",
             last_act=True, pod=SECCOMP, **AT_DATA),
    Workload("sqlite", "SQLite 3.40: open transactions in WAL and rollback mode, an open cursor; then COMMIT", python("sqlite"), "servers", last_act=True),
    Workload("nginx", "nginx 1.22: two workers, a kept connection, a download under way; then a new configuration", python("nginx"), "servers", last_act=True),
    Workload("go", "a Go 1.26 program: goroutines, tickers, garbage collection, net/http with one kept connection", program("go-server"), "programs"),
    Workload("training", "NumPy training loop: the losses are, bit for bit, those of a run that was never interrupted", python("training"), "programs",
             look="bash /w/compare-training.sh"),
    Workload("multiprocess", "Python 3.11: a process pool, a thread pool, asyncio, queues", python("multiprocess"), "programs"),
    Workload("shell", "bash: variables, a background job, a coprocess, an unread here document, a trap", bash("shell"), "programs", last_act=True),
    Workload("tmux", "tmux with an interactive bash: variables, scrollback, terminal size", bash("tmux"), "programs", look="bash /w/look-at-tmux.sh"),
    Workload("terminal", "a pod with `tty: true`, and a pty of its own: settings, size, both sides", python("terminal"), "programs", container={"tty": True, "stdin": True}),
    Workload("threads", "32 threads that count in thread-local memory, two on a condition variable", program("threads"), "kernel"),
    Workload("signals", "pending and queued real-time signals with values, blocked masks, an alternate stack", program("signals"), "kernel", last_act=True),
    Workload("pipes", "pipes and FIFOs with unread bytes, their sizes and flags", python("pipes"), "files", last_act=True),
    Workload("unix-sockets", "unix sockets: streams by path and abstract name, datagrams, unread packets, descriptors sent", python("unixsockets"), "files", last_act=True),
    Workload("inet-sockets", "TCP and UDP on loopback, IPv4 and IPv6: unread bytes, full, half-closed, options; a listener on the pod's address moves to the new one",
             python("inet"), "files", last_act=True),
    Workload("shared-memory", "POSIX shared memory, memfd with seals, anonymous shared pages, mapped files (disk, emptyDir, memory)", python("memory"), "files"),
    Workload("timers", "timerfd (three clocks), setitimer, POSIX timers by signal and thread, timed waits", program("timers"), "kernel"),
    Workload("events", "epoll over eventfd, signalfd, timerfd, a pipe and inotify", python("events"), "kernel"),
    Workload("system-v", "System V segment, semaphores, unread messages of a queue", program("sysv"), "kernel", last_act=True),
    Workload("locks", "flock, fcntl and open-file-description locks; one process that waits for a lock", python("locks"), "kernel", last_act=True),
    Workload("open-files", "files without a name, renamed, appended to, O_TMPFILE; a shared offset; a removed working folder", python("openfiles"), "files"),
    Workload("hard-links", "open files whose name was removed while another one leads to them", python("hardlinks"), "files"),
    Workload("files", "root file system, emptyDir on disk and in memory: deletions, replaced folders, owners, modes, times, xattrs, capabilities, hard links, holes",
             python("files", "make"), "files", look="python3 /w/files.py"),
    Workload("process-tree", "an orphan, a zombie, sessions, process groups, five generations", program("tree"), "kernel", last_act=True),
    Workload("restricted", "the restricted Pod Security Standard: no root, no capability, read-only root; umask, nice, limits", python("restricted"), "pods",
             pod=RESTRICTED, state="/data", container={"env": [{"name": "W", "value": "/data"}, {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"}], **LOCKED}),
    Workload("containers", "two containers that share volumes (disk, memory) and /dev/shm", both("several", "writer", "reader"), "pods"),
    Workload("shared-pids", "two containers with `shareProcessNamespace`", both("several", "writer", "reader", "pids"), "pods", pod={"shareProcessNamespace": True}),
    Workload("native-sidecar", "a native sidecar (an init container with `restartPolicy: Always`) that shares volumes with its pod",
             both("several", "writer", "reader"), "pods", sidecars=("writer",)),
    Workload("init-containers", "an init container that prepares a file (it ran once), and one that fences the pod's network (the new one is fenced, too)",
             {"prepares": ["python3", "/w/prepared.py", "prepares"], "fences": ["python3", "/w/prepared.py", "fences"], **python("prepared")}, "pods",
             inits={"prepares": {}, "fences": {"securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}}}),
    Workload("between", "two containers with a TCP connection between them on loopback", both("between", "server", "client"), "pods"),
    Workload("host-network", "a pod in the host's network", python("multiprocess"), "pods", pod={"hostNetwork": True}),
]

# Their packages are big: `make compat` and `make soak` build their image.
HEAVY = [
    Workload("jvm", "OpenJDK 17: 64 MB heap, 16 threads, a scheduled executor, JIT, garbage collection",
             {"main": ["/usr/lib/jvm/java-17-openjdk-amd64/bin/java", "-Xmx256m", "-cp", "/usr/share/java/*", "clojure.main", "/w/jvm.clj"]}, "heavy", image="heavy"),
    Workload("node", "Node.js 18: a worker thread with shared memory, a child process, HTTP with one kept connection, promises", {"main": ["node", "/w/node.js"]}, "heavy", image="heavy"),
    Workload("notebook", "a Jupyter kernel: variables, a 20 MB array, a thread, a generator, its client's ZeroMQ connections", python("notebook"), "heavy", image="heavy"),
]

REFUSALS = [
    Refusal("io-uring", "a program that holds an io_uring", python("undumpable", "io_uring"), "io_uring (seccomp RuntimeDefault"),
    Refusal("userfaultfd", "userfaultfd", python("undumpable", "userfaultfd"), "userfaultfd"),
    Refusal("secret-memory", "memfd_secret", python("undumpable", "secret_memory"), "memfd_secret"),
    Refusal("message-queue", "a POSIX message queue", python("undumpable", "message_queue"), "a POSIX message queue"),
    Refusal("user-namespace", "a process in a user namespace of its own (a sandboxed browser, rootless containers)", python("undumpable", "user_namespace"), "a user namespace of its own"),
    Refusal("debugger", "a process that is being traced", python("undumpable", "debugger"), "traced by a debugger"),
    Refusal("vsock", "a socket of another family (vsock)", python("undumpable", "vsock"), "AF_VSOCK"),
    Refusal("unix-neighbour", "a unix socket between two containers",
            {"listens": ["python3", "/w/undumpable.py", "neighbour_listens"], "connects": ["python3", "/w/undumpable.py", "neighbour"]}, "connected to a process outside its container"),
    Refusal("descriptor-sent", "a file descriptor that was sent over a unix socket and that nobody receives", python("undumpable", "descriptor_sent"), "has not received it yet"),
    Refusal("multipath-tcp", "Multipath TCP in the host's network (pods with a network of their own get plain TCP instead)", python("undumpable", "multipath_tcp"), "GODEBUG=multipathtcp=0",
            pod={"hostNetwork": True}),
]


def batch(name):
    """As many pods as a drain of one node takes well within the deadline of each."""
    return [w for w in WORKLOADS if w.batch == name]


def scripts():
    """The ConfigMap that every workload has at /w."""
    files = sorted((SOURCES / "scripts").iterdir())
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "workloads"}, "data": {file.name: file.read_text() for file in files if file.is_file()}}


def pod_spec(workload, image):
    mounts = [{"name": "scripts", "mountPath": "/w"}, *({"name": name, "mountPath": f"/{name}"} for name in EMPTY_DIRS)]
    containers = [{"name": name, "image": image, "imagePullPolicy": "IfNotPresent", "command": command, "volumeMounts": mounts, **workload.container}
                  for name, command in workload.run.items()]
    return {
        "terminationGracePeriodSeconds": 1,
        "initContainers": [{**c, "restartPolicy": "Always"} for c in containers if c["name"] in workload.sidecars]
        + [{**c, **workload.inits[c["name"]]} for c in containers if c["name"] in workload.inits],
        "containers": [c for c in containers if c["name"] not in (*workload.sidecars, *workload.inits)],
        "volumes": [{"name": "scripts", "configMap": {"name": "workloads"}}, *({"name": name, "emptyDir": spec} for name, spec in EMPTY_DIRS.items())],
        **workload.pod,
    }


def deployment(workload, image):
    labels = {"app": workload.name}
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": workload.name, "labels": labels, "annotations": PROTECT},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod_spec(workload, image)}},
    }


def bare_pod(workload, image):
    metadata = {"name": workload.name, "labels": {"app": workload.name}, "annotations": PROTECT}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec(workload, image)}


def as_list(objects):
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


def table():
    """The rows of docs/compatibility.md."""
    yield "| workload | what is looked at before, after one move, and after the way back |"
    yield "|---|---|"
    yield from (f"| `{w.name}` | {w.what} |" for w in WORKLOADS + HEAVY)
    yield ""
    yield "| refused | the reason says |"
    yield "|---|---|"
    yield from (f"| {r.what} (`{r.name}`) | {r.says} |" for r in REFUSALS)


if __name__ == "__main__":
    sys.stdout.write("\n".join(table()) + "\n")

"""The table of ten AMD SDK samples of Stoyanov et al. (container checkpoint/restore in Kubernetes for AMD GPUs, CANOPIE-HPC 2023), with small programs of the same kinds
on the CPU (hpc.c): two checkpoints of each as it runs, with CRIU's own times. Published are times of GPUs' samples: memory that a GPU had is in the image there."""

import struct
import threading
import time

import kit
import report

GIB = 1 << 30
NODE, OTHER = "node2", "node1"
LATER = 5  # seconds of work between the checkpoints, and before the first
# kernel: (GiB of its image, seconds frozen, seconds of writing memory, GiB/s of that) as published. Of the small ones we know only what they all were between.
SMALL = (0.35, None, None, None)
KERNELS = {
    "bitonic": (28.4, 24.9, 23.9, 1.18), "matmul": (28.7, 25.3, 24.1, 1.18), "convolution": (16.3, 6.8, 2.55, None), "histogram": (14.7, 8.3, 7.69, 1.89),
    "floyd-warshall": (5.4, 1.8, 1.52, None), "dct": (1.3, 0.51, 0.30, None), "gaussian": SMALL, "walsh": SMALL, "haar": SMALL, "binomial": SMALL,
}
METHOD = (
    "local cluster of three nodes on one machine; each program works on its memory by itself on one core, two checkpoints as it runs on (after {later} s of work each), through the "
    "kubelet; frozen: from pause to thaw; memdump, memwrite: CRIU's own (stats-dump); median, least and most of the two. Landing memory {landing}. Sizes are the published ones, "
    "{cap} GiB at most, which is what fits here; the four small ones were between 0.32 and 0.39 GiB each, frozen for 0.33 to 0.38 s. Published: Stoyanov et al., CANOPIE-HPC 2023, "
    "samples of the AMD SDK on AMD GPUs, sizes are of their images; what stands beside no row is not known to us"
)
POD = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: bench-hpc, annotations: {holdfast.dev/protect: "true"}}
spec:
  selector: {matchLabels: {app: bench-hpc}}
  template:
    metadata: {labels: {app: bench-hpc}}
    spec:
      automountServiceAccountToken: false
      containers: [{name: kernel, image: "%(image)s", imagePullPolicy: IfNotPresent, command: [/hpc], args: ["%(kernel)s", "%(mebibytes)d"]}]
"""
CHECKPOINT = """
apiVersion: holdfast.dev/v1alpha1
kind: Checkpoint
metadata: {name: hpc-%(number)d}
spec: {podRef: {name: %(pod)s}}
"""


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if not data[at - 1] & 128:
            return value, at


def fields(data):
    """{number: value} of a protobuf message of varints and of what has a length."""
    found, at = {}, 0
    while at < len(data):
        key, at = varint(data, at)
        value, at = varint(data, at)
        if key & 7 == 2:
            value, at = data[at:at + value], at + value
        found[key >> 3] = value
    return found


def dump_stats(data):
    """{"memdump", "memwrite"} in seconds, of CRIU's stats-dump: two magic numbers, a length, and a StatsEntry."""
    length, = struct.unpack_from("<I", data, 8)
    if len(data) < 12 + length:
        raise ValueError("not whole yet")
    dump = fields(fields(data[12:12 + length])[1])
    return {"memdump": dump[3] / 1e6, "memwrite": dump[4] / 1e6}


class Stats(threading.Thread):
    """Takes stats-dump out of the landing folder, which is gone when the checkpoint is stored, and notes where that was."""

    def __init__(self, uid):
        super().__init__(daemon=True)
        self._places = {"memory": f"{kit.LANDING_MEMORY}/landing/{uid}", "disk": f"/var/lib/holdfast/landing/{uid}"}
        self._over = threading.Event()
        self.found = {}

    def run(self):
        while not self.found and not self._over.wait(0.01):
            for place, folder in self._places.items():
                try:
                    self.found = {**dump_stats(kit.node_path(NODE, f"{folder}/kernel/stats-dump").read_bytes()), "landing": place}
                except (OSError, ValueError, KeyError, IndexError, struct.error):
                    continue

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self.join()


def seconds(text):
    """Of status.timings: 810ms or 1.20s."""
    return float(text[:-2]) / 1000 if text.endswith("ms") else float(text[:-1])


def checkpoint(pod, number):
    kit.apply(CHECKPOINT % {"number": number, "pod": pod})
    name = f"hpc-{number}"
    with Stats(kit.get("checkpoints.holdfast.dev", name)["metadata"]["uid"]) as stats:
        made = kit.ended(name, limit=300)["status"]
    if made["phase"] != "Ready" or not stats.found:
        raise kit.Failure(f"{name}: {made}; CRIU's own times: {stats.found}")
    return {**stats.found, "frozen": seconds(made["timings"]["frozen"]), "size": made["size"]["memory"] / GIB}


def run(image, kernel, mebibytes):
    """What two checkpoints took."""
    try:
        kit.kubectl("cordon", OTHER)
        kit.apply(POD % {"image": image, "kernel": kernel, "mebibytes": mebibytes})
        pod = kit.ready_pod("app=bench-hpc")["metadata"]["name"]
        kit.wait(f"{kernel} has its memory", lambda: "ready" in kit.kubectl("logs", pod).splitlines(), 180)
        found = []
        for number in (1, 2):
            time.sleep(LATER)
            found.append(checkpoint(pod, number))
        return found
    finally:
        kit.uncordon_all()
        kit.kubectl("delete", "deployments,checkpoints.holdfast.dev", "--all", "-n", "default", "--wait=true", "--timeout=120s", timeout=150)
        kit.wait("its pods are gone", lambda: not kit.pods("app=bench-hpc"), 60)


def rows(kernel, found):
    """A kernel's part of the table."""
    published, frozen, memwrite, rate = KERNELS[kernel]
    size = found[0]["size"]
    what = f"{kernel}, {size:.2f} GiB{'' if frozen is None else f' (published: {published} GiB)'}, landing in {'/'.join(sorted({one['landing'] for one in found}))}"

    def row(measure, unit, value, theirs):
        return report.row(f"{what}: {measure}", unit, [value(one) for one in found], peers={} if theirs is None else {"published": [theirs]})

    return [row("frozen", "s", lambda one: one["frozen"], frozen), row("memdump", "s", lambda one: one["memdump"], None),
            row("memwrite", "s", lambda one: one["memwrite"], memwrite),
            row("memory written a second", "GiB/s", lambda one: one["size"] / one["memwrite"], rate)]

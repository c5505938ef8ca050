"""Holdfast's releases on the local cluster: which one is installed, and rolling out another one, whole or in parts."""

import contextlib
import dataclasses
import json
import os

import kit
import local_cluster

WORKLOADS = {"controller": "deployment/holdfast-controller", "store": "statefulset/holdfast-store", "agent": "daemonset/holdfast-agent"}


@dataclasses.dataclass(frozen=True)
class Release:
    tag: str  # of the image
    chart: os.PathLike = kit.ROOT / "charts" / "holdfast"


def installed():
    """The tag of the image that the chart's values name."""
    values = json.loads(kit.run(kit.CLUSTER / "helm", "get", "values", "holdfast", "-n", kit.SYSTEM, "-o", "json"))
    return values["image"]["tag"]


def load(archive):
    """Loads an image archive of make-image.sh into the nodes, where it is not there yet; its tag."""
    tag = archive.removesuffix(".tar").rpartition("-")[2]
    loaded = local_cluster.RUN / "other-images"
    if not loaded.exists() or tag not in loaded.read_text().split():
        kit.run(kit.CLUSTER / "load-image.sh", archive, timeout=120)
        with loaded.open("a") as file:
            print(tag, file=file)
    return tag


def stamped(stamp):
    """The tag of another build of the installed sources, loaded into the nodes. Clusters side by side share its archive."""
    build = kit.ROOT / "build" / "faults"
    archive = kit.run("flock", build / "image.lock", kit.ROOT / "scripts" / "make-image.sh", build, env={"HF_IMAGE_STAMP": stamp})
    return load(archive.strip())


def cluster_values(chart):
    """The local cluster's values, for a chart that knows all of them; for an older one, that it shall forget those it does not know."""
    known = f"\n{(chart / 'values.yaml').read_text()}"
    wanted = [line.partition(":")[0] for line in (kit.CLUSTER / "values.yaml").read_text().splitlines() if line[:1].isalpha()]
    unknown = [key for key in wanted if f"\n{key}:" not in known]
    return ["--set", ",".join(f"{key}=null" for key in unknown)] if unknown else ["--values", kit.CLUSTER / "values.yaml"]


def roll_out(release):
    """Begins to; await_rolled_out() ends it."""
    kit.run(kit.CLUSTER / "helm", "upgrade", "holdfast", release.chart, "-n", kit.SYSTEM, "--reset-then-reuse-values", *cluster_values(release.chart),
            "--set", f"image.tag={release.tag}", "--force-conflicts")  # set_image() took the field


@contextlib.contextmanager
def switched(value, on, off):
    """A value of the installed chart as `on`, and as `off` afterwards."""
    def switch(to):
        kit.run(kit.CLUSTER / "helm", "upgrade", "holdfast", kit.ROOT / "charts" / "holdfast", "-n", kit.SYSTEM, "--reuse-values", "--set-json", f"{value}={json.dumps(to)}")
        await_rolled_out()

    switch(on)
    try:
        yield
    finally:
        switch(off)


def set_image(part, release):
    """One part of Holdfast at another release than its chart's."""
    kind, name = WORKLOADS[part].split("/")
    image = kit.get(kind, name, kit.SYSTEM)["spec"]["template"]["spec"]["containers"][0]["image"]
    kit.kubectl("set", "image", WORKLOADS[part], f"*={image.rpartition(':')[0]}:{release.tag}", "-n", kit.SYSTEM)


def await_rolled_out():
    for workload in WORKLOADS.values():
        kit.kubectl("rollout", "status", workload, "-n", kit.SYSTEM, "--timeout=120s", timeout=150)
    kit.wait("both workers carry holdfast.dev/runtime=ready", lambda: len(kit.get("nodes", selector="holdfast.dev/runtime=ready")) >= len(kit.WORKERS))


def install_again():
    """By its chart, after an uninstall."""
    (local_cluster.RUN / "installed").unlink(missing_ok=True)
    kit.run(kit.ROOT / "scripts" / "install-local.sh", timeout=300, env={"HF_FAULT_POINTS": "1"})

"""Runs inside a node, from standard input: prints as JSON what of pods and of Holdfast there is on it. leaks.py and judge.py read it."""

import glob
import json
import os
import re
import subprocess
import sys

TASKS = "/run/containerd/io.containerd.runtime.v2.task/k8s.io"
POD = re.compile(r"/pod([0-9a-f-]{36})(?:/([0-9a-f]{64}))?")
FOLDERS = {
    "/var/lib/holdfast/landing": "checkpoint", "/var/lib/holdfast/journal": "checkpoint", "/var/lib/holdfast/restore": "pod",
    "/var/lib/holdfast/cache": "checkpoint",
    "/run/holdfast/memory/landing": "checkpoint", "/run/holdfast/memory/restore": "pod",
    "/run/holdfast/containers": "container", "/var/lib/holdfast/pods": "checkpoint", "/run/holdfast/restored": "container",
    "/run/holdfast/signalled": "container", "/run/holdfast/beside": "container",
    "/var/lib/kubelet/checkpoints": "checkpoint", "/run/holdfast/wait": "pod", "/run/holdfast/locks": "pod", "/run/holdfast/dumps": "checkpoint",
    "/var/lib/holdfast-store/sessions": "checkpoint", "/var/lib/holdfast-store/manifests": "checkpoint",
}


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def names(path):
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


def processes():
    found = []
    for pid in filter(str.isdigit, names("/proc")):
        status = read(f"/proc/{pid}/stat")
        if not status:
            continue
        state = status[status.rindex(")") + 2]
        name = status[status.index("(") + 1:status.rindex(")")]
        if state in "ZX" and not name.startswith("holdfast"):  # others' parents may be slow; ours must not be
            continue
        cgroup = POD.search(read(f"/proc/{pid}/cgroup"))
        found.append({
            "pid": int(pid), "name": name, "state": state,
            "parent": int(status[status.rindex(")") + 2:].split()[1]),
            "args": read(f"/proc/{pid}/cmdline").replace("\0", " ").strip()[:200],
            "pod": cgroup.group(1) if cgroup else "", "container": (cgroup.group(2) or "") if cgroup else "",
        })
    return found


def tasks():
    """container id: (pod uid, network namespace) of what containerd has."""
    found = {}
    for name in names(TASKS):
        try:
            spec = json.loads(read(f"{TASKS}/{name}/config.json"))
        except ValueError:
            continue
        notes = spec.get("annotations", {})
        spaces = [n.get("path", "") for n in spec.get("linux", {}).get("namespaces", []) if n.get("type") == "network"]
        found[name] = {"pod": notes.get("io.kubernetes.cri.sandbox-uid", ""), "name": notes.get("io.kubernetes.cri.container-name", ""),
                       "netns": os.path.basename(spaces[0]) if spaces else ""}
    return found


def main():
    node = sys.argv[1]
    cgroups, frozen = set(), []
    roots = glob.glob(f"/sys/fs/cgroup/*/{node}/kubepods") + glob.glob(f"/sys/fs/cgroup/{node}/kubepods")
    for top, _, files in (step for root in roots for step in os.walk(root)):
        pod = POD.search(top)
        if not pod:
            continue
        cgroups.add(pod.group(1))
        if "freezer.state" in files and read(top + "/freezer.state").strip() != "THAWED":
            frozen.append(top)
        if "cgroup.freeze" in files and read(top + "/cgroup.freeze").strip() == "1":
            frozen.append(top)
    addresses = []
    for space in names("/run/netns"):
        shown = subprocess.run(["nsenter", f"--net=/run/netns/{space}", "ip", "-j", "addr", "show", "dev", "lo"], capture_output=True, text=True)
        for link in json.loads(shown.stdout or "[]"):
            addresses += [f"{a['local']} in {space}" for a in link["addr_info"] if a["local"] not in ("127.0.0.1", "::1")]
    json.dump({
        "processes": processes(), "tasks": tasks(), "cgroups": sorted(cgroups), "frozen": frozen, "addresses": addresses,
        "runc": names("/run/containerd/runc/k8s.io"),
        "mounts": [line.split()[4] for line in read("/proc/self/mountinfo").splitlines()],
        "netns": [n for n in names("/run/netns") if n.startswith("cni-")],
        "files": [{"path": f"{folder}/{name}", "of": of, "id": name.split(".")[0]} for folder, of in FOLDERS.items() for name in names(folder)],
    }, sys.stdout)


main()

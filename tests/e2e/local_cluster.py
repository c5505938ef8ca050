"""Where this test's local cluster is: the names of tests/cluster/env.sh. Several run side by side, each in a slot."""

import os
import pathlib

# ctest says which of them is this test's (RESOURCE_GROUPS in CMakeLists.txt); by hand HF_SLOT does, else it is the first.
if granted := os.environ.get("CTEST_RESOURCE_GROUP_0_CLUSTERS"):
    os.environ["HF_SLOT"] = granted.split(",")[0].removeprefix("id:")
SLOT = os.environ.get("HF_SLOT", "0")
_cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
RUN = pathlib.Path(os.environ.get("HF_STATE") or _cache / "holdfast-cluster") / "run" / os.environ.get("HF_CLUSTER", f"cluster{SLOT}")
API_SERVER = os.environ.get("HF_NET", f"10.97.{SLOT}") + ".1"
BRIDGE = os.environ.get("HF_BRIDGE", f"hfbr{SLOT}")  # also the prefix of the nodes' namespaces and cgroups


def node_pid(node):
    """The node's first process, as this machine sees it; OSError when the node does not run."""
    pid = int((RUN / f"{node}.pid").read_text())
    if os.readlink(f"/proc/{pid}/ns/pid") == os.readlink("/proc/self/ns/pid"):
        raise ProcessLookupError(f"{node} does not run in {RUN.name}: its pid {pid} is another process's by now")
    return pid

"""What `holdfast-agent doctor` says of a node is what the node's label rests on, and names what to do."""

import json
import subprocess

import kit

NODE = "node1"
CRIU = "/opt/holdfast/criu/criu.bin"


def doctor(*args):
    """Exit status and stdout of the command that the documentation names, on one node."""
    pod = next(p for p in kit.component_pods("agent") if p["spec"]["nodeName"] == NODE)["metadata"]["name"]
    done = subprocess.run([str(kit.CLUSTER / "kubectl"), "-n", kit.SYSTEM, "exec", pod, "--", "holdfast-agent", "doctor", *args],
                          capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout


def ready():
    return kit.get("node", NODE)["metadata"]["labels"].get("holdfast.dev/runtime") == "ready"


def doctor_of_a_broken_node():
    """An empty file is where CRIU's program was, until the agent, which looks each minute, puts it back: None when it just has."""
    kit.on_node(NODE, "touch", "/run/empty")
    kit.on_node(NODE, "chmod", "755", "/run/empty")
    kit.on_node(NODE, "mount", "--bind", "/run/empty", CRIU)
    try:
        status, text = doctor()
    finally:
        kit.on_node(NODE, "umount", CRIU, check=False)  # with the file that it is mounted on, it goes
        kit.on_node(NODE, "rm", "/run/empty")
    return (status, text) if status != 0 else None


def test_a_healthy_node_is_green_and_a_broken_one_shows_the_red_line_with_its_fix(clean_slate):
    kit.wait("the node is ready", ready, 90)
    status, text = doctor()
    assert status == 0 and text.startswith(f"{NODE}: can be used\n"), text
    assert all(line.startswith("  ok ") for line in text.splitlines()[1:]), text
    report = json.loads(doctor("--output", "json")[1])
    assert report["usable"] and report["node"] == NODE, report
    assert {"programs", "runc", "criu", "criu-check", "freezer", "clocks", "processor", "space", "kernel-sockets", "kernel-nftables", "containerd",
            "config", "containerd-restart", "criu-path", "landing", "label"} == {check["name"] for check in report["checks"]}
    assert kit.get("node", NODE)["metadata"]["labels"]["holdfast.dev/cpu"].startswith("x86-64-v")

    status, text = kit.wait("the doctor to find it", doctor_of_a_broken_node)
    lines = text.splitlines()
    red = next(i for i, line in enumerate(lines) if line.startswith("  FAIL  criu "))
    assert "cannot be used, 1 failure" in lines[0], text
    assert "CRIU does not run on this node" in lines[red] and "fix: " in lines[red + 1] and "/opt/holdfast" in lines[red + 1], text

    # Should the agent have looked in between, it looks again within a minute.
    kit.wait("the node is ready again", lambda: ready() and doctor()[0] == 0, 90)

"""holdfast-agent --mode restore-node on a real root file system, whose node is one process in a mount namespace of its own. No containerd runs there.
Run by ctest: restore_node_test.py NODEROOT HOLDFAST_AGENT"""
import os, shutil, signal, subprocess, sys, tempfile, time, unittest

NODEROOT, AGENT = sys.argv[1:3]
BEFORE = 'version = 3\nimports = ["/etc/their.toml"]\n'
NODE = """set -e
mount -t tmpfs tmpfs {work}
mkdir {work}/upper {work}/work {work}/root
mount -t overlay overlay -o lowerdir={noderoot},upperdir={work}/upper,workdir={work}/work {work}/root
cd {work}/root
mkdir -p oldroot
for m in proc sys dev; do mount --rbind /$m $m; done
mount -t tmpfs tmpfs run; mount -t tmpfs tmpfs tmp
pivot_root . oldroot; umount -l /oldroot; cd /
mkdir -p /etc/containerd/conf.d /opt/holdfast/bin /opt/theirs /run/holdfast/memory /var/lib/holdfast/journal
printf '%s' "$CHANGED" > /etc/containerd/config.toml
printf '%s' "$BEFORE" > /etc/containerd/config.toml.before-holdfast
echo '# Written by holdfast-agent. ' > /etc/containerd/conf.d/holdfast.toml
echo theirs > /etc/containerd/conf.d/theirs.toml
echo program > /opt/holdfast/bin/holdfast-runc
echo theirs > /opt/theirs/file; ln -s /opt/theirs /opt/holdfast/link
ln -sf /opt/holdfast/criu/criu /usr/local/bin/criu
mount -t tmpfs tmpfs /run/holdfast/memory; echo dump > /run/holdfast/memory/file
echo '{{}}' > /var/lib/holdfast/journal/ck-uid.json
echo up
exec sleep 600
"""


class RestoreNodeTest(unittest.TestCase):
    def setUp(self):
        work = tempfile.mkdtemp(prefix="holdfast-restore-node.")
        self.addCleanup(shutil.rmtree, work)
        env = {**os.environ, "BEFORE": BEFORE, "CHANGED": BEFORE.replace("[", '["/etc/containerd/conf.d/holdfast*.toml", ')}
        script = NODE.format(work=work, noderoot=NODEROOT)
        node = subprocess.Popen(["unshare", "-m", "--propagation", "private", "bash", "-c", script], stdout=subprocess.PIPE, env=env, text=True)
        self.addCleanup(node.wait)
        self.addCleanup(node.kill)
        self.assertEqual(node.stdout.readline(), "up\n")
        node.stdout.close()
        self.node, self.root = node.pid, f"/proc/{node.pid}/root"

    def read(self, path):
        with open(self.root + path) as f:
            return f.read()

    def test_a_node_is_given_back_once_nobody_needs_the_runtime(self):
        agent = subprocess.Popen([AGENT, "--mode=restore-node", f"--host-pid={self.node}"], stderr=subprocess.PIPE, text=True)
        self.addCleanup(agent.wait)
        self.addCleanup(agent.stderr.close)
        self.addCleanup(agent.kill)
        said = agent.stderr.readline()
        self.assertIn("a checkpoint that is not finished", said)
        for path in ("/opt/holdfast/bin/holdfast-runc", "/etc/containerd/conf.d/holdfast.toml", "/run/holdfast/memory/file"):
            self.assertTrue(os.path.exists(self.root + path), path)
        os.unlink(self.root + "/var/lib/holdfast/journal/ck-uid.json")
        until = time.monotonic() + 60
        while "nothing of Holdfast is left" not in said:
            self.assertLess(time.monotonic(), until, said)
            said = agent.stderr.readline()
        self.assertEqual(self.read("/etc/containerd/config.toml"), BEFORE)
        self.assertEqual(os.listdir(self.root + "/etc/containerd/conf.d"), ["theirs.toml"])
        self.assertEqual(self.read("/opt/theirs/file"), "theirs\n", "a link was followed")
        for path in ("/opt/holdfast", "/run/holdfast", "/var/lib/holdfast", "/usr/local/bin/criu", "/etc/containerd/config.toml.before-holdfast"):
            self.assertFalse(os.path.lexists(self.root + path), path)
        with open(f"/proc/{self.node}/mounts") as mounts:
            self.assertNotIn("/run/holdfast", mounts.read())
        agent.send_signal(signal.SIGTERM)
        self.assertEqual(agent.wait(20), 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)

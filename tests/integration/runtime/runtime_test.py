"""holdfast-runc with the real runc and CRIU, without Kubernetes: what containerd would call, by hand. Run by node.sh."""
import json, os, shutil, signal, socket, subprocess, sys, threading, time, unittest

WRAPPER = "/opt/holdfast/bin/holdfast-runc"
ROOT, TASKS, RUN = "/run/runc-test", "/run/tasks", "/run/holdfast"
CGROUP = f"/holdfast-runtime-test-{os.getpid()}"
WITNESS, OLD, NEW = "10.99.1.1", "10.99.1.2", "10.99.1.3"
MIB = int(os.environ.get("COUNTER_MIB", "64"))


def sh(*cmd, **kw):
    return subprocess.run(cmd, check=True, capture_output=True, text=True, **kw).stdout


def read(path):
    with open(path) as f:
        return f.read()


def write(path, text):
    with open(path, "w") as f:
        f.write(text)


class Witness(threading.Thread):
    """Notes every count that arrives, and how connections ended."""
    def __init__(self):
        super().__init__(daemon=True)
        self.seen = []
        self.server = socket.create_server((WITNESS, 9000))
        self.start()

    def run(self):
        while True:
            conn, _ = self.server.accept()
            threading.Thread(target=self.read, args=(conn,), daemon=True).start()

    def read(self, conn):
        try:
            with conn, conn.makefile() as lines:
                for line in lines:
                    self.seen.append(tuple(map(int, line.split())))
        except OSError:
            pass


class Agent(threading.Thread):
    """The agent's side of the socket: answers with what the test put in, keeps what it was asked."""
    def __init__(self):
        super().__init__(daemon=True)
        self.asked, self.answers = [], {}
        os.makedirs(RUN, mode=0o700, exist_ok=True)
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(RUN + "/agent.sock")
        self.server.listen()
        self.start()

    def run(self):
        while True:
            conn, _ = self.server.accept()
            with conn:
                question = json.loads(conn.makefile().readline())
                self.asked.append(question)
                conn.sendall((json.dumps(self.answers[question["op"]]) + "\n").encode())


class Sandbox:
    """What the pause container holds: the pod's network, IPC and UTS namespaces, an address, /dev/shm."""
    def __init__(self, name, ip):
        self.name, self.ip, self.uid = name, ip, "uid-" + name
        self.holder = subprocess.Popen(["unshare", "-n", "-i", "-u", "sh", "-c", f"hostname {name}; ip link set lo up; echo ready; exec sleep 1000"], stdout=subprocess.PIPE, text=True)
        self.holder.stdout.readline()
        self.ns = f"/proc/{self.holder.pid}/ns/"
        sh("ip", "link", "add", "v-" + name, "type", "veth", "peer", "name", "eth0", "netns", str(self.holder.pid))
        sh("ip", "link", "set", "v-" + name, "master", "br0", "up")
        enter = ["nsenter", "--net=" + self.ns + "net", "ip"]
        sh(*enter, "addr", "add", ip + "/24", "dev", "eth0")
        sh(*enter, "link", "set", "eth0", "up")
        self.shm = f"/run/sandboxes/sb-{name}/shm"
        os.makedirs(self.shm)
        sh("mount", "-t", "tmpfs", "tmpfs", self.shm)

    def end(self):
        self.holder.kill()
        self.holder.wait()
        subprocess.run(["umount", "-l", self.shm], stderr=subprocess.DEVNULL)  # ended already


class Container:
    def __init__(self, sandbox, id, annotations=None, name="main", port=7000, args=None, memory=0):
        self.sandbox, self.id, self.bundle = sandbox, id, f"{TASKS}/{id}"
        self.log = self.bundle + "/log.json"
        self.rootfs = self.bundle + "/rootfs"
        self.volume = f"/data/pods/{sandbox.uid}/volumes/kubernetes.io~empty-dir/data"
        base = f"/data/snapshots/{id}"
        for d in (self.rootfs, self.volume, base + "/fs", base + "/work"):
            os.makedirs(d, exist_ok=True)
        sh("mount", "-t", "overlay", "overlay", "-o", f"lowerdir=/data/image,upperdir={base}/fs,workdir={base}/work", self.rootfs)
        notes = {"io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.sandbox-uid": sandbox.uid, "io.kubernetes.cri.sandbox-id": "sb-" + sandbox.name,
                 "io.kubernetes.cri.sandbox-name": sandbox.name, "io.kubernetes.cri.sandbox-namespace": "default", "io.kubernetes.cri.container-name": name}
        notes.update(annotations or {})
        caps = ["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_KILL", "CAP_NET_BIND_SERVICE", "CAP_SETUID", "CAP_SETGID"]
        spec = {"ociVersion": "1.1.0", "hostname": "", "annotations": notes, "root": {"path": "rootfs"},
                "process": {"args": args or ["/counter", sandbox.ip, WITNESS, "9000", str(MIB), str(port)], "cwd": "/", "user": {"uid": 0, "gid": 0}, "env": ["PATH=/bin"],
                            "capabilities": {k: caps for k in ("bounding", "effective", "permitted")}},
                "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"},
                           {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
                           {"destination": "/dev/shm", "type": "bind", "source": sandbox.shm, "options": ["rbind", "rw"]},
                           {"destination": "/data", "type": "bind", "source": self.volume, "options": ["rbind", "rw"]}],
                "linux": {"cgroupsPath": f"{CGROUP}/{id}", "resources": {"devices": [{"allow": True, "access": "rwm"}]},
                          "namespaces": [{"type": "pid"}, {"type": "mount"}, {"type": "ipc", "path": sandbox.ns + "ipc"}, {"type": "uts", "path": sandbox.ns + "uts"},
                                         {"type": "network", "path": sandbox.ns + "net"}]}}
        del spec["hostname"]
        if memory:  # as containerd has it: a view of the container's own cgroups
            spec["mounts"] += [{"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "noexec", "nodev", "ro"]},
                               {"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup", "options": ["nosuid", "noexec", "nodev", "relatime", "ro"]}]
            spec["linux"]["resources"]["memory"] = {"limit": memory}
        with open(self.bundle + "/config.json", "w") as f:
            json.dump(spec, f)
        self.out = f"/data/{id}.log"
        # As the shim does: the container's output is a pipe, which CRIU leaves to runc to give back.
        self.pipe = os.pipe()
        threading.Thread(target=self.copy, daemon=True).start()

    def copy(self):
        with open(self.out, "ab", buffering=0) as out:
            while data := os.read(self.pipe[0], 65536):
                out.write(data)

    def command(self, *args, program=WRAPPER):
        return [program, "--root", ROOT, "--log", self.log, "--log-format", "json", *args]

    def call(self, *args, check=True, program=WRAPPER):
        start = time.monotonic()
        done = subprocess.run(self.command(*args, program=program), stdin=subprocess.DEVNULL, stdout=self.pipe[1], stderr=self.pipe[1])
        self.seconds = time.monotonic() - start
        if check and done.returncode:
            raise AssertionError(f"{args}: exit {done.returncode}: {read(self.log)} {read(self.out)[-500:]}")
        return done.returncode

    def create(self, **kw):
        return self.call("create", "--bundle", self.bundle, "--pid-file", self.bundle + "/init.pid", self.id, **kw)

    def start(self, **kw):
        return self.call("start", self.id, **kw)

    def status(self):
        done = subprocess.run(["runc", "--root", ROOT, "state", self.id], capture_output=True, text=True)
        return json.loads(done.stdout)["status"] if done.returncode == 0 else "gone"

    def wait_stopped(self, seconds=5):
        until = time.monotonic() + seconds
        while self.status() != "stopped":
            if time.monotonic() > until:
                raise AssertionError(f"{self.id} is {self.status()} {seconds} s after its kill")
            time.sleep(0.01)

    def lines(self):
        return [Line(text) for text in read(self.out).splitlines() if text and text[0].isdigit() and "sum=" in text]

    def wait_lines(self, n, seconds=20):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            lines = self.lines()
            if len(lines) >= n:
                return lines
            time.sleep(0.02)
        raise AssertionError(f"{self.id}: only {len(self.lines())} lines: {read(self.out)[-500:]}")

    def delete(self):
        self.call("delete", "--force", self.id, check=False)
        subprocess.run(["umount", "-l", self.rootfs], stderr=subprocess.DEVNULL)  # deleted already


class Line:
    def __init__(self, text):
        words = text.split()
        self.count, self.mono = int(words[0]), int(words[1])
        self.fields = dict(w.split("=") for w in words[2:])


def put(path, value):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".tmp", "w") as f:
        json.dump(value, f)
    os.rename(path + ".tmp", path)


def request(landing, container, final, **more):
    value = {"checkpoint_uid": "ck1", "pod_uid": container.sandbox.uid, "namespace": "default", "pod": container.sandbox.name, "runc_root": ROOT, "task_dir": TASKS, "final": final,
             "deadline_unix_ms": int(time.time() * 1000) + 60000, "containers": [{"name": "main", "id": container.id}], "volumes": [{"name": "data", "path": container.volume}]}
    value.update(more)
    put(landing + "/request.json", value)
    put(f"{RUN}/containers/{container.id}.json", {"checkpoint_uid": "ck1", "pod_uid": container.sandbox.uid, "container": "main", "landing": landing, "final": final, "kubelet": False, **more.get("intent", {})})


def dump(landing):
    done = subprocess.run([WRAPPER, "dump", landing], capture_output=True, text=True)
    return done, json.loads(read(landing + "/result.json"))


def number(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def message(fields):
    """A message of protobuf, as CRIU's images are made of them."""
    out = b""
    for field, value in fields.items():
        value = value.encode() if isinstance(value, str) else value
        out += number(field << 3) + number(value) if isinstance(value, int) else number(field << 3 | 2) + number(len(value)) + value
    return out


def entry(text):
    return len(text).to_bytes(4, "little") + text


def entries(image):
    at = 8
    while at < len(image):
        size = int.from_bytes(image[at:at + 4], "little")
        yield image[at + 4:at + 4 + size]
        at += 4 + size


# As containerd's own profile, in short: what may not be called, and what may with some arguments.
SECCOMP = {"defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
           "syscalls": [{"names": ["add_key", "bpf", "keyctl", "mount", "open_by_handle_at", "perf_event_open", "setns", "umount2", "unshare", "userfaultfd"],
                         "action": "SCMP_ACT_ERRNO"}, {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38}]}


class RuntimeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # The shim reaps what runc leaves behind; here we do.
        import ctypes
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
        sh("ip", "link", "add", "br0", "type", "bridge")
        sh("ip", "addr", "add", WITNESS + "/24", "dev", "br0")
        sh("ip", "link", "set", "br0", "up")
        for d in ("bin", "etc/folder", "var", "tmp", "proc", "dev", "data"):
            os.makedirs("/data/image/" + d)
        for f in ("etc/deleted", "etc/folder/old"):
            write("/data/image/" + f, "from the image")
        sh("cp", "/opt/test/counter", "/data/image/counter")
        for controller in os.listdir("/sys/fs/cgroup"):
            path = "/sys/fs/cgroup/" + controller
            if os.path.isdir(path) and os.access(path + "/cgroup.procs", os.W_OK):
                os.makedirs(path + CGROUP, exist_ok=True)
                for f in ("cpuset.cpus", "cpuset.mems"):
                    if os.path.exists(f"{path}/{f}"):
                        write(f"{path}{CGROUP}/{f}", read(f"{path}/{f}"))
        cls.agent, cls.witness = Agent(), Witness()
        RuntimeTest.serial = 0

    @classmethod
    def tearDownClass(cls):
        for controller in os.listdir("/sys/fs/cgroup"):
            for top, dirs, _ in os.walk("/sys/fs/cgroup/" + controller + CGROUP, topdown=False):
                try:
                    os.rmdir(top)
                except OSError:
                    pass

    def setUp(self):
        RuntimeTest.serial += 1
        self.n, self.agent.asked, self.agent.answers = RuntimeTest.serial, [], {}

    def pod(self, name, ip, annotations=None, container="main", **more):
        sandbox = Sandbox(f"{name}{self.n}", ip)
        self.addCleanup(sandbox.end)
        c = Container(sandbox, f"{name}{self.n}-c", annotations, container, **more)
        self.addCleanup(c.delete)
        return c

    def landing(self):
        path = f"/data/landing{self.n}"
        os.makedirs(path)
        return path

    def run_old(self, **more):
        old = self.pod("old", OLD, **more)
        write(old.volume + "/kept", "volume")
        old.create()
        old.start()
        old.wait_lines(10)
        return old

    def final_dump(self, old):
        landing = self.landing()
        request(landing, old, final=True)
        done, result = dump(landing)
        self.assertEqual(done.returncode, 0, (done.stderr, result))
        return landing, result

    def restored_pod(self, landing, **more):
        new = self.pod("new", NEW, {"holdfast.dev/restore": "ck1"}, **more)
        self.agent.answers = {"create": {"action": "restore", "dir": landing, "container": "main", "first": True, "volumes": [{"name": "data", "path": new.volume}]},
                              "restored": {"action": "cold"}}
        return new

    def test_a_final_dump_moves_the_process_to_a_new_pod(self):
        old = self.run_old()
        landing, result = self.final_dump(old)
        self.assertEqual(result["pod_ips"], [OLD])
        self.assertEqual(result["hostname"], old.sandbox.name)
        dumped_at = time.monotonic()
        frozen = old.lines()
        self.assertEqual(old.status(), "paused")
        old.call("pause", old.id)
        old.call("resume", old.id)
        self.assertEqual(old.status(), "paused", "containerd's resume must not wake it")
        self.assertNotEqual(old.call("exec", old.id, "/counter", check=False), 0)
        self.assertIn("being checkpointed", read(old.log))
        old.call("kill", old.id, "15")
        kill_seconds = old.seconds
        old.wait_stopped()
        self.assertEqual(len(old.lines()), len(frozen), "it ran on after the dump")
        old.call("delete", old.id)
        self.assertFalse(os.path.exists(f"{RUN}/containers/{old.id}.json"))
        old.sandbox.end()

        new = self.restored_pod(landing)
        time.sleep(max(0, dumped_at + 2 - time.monotonic()))  # away long enough to show in the clock, if it counted
        away_ms = (time.monotonic() - dumped_at) * 1000
        new.create()
        create_seconds = new.seconds
        self.assertTrue(self.agent.asked[1]["ok"], (self.agent.asked[1], read(landing + "/main/restore/restore.log")[-6000:]))
        new.start()
        restored = new.wait_lines(30)
        self.assertEqual(restored[0].count, frozen[-1].count + 1, "a count was lost or repeated")
        jump = restored[0].mono - frozen[-1].mono
        real = int(restored[0].fields["real"]) - int(frozen[-1].fields["real"])
        self.assertTrue(0 <= jump <= real - away_ms + 50, f"the monotonic clock went on by {jump} ms; of {real} ms it was away for {away_ms:.0f}")
        self.assertEqual(restored[0].fields["nonce"], frozen[-1].fields["nonce"])
        self.assertEqual(restored[0].fields["sum"], frozen[-1].fields["sum"])
        self.assertEqual(restored[-1].fields["udp"], NEW, "the UDP socket is bound to the old address")
        self.assertEqual(restored[-1].fields["resets"], "1")
        reset_after = next(line for line in restored if line.fields["resets"] == "1")
        self.assertLess(reset_after.mono - restored[0].mono, 1000, "the outside connection was not reset within a second")
        counts = [c for nonce, c in self.witness.seen if nonce == int(restored[0].fields["nonce"])]
        self.assertGreater(max(counts), restored[0].count, "the witness hears nothing after the restore")
        # Files.
        self.assertFalse(os.path.exists(new.rootfs + "/etc/deleted"), "a deleted file of the image is back")
        self.assertEqual(sorted(os.listdir(new.rootfs + "/etc/folder")), ["new"])
        self.assertEqual(os.stat(new.rootfs + "/etc/folder").st_mode & 0o777, 0o750)
        self.assertEqual(os.stat(new.rootfs + "/etc/folder/new").st_ino, os.stat(new.rootfs + "/etc/link").st_ino)
        numbers = list(map(int, read(new.rootfs + "/var/count").split()))
        self.assertEqual(numbers, list(range(1, numbers[-1] + 1)))
        before = int(read(new.rootfs + "/var/other"))
        new.wait_lines(len(new.lines()) + 3)
        self.assertGreater(int(read(new.rootfs + "/var/other")), before, "the open file is another one than its second name leads to")
        self.assertEqual(sorted(os.listdir(new.rootfs + "/var")), ["count", "other"])
        self.assertEqual(read(new.volume + "/kept"), "volume")
        # Nothing of the old pod is left.
        addresses = sh("nsenter", "--net=" + new.sandbox.ns + "net", "ip", "-4", "addr", "show", "dev", "lo")
        self.assertNotIn(OLD, addresses)
        self.assertEqual(sh("nsenter", "--uts=" + new.sandbox.ns + "uts", "hostname").strip(), new.sandbox.name)
        self.assertEqual([q["op"] for q in self.agent.asked], ["create", "restored"])
        print(f"\n{MIB} MiB: frozen to dumped {result['frozen_ms']} ms, CRIU {result['dump_ms']} ms; kill {kill_seconds * 1000:.0f} ms; "
              f"gap without the time away {real - away_ms:.0f} ms, monotonic clock {jump} ms; create with restore {create_seconds * 1000:.0f} ms; memory {result['memory_bytes']}, files {result['files_bytes']}", file=sys.stderr)

    def test_clocks_go_on_between_nodes_of_different_uptime(self):
        """The old node is made older, or younger, than the new one by offsets of its container's time namespace."""
        uptime = int(time.clock_gettime(time.CLOCK_BOOTTIME))
        for older in (1_000_000, 30 - uptime):
            with self.subTest(older=older):
                RuntimeTest.serial += 1
                self.n = RuntimeTest.serial
                old = self.pod("old", OLD)
                spec = json.loads(read(old.bundle + "/config.json"))
                spec["linux"]["namespaces"].append({"type": "time"})
                spec["linux"]["timeOffsets"] = {clock: {"secs": older, "nanosecs": 0} for clock in ("monotonic", "boottime")}
                write(old.bundle + "/config.json", json.dumps(spec))
                old.create()
                old.start()
                old.wait_lines(10)
                landing, _ = self.final_dump(old)
                frozen = old.lines()[-1]
                now = time.monotonic() * 1000
                self.assertAlmostEqual(frozen.mono, now + older * 1000, delta=60_000, msg="the old node's uptime is not what it was to be")
                old.call("kill", old.id, "15")
                old.wait_stopped()
                old.call("delete", old.id)
                old.sandbox.end()
                new = self.restored_pod(landing)
                new.create()
                new.start()
                lines = new.wait_lines(30)
                self.assertEqual(lines[0].count, frozen.count + 1)
                away = int(lines[0].fields["real"]) - int(frozen.fields["real"])
                self.assertTrue(0 <= lines[0].mono - frozen.mono <= away + 50, f"by {older} s: {frozen.mono} ms, then {lines[0].mono}; away for {away} ms")
                monos = [line.mono for line in lines]
                self.assertEqual(monos, sorted(monos), "time runs backwards")
                took, real = monos[-1] - monos[0], int(lines[-1].fields["real"]) - int(lines[0].fields["real"])
                self.assertTrue(0 < took <= real + 1000, f"it stands still, or jumps, after the restore: {took} ms in {real}")

    def test_a_dump_that_finds_no_room_says_so_and_the_process_goes_on(self):
        old = self.run_old()
        measured = subprocess.run([WRAPPER, "measure", "--root", ROOT, "--tasks", TASKS, old.id, old.volume], check=True, capture_output=True, text=True)
        estimate, landing = json.loads(measured.stdout)["bytes"], self.landing()
        sh("mount", "-t", "tmpfs", "-o", f"size={estimate // 2}", "tmpfs", landing)
        self.addCleanup(sh, "umount", landing)
        request(landing, old, final=True)
        done, result = dump(landing)
        self.assertEqual((done.returncode, result["ok"], result["reason"], result["no_space"]), (1, False, "DumpFailed", True), result)
        os.unlink(f"{RUN}/containers/{old.id}.json")
        old.wait_lines(len(old.lines()) + 10)
        os.unlink(landing + "/result.json")
        sh("mount", "-o", f"remount,size={estimate + estimate // 8 + (32 << 20)}", landing)
        request(landing, old, final=True)
        _, result = dump(landing)
        self.assertTrue(result["ok"], result)
        written = result["memory_bytes"] + result["files_bytes"]
        self.assertTrue(0.9 * written < estimate < 1.3 * written + (8 << 20), f"estimated {estimate}, written {written}")

    def test_a_restored_container_sees_its_own_cgroups(self):
        """Hole 22: they were those in which CRIU had run, so a program that read its memory limit saw none. Twice: what is mended is dumped again."""
        limit = (MIB + 86) << 20
        old = self.run_old(memory=limit)

        def view(c):
            pid = read(c.bundle + "/init.pid").strip()
            own = dict(line.split(":", 2)[1:] for line in read(f"/proc/{pid}/cgroup").splitlines())
            seen = []
            for line in read(f"/proc/{pid}/mountinfo").splitlines():
                fields, (kind, _, options) = line.split(" - ")[0].split(), line.split(" - ")[1].split()
                if kind not in ("cgroup", "cgroup2"):
                    continue
                mine = [path for name, path in own.items() if kind == "cgroup2" and not name or name and set(name.split(",")) <= set(options.split(","))]
                self.assertEqual([fields[3]], mine, f"{c.id}: {line}")
                seen.append((fields[4], sorted(fields[5].split(","))))
            for file in ("memory/memory.limit_in_bytes", "memory.max"):
                path = f"/proc/{pid}/root/sys/fs/cgroup/{file}"
                if os.path.exists(path):
                    self.assertEqual(int(read(path)), limit)
            return sorted(seen)

        first = view(old)
        self.assertTrue(first)
        for move in range(2):
            landing = f"/data/landing{self.n}"
            os.makedirs(landing)
            request(landing, old, final=True)
            done, result = dump(landing)
            self.assertTrue(result["ok"], result)
            old.call("kill", old.id, "15")
            old.wait_stopped()
            old.call("delete", old.id)
            old.sandbox.end()
            RuntimeTest.serial += 1
            self.n = RuntimeTest.serial
            new = self.restored_pod(landing, memory=limit)
            new.create()
            self.assertTrue(self.agent.asked[-1]["ok"], self.agent.asked[-1])
            new.start()
            new.wait_lines(3)
            self.assertEqual(view(new), first)
            old = new

    def test_where_all_connections_are_to_be_closed_the_program_sees_that_they_are(self):
        old = self.run_old()
        landing, _ = self.final_dump(old)
        old.call("kill", old.id, "15")
        old.wait_stopped()
        old.call("delete", old.id)
        old.sandbox.end()
        new = self.restored_pod(landing)
        self.agent.answers["create"]["established"] = "CloseAll"
        new.create()
        self.assertTrue(self.agent.asked[1]["ok"], (self.agent.asked[1], read(landing + "/main/restore/restore.log")[-6000:]))
        new.start(check=False)  # it may have ended by then
        until = time.monotonic() + 30
        while "the loopback connection broke" not in read(new.out) and time.monotonic() < until:
            time.sleep(0.02)
        self.assertIn("fatal: the loopback connection broke", read(new.out))

    def test_two_containers_of_a_pod_move_together(self):
        old = [self.pod("old", OLD)]
        old.append(Container(old[0].sandbox, f"side{self.n}-c", name="side", port=7100))
        self.addCleanup(old[1].delete)
        for c in old:
            c.create()
            c.start()
            c.wait_lines(5)
        landing = self.landing()
        request(landing, old[0], final=True, containers=[{"name": n, "id": c.id} for n, c in zip(("main", "side"), old)])
        put(f"{RUN}/containers/{old[1].id}.json", json.loads(read(f"{RUN}/containers/{old[0].id}.json")))
        done, result = dump(landing)
        self.assertEqual(done.returncode, 0, done.stderr)
        for c in old:
            c.call("kill", c.id, "15")
        frozen = [c.lines()[-1] for c in old]
        old[0].sandbox.end()

        new = [self.restored_pod(landing)]
        new.append(Container(new[0].sandbox, f"sidenew{self.n}-c", {"holdfast.dev/restore": "ck1"}, name="side", port=7100))
        self.addCleanup(new[1].delete)
        for first, name, c, last in zip((True, False), ("main", "side"), new, frozen):
            self.agent.answers["create"].update(first=first, container=name)
            c.create()
            self.assertTrue(self.agent.asked[-1]["ok"], self.agent.asked[-1])
            c.start()
            lines = c.wait_lines(20)
            self.assertEqual(lines[0].count, last.count + 1)
            self.assertEqual(lines[-1].fields["udp"], NEW)
            self.assertEqual(os.listdir(new[0].volume), [])
        print(f"\ntwo containers: frozen to dumped {result['frozen_ms']} ms, CRIU {result['dump_ms']} ms", file=sys.stderr)

    def test_a_container_that_started_cold_keeps_its_volumes_when_the_next_one_is_restored(self):
        """Hole 17: they were emptied under it."""
        old = [self.pod("old", OLD)]
        old.append(Container(old[0].sandbox, f"side{self.n}-c", name="side", port=7100))
        self.addCleanup(old[1].delete)
        write(old[0].volume + "/kept", "volume")
        for c in old:
            c.create()
            c.start()
            c.wait_lines(5)
        landing = self.landing()
        request(landing, old[0], final=True, containers=[{"name": n, "id": c.id} for n, c in zip(("main", "side"), old)])
        done, result = dump(landing)
        self.assertEqual(done.returncode, 0, done.stderr)
        for c in old:
            c.call("kill", c.id, "15")
        old[0].sandbox.end()
        os.truncate(landing + "/main/images/core-1.img", 10)
        main = self.restored_pod(landing)
        self.agent.answers["create"]["more"] = True
        side = Container(main.sandbox, f"sidenew{self.n}-c", {"holdfast.dev/restore": "ck1"}, name="side", port=7100)
        self.addCleanup(side.delete)
        main.create()
        main.start()
        self.assertEqual(main.wait_lines(3)[0].count, 1, "it was to start cold")
        self.assertFalse(self.agent.asked[-1]["ok"])
        write(main.volume + "/written", "by the one that started cold")
        self.agent.answers["create"].update(container="side", more=False)  # first: nothing was restored yet
        side.create()
        self.assertTrue(self.agent.asked[-1]["ok"], self.agent.asked[-1])
        self.assertEqual(sorted(os.listdir(main.volume)), ["kept", "written"])

    def test_a_sidecar_that_swaps_folders_for_links_reads_and_writes_nothing_of_the_node(self):
        """Hole 1: a container that no checkpoint holds races with the dump of another, and with its restore in a new pod."""
        host, canary = f"/data/host{self.n}", "canary: of the node"
        os.makedirs(host + "/deep")
        for f in ("/file", "/deep/file"):
            write(host + f, canary)
        look = lambda: [(f, os.lstat(f).st_ctime_ns, sorted(os.listdir(f)) if os.path.isdir(f) else read(f)) for f in (host, host + "/file", host + "/deep", host + "/deep/file")]
        before = look()

        def racer(pod, id):
            side = Container(pod.sandbox, id, name="side", args=["/counter", "race", "/data", host])
            self.addCleanup(side.delete)
            side.create()
            side.start()
            side.wait_lines(1)
            return side

        old = self.run_old()
        for folder in (f"/folder{i}{below}" for i in range(8) for below in ("", "/deep")):
            os.makedirs(old.volume + folder)
            write(old.volume + folder + "/file", "of the pod")
        side = racer(old, f"side{self.n}-c")
        for final in [False, False, True]:
            landing = f"/data/landing{self.n}-{time.monotonic_ns()}"
            os.makedirs(landing)
            request(landing, old, final=final)
            done, result = dump(landing)
            self.assertTrue(result["ok"], result)
            with open(landing + "/volumes/data.tar", "rb") as f:
                self.assertNotIn(canary.encode(), f.read())
            self.assertEqual(side.status(), "running", "it is left frozen")
        side.wait_lines(len(side.lines()) + 2)
        old.call("kill", old.id, "15")
        old.sandbox.end()
        for attempt in range(2):
            new = self.restored_pod(landing)
            racer(new, f"sidenew{self.n}-{attempt}")
            new.create()
            self.assertTrue(self.agent.asked[-1]["ok"], self.agent.asked[-1])
            self.assertEqual(read(new.volume + "/kept"), "volume")
            new.start()
            new.wait_lines(3)
            new.delete()
            new.sandbox.end()
            os.unlink(landing + "/main/restored")
            shutil.rmtree(landing + "/main/restore")
            RuntimeTest.serial += 1
            self.n = RuntimeTest.serial
        self.assertEqual(look(), before)

    def test_a_dump_that_is_not_final_leaves_it_running(self):
        old = self.run_old()
        landing = self.landing()
        request(landing, old, final=False)
        done, result = dump(landing)
        self.assertEqual(done.returncode, 0, done.stderr)
        before = len(old.lines())
        lines = old.wait_lines(before + 20)
        self.assertEqual([l.count for l in lines], list(range(1, len(lines) + 1)))
        self.assertEqual(lines[-1].fields["resets"], "0", "a dump must not cut connections")
        print(f"\nnot final: frozen {result['frozen_ms']} ms, CRIU {result['dump_ms']} ms", file=sys.stderr)

    def in_cut(self, pod, landing, **more):
        """A member of a group that is dumped beside others: holdfast-runc at work, up to where it stands still with them."""
        os.makedirs(landing)
        request(landing, pod, final=False, barrier_ms=20000, **more)
        dumping = subprocess.Popen([WRAPPER, "dump", landing], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(dumping.kill)
        self.await_file(landing + "/frozen.json", dumping)
        return dumping

    def await_file(self, path, dumping, seconds=30):
        until = time.monotonic() + seconds
        while not os.path.exists(path):
            self.assertIsNone(dumping.poll(), f"the dump ended before {path}")
            self.assertLess(time.monotonic(), until, path)
            time.sleep(0.01)

    def test_a_member_that_is_dumped_stands_still_until_all_are(self):
        """Else it would speak to one whose sockets are not dumped yet."""
        fast, slow = self.run_old(), self.pod("slow", NEW)
        slow.create()
        slow.start()
        slow.wait_lines(5)
        landings = [f"/data/landing{self.n}-{name}" for name in ("fast", "slow")]
        first = self.in_cut(fast, landings[0], hold_ms=20000)
        second = self.in_cut(slow, landings[1], hold_ms=20000)
        write(landings[0] + "/go.json", "{}")
        self.await_file(landings[0] + "/dumped.json", first)
        said = len(fast.lines())
        self.assertTrue(os.path.exists(landings[0] + "/main/images/inventory.img"))
        write(landings[1] + "/go.json", "{}")
        self.await_file(landings[1] + "/dumped.json", second)
        self.assertEqual((fast.status(), slow.status()), ("paused", "paused"))
        self.assertEqual(len(fast.lines()), said, "it went on while the other was dumped")
        for landing in landings:
            write(landing + "/thaw.json", "{}")
        for pod, landing, dumping in ((fast, landings[0], first), (slow, landings[1], second)):
            self.assertEqual(dumping.wait(20), 0)
            result = json.loads(read(landing + "/result.json"))
            self.assertTrue(result["ok"], result)
            self.assertFalse({"frozen.json", "go.json", "dumped.json", "thaw.json"} & set(os.listdir(landing)))
            lines = pod.wait_lines(len(pod.lines()) + 5)
            self.assertEqual([l.count for l in lines], list(range(1, len(lines) + 1)))

    def test_a_member_whose_group_is_not_dumped_in_time_goes_on_and_its_dump_is_dropped(self):
        old = self.run_old()
        landing = f"/data/landing{self.n}-held"
        dumping = self.in_cut(old, landing, hold_ms=300)
        write(landing + "/go.json", "{}")
        self.assertNotEqual(dumping.wait(30), 0)
        result = json.loads(read(landing + "/result.json"))
        self.assertEqual((result["ok"], result["reason"]), (False, "GroupMemberFailed"), result)
        self.assertIn("are dumped", result["message"])
        self.assertFalse(os.path.exists(landing + "/main/images"))
        lines = old.wait_lines(len(old.lines()) + 5)
        self.assertEqual([l.count for l in lines], list(range(1, len(lines) + 1)))

    def test_a_kill_during_the_dump_waits_for_it(self):
        old = self.run_old()
        landing = self.landing()
        request(landing, old, final=True)
        dumping = subprocess.Popen([WRAPPER, "dump", landing])
        old.call("kill", old.id, "15")
        self.assertTrue(json.loads(read(landing + "/result.json"))["ok"])
        self.assertEqual(dumping.wait(10), 0)

    def test_a_dump_past_its_deadline_leaves_the_process_as_it_was(self):
        """CRIU is killed wherever the deadline finds it: connections, packets and counts must be as before."""
        old = self.run_old()
        nft = ["nsenter", "--net=" + old.sandbox.ns + "net", "nft"]
        cut = 0
        for ms in [100, 150, 200, 250, 300, 350, 400, 450] * 2:
            landing = f"/data/landing{self.n}-{cut}-{ms}-{time.monotonic_ns()}"
            os.makedirs(landing)
            request(landing, old, final=True, deadline_unix_ms=int(time.time() * 1000) + ms)
            done, result = dump(landing)
            self.assertNotIn("CRIU", sh(*nft, "list", "tables"))
            if result["ok"]:
                sh(WRAPPER, "thaw", "--root", ROOT, old.id)
            else:
                cut += 1
                self.assertEqual(result["reason"], "Deadline", result)
                self.assertNotEqual(done.returncode, 0)
                self.assertFalse(os.path.exists(landing + "/main/images"))
            lines = old.wait_lines(len(old.lines()) + 5, 10)
            self.assertEqual([l.count for l in lines], list(range(1, len(lines) + 1)))
            self.assertEqual(lines[-1].fields["resets"], "0")
        self.assertGreater(cut, 0)

    def test_a_stopped_process_is_refused_before_anything_freezes(self):
        old = self.run_old()
        pid = int(read(old.bundle + "/init.pid"))
        os.kill(pid, signal.SIGSTOP)
        self.addCleanup(os.kill, pid, signal.SIGCONT)
        landing = self.landing()
        request(landing, old, final=True)
        done, result = dump(landing)
        if os.path.exists("/sys/fs/cgroup/freezer"):
            self.assertFalse(result["ok"])
            self.assertEqual(result["reason"], "Unsupported")
            self.assertIn("stopped by a signal", result["message"])
            self.assertEqual(result["frozen_ms"], 0)

    def test_a_failed_restore_starts_cold_in_a_clean_root_when_the_agent_says_so(self):
        old = self.run_old()
        landing, _ = self.final_dump(old)
        old.call("kill", old.id, "15")
        os.truncate(landing + "/main/images/mm-1.img", 10)
        new = self.restored_pod(landing)
        new.create()
        new.start()
        lines = new.wait_lines(5)
        self.assertEqual(lines[0].count, 1)
        outcome = self.agent.asked[1]
        self.assertFalse(outcome["ok"])
        self.assertIn("Error (", outcome["message"])
        self.assertEqual(os.listdir(new.volume), [], "a cold start must not find old files")

    def test_a_failed_restore_is_an_error_when_the_agent_refuses(self):
        old = self.run_old()
        landing, _ = self.final_dump(old)
        old.call("kill", old.id, "15")
        os.truncate(landing + "/main/images/core-1.img", 10)
        new = self.restored_pod(landing)
        self.agent.answers["restored"] = {"action": "refuse"}
        self.assertNotEqual(new.create(check=False), 0)
        last = json.loads(read(new.log).splitlines()[-1])
        self.assertEqual(last["level"], "error")
        self.assertIn("was not restored", last["msg"])
        self.assertEqual(new.status(), "gone")
        self.assertNotIn(OLD, sh("nsenter", "--net=" + new.sandbox.ns + "net", "ip", "-4", "addr", "show", "dev", "lo"))

    def test_images_that_are_wider_than_the_new_container_are_not_restored(self):
        """Hole 9: a node forges what a checkpoint's processes may do. Here the container is narrowed instead, one right at a time."""
        old = self.run_old()
        landing, _ = self.final_dump(old)
        old.call("kill", old.id, "15")
        old.wait_stopped()
        old.call("delete", old.id)
        old.sandbox.end()
        new = self.restored_pod(landing)
        self.agent.answers["restored"] = {"action": "refuse"}
        whole = read(new.bundle + "/config.json")

        def narrowed(change):
            config = json.loads(whole)
            change(config)
            write(new.bundle + "/config.json", json.dumps(config))

        def without_setuid(config):
            for names in config["process"]["capabilities"].values():
                names.remove("CAP_SETUID")

        for change, why in ((without_setuid, "holds CAP_SETUID"), (lambda c: c["process"].update(noNewPrivileges=True), "no_new_privs"),
                            (lambda c: c["linux"].update(seccomp={"defaultAction": "SCMP_ACT_ERRNO"}), "seccomp")):
            narrowed(change)
            self.assertNotEqual(new.create(check=False), 0)
            self.assertIn(why, self.agent.asked[-1]["message"])
            self.assertFalse(self.agent.asked[-1]["ran"])
            self.assertEqual((new.status(), os.listdir(new.volume)), ("gone", []), "something of it was restored")
        write(new.bundle + "/config.json", whole)
        new.create()
        self.assertTrue(self.agent.asked[-1]["ok"], self.agent.asked[-1])
        new.start()
        new.wait_lines(3)

    def test_forged_images_are_not_restored(self):
        """Hole 9: what a stolen node writes into the images of a checkpoint, where CRIU would do it as root."""
        old = self.run_old()
        landing, _ = self.final_dump(old)
        self.assertEqual(old.call("kill", old.id, "15"), 0)
        old.wait_stopped()
        old.call("delete", old.id)
        old.sandbox.end()
        new = self.restored_pod(landing)
        self.agent.answers["restored"] = {"action": "refuse"}
        images = landing + "/main/images/"
        mounts = next(n for n in os.listdir(images) if n.startswith("mountpoints-"))
        canary = "/data/canary"
        write(canary, "whole")

        def mount(kind, path, **more):
            def forge(image):  # on the root of all
                root = next(e for e in entries(image) if message({6: "/", 7: "/"}) in e)
                end = next(i for i in range(3, len(root)) if root[i] < 128) + 1  # after its type: its id
                fields = {5: 0, 6: "/", 7: path, 8: "none", 9: "", **{int(k[1:]): v for k, v in more.items()}}
                return image + entry(message({1: kind, 2: 999999, 3: 999}) + b"\x20" + root[3:end] + message(fields))
            return forge

        def property_outside(image):  # as long as the other, so that all sizes stay
            return image.replace(b"cgroup.clone_children", b"../../../../../canary")

        def shown(image):
            return image.replace(b"/counter", b"/../etc/")

        for name, forge, why in ((mounts, mount(1, "/tmp"), "/tmp is mounted"), (mounts, mount(3, "/tmp"), "/tmp is mounted"), (mounts, mount(1, "/proc"), "/proc is mounted twice"),
                                 (mounts, mount(16, "/tmp", _14="ext4", _8="/dev/vda"), "/tmp is mounted"),
                                 (mounts, lambda image: image.replace(b"/data", b"/etcx"), "/etcx is mounted"),
                                 ("cgroup.img", property_outside, "canary"), ("cgroup.img", lambda image: image.replace(b"/old", b"/../"), "cgroup"),
                                 ("files.img", shown, "leads out of the container"),
                                 ("files.img", lambda image: image + entry(message({1: 1, 2: 9999, 3: message({1: 9999, 2: 2, 6: "/proc/1/root/data/canary"})})), "leads through a process"),
                                 ("files.img", lambda image: image + entry(message({1: 10, 2: 9999, 6: message({1: 9999})})), "CAP_NET_RAW"),
                                 ("descriptors.json", lambda _: b'["", "", "", "pipe:[1]", "pipe:[2]"]', "descriptors are inherited"),
                                 ("iptables-10.img", lambda _: b"*filter", "iptables-10.img")):
            whole = None
            if os.path.exists(images + name):
                with open(images + name, "rb") as f:
                    whole = f.read()
            forged = forge(whole)
            self.assertNotEqual(forged, whole, name)
            with open(images + name + ".new", "wb") as f:
                f.write(forged)
            os.rename(images + name + ".new", images + name)
            self.assertNotEqual(new.create(check=False), 0, name)
            self.assertIn("wider than the container", self.agent.asked[-1]["message"])
            self.assertIn(why, self.agent.asked[-1]["message"])
            self.assertFalse(self.agent.asked[-1]["ran"])
            self.assertEqual((new.status(), os.listdir(new.volume), read(canary)), ("gone", [], "whole"), "something of it was restored")
            os.unlink(images + name)
            if whole is not None:
                with open(images + name, "wb") as f:
                    f.write(whole)
        new.create()
        self.assertTrue(self.agent.asked[-1]["ok"], self.agent.asked[-1])
        new.start()
        new.wait_lines(3)

    def test_what_software_has_open_is_restored(self):
        """Nothing of it is taken for forged: a container as containerd makes it, whose program holds what programs hold."""
        def pod(name, ip, **more):
            c = self.pod(name, ip, args=["/usr/bin/python3", "/holder.py"], memory=400 << 20, **more)
            sh("umount", c.rootfs)
            sh("mount", "-t", "overlay", "overlay", "-o", f"lowerdir=/noderoot,upperdir=/data/snapshots/{c.id}/fs,workdir=/data/snapshots/{c.id}/work", c.rootfs)
            for path in ("data", "secrets"):
                os.makedirs(f"{c.rootfs}/{path}", exist_ok=True)
            shutil.copy("/opt/test/holder.py", c.rootfs + "/holder.py")
            secrets = f"{c.volume}-secrets"
            os.makedirs(secrets, exist_ok=True)
            write(secrets + "/token", "token")
            write(secrets + "/hosts", "127.0.0.1 localhost")
            config = json.loads(read(c.bundle + "/config.json"))
            process, mounts, linux = config["process"], config["mounts"], config["linux"]
            process.update(noNewPrivileges=True, oomScoreAdj=993, rlimits=[{"type": "RLIMIT_NOFILE", "hard": 4096, "soft": 1024}])
            mounts[0]["options"] = ["nosuid", "noexec", "nodev"]
            mounts[2:2] = [{"destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]},
                           {"destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue", "options": ["nosuid", "noexec", "nodev"]}]
            mounts += [{"destination": "/run/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "noexec", "nodev", "size=65536k"]},
                       {"destination": "/etc/hosts", "type": "bind", "source": secrets + "/hosts", "options": ["rbind", "rprivate", "rw"] + more_flags},
                       {"destination": "/secrets", "type": "bind", "source": secrets, "options": ["rbind", "rprivate", "ro"]},
                       {"destination": "/var/run/secrets/token", "type": "bind", "source": secrets, "options": ["rbind", "rprivate", "ro"]}]
            linux["maskedPaths"] = ["/proc/asound", "/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats",
                                    "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap"]
            linux["readonlyPaths"] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]
            linux["seccomp"] = SECCOMP
            write(c.bundle + "/config.json", json.dumps(config))
            return c

        more_flags = []
        old = pod("old", OLD)
        old.create()
        old.start()
        before = old.wait_lines(5)
        landing, _ = self.final_dump(old)
        old.call("kill", old.id, "15")
        old.wait_stopped()
        old.call("delete", old.id)
        old.sandbox.end()
        more_flags = ["nosuid", "nodev", "noexec"]  # of a newer containerd
        new = pod("new", NEW, annotations={"holdfast.dev/restore": "ck1"})
        self.agent.answers = {"create": {"action": "restore", "dir": landing, "container": "main", "first": True, "volumes": [{"name": "data", "path": new.volume}]},
                              "restored": {"action": "refuse"}}
        self.assertEqual(new.create(check=False), 0, self.agent.asked[-1])
        new.start()
        self.assertGreaterEqual(new.wait_lines(3)[0].count, before[-1].count)
        mounts = read(f"/proc/{read(new.bundle + '/init.pid')}/mountinfo")
        self.assertIn(" /etc/hosts rw,nosuid,nodev,noexec", mounts)

    def test_containers_of_a_pod_with_a_final_checkpoint_are_not_created(self):
        new = self.pod("new", NEW)
        put(f"/var/lib/holdfast/pods/{new.sandbox.uid}.json", {"checkpoint_uid": "ck1"})
        self.assertNotEqual(new.create(check=False), 0)
        self.assertIn("final checkpoint", read(new.log))

    def test_an_init_container_of_a_restored_pod_ends_at_once(self):
        new = self.pod("new", NEW, {"holdfast.dev/restore": "ck1"}, container="setup")
        self.agent.answers = {"create": {"action": "skip"}}
        new.create()
        new.start()
        until = time.monotonic() + 5
        while new.status() != "stopped" and time.monotonic() < until:
            time.sleep(0.01)
        self.assertEqual(new.status(), "stopped")
        self.assertEqual(new.lines(), [])

    def cost_over_plain_runc(self):
        """Not a test: bench/runtime runs it by name. One line of JSON on stdout: seconds of create + start + kill + delete, a program each."""
        rounds = 30
        taken = {"runc": [], "holdfast-runc": []}
        c = self.pod("cost", NEW)
        for _ in range(rounds + 1):
            for name, program in (("runc", "/usr/sbin/runc"), ("holdfast-runc", WRAPPER)):
                seconds = 0
                for verb in (c.create, c.start):
                    verb(program=program)
                    seconds += c.seconds
                c.call("kill", c.id, "KILL", program=program)
                seconds += c.seconds
                until = time.monotonic() + 5
                while c.status() != "stopped" and time.monotonic() < until:
                    time.sleep(0.005)
                c.call("delete", c.id, program=program)
                taken[name].append(seconds + c.seconds)
        print(json.dumps({name: seconds[1:] for name, seconds in taken.items()}))  # the first warms memory


if __name__ == "__main__":
    unittest.main(verbosity=2)

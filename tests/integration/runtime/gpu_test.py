"""GPUs: holdfast-runc with the real runc, the real CRIU and its real cuda plugin, and STAND-INS for what needs a GPU: cuda_checkpoint.py for
cuda-checkpoint and nvidia-smi, gpu_counter.c for a program with CUDA, files for the driver's in /proc. Run by node.sh."""
import json, os, shutil, signal, subprocess, time, unittest

import runtime_test
from runtime_test import NEW, OLD, RUN, ROOT, WRAPPER, dump, read, request, sh, write

LOG, HANG, FAIL = "/run/cuda.log", "/run/cuda.hang", "/run/cuda.fail"
GPUS = ("GPU-11111111-aaaa", "GPU-22222222-bbbb")


def driver(version="570.86.15", product="NVIDIA H100 80GB HBM3"):
    """The node's driver, and its two GPUs."""
    root = "/proc/driver/nvidia"
    os.makedirs(root, exist_ok=True)
    write(root + "/version", f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build\nGCC version:  gcc version 12.2.0\n")
    for number, uuid in enumerate(GPUS):
        os.makedirs(f"{root}/gpus/0000:0{number}:00.0", exist_ok=True)
        write(f"{root}/gpus/0000:0{number}:00.0/information", f"Model: \t\t {product}\nGPU UUID: \t {uuid}\nDevice Minor: \t {number}\n")


class GpuTest(runtime_test.RuntimeTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        sh("mount", "-t", "tmpfs", "tmpfs", "/proc/driver")
        shutil.copy("/opt/test/gpu_counter", "/data/image/gpu_counter")

    def setUp(self):
        super().setUp()
        driver()
        for name in ("cuda-checkpoint", "nvidia-smi"):
            shutil.copy("/opt/test/cuda_checkpoint.py", "/usr/local/bin/" + name)
        for path in (LOG, HANG, FAIL):
            if os.path.exists(path):
                os.unlink(path)

    def steps(self):
        return [line.split() for line in read(LOG).splitlines()] if os.path.exists(LOG) else []

    def gpu_pod(self, c, number=0):
        """As a CDI device of the pod arrives: in the spec."""
        spec = json.loads(read(c.bundle + "/config.json"))
        spec["process"]["args"] = ["/gpu_counter", GPUS[number], f"/dev/nvidia{number}"]
        spec["linux"]["devices"] = [{"path": path, "type": "c", "major": 1, "minor": 5, "fileMode": 0o666} for path in (f"/dev/nvidia{number}", "/dev/nvidiactl")]
        spec["linux"]["resources"]["memory"] = {"limit": 512 << 20}
        write(c.bundle + "/config.json", json.dumps(spec))
        return c

    def counts(self, c):
        lines = [line.split() for line in read(c.out).splitlines() if " gpu=" in line]
        return [(int(line[0]), int(line[1].removeprefix("device=")), line[2].removeprefix("gpu=")) for line in lines]

    def wait_counts(self, c, n, seconds=20):
        until = time.monotonic() + seconds
        while len(self.counts(c)) < n:
            if time.monotonic() > until:
                raise AssertionError(f"{c.id}: only {len(self.counts(c))} lines: {read(c.out)[-500:]}")
            time.sleep(0.02)
        return self.counts(c)

    def goes_on(self, c):
        """It counts, in host and device memory alike, without a gap."""
        counts = self.wait_counts(c, len(self.counts(c)) + 10)
        self.assertEqual([n for n, _, _ in counts], list(range(counts[0][0], counts[0][0] + len(counts))))
        self.assertEqual([n for n, _, _ in counts], [value for _, value, _ in counts], "device memory is not what it was")
        self.assertNotIn("fatal", read(c.out))
        return counts

    def run_old(self):
        old = self.gpu_pod(self.pod("old", OLD))
        old.create()
        old.start()
        self.wait_counts(old, 5)
        return old

    def final_dump(self, old):
        landing, result = super().final_dump(old)
        self.last = self.counts(old)[-1]
        time.sleep(0.1)
        self.assertEqual(self.counts(old)[-1], self.last, "it ran on after the dump")
        self.assertEqual(old.status(), "paused")
        old.call("kill", old.id, "15")
        return landing, result

    def poke(self, c, value):
        """Whether it is deaf to locks."""
        with open(f"/proc/{read(c.bundle + '/init.pid')}/mem", "r+b", buffering=0) as memory:
            memory.seek(0x10000000 + 24)
            memory.write(value.to_bytes(4, "little"))

    def test_a_dump_that_is_not_final_gives_the_gpu_back(self):
        old = self.run_old()
        landing = self.landing()
        request(landing, old, final=False)
        done, result = dump(landing)
        self.assertEqual(done.returncode, 0, (result, read(landing + "/main/dump.log")[-3000:]))
        self.goes_on(old)
        self.assertEqual(self.steps(), [["lock"], ["checkpoint"], ["restore"], ["unlock"]])
        self.assertEqual(json.loads(read(landing + "/main/gpu.json")), {"product": "NVIDIA H100 80GB HBM3", "driver": "570.86.15", "count": 1, "uuids": [GPUS[0]]})

    def test_a_process_moves_with_its_device_memory(self):
        old = self.run_old()
        landing, _ = self.final_dump(old)
        os.unlink(LOG)
        new = self.gpu_pod(self.restored_pod(landing))
        new.create()
        self.assertTrue(self.agent.asked[1]["ok"], (self.agent.asked[1], read(landing + "/main/restore/restore.log")[-3000:]))
        new.start()
        self.assertEqual(self.goes_on(new)[0], (self.last[0] + 1, self.last[1] + 1, GPUS[0]))
        self.assertEqual(self.steps(), [["restore"], ["unlock"]])

    def test_another_gpu_takes_its_place_where_the_driver_can(self):
        driver("580.65.06")
        old = self.run_old()
        landing, _ = self.final_dump(old)
        os.unlink(LOG)
        new = self.gpu_pod(self.restored_pod(landing), number=1)
        new.create()
        self.assertTrue(self.agent.asked[1]["ok"], (self.agent.asked[1], read(landing + "/main/restore/restore.log")[-3000:]))
        new.start()
        self.assertEqual(self.goes_on(new)[0], (self.last[0] + 1, self.last[1] + 1, GPUS[1]))
        self.assertEqual(self.steps(), [["restore", f"{GPUS[0]}={GPUS[1]}"], ["unlock"]])

    def test_a_node_that_does_not_fit_is_told_before_anything_is_restored(self):
        old = self.run_old()
        landing, _ = self.final_dump(old)
        os.unlink(LOG)
        cases = ((lambda: None, 1, "does not move a process to another GPU"),
                 (lambda: driver("570.133.20"), 0, "needs the NVIDIA driver 570.86.15"),
                 (lambda: driver(product="NVIDIA A100"), 0, 'needs "NVIDIA H100 80GB HBM3"'),
                 (lambda: os.unlink("/usr/local/bin/cuda-checkpoint"), 0, "cuda-checkpoint does not work"))
        for i, (change, number, why) in enumerate(cases):
            driver()
            change()
            new = self.restored_pod(landing) if i == 0 else new
            self.agent.answers["restored"] = {"action": "refuse"}
            self.agent.asked.clear()
            self.gpu_pod(new, number)
            self.assertNotEqual(new.create(check=False), 0)
            self.assertIn(why, self.agent.asked[1]["message"])
            self.assertFalse(self.agent.asked[1]["ran"])
        self.assertEqual(self.steps(), [])

    def test_a_process_that_does_not_get_its_gpu_back_is_not_called_restored(self):
        old = self.run_old()
        landing, _ = self.final_dump(old)
        write(FAIL, "restore")
        new = self.gpu_pod(self.restored_pod(landing))
        self.agent.answers["restored"] = {"action": "refuse"}
        self.assertNotEqual(new.create(check=False), 0)
        self.assertIn("did not give process", self.agent.asked[1]["message"])
        self.assertEqual(new.status(), "gone")

    def test_a_restore_that_was_killed_leaves_no_mount_behind_the_next_one(self):
        old = self.run_old()
        landing, _ = self.final_dump(old)
        os.unlink(LOG)
        write(HANG, "restore")
        first = self.gpu_pod(self.restored_pod(landing))
        creating = subprocess.Popen(first.command("create", "--bundle", first.bundle, first.id), stdin=subprocess.DEVNULL, stdout=first.pipe[1],
                                    stderr=first.pipe[1], start_new_session=True)
        until = time.monotonic() + 20
        while ["restore"] not in self.steps() and time.monotonic() < until:
            time.sleep(0.02)
        os.killpg(creating.pid, signal.SIGKILL)
        creating.wait()
        os.unlink(HANG)
        self.assertIn(f"{ROOT}/{first.id}/criu-root", read("/proc/mounts"), "it was not killed where it has one")
        second = self.gpu_pod(runtime_test.Container(first.sandbox, f"again{self.n}-c", {"holdfast.dev/restore": "ck1"}))
        self.addCleanup(second.delete)
        second.create()
        self.assertTrue(self.agent.asked[-1]["ok"], (self.agent.asked[-1], read(landing + "/main/restore/restore.log")[-3000:]))
        second.start()
        self.assertEqual(self.goes_on(second)[0], (self.last[0] + 1, self.last[1] + 1, GPUS[0]))
        self.assertNotIn("criu-root", read("/proc/mounts"))

    def test_what_cannot_be_dumped_is_refused_before_anything_freezes(self):
        old = self.run_old()
        cases = ((lambda: driver("550.54.15"), "checkpoints need 570"),
                 (lambda: os.environ.update(STAND_IN_MIB="99999999"), "do not fit into the node's memory"),
                 (lambda: os.environ.update(STAND_IN_MIB="600"), "raise resources.limits.memory"),
                 (lambda: os.unlink("/usr/local/bin/nvidia-smi"), "nvidia-smi does not say"),
                 (lambda: os.unlink("/usr/local/bin/cuda-checkpoint"), "cuda-checkpoint does not work"))
        self.addCleanup(os.environ.pop, "STAND_IN_MIB", None)
        for i, (change, why) in enumerate(cases):
            driver()
            os.environ.pop("STAND_IN_MIB", None)
            change()
            landing = f"/data/landing{self.n}-{i}"
            os.makedirs(landing)
            request(landing, old, final=True)
            _, result = dump(landing)
            self.assertEqual((result["ok"], result["reason"], result["frozen_ms"]), (False, "Unsupported", 0), result)
            self.assertIn(why, result["message"])
        self.assertEqual(self.steps(), [])
        self.goes_on(old)

    def test_a_lock_that_is_not_granted_ends_and_the_process_goes_on(self):
        old = self.run_old()
        self.poke(old, 1)
        landing = self.landing()
        request(landing, old, final=True, deadline_unix_ms=int(time.time() * 1000) + 6000)
        _, result = dump(landing)
        self.assertFalse(result["ok"])
        self.poke(old, 0)
        self.goes_on(old)
        self.assertEqual(sh("cuda-checkpoint", "--get-state", "--pid", read(old.bundle + "/init.pid")).strip(), "running")

    def test_a_checkpoint_that_hangs_is_cut_off_at_the_deadline_and_the_process_goes_on(self):
        old = self.run_old()
        write(HANG, "checkpoint")
        landing = self.landing()
        request(landing, old, final=True, deadline_unix_ms=int(time.time() * 1000) + 6000)
        _, result = dump(landing)
        self.assertEqual((result["ok"], result["reason"]), (False, "Deadline"), result)
        self.goes_on(old)
        self.assertEqual([step[0] for step in self.steps()], ["lock", "checkpoint", "unlock"])

    def test_a_thaw_gives_back_the_gpu_that_a_killed_dump_has_taken(self):
        old = self.run_old()
        write(HANG, "checkpoint")
        landing = self.landing()
        request(landing, old, final=True)
        dumping = subprocess.Popen([WRAPPER, "dump", landing], start_new_session=True)
        until = time.monotonic() + 20
        while ["checkpoint"] not in self.steps() and time.monotonic() < until:
            time.sleep(0.02)
        os.killpg(dumping.pid, signal.SIGKILL)
        dumping.wait()
        os.unlink(f"{RUN}/containers/{old.id}.json")
        sh(WRAPPER, "thaw", "--root", ROOT, old.id)
        self.goes_on(old)
        self.assertEqual(self.steps()[-1], ["unlock"])


for name in dir(runtime_test.RuntimeTest):  # its tests are not ours
    if name.startswith("test_"):
        setattr(GpuTest, name, None)

if __name__ == "__main__":
    unittest.main(verbosity=2)

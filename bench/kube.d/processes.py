"""Processes of the benchmark: pinned to a core, gone when it is, and their memory as the kernel counts it."""

import contextlib
import json
import os
import pathlib
import queue
import subprocess
import tempfile
import threading
import time
import urllib.request

_cores = sorted(os.sched_getaffinity(0))
CLIENT_CORE, SERVER_CORE = _cores[0], _cores[-1]


class Failure(Exception):
    pass


class Child:
    """A program that speaks JSON lines and ends when its standard input does."""

    def __init__(self, argv, core, env=None):
        self.argv = [str(a) for a in argv]
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            ["taskset", "-c", str(core), *self.argv], env={**os.environ, **(env or {})},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True,
        )
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def line(self, limit=60):
        with contextlib.suppress(queue.Empty):
            line = self.lines.get(timeout=limit)
            if line is not None:
                return json.loads(line)
            raise Failure(f"{' '.join(self.argv)} ended: {self.tail()}")
        raise Failure(f"{' '.join(self.argv)} printed nothing within {limit} s: {self.tail()}")

    def tail(self):
        self.errors.seek(0)
        return self.errors.read()[-2000:]

    def memory(self):
        """Resident memory now and at most, in MB."""
        status = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines())
        now, peak = (int(status[name].split()[0]) * 1024 / 1e6 for name in ("VmRSS", "VmHWM"))
        return now, peak

    def forget_peak(self):
        pathlib.Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def end_input(self):
        self.process.stdin.close()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.kill()
        self.errors.close()


class Replay:
    """replay serve, with a kubeconfig that leads to it."""

    def __init__(self, binary, folder, objects):
        self.child = Child([binary, "serve", "--objects", objects, "--cert", folder / "tls.crt", "--key", folder / "tls.key"], SERVER_CORE)
        started = self.child.line()
        self.control = started["control"]
        self.kubeconfig = write_kubeconfig(folder, started["url"], "none")

    def ask(self, path, kind, method="GET", limit=60, **numbers):
        query = "&".join([f"kind={kind}", *(f"{name}={n}" for name, n in numbers.items())])
        with urllib.request.urlopen(urllib.request.Request(f"{self.control}/{path}?{query}", method=method), timeout=limit) as answer:
            return json.load(answer)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.__exit__()
        self.kubeconfig.unlink()


def write_kubeconfig(folder, url, token):
    with tempfile.NamedTemporaryFile("w", dir=folder, prefix="kubeconfig-", delete=False) as file:
        json.dump({
            "apiVersion": "v1", "kind": "Config", "current-context": "bench",
            "clusters": [{"name": "bench", "cluster": {"server": url, "certificate-authority": str(folder / "ca.crt")}}],
            "users": [{"name": "bench", "user": {"token": token}}],
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        }, file)
    return pathlib.Path(file.name)


def make_certificates(folder):
    """A CA and a server's certificate for 127.0.0.1: ca.crt, tls.crt, tls.key."""
    def openssl(*argv):
        subprocess.run(["openssl", *argv], cwd=folder, check=True, capture_output=True)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    (folder / "tls.ext").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth\n")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.crt", "-days", "2", "-subj", "/CN=holdfast-bench-ca")
    openssl("req", *key, "-keyout", "tls.key", "-out", "tls.csr", "-subj", "/CN=127.0.0.1")
    openssl("x509", "-req", "-in", "tls.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-out", "tls.crt", "-days", "2", "-extfile", "tls.ext")


def interleave(jobs, at_most=6):
    """Runs generators. What one yields is for how many seconds it only waits, and meanwhile others work: never two at a time."""
    jobs, waiting = iter(jobs), []
    try:
        while True:
            now = time.monotonic()
            due = next((w for w in waiting if w[0] <= now), None)
            job = None
            if due:
                waiting.remove(due)
                job = due[1]
            elif len(waiting) < at_most:
                job = next(jobs, None)
            if job is not None:
                with contextlib.suppress(StopIteration):
                    wait = next(job)
                    waiting.append((time.monotonic() + wait, job))
            elif waiting:
                waiting.sort(key=lambda w: w[0])
                time.sleep(max(0, waiting[0][0] - time.monotonic()))
            else:
                return
    finally:
        for _, job in waiting:
            job.close()

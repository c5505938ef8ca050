"""The contenders: each keeps folders in a repository of its own and gives them back. Wall time, CPU seconds and memory of each command are
those of the command with its children, from its start to its end."""

import dataclasses
import os
import pathlib
import shutil
import subprocess
import time

from datasets import PYTHON, Failure, run

CORES = ",".join(map(str, sorted(os.sched_getaffinity(0))[:2]))


@dataclasses.dataclass
class Cost:
    wall: float
    cpu: float
    memory: int  # bytes, of the largest process
    output: str


def measured(argv, env=None, cwd=None):
    log = pathlib.Path(os.environ.get("TMPDIR", "/tmp")) / f"holdfast-bench-{os.getpid()}.log"
    with open(log, "w") as out:
        began = time.monotonic()
        process = subprocess.Popen(["taskset", "-c", CORES, *map(str, argv)], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd=cwd, env={**os.environ, **(env or {})})
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.monotonic() - began
        process.returncode = os.waitstatus_to_exitcode(status)
    text = log.read_text()
    log.unlink()
    if process.returncode != 0:
        raise Failure(f"{' '.join(map(str, argv))}: {text[-2000:]}")
    return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, text)


class Tool:
    """Repository in `folder`, which is new. `put` reads the folder `source`, which is at the same path each time."""

    dedup = True

    def __init__(self, folder):
        self.folder, self.repo = folder, folder / "repo"
        folder.mkdir()

    def stored(self):
        return int(run("du", "-s", "--block-size=1", self.repo).split()[0])


class Holdfast(Tool):
    name = "holdfast"
    program = None  # storage_core

    def put(self, number, source):
        parent = [f"uid-{number - 1}"] if number > 0 else []
        return measured([self.program, "put", self.repo, f"uid-{number}", source, *parent])

    def get(self, number, target):
        return measured([self.program, "get", self.repo, f"uid-{number}", target])

    def later(self):
        """What the server does by itself an hour later."""
        return measured([self.program, "tighten", self.repo])

    def verify(self):
        return measured([self.program, "verify", self.repo])


class Restic(Tool):
    name = "restic"

    def __init__(self, folder):
        super().__init__(folder)
        self.env = {"RESTIC_PASSWORD": "benchmark", "RESTIC_REPOSITORY": str(self.repo), "RESTIC_CACHE_DIR": str(folder / "cache")}
        run("restic", "init", env={**os.environ, **self.env})

    def put(self, number, source):
        return measured(["restic", "backup", "--tag", str(number), "."], self.env, cwd=source)

    def get(self, number, target):
        return measured(["restic", "restore", "latest", "--tag", str(number), "--target", target], self.env)

    def verify(self):
        return measured(["restic", "check", "--read-data"], self.env)


class Borg(Tool):
    name, chunker = "borg", []

    def __init__(self, folder):
        super().__init__(folder)
        self.env = {"BORG_PASSPHRASE": "benchmark", "BORG_BASE_DIR": str(folder / "base"), "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "no"}
        run("borg", "init", "--encryption", "repokey-blake2", self.repo, env={**os.environ, **self.env})

    def put(self, number, source):
        return measured(["borg", "create", "--compression", "lz4", *self.chunker, f"{self.repo}::{number}", "."], self.env, cwd=source)

    def get(self, number, target):
        target.mkdir()
        return measured(["borg", "extract", f"{self.repo}::{number}"], self.env, cwd=target)

    def verify(self):
        return measured(["borg", "check", "--verify-data", self.repo], self.env)


class BorgFixed(Borg):
    name, chunker = "borg, fixed 64 KiB", ["--chunker-params", "fixed,65536"]


class Casync(Tool):
    name = "casync"

    def put(self, number, source):
        self.repo.mkdir(exist_ok=True)
        return measured(["casync", "make", f"--store={self.repo}/store.castr", f"{self.repo}/{number}.caidx", source])

    def get(self, number, target):
        return measured(["casync", "extract", f"--store={self.repo}/store.castr", f"{self.repo}/{number}.caidx", target])


class Copy(Tool):
    name, dedup = "cp and fsync", False

    def put(self, number, source):
        self.repo.mkdir(exist_ok=True)
        return measured(["sh", "-c", 'cp -r "$1" "$2" && find "$2" -type f -exec sync {} +', "sh", source, self.repo / str(number)])

    def get(self, number, target):
        return measured(["cp", "-r", self.repo / str(number), target])


ALL = [Holdfast, Restic, Borg, BorgFixed, Casync, Copy]


def install():
    packages = ["restic", "borgbackup", "casync", "redis-server", "redis-tools", "openjdk-17-jdk-headless", "python3-numpy", "iproute2"]
    installed = run("dpkg-query", "-W", "-f", "${db:Status-Abbrev}${Package}\\n").splitlines()
    missing = [p for p in packages if f"ii {p}" not in installed]
    if "openjdk-17-jdk-headless" in missing and shutil.which("javac"):
        missing.remove("openjdk-17-jdk-headless")
    if missing:
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        # Installed for its program only: no server of its own may start.
        policy = pathlib.Path("/usr/sbin/policy-rc.d")
        ours = not policy.exists()
        if ours:
            policy.write_text("#!/bin/sh\nexit 101\n")
            policy.chmod(0o755)
        try:
            run("apt-get", "update", "-q", limit=600, env=env)
            run("apt-get", "install", "-qy", "--no-install-recommends", *missing, limit=1200, env=env)
        finally:
            if ours:
                policy.unlink()


def versions():
    lines = {"restic": run("restic", "version").split()[1], "borg": run("borg", "--version").split()[1], "casync": run("casync", "--version").splitlines()[0].split()[-1]}
    lines["redis"] = run("redis-server", "--version").split("v=")[1].split()[0]
    lines["java"] = run("java", "-version").splitlines()[0].split('"')[1]
    lines["numpy"] = run(PYTHON, "-c", "import numpy; print(numpy.__version__)").strip()
    return lines

"""Checkpoints of real processes, made with CRIU: for each data set a folder of images a generation, a light step of the process apart."""

import contextlib
import os
import pathlib
import subprocess
import time

HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "holdfast-cluster"
CRIU = CACHE / "criu" / "criu"
PYTHON = "/usr/bin/python3"  # that Debian's numpy is for
SETS = ("training", "notebook", "redis", "jvm", "zeros", "noise")
START_S, STEP_S = 300, 120


class Failure(Exception):
    pass


def run(*argv, limit=120, **kwargs):
    done = subprocess.run([str(a) for a in argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit, **kwargs)
    if done.returncode != 0:
        raise Failure(f"{' '.join(map(str, argv))}: {done.stdout[-2000:]}")
    return done.stdout


def criu_version():
    if not CRIU.exists():
        raise Failure(f"there is no {CRIU}: make cluster-build makes it")
    return run(CRIU, "--version").split()[1]


def wait(what, condition, limit):
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            raise Failure(f"{what} within {limit} s")
        time.sleep(0.02)


class Stepped:
    """One of programs/."""

    def __init__(self, argv, folder):
        self.folder, self.steps = folder, 0
        self.process = start([*argv[:-1], folder / "go", folder / "done", *argv[-1]], folder)
        self.settle()

    def settle(self):
        def done():
            if self.process.poll() is not None:
                raise Failure(f"{self.process.args} ended: {(self.folder / 'log').read_text()[-2000:]}")
            with contextlib.suppress(FileNotFoundError):
                return int((self.folder / "done").read_text()) == self.steps
            return False

        wait(f"{self.process.args}: no step {self.steps}", done, START_S)

    def step(self):
        self.steps += 1
        (self.folder / "go").write_text(str(self.steps))
        self.settle()


class Redis:
    """Keys with values of 360 characters; a step writes two thousand of them."""

    FILL = """for i = ARGV[1], ARGV[2] do
      local parts = {}
      for part = 1, 9 do parts[part] = redis.sha1hex(i * 9 + part) end
      redis.call('set', 'key:' .. i, table.concat(parts))
    end return 'OK'"""

    def __init__(self, mebibytes, folder):
        self.port, self.number, self.keys = 16379, 0, mebibytes * 2200
        self.process = start(["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no"], folder)
        try:
            self.fill()
        except BaseException:
            self.process.kill()
            raise

    def fill(self):
        wait("redis-server does not answer", lambda: self.process.poll() is None and self.cli("ping", check=False).strip() == "PONG", 30)
        for at in range(0, self.keys, 20_000):
            self.cli("eval", self.FILL, "0", str(at), str(min(at + 20_000, self.keys) - 1))

    def cli(self, *words, check=True, limit=60):
        done = subprocess.run(["redis-cli", "-p", str(self.port), *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit)
        if check and (done.returncode != 0 or "ERR" in done.stdout):
            raise Failure(f"redis-cli {' '.join(words)}: {done.stdout}")
        return done.stdout

    def step(self):
        self.number += 1
        at = self.number * 7919 % (self.keys - 3000)
        self.cli("eval", "for i = ARGV[1], ARGV[1] + 2000 do redis.call('set', 'key:' .. i, 'step ' .. ARGV[2] .. ' value ' .. i) end return 'OK'", "0", str(at), str(self.number))
        wait("a connection to redis-server stays", lambda: "ESTAB" not in run("ss", "-Htn", f"sport = :{self.port}"), 10)


def start(argv, folder):
    with open(folder / "log", "w") as log:
        return subprocess.Popen([str(a) for a in argv], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=folder,
                                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "1"})


def begin(name, mebibytes, folder):
    programs = HERE / "programs"
    if name == "redis":
        return Redis(mebibytes, folder)
    if name == "jvm":
        return Stepped(["java", f"-Xmx{mebibytes * 12 // 10}m", f"-Xms{mebibytes}m", "-XX:+UseSerialGC", "-XX:-UsePerfData", programs / "Churn.java", [mebibytes]], folder)
    if name in ("zeros", "noise"):
        return Stepped([PYTHON, programs / "fill.py", [mebibytes, name]], folder)
    return Stepped([PYTHON, programs / {"training": "train.py", "notebook": "notebook.py"}[name], [mebibytes]], folder)


def make(name, mebibytes, generations, folder):
    """Dumps the process of data set `name` into folder/0, folder/1, …: a step apart."""
    work = folder / "work"
    work.mkdir(parents=True)
    program = begin(name, mebibytes, work)
    try:
        for generation in range(generations):
            images = folder / str(generation)
            images.mkdir()
            log = work / "dump.log"
            try:
                run(CRIU, "dump", "--tree", program.process.pid, "--images-dir", images, "--leave-running", "--log-file", log, limit=STEP_S)
            except Failure as error:
                raise Failure(f"{error}{log.read_text()[-2000:]}") from error
            if generation + 1 < generations:
                program.step()
    finally:
        program.process.kill()
        program.process.wait()
    return [folder / str(generation) for generation in range(generations)]


def bytes_of(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())

"""Builds the servers and contenders of bench/kube, and keeps what is expensive in the user's cache, named after what it was made from."""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "holdfast"
PATH = f"{CACHE / 'go' / 'bin'}:{os.environ['PATH']}"  # where install-deps.sh puts Go
RUST = (1, 89)  # what kube needs


def made(name, make):
    """The program of the folder `name`: `make(path)` writes it unless one from the same sources is there."""
    sources = sorted(p for p in (HERE / name).rglob("*") if p.is_file() and "target" not in p.parts)
    key = hashlib.sha256(b"".join(str(p.relative_to(HERE)).encode() + b"\0" + p.read_bytes() for p in sources)).hexdigest()[:16]
    folder = CACHE / "bench-kube"
    path = folder / f"{name}-{key}"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        print(f"  building {name}", flush=True)
        new = folder / f"{name}.new"
        make(new)
        for old in folder.glob(f"{name}-" + "[0-9a-f]" * 16):
            old.unlink()
        new.rename(path)
    return path


def go(name):
    """Its tests, where it has any, pass first."""
    env = {**os.environ, "PATH": PATH, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"}

    def make(path):
        if list((HERE / name).glob("*_test.go")):
            subprocess.run(["go", "test", "."], cwd=HERE / name, check=True, env=env)
        subprocess.run(["go", "build", "-trimpath", "-o", path, "."], cwd=HERE / name, check=True, env=env)

    return made(name, make)


def rust_version():
    try:
        text = subprocess.run(["cargo", "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return tuple(int(n) for n in re.findall(r"\d+", text)[:2])


def kube_rs():
    """None where the machine's Rust is too old: the benchmark then says so and goes on without it."""
    if (rust_version() or (0, 0)) < RUST:
        return None

    def make(path):
        target = CACHE / "bench-kube" / "cargo"
        subprocess.run(["cargo", "build", "--quiet", "--release", "--locked", "--target-dir", target], cwd=HERE / "kube-rs", check=True)
        shutil.copy2(target / "release" / "bench-kube-rs", path)

    return made("kube-rs", make)


def holdfast():
    subprocess.run([ROOT / "scripts" / "build.sh", "bench", "bench_kube"], check=True)
    return ROOT / "build" / "bench" / "bin" / "bench_kube"


def versions(kube_rs_there):
    go_mod = (HERE / "controller-runtime" / "go.mod").read_text()
    lock = (HERE / "kube-rs" / "Cargo.lock").read_text()
    return {
        "go": subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=True, env={**os.environ, "PATH": PATH}).stdout.strip(),
        "controller-runtime": re.search(r"controller-runtime (v\S+)", go_mod)[1],
        "client-go": re.search(r"client-go (v\S+)", go_mod)[1],
        "kube-rs": re.search(r'name = "kube"\nversion = "([^"]+)"', lock)[1] if kube_rs_there else f"left out: needs Rust {RUST[0]}.{RUST[1]}",
    }

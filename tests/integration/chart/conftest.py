import json
import os
import pathlib
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.dont_write_bytecode = True

from apiserver import ApiServer  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[3]
CHART = ROOT / "charts" / "holdfast"
SYSTEM = "holdfast-system"


def eventually(what, check, seconds=20):
    """Until check() is true, or fails: the API server takes new definitions and policies up within moments."""
    deadline = time.monotonic() + seconds * float(os.environ.get("HF_SLOW") or 1)
    while True:
        last = check()
        if last:
            return last
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.2)


class Objects:
    """Creates and patches objects; answers "" when accepted, else what kubectl printed. `who`: flags of impersonation."""

    def __init__(self, server):
        self.server = server

    def create(self, kind, spec, name="t", dry=True, **more):
        body = {"apiVersion": "holdfast.dev/v1alpha1", "kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec, **more}
        return self.apply("create", body, dry=dry)

    def apply(self, verb, body, dry=False, who=()):
        done = self.server.kubectl(verb, *(["--dry-run=server"] if dry else []), *who, "-f", "-", stdin=json.dumps(body))
        return done.stderr if done.returncode else ""

    def patch(self, resource, name, patch, subresource=None, namespace="default", who=(), dry=False, kind="merge"):
        args = ["patch", resource, name, "-n", namespace, f"--type={kind}", "-p", json.dumps(patch), *who]
        if subresource:
            args.append(f"--subresource={subresource}")
        if dry:
            args.append("--dry-run=server")
        done = self.server.kubectl(*args)
        return done.stderr if done.returncode else ""

    def status(self, name, status, **options):
        return self.patch("checkpoints.holdfast.dev", name, {"status": status}, subresource="status", **options)

    def get(self, *args):
        done = self.server.kubectl("get", *args, "-o", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    server = ApiServer(tmp_path_factory.mktemp("apiserver"))
    try:
        server.start()
        done = server.kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
        assert done.returncode == 0, done.stderr
        for kind in ("checkpoints", "restorepolicies", "suspendedworkloads"):
            eventually(f"{kind} are served", lambda kind=kind: server.kubectl("get", f"{kind}.holdfast.dev").returncode == 0)
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def objects(server):
    return Objects(server)


@pytest.fixture(scope="session")
def installed(server):
    """The chart, installed by Helm; nothing runs, because there are no nodes."""
    done = server.helm("install", "holdfast", str(CHART), "--namespace", SYSTEM, "--create-namespace", "--set", "activator.enabled=true")
    assert done.returncode == 0, done.stderr
    return server

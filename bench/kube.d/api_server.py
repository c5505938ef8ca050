"""A real kube-apiserver and etcd on loopback, as tests/integration/api_server.h starts them."""

import contextlib
import os
import pathlib
import secrets
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request

from processes import SERVER_CORE, Failure, write_kubeconfig

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
BIN = pathlib.Path(os.environ.get("HOLDFAST_CLUSTER_BIN") or CACHE / "holdfast-cluster" / "bin")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class ApiServer:
    """Ready when made: the namespace default exists. `folder` has the certificates; what is written there is the caller's to remove."""

    def __init__(self, folder):
        self.folder = folder
        self.token = secrets.token_hex(16)
        self.url = f"https://127.0.0.1:{free_port()}"
        self.processes = []
        etcd, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        subprocess.run(["openssl", "genrsa", "-out", folder / "sa.key", "2048"], check=True, capture_output=True)
        (folder / "tokens.csv").write_text(f'{self.token},admin,admin,"system:masters"\n')
        try:
            self._start("etcd", "--name=default", f"--data-dir={folder}/etcd", f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}",
                        f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}", "--unsafe-no-fsync")
            self._start("kube-apiserver", f"--etcd-servers={etcd}", "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
                        f"--secure-port={self.url.rsplit(':', 1)[1]}", f"--tls-cert-file={folder}/tls.crt", f"--tls-private-key-file={folder}/tls.key",
                        f"--client-ca-file={folder}/ca.crt", f"--token-auth-file={folder}/tokens.csv",
                        "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={folder}/sa.key",
                        f"--service-account-signing-key-file={folder}/sa.key", "--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none",
                        "--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount", "--allow-privileged=true")
            self._wait_until_ready()
        except BaseException:
            self.__exit__()
            raise
        self.kubeconfig = write_kubeconfig(folder, self.url, self.token)

    def _start(self, name, *flags):
        if not (BIN / name).exists():
            raise Failure(f"{BIN / name} is missing: make cluster-build")
        argv = ["setpriv", "--pdeathsig", "KILL", "taskset", "-c", str(SERVER_CORE), BIN / name, *flags]
        with open(self.folder / f"{name}.log", "w") as log:
            self.processes.append(subprocess.Popen(argv, stdout=log, stderr=log))

    def _wait_until_ready(self, limit=90):
        context = ssl.create_default_context(cafile=self.folder / "ca.crt")
        end = time.monotonic() + limit
        while time.monotonic() < end:
            if any(p.poll() is not None for p in self.processes):
                break
            with contextlib.suppress(OSError, urllib.error.URLError):
                for path in ("/readyz", "/api/v1/namespaces/default"):
                    request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {self.token}"})
                    urllib.request.urlopen(request, timeout=5, context=context).close()
                return
            time.sleep(0.2)
        raise Failure("the API server does not start: " + (self.folder / "kube-apiserver.log").read_text()[-1000:])

    def version(self):
        return subprocess.run([BIN / "kube-apiserver", "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.kill()
            process.wait()

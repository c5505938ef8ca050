"""A real etcd and kube-apiserver on loopback, for the length of a test run. Nothing else of a cluster: no nodes, no controllers."""

import os
import pathlib
import signal
import socket
import subprocess
import time

START_SECONDS = 90
STOP_SECONDS = 15


def binaries():
    default = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "holdfast-cluster" / "bin"
    path = pathlib.Path(os.environ.get("HOLDFAST_CLUSTER_BIN", default))
    for name in ("etcd", "kube-apiserver", "kubectl", "helm"):
        if not os.access(path / name, os.X_OK):
            raise RuntimeError(f"{path / name} is missing: build the local cluster's binaries first (make cluster), "
                               "or set HOLDFAST_CLUSTER_BIN to the folder that holds them")
    return path


def _free_ports(count):
    # Held open together so that they differ; another process could still take one before it is used, which shows as a failed start.
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def _openssl(*args, cwd):
    subprocess.run(["openssl", *args], cwd=cwd, check=True, capture_output=True, timeout=30)


class ApiServer:
    """start() once, stop() always; kubectl() and helm() run as cluster-admin."""

    def __init__(self, work):
        self.bin = binaries()
        self.work = pathlib.Path(work)
        self.kubeconfig = self.work / "admin.kubeconfig"
        self._processes = []

    def start(self):
        etcd_client, etcd_peer, port = _free_ports(3)
        self.url = f"https://127.0.0.1:{port}"
        self._make_keys()
        self._run("etcd", "--data-dir", "etcd", "--unsafe-no-fsync",
                  "--listen-client-urls", f"http://127.0.0.1:{etcd_client}", "--advertise-client-urls", f"http://127.0.0.1:{etcd_client}",
                  "--listen-peer-urls", f"http://127.0.0.1:{etcd_peer}", "--initial-advertise-peer-urls", f"http://127.0.0.1:{etcd_peer}",
                  "--initial-cluster", f"default=http://127.0.0.1:{etcd_peer}")
        self._run("kube-apiserver", f"--etcd-servers=http://127.0.0.1:{etcd_client}", "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
                  f"--secure-port={port}", "--tls-cert-file=server.crt", "--tls-private-key-file=server.key", "--client-ca-file=ca.crt",
                  "--service-account-key-file=sa.pub", "--service-account-signing-key-file=sa.key",
                  "--service-account-issuer=https://kubernetes.default.svc", "--service-cluster-ip-range=10.96.0.0/16",
                  "--authorization-mode=Node,RBAC", "--allow-privileged=true",
                  # Webhooks are called at endpoint addresses: without endpoints they fail at once, and nothing is sent beyond loopback.
                  "--enable-aggregator-routing=true", "--endpoint-reconciler-type=none",
                  # Without controllers no namespace gets its default service account, which this plugin waits for.
                  "--disable-admission-plugins=ServiceAccount")
        self._wait_ready()

    def stop(self):
        for _, process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
        for _, process in self._processes:
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes = []

    def kubectl(self, *args, stdin=None, timeout=60):
        return subprocess.run([self.bin / "kubectl", "--kubeconfig", self.kubeconfig, "--request-timeout=20s", *args], input=stdin,
                              capture_output=True, text=True, timeout=timeout)

    def helm(self, *args, timeout=60):
        # Its own home: the caller's repositories and plugins have no say.
        env = {"PATH": os.environ["PATH"], "HOME": str(self.work), "KUBECONFIG": str(self.kubeconfig)}
        return subprocess.run([self.bin / "helm", *args], capture_output=True, text=True, timeout=timeout, env=env)

    def _run(self, name, *args):
        log = open(self.work / f"{name}.log", "wb")
        process = subprocess.Popen([self.bin / name, *args], cwd=self.work, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        log.close()
        self._processes.append((name, process))

    def _wait_ready(self):
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            for name, process in self._processes:
                if process.poll() is not None:
                    raise RuntimeError(f"{name} ended with {process.returncode}:\n{self._tail(name)}")
            if self.kubectl("get", "--raw", "/readyz").returncode == 0:
                return
            time.sleep(0.3)
        raise RuntimeError(f"kube-apiserver was not ready within {START_SECONDS} s:\n{self._tail('kube-apiserver')}")

    def _tail(self, name):
        return "\n".join((self.work / f"{name}.log").read_text(errors="replace").splitlines()[-20:])

    def _make_keys(self):
        ec = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        _openssl("req", "-x509", *ec, "-keyout", "ca.key", "-out", "ca.crt", "-days", "2", "-subj", "/CN=test-ca", cwd=self.work)
        for name, subject, san in (("server", "/CN=kube-apiserver", "IP:127.0.0.1"), ("admin", "/O=system:masters/CN=admin", "DNS:admin")):
            _openssl("req", *ec, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", subject, cwd=self.work)
            (self.work / f"{name}.ext").write_text(f"extendedKeyUsage=serverAuth,clientAuth\nsubjectAltName={san}\n")
            _openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-out", f"{name}.crt",
                     "-days", "2", "-extfile", f"{name}.ext", cwd=self.work)
        _openssl("genrsa", "-out", "sa.key", "2048", cwd=self.work)
        _openssl("rsa", "-in", "sa.key", "-pubout", "-out", "sa.pub", cwd=self.work)
        self.kubeconfig.write_text(f"""apiVersion: v1
kind: Config
clusters: [{{name: test, cluster: {{server: "{self.url}", certificate-authority: "{self.work}/ca.crt"}}}}]
users: [{{name: admin, user: {{client-certificate: "{self.work}/admin.crt", client-key: "{self.work}/admin.key"}}}}]
contexts: [{{name: test, context: {{cluster: test, user: admin}}}}]
current-context: test
""")

"""nginx with two workers: a connection that is kept for many requests, and a slow download that goes on. In the end it reads a new
configuration."""

import hashlib
import os
import signal
import subprocess
import time

import w

CONFIGURATION = """
user root; pid /run/nginx.pid; error_log /srv/error.log; worker_processes 2; daemon off;
events {}
http { access_log off; keepalive_requests 1000000; keepalive_timeout 3600s; client_body_temp_path /srv/body; proxy_temp_path /srv/proxy;
  fastcgi_temp_path /srv/fastcgi; uwsgi_temp_path /srv/uwsgi; scgi_temp_path /srv/scgi;
  server { listen 127.0.0.1:8080; root /srv/www;
    location /count { return 200 "$connection $connection_requests $pid %s\\n"; }
    location /slow { limit_rate 20k; try_files /big =404; } } }
"""


def configure(word):
    with open("/srv/nginx.conf", "w") as file:
        file.write(CONFIGURATION % word)


os.makedirs("/srv/www")
data = os.urandom(16 << 20)
with open("/srv/www/big", "wb") as file:
    file.write(data)
configure("first")
server = subprocess.Popen(["nginx", "-c", "/srv/nginx.conf"])


class Connection:
    def __init__(self):
        self.socket = w.connect(8080)
        self.file = self.socket.makefile("rb")

    def ask(self, path):
        """The length of the answer's body, which is yet to be read."""
        self.socket.sendall(b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path.encode())
        w.expect("status", self.file.readline(), b"HTTP/1.1 200 OK\r\n")
        length = 0
        while (line := self.file.readline()) not in (b"\r\n", b""):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        return length

    def text(self, path):
        return self.file.read(self.ask(path)).decode()


kept, slow = Connection(), Connection()
identity = kept.text("/count").split()
slow.ask("/slow")
slow.socket.setblocking(True)
taken, digest, requests, done = 0, hashlib.sha256(), 1, False


def step():
    global requests, taken, done
    same = {}
    if not done:
        requests += 1
        w.expect("the kept connection", kept.text("/count").split(), [identity[0], str(requests), identity[2], "first"])
        part = slow.file.read1(1024)
        digest.update(part)
        taken += len(part)
        w.expect("the slow download", digest.hexdigest(), hashlib.sha256(data[:taken]).hexdigest())
    if w.finishing() and not done:
        configure("second")
        server.send_signal(signal.SIGHUP)
        end, seen = time.monotonic() + 30, ""
        while seen != "second" and time.monotonic() < end:  # old workers answer as well until they have heard of it
            seen = Connection().text("/count").split()[3]
            time.sleep(0.05)
        w.expect("the new configuration", seen, "second")
        requests += 1
        done = True
    elif done:
        requests += 1
        w.expect("a new connection", Connection().text("/count").split()[1], "1")
    if done:
        same["received"] = True
    return same, {"requests": requests, "downloaded": taken + (requests if done else 0)}


w.forever(step)

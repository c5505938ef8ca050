"""A program with state, as its clients see it: born once, and counting what it is asked. HTTP on 8080, a line protocol whose client speaks first
on 9000, one whose server speaks first on 9001."""

import http.server
import json
import os
import socketserver
import threading

BORN = os.urandom(6).hex()
lock = threading.Lock()
count = 0


def state():
    global count
    with lock:
        count += 1
        return {"born": BORN, "count": count}


class Pages(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/healthz":
            return self.say(b"ok")
        if self.path.startswith("/missing"):
            return self.say(b"no such page", 404)
        return self.say(json.dumps(state()).encode())

    def do_POST(self):
        left, digest = int(self.headers["Content-Length"]), 0
        while left:
            part = self.rfile.read(min(left, 65536))
            left, digest = left - len(part), digest + sum(part)
        self.say(json.dumps({**state(), "sum": digest}).encode())

    def say(self, body, status=200):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class ClientFirst(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:  # until the client has said all: then this side ends too
            self.wfile.write(json.dumps({**state(), "line": line.decode().strip()}).encode() + b"\n")


class ServerFirst(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(json.dumps({**state(), "line": "welcome"}).encode() + b"\n")


class Lines(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 256


class Http(http.server.ThreadingHTTPServer):
    request_queue_size = 256


if __name__ == "__main__":
    for server in (Lines(("", 9000), ClientFirst), Lines(("", 9001), ServerFirst)):
        threading.Thread(target=server.serve_forever, daemon=True).start()
    Http(("", 8080), Pages).serve_forever()

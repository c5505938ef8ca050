"""Asks a Service from within a pod, and prints what came as one JSON list. client.py http HOST PATH [COUNT [ACCEPT [USER_AGENT]]] | post HOST BYTES |
client-first HOST | server-first HOST"""

import http.client
import json
import socket
import sys
import threading
import time

LIMIT = 150


def http_once(host, method, path, headers, body=None):
    start = time.monotonic()
    try:
        connection = http.client.HTTPConnection(host, 80, timeout=LIMIT)
        connection.request(method, path, body=body, headers=headers)
        answer = connection.getresponse()
        said = answer.read().decode()
        return {"status": answer.status, "body": said, "headers": {k.lower(): v for k, v in answer.getheaders()}, "seconds": time.monotonic() - start}
    except OSError as error:
        return {"status": 0, "body": repr(error), "headers": {}, "seconds": time.monotonic() - start}


def lines(host, port, say):
    start = time.monotonic()
    try:
        with socket.create_connection((host, port), timeout=LIMIT) as connection:
            if say:
                connection.sendall(say)
                connection.shutdown(socket.SHUT_WR)
            heard = connection.makefile("rb").read().decode()
        return {"lines": [json.loads(line) for line in heard.splitlines()], "seconds": time.monotonic() - start}
    except OSError as error:
        return {"lines": [], "error": repr(error), "seconds": time.monotonic() - start}


def many(count, ask):
    answers, threads = [None] * count, []
    for i in range(count):
        threads.append(threading.Thread(target=lambda i=i: answers.__setitem__(i, ask())))
        threads[-1].start()
    for thread in threads:
        thread.join()
    return answers


what, host, *rest = sys.argv[1:]
if what == "http":
    path, count, accept, agent = [*rest, *("/", "1", "*/*", "client")[len(rest):]]
    found = many(int(count), lambda: http_once(host, "GET", path, {"Accept": accept, "User-Agent": agent}))
elif what == "post":
    found = [http_once(host, "POST", "/", {}, b"\1" * int(rest[0]))]
elif what == "client-first":
    found = [lines(host, 9000, b"one\ntwo\n")]
else:
    found = [lines(host, 9001, b"")]
json.dump(found, sys.stdout)

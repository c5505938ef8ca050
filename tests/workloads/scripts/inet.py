"""TCP and UDP within the pod: connections over loopback in both families, with bytes that nobody has read, full ones, options that were set, a
half-closed one, listeners on all addresses and on the pod's own, UDP."""

import os
import socket
import time

import w

own = socket.gethostbyname(socket.gethostname())
families = {"IPv4": (socket.AF_INET, "127.0.0.1"), "IPv6": (socket.AF_INET6, "::1")}
clients = {}
for name, (family, address) in families.items():
    try:
        listener = socket.create_server((address, 0), family=family)
    except OSError:  # a pod without IPv6
        continue
    if os.fork() == 0:
        connection, _ = listener.accept()
        while data := connection.recv(4096):
            connection.sendall(data)
        os._exit(1)
    clients[name] = socket.create_connection(listener.getsockname()[:2])
    clients[name].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    clients[name].setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
anywhere = socket.create_server(("", 9100))
here = socket.create_server((own, 9101))
full = socket.create_connection(("127.0.0.1", 9100))
unread = anywhere.accept()[0]
full.sendall(b"unread" * 5000)
PATTERN = b"stuffed " * 8192


def stuffed(one_that_accepts_sends):
    """A connection over which one end sends until no buffer takes more, so that TCP still has to send bytes: sender, receiver, how many."""
    ends = [socket.create_connection(("127.0.0.1", 9100)), anywhere.accept()[0]]
    sender, receiver = reversed(ends) if one_that_accepts_sends else ends
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    sender.setblocking(False)
    count = 0
    while True:
        try:
            count += sender.send(PATTERN[count % 8:])
        except BlockingIOError:
            return sender, receiver, count


# Whichever end the restore makes first, the other one is not there yet.
stuffed_ones = [stuffed(which) for which in (False, True)]
half = socket.create_connection(("127.0.0.1", 9100))
half_other = anywhere.accept()[0]
half.shutdown(socket.SHUT_WR)
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("127.0.0.1", 9102))
asker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
asker.connect(("127.0.0.1", 9102))
count, taken = 0, False


def everything(connection, size):
    data = b""
    while len(data) < size:
        data += connection.recv(size)
    return data


def step():
    global count, taken
    count += 1
    for name, client in clients.items():
        text = b"%s %d" % (name.encode(), count)
        client.sendall(text)
        w.expect(name, client.recv(4096), text)
        w.expect("TCP_NODELAY", client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), 1)
        w.expect("SO_KEEPALIVE", client.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE), 1)
    asker.send(b"%d" % count)
    w.expect("UDP", udp.recv(100), b"%d" % count)
    half_other.sendall(b"x")
    w.expect("half-closed", half.recv(1), b"x")
    for sender, _, _ in stuffed_ones:
        w.expect("a full connection", sender.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), 0)
    with socket.create_connection(("127.0.0.1", 9100), timeout=2):
        anywhere.accept()[0].close()
    # At the address that the pod has now, as a route to anywhere tells: the listener was moved to it.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
        route.connect(("198.51.100.1", 9))
        address = route.getsockname()[0]
    w.expect("the listener's address", here.getsockname()[0], address)
    with socket.create_connection((address, 9101), timeout=2):
        here.accept()[0].close()
    same = {"families": sorted(clients)}
    if w.finishing() and not taken:
        w.expect("unread bytes", everything(unread, 30000) == b"unread" * 5000, True)
        for _, receiver, size in stuffed_ones:
            sent = PATTERN * (size // len(PATTERN)) + PATTERN[: size % len(PATTERN)]
            w.expect("bytes of a full connection", everything(receiver, size) == sent, True)
        w.expect("end of the half-closed", half_other.recv(10), b"")
        taken = True
    if taken:
        same["received"] = True
    return same, {"echoes": count}


time.sleep(0.1)
w.forever(step)

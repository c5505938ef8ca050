"""Unix sockets: a stream by path on an emptyDir and one by abstract name, datagrams, a socketpair with bytes that nobody has read, a file
descriptor sent from one process to another."""

import array
import os
import socket
import time

import w

STREAM, DATAGRAM = "/data/stream", "/srv/datagram"


def serve(listener):
    connection, _ = listener.accept()
    while data := connection.recv(4096):
        connection.sendall(data)
    os._exit(1)


def listen(address):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    return listener


listeners = {"path": listen(STREAM), "abstract": listen("\0holdfast-workload")}
clients = {}
for name, listener in listeners.items():
    if os.fork() == 0:
        serve(listener)
    clients[name] = socket.socket(socket.AF_UNIX)
    clients[name].connect(listener.getsockname())
receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
receiver.bind(DATAGRAM)
sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
sender.connect(DATAGRAM)
left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
for i in range(5):
    left.send(b"packet %d" % i)
give, take = socket.socketpair()
if os.fork() == 0:
    give.close()
    while True:  # answers with a file that says the number it was sent
        number = take.recv(100)
        file = os.memfd_create("answer")
        os.write(file, number)
        take.sendmsg([b"f"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file]))])
        os.close(file)
take.close()
count, taken = 0, False


def step():
    global count, taken
    count += 1
    for name, client in clients.items():
        text = b"%s %d" % (name.encode(), count)
        client.sendall(text)
        w.expect(name, client.recv(4096), text)
    sender.send(b"%d" % count)
    w.expect("datagram", receiver.recv(100), b"%d" % count)
    give.send(b"%d" % count)
    _, more, _, _ = give.recvmsg(10, socket.CMSG_SPACE(4))
    fd = array.array("i", more[0][2])[0]
    w.expect("file that was sent", os.pread(fd, 100, 0), b"%d" % count)
    os.close(fd)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as again:  # a new one finds it by its path
        again.sendto(b"new", DATAGRAM)
        w.expect("by path", receiver.recv(100), b"new")
    same = {}
    if w.finishing() and not taken:
        w.expect("packets", [right.recv(100) for _ in range(5)], [b"packet %d" % i for i in range(5)])
        taken = True
    if taken:
        same["received"] = True
    return same, {"echoes": count}


time.sleep(0.1)
w.forever(step)

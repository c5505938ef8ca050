"""Two containers with one TCP connection between them on loopback: "server" answers each number, "client" asks."""

import socket
import struct
import sys

import w

count = 0
if sys.argv[1] == "server":
    connection, _ = socket.create_server(("127.0.0.1", 9200)).accept()
else:
    connection = w.connect(9200)
connection.settimeout(60)


def serve():
    global count
    connection.sendall(connection.recv(8))
    count += 1
    return {}, {"answers": count}


def ask():
    global count
    count += 1
    connection.sendall(struct.pack("<Q", count))
    w.expect("the answer", struct.unpack("<Q", connection.recv(8))[0], count)
    return {}, {"questions": count}


w.forever(serve if sys.argv[1] == "server" else ask)

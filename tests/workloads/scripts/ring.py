"""One member of a group of two, which send each other numbered messages and acknowledge them: ring.py listen PORT | call HOST PORT.

When a connection begins, each says how far it is. Of two states of one moment, each has received no more than the other has sent, and no
less than it has acknowledged: what a connection lost on its way is sent again. Anything else is told as an error."""

import select
import socket
import sys

import w

WINDOW = 200  # messages on their way
sent = acknowledged = received = connections = 0
listener = socket.create_server(("", int(sys.argv[2])), reuse_port=True) if sys.argv[1] == "listen" else None
peer = None


class Peer:
    """A connection on which both have said how far they are."""

    def __init__(self, connection):
        global connections, acknowledged
        self.socket = connection
        self.socket.settimeout(3)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.rest = b""
        self.socket.sendall(f"H {sent} {received} {acknowledged} {w.NONCE}\n".encode())
        _, their_sent, their_received, their_acknowledged, _ = self.line().split()
        if int(their_received) > sent:
            w.expect("messages that the other one received, of those that were sent", int(their_received), sent)
        if int(their_received) < acknowledged:
            w.expect("messages that the other one has, of those that it acknowledged", int(their_received), acknowledged)
        if int(their_acknowledged) > received or int(their_sent) < received:
            w.expect("what the other one knows", (int(their_sent), int(their_acknowledged)), f"around {received}")
        acknowledged = max(acknowledged, int(their_received))
        self.next = acknowledged + 1
        self.told = received
        connections += 1

    def line(self):
        while b"\n" not in self.rest:
            data = self.socket.recv(65536)
            if not data:
                raise ConnectionError("closed")
            self.rest += data
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode()

    def send(self):
        global sent
        lines = [f"A {received}\n"] if received != self.told else []  # also while the window is full
        self.told = received
        while self.next <= acknowledged + WINDOW:
            lines.append(f"M {self.next} {received}\n")
            sent = max(sent, self.next)
            self.next += 1
        if lines:
            self.socket.sendall("".join(lines).encode())

    def receive(self):
        global received, acknowledged
        while b"\n" in self.rest or select.select([self.socket], [], [], 0)[0]:
            kind, *number, acknowledgement = self.line().split()
            if kind == "M":
                w.expect("the next message", int(number[0]), received + 1)
                received = int(number[0])
            acknowledged = max(acknowledged, int(acknowledgement))


def step():
    global peer
    try:
        if peer is None:
            if listener:
                listener.settimeout(3)
                connection, _ = listener.accept()
            else:
                connection = socket.create_connection((sys.argv[2], int(sys.argv[3])), timeout=3)
            peer = Peer(connection)
        peer.send()
        if not select.select([peer.socket], [], [], 3)[0]:
            raise TimeoutError("the other one says nothing")
        peer.receive()
    except (OSError, ValueError):
        if peer:
            peer.socket.close()
        peer = None
    return {}, {"sent": sent, "received": received, "connections": connections}


w.forever(step, every=0.002)

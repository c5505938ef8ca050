"""A pod with a terminal (tty: true), and a terminal that the program made for its child: settings and size stay, and both speak."""

import fcntl
import os
import pty
import struct
import termios

import w

TIOCSWINSZ, TIOCGWINSZ = 0x5414, 0x5413
child, master = pty.fork()
if child == 0:
    os.execvp("bash", ["bash", "--norc", "-c", 'stty -echo; echo ready; while read -r line; do echo "$line to $(tty)"; done'])
fcntl.ioctl(master, TIOCSWINSZ, struct.pack("HHHH", 41, 107, 0, 0))
settings = termios.tcgetattr(0)
settings[3] &= ~termios.ECHO
settings[6][termios.VINTR] = b"\x07"
termios.tcsetattr(0, termios.TCSANOW, settings)
answers = os.fdopen(master, "r+b", buffering=0)
count = 0


def answer():
    line = b""
    while not line.endswith(b"\r\n"):
        line += answers.read(1)
    return line.decode()


def step():
    global count
    count += 1
    answers.write(b"%d\n" % count)
    number, _, where = answer().split()
    w.expect("the child's answer", number, str(count))
    now = termios.tcgetattr(0)
    print(f"line {count}", flush=True)
    size = struct.unpack("HHHH", fcntl.ioctl(master, TIOCGWINSZ, bytes(8)))[:2]
    return {"terminal": os.isatty(0) and os.isatty(1), "echo": bool(now[3] & termios.ECHO), "interrupt": now[6][termios.VINTR].hex(), "size": size, "child's": where}, {"lines": count}


w.expect("the child's first line", answer(), "ready\r\n")  # it has turned its echo off
w.forever(step, 0.05)

"""Pipes and FIFOs: bytes that nobody has read yet, sizes and flags that were set, both ends in two processes, a FIFO with a name."""

import fcntl
import os
import struct
import time

import w

F_SETPIPE_SZ, F_GETPIPE_SZ = 1031, 1032
waiting = bytes(i * 7 & 255 for i in range(200000))
held, fill = os.pipe2(os.O_NONBLOCK)
fcntl.fcntl(fill, F_SETPIPE_SZ, 1 << 18)
os.write(fill, waiting)
os.mkfifo("/srv/fifo")
fifo = os.open("/srv/fifo", os.O_RDWR)
os.write(fifo, b"in the fifo")
ask, answer = os.pipe(), os.pipe()
if os.fork() == 0:
    while True:
        os.write(answer[1], os.read(ask[0], 8))
count = 0
taken = False


def step():
    global count, taken
    count += 1
    os.write(ask[1], struct.pack("<Q", count))
    w.expect("echo", struct.unpack("<Q", os.read(answer[0], 8))[0], count)
    w.expect("flags", fcntl.fcntl(held, fcntl.F_GETFL) & os.O_NONBLOCK, os.O_NONBLOCK)
    size = fcntl.fcntl(held, F_GETPIPE_SZ)
    same = {"size": size}
    if w.finishing() and not taken:
        w.expect("what waited in the pipe", os.read(held, 1 << 20) == waiting, True)
        w.expect("what waited in the fifo", os.read(fifo, 100), b"in the fifo")
        again = os.open("/srv/fifo", os.O_WRONLY)  # by its name: the same one
        os.write(again, b"by name")
        w.expect("by name", os.read(fifo, 100), b"by name")
        taken = True
    if taken:
        same["received"] = True
    return same, {"echoes": count}


time.sleep(0.1)
w.forever(step)

"""File locks: flock, a range by fcntl, and an open-file-description lock, held by one process and asked for in vain by another; and one that
somebody waits for."""

import fcntl
import os
import struct
import time

import w

F_OFD_SETLK = 37
FOLDERS = ("/srv", "/data")


def lock(fd, command, kind=fcntl.F_WRLCK, start=0, length=0):
    fcntl.fcntl(fd, command, struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, 0))


def tries(path, take):
    """Whether another open file of this name is refused the lock."""
    fd = os.open(path, os.O_RDWR)
    try:
        take(fd)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(fd)


kinds = {
    "flock": lambda fd: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB),
    "fcntl": lambda fd: lock(fd, fcntl.F_SETLK, start=100, length=50),
    "ofd": lambda fd: lock(fd, F_OFD_SETLK, start=1000),
}
held = {}
for folder in FOLDERS:
    for name, take in kinds.items():
        path = f"{folder}/{name}"
        held[path] = (os.open(path, os.O_RDWR | os.O_CREAT), take)
        take(held[path][0])
wanted = os.open("/srv/wanted", os.O_RDWR | os.O_CREAT)
fcntl.flock(wanted, fcntl.LOCK_EX)
results_reader, results = os.pipe()
os.set_blocking(results_reader, False)
if os.fork() == 0:  # asks in vain
    while True:
        os.write(results, bytes([all(tries(path, take) for path, (_, take) in held.items())]))
        time.sleep(0.03)
if os.fork() == 0:  # waits until it may
    os.close(wanted)
    fcntl.flock(os.open("/srv/wanted", os.O_RDWR), fcntl.LOCK_EX)
    open("/srv/got", "w").close()
    time.sleep(1e6)
refused, released = 0, False


def step():
    global refused, released
    try:
        for ok in os.read(results_reader, 4096):
            w.expect("refused", ok, 1)
            refused += 1
    except BlockingIOError:
        pass
    same = {}
    if not released:
        w.expect("the waiting one", os.path.exists("/srv/got"), False)
    if w.finishing() and not released:
        fcntl.flock(wanted, fcntl.LOCK_UN)
        released = True
    if released and os.path.exists("/srv/got"):
        same["received"] = True
    return same, {"refused": refused}


time.sleep(0.1)
w.forever(step)

"""One epoll over an eventfd that counts as a semaphore, a signalfd, a timerfd, a pipe watched by its edges, and inotify watches on a folder of
the root file system, of an emptyDir, and of a file. A thread makes the events."""

import ctypes
import os
import select
import signal
import struct
import threading
import time

import w

libc = ctypes.CDLL(None, use_errno=True)
IN_CREATE, IN_MODIFY = 0x100, 0x2


def must(fd, what):
    if fd < 0:
        raise OSError(ctypes.get_errno(), what)
    return fd


signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
mask = ctypes.create_string_buffer(struct.pack("<Q", 1 << (signal.SIGUSR1 - 1)) + bytes(120))
signals = must(libc.signalfd(-1, mask, os.O_NONBLOCK), "signalfd")
timer = must(libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK), "timerfd")
must(libc.timerfd_settime(timer, 0, struct.pack("qqqq", 0, 50000000, 0, 50000000), None), "timerfd_settime")
events = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_SEMAPHORE)
reader, writer = os.pipe2(os.O_NONBLOCK)
watches = must(libc.inotify_init1(os.O_NONBLOCK), "inotify_init1")
names = {}
for name, path, what in (("folder", "/srv/watched", IN_CREATE), ("volume", "/data/watched", IN_CREATE), ("file", "/srv/watched-file", IN_MODIFY)):
    if what == IN_CREATE:
        os.makedirs(path, exist_ok=True)
    else:
        open(path, "w").close()
    names[must(libc.inotify_add_watch(watches, path.encode(), what), "inotify_add_watch")] = f"inotify {name}"
poll = select.epoll()
for fd, kind in ((events, select.EPOLLIN), (signals, select.EPOLLIN), (timer, select.EPOLLIN), (reader, select.EPOLLIN | select.EPOLLET), (watches, select.EPOLLIN)):
    poll.register(fd, kind)
counts = dict.fromkeys(["eventfd", "signalfd", "timerfd", "pipe", *names.values()], 0)


def make():
    n = 0
    while True:
        n += 1
        os.eventfd_write(events, 2)
        os.kill(os.getpid(), signal.SIGUSR1)
        os.write(writer, b"x")
        for folder in ("/srv/watched", "/data/watched"):
            open(f"{folder}/{n}", "w").close()
            os.unlink(f"{folder}/{n}")
        with open("/srv/watched-file", "a") as file:
            file.write("x")
        time.sleep(0.03)


threading.Thread(target=make, daemon=True).start()


def step():
    for fd, _ in poll.poll(5):
        if fd == events:
            counts["eventfd"] += os.eventfd_read(events)
        elif fd == signals:
            data = os.read(signals, 128)
            w.expect("signal", struct.unpack_from("<I", data)[0], signal.SIGUSR1)
            counts["signalfd"] += 1
        elif fd == timer:
            counts["timerfd"] += struct.unpack("<Q", os.read(timer, 8))[0]
        elif fd == reader:
            counts["pipe"] += len(os.read(reader, 4096))
        else:
            try:
                data, at = os.read(watches, 65536), 0
            except BlockingIOError:
                continue  # moved between the poll and the read: what was in this queue stays behind (docs/compatibility.md)
            while at < len(data):
                watch, _, _, length = struct.unpack_from("<iIII", data, at)
                counts[names[watch]] += 1
                at += 16 + length
    return {"watches": sorted(names.values())}, dict(counts)


w.forever(step, 0)

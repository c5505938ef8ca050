"""Memory that processes share: POSIX shared memory with and without its name, a sealed memfd, anonymous shared pages, a mapped file of the
root file system and of a volume in memory, private pages over a file."""

import fcntl
import mmap
import os
import struct
import time
from multiprocessing import shared_memory

import w

SIZE = 1 << 20
pattern = bytes(i * 13 >> 2 & 255 for i in range(SIZE - 4096))


def mapped(fd, flags=mmap.MAP_SHARED):
    os.ftruncate(fd, SIZE)
    return mmap.mmap(fd, SIZE, flags)


def opened(path):
    return mapped(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


named = shared_memory.SharedMemory("holdfast", create=True, size=SIZE)
removed = opened("/dev/shm/removed")
os.unlink("/dev/shm/removed")
sealed_fd = os.memfd_create("sealed", os.MFD_ALLOW_SEALING)
places = {
    "POSIX": named.buf, "without its name": removed, "memfd": mapped(sealed_fd), "anonymous": mmap.mmap(-1, SIZE),
    "file": opened("/srv/mapped"), "volume": opened("/data/mapped"), "memory volume": opened("/mem/mapped"),
}
fcntl.fcntl(sealed_fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
with open("/srv/private", "wb") as file:
    file.write(bytes(SIZE))
private = mmap.mmap(os.open("/srv/private", os.O_RDWR), SIZE, mmap.MAP_PRIVATE)
for place in [*places.values(), private]:
    place[4096:SIZE] = pattern
if os.fork() == 0:
    while True:  # the other process counts on in each
        for place in places.values():
            place[8:16] = struct.pack("<Q", struct.unpack("<Q", bytes(place[8:16]))[0] + 1)
        time.sleep(0.02)
count = 0


def step():
    global count
    count += 1
    for name, place in [*places.items(), ("private", private)]:
        w.expect(name, bytes(place[4096:SIZE]) == pattern, True)
    w.expect("the file under the private pages", open("/srv/private", "rb").read() == bytes(SIZE), True)
    w.expect("the mapped file", open("/srv/mapped", "rb").read()[4096:] == pattern, True)
    w.expect("seals", fcntl.fcntl(sealed_fd, fcntl.F_GET_SEALS), fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    w.expect("/dev/shm", sorted(n for n in os.listdir("/dev/shm")), ["holdfast"])
    return {}, {"rounds": count, **{name: struct.unpack("<Q", bytes(place[8:16]))[0] for name, place in places.items()}}


time.sleep(0.1)
w.forever(step, 0.1)

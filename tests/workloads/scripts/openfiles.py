"""Open files: without a name, with another name than they were opened by, at an offset that two processes share, growing, in a folder that was
removed; on the root file system, an emptyDir and one in memory."""

import os
import tempfile
import time

import w

data = os.urandom(1 << 20)
FOLDERS = ("/srv", "/data", "/mem")
removed, renamed, growing, unnamed = {}, {}, {}, {}
for folder in FOLDERS:
    path = f"{folder}/removed"
    removed[folder] = os.open(path, os.O_RDWR | os.O_CREAT, 0o640)
    os.write(removed[folder], data)
    os.lseek(removed[folder], 12345, os.SEEK_SET)
    os.unlink(path)
    renamed[folder] = os.open(f"{folder}/old-name", os.O_RDWR | os.O_CREAT)
    os.write(renamed[folder], b"renamed")
    os.rename(f"{folder}/old-name", f"{folder}/new-name")
    growing[folder] = os.open(f"{folder}/growing", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    unnamed[folder] = tempfile.TemporaryFile(dir=folder)
    unnamed[folder].write(data[:5000])
    unnamed[folder].flush()
from_image = open("/var/image/removed")  # a file of the image, removed while it is open
os.unlink("/var/image/removed")
os.mkdir("/srv/gone")
os.chdir("/srv/gone")
os.rmdir("/srv/gone")
shared = os.open("/srv/offset", os.O_RDWR | os.O_CREAT)
os.write(shared, data)
os.lseek(shared, 0, os.SEEK_SET)
if os.fork() == 0:
    while True:  # the parent's offset moves with ours
        os.lseek(shared, 1, os.SEEK_CUR)
        time.sleep(0.03)
count = 0


def step():
    global count
    count += 1
    for folder in FOLDERS:
        w.expect("content", os.pread(removed[folder], len(data) + 1, 0) == data, True)
        w.expect("offset", os.lseek(removed[folder], 0, os.SEEK_CUR), 12345)
        w.expect("links", os.fstat(removed[folder]).st_nlink, 0)
        w.expect("mode", os.fstat(removed[folder]).st_mode & 0o777, 0o640)
        w.expect("renamed", (os.pread(renamed[folder], 100, 0), open(f"{folder}/new-name", "rb").read()), (b"renamed", b"renamed"))
        w.expect("unnamed", os.pread(unnamed[folder].fileno(), 10000, 0) == data[:5000], True)
        os.write(growing[folder], b"%d\n" % count)
        if count % 20 == 0:
            w.expect("growing", open(f"{folder}/growing").read().split(), [str(i) for i in range(1, count + 1)])
    from_image.seek(0)
    w.expect("of the image", from_image.read(), "from the image: removed\n")
    w.expect("its name", os.path.exists("/var/image/removed"), False)
    w.expect("the removed folder", (os.readlink("/proc/self/cwd"), os.listdir(".")), ("/srv/gone (deleted)", []))
    return {}, {"rounds": count, "offset of the other process": os.lseek(shared, 0, os.SEEK_CUR)}


time.sleep(0.1)
w.forever(step)

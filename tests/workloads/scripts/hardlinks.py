"""Open files whose name was removed while another name leads to them."""

import os
import time

import w

files = {}
for folder in ("/srv", "/data"):
    files[folder] = os.open(f"{folder}/opened", os.O_RDWR | os.O_CREAT)
    os.write(files[folder], b"x" * 1000)
    os.link(f"{folder}/opened", f"{folder}/other-name")
    os.unlink(f"{folder}/opened")
count = 0


def step():
    global count
    count += 1
    for folder, fd in files.items():
        os.pwrite(fd, b"%08d" % count, 0)
        w.expect("by the other name", open(f"{folder}/other-name", "rb").read(8), b"%08d" % count)
        w.expect("links", os.fstat(fd).st_nlink, 1)
        w.expect("names", [n for n in os.listdir(folder) if n != "watched"], ["other-name"])
    return {}, {"rounds": count}


time.sleep(0.1)
w.forever(step)

"""One container of several: "writer" counts into volumes on disk and in memory and into /dev/shm;
"reader" checks that no number goes back. With "pids" they share a process namespace and look at each other."""

import os
import sys
import time

import w

role = sys.argv[1]
count, last = 0, dict.fromkeys(("/data", "/mem", "/dev/shm"), 0)


def write(folder, text):
    with open(f"{folder}/.count", "w") as file:
        file.write(text)
    os.rename(f"{folder}/.count", f"{folder}/count")


def writer():
    global count
    count += 1
    for folder in last:
        write(folder, str(count))
    return {}, {"written": count}


def command(pid):
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError):  # it has ended: whoever looks into the pod comes and goes
        return ""


def reader():
    global count
    count += 1
    for folder in last:
        seen = int(open(f"{folder}/count").read())
        if seen < last[folder]:
            w.expect(f"{folder} went back", seen, last[folder])
        last[folder] = seen
    same = {}
    if "pids" in sys.argv:
        same["writers seen"] = sum("several.py\0writer" in command(pid) for pid in os.listdir("/proc") if pid.isdigit())
    return same, {"read": count, **last}


if role == "reader":
    while not all(os.path.exists(f"{folder}/count") for folder in last):
        time.sleep(0.05)
w.forever(writer if role == "writer" else reader)

#!/usr/bin/python3
"""STAND-IN for NVIDIA's cuda-checkpoint, and (called nvidia-smi) for nvidia-smi, for machines without a GPU. It keeps the command line of the
real program (570; with driver 580 in /proc/driver/nvidia/version also --device-map), its states and which step may follow which, and works on
processes of gpu_counter.c. What it did is in /run/cuda.log; which action
fails, and which hangs, in /run/cuda.fail and /run/cuda.hang."""
import os, re, struct, sys, time

BASE, OFFSET = 0x10000000, 16
STATES, ACTIONS = ("running", "locked", "checkpointed"), {"lock": (0, 1), "checkpoint": (1, 2), "restore": (2, 1), "unlock": (1, 0)}


def fail(why):
    print(why, file=sys.stderr)
    sys.exit(1)


def read(path):
    with open(path) as f:
        return f.read()


def thread_of(pid):
    for tid in os.listdir(f"/proc/{pid}/task"):
        if read(f"/proc/{pid}/task/{tid}/comm") == "cuda-restore\n":
            return tid
    return None


def peek(pid, offset, size):
    fd = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    try:
        return os.pread(fd, size, BASE + offset)
    finally:
        os.close(fd)


def poke(pid, offset, data):
    fd = os.open(f"/proc/{pid}/mem", os.O_RDWR)
    try:
        os.pwrite(fd, data, BASE + offset)
    finally:
        os.close(fd)


def words(pid):
    return struct.unpack("3i", peek(pid, OFFSET, 12))


def text(pid, offset):
    return peek(pid, offset, 64).split(b"\0")[0].decode()


def gpus():
    """{uuid: device} of the node."""
    found = {}
    for bus in os.listdir("/proc/driver/nvidia/gpus"):
        lines = read(f"/proc/driver/nvidia/gpus/{bus}/information").splitlines()
        fields = dict(re.split(r":\s+", line, maxsplit=1) for line in lines)
        found[fields["GPU UUID"]] = "/dev/nvidia" + fields["Device Minor"]
    return found


def driver():
    return int(re.search(r"(\d+)\.\d", read("/proc/driver/nvidia/version"))[1])


def smi():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if thread_of(pid) and words(pid)[1] != 2:
                print(f"{pid}, {os.environ.get('STAND_IN_MIB', '4')}")
        except OSError:
            pass


def act(pid, action, timeout, device_map):
    before, after = ACTIONS[action]
    request, state, _ = words(pid)
    with open("/run/cuda.log", "a") as log:
        print(action, device_map or "", file=log)
    if action == "unlock" and (request, state) == (1, 0):  # a lock that was asked for and not granted yet
        return poke(pid, OFFSET, struct.pack("i", 0))
    if os.path.exists("/run/cuda.fail") and read("/run/cuda.fail") == action:
        fail(f"{action}: told to fail")
    while os.path.exists("/run/cuda.hang") and read("/run/cuda.hang") == action:
        time.sleep(1)
    if state != before:
        fail(f"{action}: invalid state {STATES[state]}")
    if action == "restore":
        uuid = dict(pair.split("=") for pair in device_map.split(",")).get(text(pid, 28), "") if device_map else text(pid, 28)
        if uuid not in gpus():
            fail(f"restore: no device {uuid}")
        poke(pid, 28, uuid.encode().ljust(64, b"\0"))
        poke(pid, 92, gpus()[uuid].encode().ljust(64, b"\0"))
    poke(pid, OFFSET, struct.pack("i", list(ACTIONS).index(action) + 1))
    until = time.monotonic() + timeout / 1000 if timeout else None
    while words(pid)[:2] != (0, after):
        if until and time.monotonic() > until:
            poke(pid, OFFSET, struct.pack("i", 0))
            fail(f"{action}: timed out")
        time.sleep(0.001)


def main(args):
    options = dict(zip(args, args[1:]))
    maps = driver() >= 580
    if "-h" in args or "--help" in args:
        print("--get-state --pid <pid>\n--action lock | checkpoint | restore | unlock --pid <pid> [--timeout <ms>]" + (" [--device-map <map>]" if maps else "") + "\n--get-restore-tid --pid <pid>")
        return
    pid = int(options["--pid"])
    if not os.path.exists(f"/proc/{pid}") or not thread_of(pid):
        fail("not a CUDA process")
    if "--device-map" in args and not maps:
        fail("unknown option --device-map")
    if "--get-restore-tid" in args:
        print(thread_of(pid))
    elif "--get-state" in args:
        print(STATES[words(pid)[1]])
    else:
        act(pid, options["--action"], int(options.get("--timeout", 0)), options.get("--device-map"))


if os.path.basename(sys.argv[0]) == "nvidia-smi":
    smi()
else:
    main(sys.argv[1:])

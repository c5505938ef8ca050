"""A pod with init containers: one prepares a file, which is in the checkpoint; one fences the pod's network, as istio-init or JupyterHub's
block-cloud-metadata do, which is in none. A process that was moved finds both, the file as it was."""

import fcntl
import socket
import struct
import sys

import w

FENCED = "192.0.2.66"  # an address of the documentation
SIOCADDRT, UP, HOST, REJECT = 0x890B, 1, 4, 0x200


def address(of):
    return struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(of))


def fence():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:  # struct rtentry of <linux/route.h>
        route = struct.pack("@Q16s16s16sHh4xQQh6xQQQH6x", 0, address(FENCED), address("0.0.0.0"), address("255.255.255.255"), UP | HOST | REJECT, 0, 0, 0, 0, 0, 0, 0, 0)
        fcntl.ioctl(any_socket, SIOCADDRT, route)


def is_fenced():
    in_hex = socket.inet_aton(FENCED)[::-1].hex().upper()
    return any(line.split()[1] == in_hex for line in open("/proc/net/route").read().splitlines()[1:])


def note(who):
    with open("/data/prepared", "a") as file:
        file.write(who + "\n")


if sys.argv[1:] == ["fences"]:
    fence()
    sys.exit()
if sys.argv[1:] == ["prepares"]:
    note("init")
    sys.exit()
note("main")
count = 0


def step():
    global count
    count += 1
    w.expect("the pod is fenced", is_fenced(), True)
    return {"prepared": open("/data/prepared").read()}, {"count": count}


w.forever(step)

"""Holds what CRIU cannot dump. It must be refused before anything is frozen, with its name."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time

libc = ctypes.CDLL(None, use_errno=True)
IO_URING_SETUP, USERFAULTFD, MEMFD_SECRET, PERF_EVENT_OPEN, CLONE_NEWUSER, PTRACE_SEIZE = 425, 323, 447, 298, 0x10000000, 0x4206


def must(result, what):
    if result < 0:
        sys.exit(f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def io_uring():
    must(libc.syscall(IO_URING_SETUP, 8, ctypes.create_string_buffer(256)), "io_uring_setup")


def userfaultfd():
    must(libc.syscall(USERFAULTFD, os.O_CLOEXEC | 1), "userfaultfd")  # UFFD_USER_MODE_ONLY


def secret_memory():
    must(libc.syscall(MEMFD_SECRET, 0), "memfd_secret")


def message_queue():
    must(libc.mq_open(b"/holdfast", os.O_CREAT | os.O_RDWR, 0o600, None), "mq_open")


def user_namespace():
    if os.fork() == 0:
        must(libc.unshare(CLONE_NEWUSER), "unshare")
        time.sleep(1e6)


def debugger():
    child = subprocess.Popen(["sleep", "1000000"])
    must(libc.ptrace(PTRACE_SEIZE, child.pid, None, None), "ptrace")


def stopped():
    os.kill(subprocess.Popen(["sleep", "1000000"]).pid, signal.SIGSTOP)


def multipath_tcp():
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)


def descriptor_sent():
    left, right = socket.socketpair()
    socket.send_fds(left, [b"x"], [0])
    return left, right


def vsock():
    return socket.socket(40, socket.SOCK_STREAM)


def neighbour_listens():
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("/data/socket")
    listener.listen()
    return listener.accept()


def neighbour():
    connection = socket.socket(socket.AF_UNIX)
    while connection.connect_ex("/data/socket"):
        time.sleep(0.1)
    return connection


kept = globals()[sys.argv[1]]()
open("/run/holds", "w").close()
print("holds it", flush=True)
time.sleep(1e6)

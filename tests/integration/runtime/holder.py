"""A program that has open what real software has, and says every fifth of a second that it runs."""
import ctypes, fcntl, mmap, os, pty, select, signal, socket, struct, threading, time

libc = ctypes.CDLL(None, use_errno=True)
held = []


def hold(what):
    held.append(what)
    return what


def files():
    for path in ("/tmp/deleted", "/var/tmp/renamed", "/data/kept-open"):
        hold(open(path, "w+")).write("x" * 100)
    os.unlink("/tmp/deleted")
    os.link("/var/tmp/renamed", "/var/tmp/other")
    os.unlink("/var/tmp/renamed")
    os.makedirs("/data/folder")
    hold(os.open("/data/folder", os.O_RDONLY))
    os.rmdir("/data/folder")
    os.mkfifo("/data/fifo")
    hold(os.open("/data/fifo", os.O_RDWR))
    for path in ("/proc/self/mountinfo", "/proc/meminfo", "/proc", "/proc/sys/kernel/hostname", "/sys/kernel/mm", "/dev/urandom", "/secrets/token"):
        hold(os.open(path, os.O_RDONLY))
    for path in ("/dev/null", "/dev/shm/x", "/run/tmp/x"):
        hold(os.open(path, os.O_RDWR | os.O_CREAT))
    lock = hold(open("/data/lock", "w"))
    fcntl.flock(lock, fcntl.LOCK_EX)
    file = hold(os.open("/data/map", os.O_RDWR | os.O_CREAT))
    os.ftruncate(file, 4096)
    hold(mmap.mmap(file, 4096))


def sockets():
    for name in ("/data/stream", "/var/run/through-a-link", "\0abstract"):
        listener = hold(socket.socket(socket.AF_UNIX))
        listener.bind(name)
        listener.listen()
    hold(socket.socket(socket.AF_UNIX)).connect("/data/stream")
    os.chdir("/tmp")
    hold(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)).bind("relative")
    os.chdir("/")
    hold(socket.socketpair())
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        listener = hold(socket.socket(family))
        listener.bind((address, 7100 + family))
        listener.listen()
    hold(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)).bind(("127.0.0.1", 7200))
    hold(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)).bind((0, 1))  # hears of links


def rest():
    hold(os.pipe())
    events = hold(os.eventfd(3))
    hold(select.epoll()).register(events)
    watch = hold(libc.inotify_init1(0))
    for path in (b"/data", b"/data/map"):
        libc.inotify_add_watch(watch, path, 0x2)
    timer = hold(libc.timerfd_create(1, 0))
    libc.timerfd_settime(timer, 0, struct.pack("qqqq", 5, 0, 5, 0), None)
    hold(libc.signalfd(-1, ctypes.create_string_buffer(128), 0))
    memory = hold(os.memfd_create("memory"))
    os.write(memory, b"m" * 4096)
    hold(mmap.mmap(memory, 4096))
    hold(mmap.mmap(-1, 1 << 20, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS))
    libc.shmat.restype = ctypes.c_void_p
    libc.shmat(libc.shmget(0x1234, 65536, 0o1600), None, 0)
    libc.semget(0x77, 3, 0o1600)
    libc.msgget(0x78, 0o1600)
    hold(pty.openpty())
    signal.setitimer(signal.ITIMER_REAL, 1000, 0)
    threading.Thread(target=lambda: time.sleep(100000), daemon=True).start()
    if os.fork() == 0:
        os.setsid()
        time.sleep(100000)
    if os.fork() == 0:
        os._exit(0)  # a zombie


files()
sockets()
rest()
n = 0
while True:
    print(n, time.monotonic_ns(), "sum=0", flush=True)
    n += 1
    time.sleep(0.2)

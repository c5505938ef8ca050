"""memcached with 5000 items, flags and times to live, and a connection that stays open."""

import subprocess

import w

subprocess.Popen(["memcached", "-u", "root", "-l", "127.0.0.1", "-p", "11211", "-t", "2"])
connection = w.connect(11211)
file = connection.makefile("rb")


def line(text):
    connection.sendall(text + b"\r\n")
    return file.readline().strip()


def get(key):
    head = line(b"get " + key)
    if head == b"END":
        return None
    value = file.read(int(head.split()[3]) + 2)[:-2]
    file.readline()
    return head.split()[2], value


def stats():
    connection.sendall(b"stats\r\n")
    found = {}
    while (text := file.readline().strip()) != b"END":
        _, name, value = text.split(b" ", 2)
        found[name.decode()] = value.decode()
    return found


def value(n):
    return b"value %d " % n * (n % 50 + 1)


for i in range(5000):
    line(b"set item-%d %d 36000 %d\r\n%s" % (i, i % 1000, len(value(i)), value(i)))
line(b"set count 0 0 1\r\n0")
count = 0


def step():
    global count
    count += 1
    w.expect("incr", line(b"incr count 1"), b"%d" % count)
    for n in range(count * 7 % 5000, 5000, 500):
        w.expect(f"item {n}", get(b"item-%d" % n), (b"%d" % (n % 1000), value(n)))
    found = stats()
    return {"items": found["curr_items"], "pid": found["pid"], "evicted": found["evictions"]}, {"count": count}


w.forever(step)

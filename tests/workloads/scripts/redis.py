"""Redis with 20 000 keys, and clients that stay connected: one that counts, one in the middle of a transaction, one that has subscribed, one that
waits in BLPOP. In the end a background save, for which it forks."""

import subprocess
import time

import w

subprocess.Popen(["redis-server", "--port", "6379", "--save", "", "--enable-debug-command", "local", "--dir", "/data", "--logfile", "/data/log"])


class Connection:
    def __init__(self):
        self.socket = w.connect(6379)
        self.file = self.socket.makefile("rb")

    def send(self, *words):
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in (str(x).encode() for x in words)))

    def read(self):
        line = self.file.readline().rstrip(b"\r\n")
        kind, rest = line[:1], line[1:].decode()
        if kind == b"$":
            return None if rest == "-1" else self.file.read(int(rest) + 2)[:-2].decode()
        if kind == b"*":
            return [self.read() for _ in range(int(rest))]
        if kind == b":":
            return int(rest)
        return line.decode()

    def ask(self, *words):
        self.send(*words)
        return self.read()


counting, transaction, subscriber, waiting = (Connection() for _ in range(4))
while counting.ask("PING") != "+PONG":
    time.sleep(0.05)
counting.ask("DEBUG", "POPULATE", 20000, "key", 100)
run = counting.ask("INFO", "server").split("run_id:")[1][:40]
transaction.ask("MULTI")
transaction.ask("SET", "in-transaction", "yes")
subscriber.ask("SUBSCRIBE", "news")
waiting.send("BLPOP", "list", 0)
values = {n: counting.ask("GET", f"key:{n}") for n in range(0, 20000, 500)}
count, done = 0, False


def step():
    global count, done
    count += 1
    w.expect("INCR", counting.ask("INCR", "count"), count)
    n = count * 500 % 20000
    w.expect(f"key {n}", counting.ask("GET", f"key:{n}"), values[n])
    counting.ask("PUBLISH", "news", count)
    w.expect("news", subscriber.read(), ["message", "news", str(count)])
    same = {"run": counting.ask("INFO", "server").split("run_id:")[1][:40] == run, "keys": counting.ask("DBSIZE") - (2 if done else 1)}
    if w.finishing() and not done:
        w.expect("before EXEC", counting.ask("GET", "in-transaction"), None)
        w.expect("EXEC", transaction.ask("EXEC"), ["+OK"])
        w.expect("after EXEC", counting.ask("GET", "in-transaction"), "yes")
        counting.ask("RPUSH", "list", "x")
        w.expect("BLPOP", waiting.read(), ["list", "x"])
        counting.ask("BGSAVE")
        while "rdb_bgsave_in_progress:1" in counting.ask("INFO", "persistence"):
            time.sleep(0.05)
        w.expect("BGSAVE", "rdb_last_bgsave_status:ok" in counting.ask("INFO", "persistence"), True)
        done = True
        same["keys"] = counting.ask("DBSIZE") - 2
    if done:
        same["received"] = True
    return same, {"count": count}


w.forever(step)

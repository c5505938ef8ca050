"""PostgreSQL with a transaction and a cursor that stay open in one client, another one that commits, a prepared statement and a temporary table.
In the end the transaction commits, and a new client sees all of it."""

import os
import subprocess

import w

BIN = "/usr/lib/postgresql/15/bin/"
subprocess.run([BIN + "initdb", "-D", "/data/db", "-A", "trust", "--no-sync", "--no-locale", "-U", "program"], check=True, stdout=subprocess.DEVNULL)
subprocess.Popen([BIN + "postgres", "-D", "/data/db", "-k", "/data", "-c", "jit=off", "-c", "fsync=off", "-c", "listen_addresses=127.0.0.1", "-c", "shared_buffers=16MB"])
w.connect(5432).close()


def client(host):
    return w.Client(BIN + "psql", "-qAtX", "-h", host, "-U", "program", "-d", "postgres", "-v", "ON_ERROR_STOP=1")


while subprocess.run([BIN + "pg_isready", "-q", "-h", "127.0.0.1"]).returncode:
    pass
inside, outside = client("/data"), client("127.0.0.1")
outside.tell("CREATE TABLE t (n int PRIMARY KEY, text text); INSERT INTO t SELECT n, 'row ' || n FROM generate_series(1, 10000) n;")
outside.tell("CREATE TEMPORARY TABLE temporary AS SELECT 42 AS answer; PREPARE get (int) AS SELECT text FROM t WHERE n = $1;")
identity = outside.ask("SELECT pg_backend_pid();")
inside.tell("BEGIN; INSERT INTO t VALUES (20000, 'not committed'); DECLARE c CURSOR FOR SELECT n FROM t WHERE n <= 10000 ORDER BY n;")
transaction = inside.ask("SELECT pg_backend_pid() || ' ' || txid_current();")
count, done = 0, False


def step():
    global count, done
    count += 1
    if not done:
        w.expect("the cursor", inside.ask("FETCH c;"), str(count))
        w.expect("the transaction", inside.ask("SELECT pg_backend_pid() || ' ' || txid_current();"), transaction)
        w.expect("what others see of it", outside.ask("SELECT count(*) FROM t WHERE n = 20000;"), "0")
    outside.tell(f"INSERT INTO t VALUES ({30000 + count}, 'committed');")
    w.expect("committed", outside.ask("SELECT count(*) FROM t WHERE n > 30000;"), str(count))
    w.expect("prepared", outside.ask(f"EXECUTE get ({count});"), f"row {count}")
    w.expect("temporary table", outside.ask("SELECT answer FROM temporary;"), "42")
    same = {"backend": outside.ask("SELECT pg_backend_pid();") == identity}
    if w.finishing() and not done:
        inside.tell("COMMIT;")
        w.expect("after COMMIT", inside.ask("SELECT text FROM t WHERE n = 20000;"), "not committed")
        new = client("127.0.0.1")
        new.tell("CHECKPOINT; VACUUM t;")
        w.expect("a new client", new.ask("SELECT count(*) FROM t;"), str(10001 + count))
        done = True
    if done:
        same["received"] = True
    return same, {"count": count}


os.chdir("/data")
w.forever(step, 0.05)

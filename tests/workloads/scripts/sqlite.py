"""SQLite in WAL mode and in rollback mode, each with a transaction that stays open, and other processes that look. (A process that had a database
open must not open it a second time after a move: docs/compatibility.md.)"""

import sqlite3
import subprocess
import sys

import w

JOURNAL, WAL = "/data/journal.db", "/data/wal.db"
open_one = sqlite3.connect(WAL, isolation_level=None)
open_one.execute("PRAGMA journal_mode=WAL")
open_one.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, text)")
open_one.executemany("INSERT INTO t VALUES (?, ?)", ((i, f"row {i}") for i in range(1000)))
reader = sqlite3.connect(WAL, isolation_level=None)
cursor = reader.execute("SELECT n FROM t ORDER BY n")  # stays open
open_one.execute("BEGIN IMMEDIATE")
open_one.execute("INSERT INTO t VALUES (5000, 'not committed')")
rollback = sqlite3.connect(JOURNAL, isolation_level=None)
rollback.execute("CREATE TABLE t (n)")
rollback.execute("BEGIN IMMEDIATE")
rollback.execute("INSERT INTO t VALUES (1)")
steps, rows, anew, done = 0, 0, 0, False


def other_process(database, query):
    program = f"import sqlite3; c = sqlite3.connect({database!r}, isolation_level=None); print(c.execute({query!r}).fetchone()[0])"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def step():
    global steps, rows, anew, done
    steps += 1
    row = cursor.fetchone()
    if row:
        w.expect("the cursor", row[0], rows)
        rows += 1
    if steps % 10 == 1:
        w.expect("what others see", other_process(WAL, "SELECT count(*) FROM t WHERE n >= 1000"), "2" if done else "0")
        anew += 1
    same = {}
    if w.finishing() and not done:
        open_one.execute("INSERT INTO t VALUES (5001, 'after the moves')")
        open_one.execute("COMMIT")
        rollback.execute("INSERT INTO t VALUES (2)")
        rollback.execute("COMMIT")  # its journal was open: it commits
        w.expect("committed", other_process(JOURNAL, "SELECT group_concat(n) FROM t"), "1,2")
        for database in (WAL, JOURNAL):
            w.expect("integrity", other_process(database, "PRAGMA integrity_check"), "ok")
        done = True
    if done:
        same["received"] = True
    return same, {"steps": steps, "others": anew}


w.forever(step, 0.05)

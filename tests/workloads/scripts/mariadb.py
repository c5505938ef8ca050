"""MariaDB with a transaction and row locks that stay in one client, and another one that commits. In the end it commits, and a new client sees
all of it."""

import subprocess
import time

import w

subprocess.run(["mariadb-install-db", "--no-defaults", "--datadir=/data/db", "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve", "--force"],
               check=True, stdout=subprocess.DEVNULL)
subprocess.Popen(["mariadbd", "--no-defaults", "--datadir=/data/db", "--socket=/data/socket", "--port=3306", "--bind-address=127.0.0.1", "--innodb-buffer-pool-size=16M",
                  "--innodb-log-file-size=8M", "--innodb-lock-wait-timeout=1", "--skip-grant-tables", "--skip-log-bin"])
w.connect(3306).close()


def client(*where):
    return w.Client("mariadb", "--no-defaults", "-NB", "-u", "root", "--unbuffered", "--force", *where)


local, tcp = ("--socket=/data/socket",), ("--host=127.0.0.1", "--protocol=tcp")
while subprocess.run(["mariadb", "--no-defaults", "-u", "root", *local, "-e", "SELECT 1"], capture_output=True).returncode:
    time.sleep(0.1)
outside = client(*tcp)
outside.tell("CREATE DATABASE d; USE d; CREATE TABLE t (n INT PRIMARY KEY, text TEXT) ENGINE=InnoDB; INSERT INTO t SELECT seq, CONCAT('row ', seq) FROM seq_1_to_5000;")
identity = outside.ask("SELECT CONNECTION_ID();")
inside = client(*local)
inside.tell("USE d; SET @mine = 'kept'; START TRANSACTION; INSERT INTO t VALUES (20000, 'not committed'); UPDATE t SET text = 'changed' WHERE n = 17;")
transaction = inside.ask("SELECT CONNECTION_ID();")
count, done = 0, False


def step():
    global count, done
    count += 1
    if not done:
        w.expect("the transaction", inside.ask("SELECT CONCAT(CONNECTION_ID(), ' ', @mine, ' ', COUNT(*)) FROM t WHERE n = 20000;"), f"{transaction} kept 1")
        w.expect("what others see of it", outside.ask("SELECT text FROM t WHERE n = 17;"), "row 17")
    outside.tell(f"INSERT INTO t VALUES ({30000 + count}, 'committed');")
    w.expect("committed", outside.ask("SELECT COUNT(*) FROM t WHERE n > 30000;"), str(count))
    same = {"connection": outside.ask("SELECT CONNECTION_ID();") == identity}
    if w.finishing() and not done:
        w.expect("locked", outside.ask("SELECT COUNT(*) FROM t WHERE n = 17 FOR UPDATE SKIP LOCKED;"), "0")
        inside.tell("COMMIT;")
        w.expect("after COMMIT", inside.ask("SELECT text FROM t WHERE n = 17;"), "changed")
        new = client(*tcp)
        new.tell("USE d;")
        w.expect("a new client", new.ask("SELECT COUNT(*) FROM t;"), str(5001 + count))
        w.expect("CHECK TABLE", new.ask("CHECK TABLE t;").split("\t")[-1], "OK")
        done = True
    if done:
        same["received"] = True
    return same, {"count": count}


w.forever(step, 0.05)

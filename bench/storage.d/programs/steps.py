"""A process that is dumped now and then: it takes one step whenever the number in the file GO has grown, and says so in the file DONE."""

import os
import pathlib
import sys
import time


def serve(step):
    go, done = map(pathlib.Path, sys.argv[1:3])
    taken = 0
    while True:
        new = done.with_suffix(".tmp")
        new.write_text(str(taken))
        os.replace(new, done)
        while not go.exists() or int(go.read_text() or 0) <= taken:
            time.sleep(0.02)
        taken += 1
        step(taken)


def mebibytes():
    return int(sys.argv[3])

"""Memory that is all zeros, or all noise. A step writes one page."""

import os
import sys

from steps import mebibytes, serve

size = mebibytes() << 20
memory = bytearray(size) if sys.argv[4] == "zeros" else bytearray(os.urandom(size))
for at in range(0, size, 4096):
    memory[at] = memory[at]  # touched, so that it is dumped


def step(number):
    memory[number * 4096] ^= 1


serve(step)

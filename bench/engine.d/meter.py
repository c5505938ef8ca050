"""What a move cost: the gaps that the process itself saw (holder.c), and the bytes that the machine wrote meanwhile."""

import dataclasses
import os
import pathlib

import kit

PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclasses.dataclass
class Gap:
    last: float  # seconds since 1970: the last look at the clock before
    first: float  # the first one after

    @property
    def seconds(self):
        return self.first - self.last


def said(pod):
    return kit.kubectl("logs", pod).splitlines()


def gaps(lines):
    """All that this pod's process has seen so far, and what its log brought along from the one before."""
    return [Gap(*map(float, line.split()[1:])) for line in lines if line.startswith("gap ") and len(line.split()) == 3]


def gap_around(pod, moment, limit=60):
    """The gap in which this moment lies: of a move, when its process was certainly nowhere. Its memory must be what it was."""

    def look():
        lines = said(pod)
        # What a busy machine does to it afterwards is a gap, too, and the memory is looked through again.
        return lines[-1].startswith("same ") and [g for g in gaps(lines) if g.last < moment < g.first] and lines

    lines = kit.wait(f"{pod} to go on", look, limit, every=0.2)
    if lines[-1] != "same 1":
        raise kit.Failure(f"{pod}: its memory is not what it was: {lines}")
    return next(g for g in gaps(lines) if g.last < moment < g.first)


def freeze(pod, after, limit=30):
    """The longest gap that ended after this time."""
    found = kit.wait(f"{pod} to go on", lambda: [g for g in gaps(said(pod)) if g.first > after], limit, every=0.2)
    return max(found, key=lambda g: g.seconds)


class Written:
    """Bytes that this machine, all nodes of it, wrote since the start: `files` into files on a disk, whether or not they were removed before they reached it;
    `disk` what has reached it when all is synced. Files on tmpfs are in neither. The counters are the kernel's for the whole machine: it must be quiet."""

    def __init__(self):
        device = os.stat("/").st_dev
        self._stat = pathlib.Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")
        self._began = self._now()

    def _now(self):
        dirtied = next(int(line.split()[1]) for line in pathlib.Path("/proc/vmstat").read_text().splitlines() if line.startswith("nr_dirtied "))
        os.sync()
        return dirtied * PAGE, int(self._stat.read_text().split()[6]) * 512

    def until_now(self):
        """(files, disk)"""
        return tuple(now - began for now, began in zip(self._now(), self._began))

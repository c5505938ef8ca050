"""As the restricted Pod Security Standard wants it: no root, no capability, a root that cannot be written, seccomp, limits and a umask of its own."""

import os
import resource

import w

os.umask(0o027)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_NOFILE, (700, 900))
os.nice(5)
opened = open("/data/file", "w+")
count = 0


def step():
    global count
    count += 1
    opened.write(f"{count}\n")
    opened.flush()
    status = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines())
    same = {
        "uid": os.getresuid(), "groups": os.getgroups(), "umask": status["Umask"], "nice": os.nice(0), "files": resource.getrlimit(resource.RLIMIT_NOFILE),
        "core": resource.getrlimit(resource.RLIMIT_CORE), **{key: status[key] for key in ("CapPrm", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp")},
    }
    try:
        open("/srv/x", "w").close()
        w.expect("the root can be written", True, False)
    except OSError:
        pass
    return same, {"lines": opened.tell()}


w.forever(step)

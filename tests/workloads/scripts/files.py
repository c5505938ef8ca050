"""Files as such: what was made, changed, removed and replaced in the image's root, an emptyDir and one in memory. With an argument: made;
without: looked at. Names, kinds, owners, modes, times, contents, links, holes and attributes."""

import hashlib
import json
import os
import stat
import sys
import time

SETUP = {"/srv": "root", "/data": "volume", "/mem": "memory"}
CAPABILITY = bytes.fromhex("0100000200040000000000000000000000000000")  # cap_net_bind_service+ep


def make(folder):
    def path(name):
        return f"{folder}/{name}"

    os.makedirs(path("deep/er/and/deeper"))
    for name, content in (("plain", b"plain"), ("ünïcode ☃ name", b"snow"), ("empty", b""), ("deep/er/and/deeper/file", b"deep")):
        with open(path(name), "wb") as file:
            file.write(content)
    os.chmod(path("plain"), 0o4755)
    os.chown(path("empty"), 1234, 5678)
    os.mkdir(path("sticky"), 0o777)
    os.chmod(path("sticky"), 0o3777)
    os.link(path("plain"), path("linked"))
    os.symlink("plain", path("symbolic"))
    os.symlink("/no/such/place", path("dangling"))
    os.mkfifo(path("fifo"), 0o620)
    os.utime(path("deep"), ns=(10**18, 10**18 + 123456789))
    os.chown(path("symbolic"), 11, 22, follow_symlinks=False)
    with open(path("sparse"), "wb") as file:  # 1 GiB with two pieces of data
        for at in (1 << 20, 1 << 29):
            file.seek(at)
            file.write(b"data" * 1024)
        file.truncate(1 << 30)
    if folder != "/mem":  # tmpfs keeps user attributes from Linux 6.6 on
        os.setxattr(path("plain"), "user.kept", b"attribute")
    os.setxattr(path("empty"), "security.capability", CAPABILITY)


def change_image():
    os.unlink("/var/image/removed")
    os.rename("/var/image/renamed", "/var/image/with-another-name")
    with open("/var/image/changed", "a") as file:
        file.write("and changed\n")
    for name in os.listdir("/var/image/replaced"):
        os.unlink(f"/var/image/replaced/{name}")
    os.rmdir("/var/image/replaced")
    os.mkdir("/var/image/replaced")  # opaque: what was below is gone
    with open("/var/image/replaced/new", "w") as file:
        file.write("new\n")
    os.chmod("/var/image/with-another-name", 0o400)


def content(path, info):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        at = 0
        while at < info.st_size:  # data only; a hole is a hole or zeros
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:
                break
            block = os.pread(file.fileno(), 1 << 16, at - at % 65536)
            if any(block):
                digest.update(b"%d" % (at - at % 65536) + block.rstrip(b"\0"))
            at += 65536 - at % 65536
    return digest.hexdigest()[:16]


def look(top):
    found, inodes = {}, {}
    for folder, folders, files in os.walk(top):
        folders.sort()
        for name in sorted([*folders, *files, "."]):
            path = os.path.join(folder, name)
            info = os.lstat(path)
            entry = [stat.filemode(info.st_mode), info.st_uid, info.st_gid]
            if stat.S_ISREG(info.st_mode):
                entry += [info.st_size, info.st_nlink, content(path, info), info.st_mtime_ns, "sparse" if info.st_blocks * 512 < info.st_size // 2 else ""]
                if info.st_nlink > 1:
                    entry.append(inodes.setdefault(info.st_ino, path))
            if stat.S_ISLNK(info.st_mode):
                entry.append(os.readlink(path))
            entry += sorted(f"{n}={os.getxattr(path, n, follow_symlinks=False).hex()}" for n in os.listxattr(path, follow_symlinks=False))
            found[os.path.relpath(path, top)] = entry
    return found


if len(sys.argv) > 1:
    for place in SETUP:
        make(place)
    change_image()
    open("/run/made", "w").close()
    time.sleep(1e9)
if not os.path.exists("/run/made"):
    sys.exit("not made yet")
print(json.dumps({"same": {name: look(place) for place, name in [*SETUP.items(), ("/var/image", "image")]}, "grows": {}, "errors": []}))

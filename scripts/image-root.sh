#!/bin/bash
# image-root.sh BUILD CRIU OUT: lays Holdfast's image out as two folders, from the list in deploy/image-files.txt: OUT/base, which seldom
# changes (libraries, CRIU, certificates), and OUT/programs. BUILD: a CMake build folder; CRIU: the folder of make-criu-bundle.sh.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=$1
criu=$2
out=$3
mkdir -p "$out"/base/{etc,tmp,usr/lib,usr/lib64} "$out/programs"
ln -s usr/lib "$out/base/lib"
ln -s usr/lib64 "$out/base/lib64"
chmod 1777 "$out/base/tmp"
printf 'root:x:0:0:root:/:/sbin/nologin\nholdfast:x:65532:65532:holdfast:/:/sbin/nologin\n' >"$out/base/etc/passwd"
printf 'root:x:0:\nholdfast:x:65532:\n' >"$out/base/etc/group"
echo 'hosts: files dns' >"$out/base/etc/nsswitch.conf"

# The libraries go where the loader finds them without a cache: /lib is a link to /usr/lib, as on Debian.
libraries() {
  ldd "$1" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p; s/^\s*\(\/[^ ]*\) (0x.*/\1/p' | while read -r library; do
    local to=${library#/}
    case $to in lib/* | lib64/*) to=usr/$to ;; esac
    install -D -m 0755 "$(readlink -f "$library")" "$out/base/$to"
  done
}

while read -r source destination words; do
  case $source in '' | '#'*) continue ;; esac
  case $source in
    criu) mkdir -p "$out/base$destination" && cp -a "$criu/." "$out/base$destination/" && continue ;;
    /*/) mkdir -p "$out/base$destination" && cp -a "$source." "$out/base$destination" && continue ;;
    /*) install -D -m 0644 "$source" "$out/base$destination" && continue ;;
  esac
  if [ ! -e "$build/$source" ]; then
    case " $words " in *' optional '*) continue ;; esac
    echo "image-root.sh: $build/$source is missing (listed in deploy/image-files.txt): build it first (make build)" >&2
    exit 1
  fi
  install -D -m 0755 "$build/$source" "$out/programs$destination"
  strip --strip-debug "$out/programs$destination"
  case " $words " in *' dynamic '*) libraries "$build/$source" ;; esac
done <"$root/deploy/image-files.txt"

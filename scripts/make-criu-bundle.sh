#!/bin/sh
# make-criu-bundle.sh NODEROOT OUTDIR: CRIU and every library it needs, from the root of a Debian system (forky or later: CRIU 4.2) into
# a folder that runs on any glibc node of the same architecture. About 14 MB.
set -eu
[ $# -eq 2 ] || { echo "usage: $0 NODEROOT OUTDIR" >&2; exit 2; }
noderoot=$1 out=$2
install=$(cd "$(dirname "$0")/../runtime/install" && pwd)
[ -x "$noderoot/usr/sbin/criu" ] || { echo "no /usr/sbin/criu in $noderoot: install the package criu there" >&2; exit 1; }
tmp=$out.tmp.$$
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$tmp/lib"
cp "$noderoot/usr/sbin/criu" "$tmp/criu.bin"
# libnftables opens nothing more by itself; what ldd names is all.
chroot "$noderoot" ldd /usr/sbin/criu | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p; s/^[[:space:]]*\(\/[^ ]*ld-linux[^ ]*\) .*/\1/p' | sort -u | while read -r library; do
  cp -L "$noderoot$(chroot "$noderoot" readlink -f "$library")" "$tmp/lib/$(basename "$library")"
done
[ -x "$tmp/lib/ld-linux-x86-64.so.2" ] || { echo "ldd of $noderoot named no ld-linux-x86-64.so.2" >&2; exit 1; }
cp "$install/criu" "$install/runc.conf" "$tmp/"
chmod 755 "$tmp/criu" "$tmp/criu.bin"
"$tmp/criu" --version >/dev/null || { echo "the bundle does not run here" >&2; exit 1; }
rm -rf "$out"
mv "$tmp" "$out"
trap - EXIT
echo "$out: $("$out/criu" --version | head -n 1), $(du -sk "$out" | cut -f1) KiB"

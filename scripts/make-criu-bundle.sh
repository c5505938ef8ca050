#!/bin/sh
# make-criu-bundle.sh NODEROOT OUTDIR: CRIU and every library it needs, from the root of a Debian system (forky or later: CRIU 4.2) into
# a folder that runs on any glibc node of the same architecture. About 14 MB. With NODEROOT/usr/src/criu_VERSION.orig.tar.xz, the source of that
# very CRIU, also its plugin for NVIDIA GPUs, which Debian does not build.
set -eu
[ $# -eq 2 ] || { echo "usage: $0 NODEROOT OUTDIR" >&2; exit 2; }
noderoot=$1 out=$2
install=$(cd "$(dirname "$0")/../runtime/install" && pwd)
[ -x "$noderoot/usr/sbin/criu" ] || { echo "no /usr/sbin/criu in $noderoot: install the package criu there" >&2; exit 1; }
tmp=$out.tmp.$$
trap 'rm -rf "$tmp" "$tmp.src"' EXIT
mkdir -p "$tmp/lib"
cp "$noderoot/usr/sbin/criu" "$tmp/criu.bin"
# libnftables opens nothing more by itself; what ldd names is all.
chroot "$noderoot" ldd /usr/sbin/criu | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p; s/^[[:space:]]*\(\/[^ ]*ld-linux[^ ]*\) .*/\1/p' | sort -u | while read -r library; do
  cp -L "$noderoot$(chroot "$noderoot" readlink -f "$library")" "$tmp/lib/$(basename "$library")"
done
[ -x "$tmp/lib/ld-linux-x86-64.so.2" ] || { echo "ldd of $noderoot named no ld-linux-x86-64.so.2" >&2; exit 1; }
cp "$install/criu" "$install/runc.conf" "$install/cuda-checkpoint" "$tmp/"
chmod 755 "$tmp/criu" "$tmp/criu.bin" "$tmp/cuda-checkpoint"
"$tmp/criu" --version >/dev/null || { echo "the bundle does not run here" >&2; exit 1; }

# One source file. Its headers ask for some that CRIU's own build generates; what the plugin uses of them is the same everywhere.
cuda_plugin() { # SOURCES
  mkdir -p "$tmp.src"
  src=$(cd "$tmp.src" && pwd) gen=$src/gen
  mkdir -p "$gen/common" "$gen/sys" "$gen/compel/plugins/std" "$tmp/plugins"
  tar -C "$src" --strip-components=1 -xf "$1"
  : > "$gen/common/config.h"
  echo '#include <linux/capability.h>' > "$gen/sys/capability.h"
  echo '#include <sys/syscall.h>' > "$gen/compel/plugins/std/syscall-codes.h"
  ln -s "$src/compel/arch/x86/plugins/include/asm" "$gen/compel/plugins/std/asm"
  ln -sfn ../../arch/x86/src/lib/include/uapi/asm "$src/compel/include/uapi/asm"
  ln -sfn arch/x86/asm "$src/include/common/asm"
  ${CC:-gcc} -O2 -Wall -shared -nostartfiles -fPIC -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -DCONFIG_X86_64 -I"$gen" -iquote "$src/include" \
    -iquote "$src/criu/include" -iquote "$src/criu/arch/x86/include" -iquote "$src" -I"$src/compel/include/uapi" \
    "$src/plugins/cuda/cuda_plugin.c" -s -o "$tmp/plugins/cuda_plugin.so"
}
version=$("$tmp/criu" --version | sed -n 's/^Version: //p')
sources=$noderoot/usr/src/criu_$version.orig.tar.xz
if [ -e "$sources" ]; then cuda_plugin "$sources"; else echo "no $sources: the bundle is without the plugin for NVIDIA GPUs" >&2; fi
rm -rf "$out"
mv "$tmp" "$out"
echo "$out: $("$out/criu" --version | head -n 1), $(du -sk "$out" | cut -f1) KiB"

#!/bin/bash
# make-criu-bundle.sh NODEROOT OUTDIR: the CRIU of a Debian root file system with every library it needs, as one folder that runs on any
# x86-64 Linux, whatever its C library: OUTDIR/criu starts OUTDIR/criu.bin by the loader and the libraries in OUTDIR/lib.
set -euo pipefail
noderoot=$1
out=$2
[ -x "$noderoot/usr/sbin/criu" ] || { echo "make-criu-bundle: no criu in $noderoot/usr/sbin" >&2; exit 1; }
rm -rf "$out.new"
mkdir -p "$out.new/lib"
cp "$noderoot/usr/sbin/criu" "$out.new/criu.bin"
loader=lib64/ld-linux-x86-64.so.2
chroot "$noderoot" "/$loader" --list /usr/sbin/criu | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | while read -r library; do
  cp -L "$noderoot$library" "$out.new/lib/"
done
cp -L "$noderoot/$loader" "$out.new/lib/"
cat >"$out.new/criu" <<'END'
#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
exec "$here/lib/ld-linux-x86-64.so.2" --library-path "$here/lib" "$here/criu.bin" "$@"
END
chmod 0755 "$out.new/criu"
rm -rf "$out"
mv "$out.new" "$out"

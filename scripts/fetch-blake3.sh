#!/bin/sh
# Puts BLAKE3's official C sources (folder c/ of the `blake3` crate) into the user's cache and prints where. CMake calls it when they are
# missing; once fetched it needs no network. cargo checks the crate against the registry's checksum.
set -eu
version=1.8.7
target="${XDG_CACHE_HOME:-$HOME/.cache}/holdfast/third_party/blake3-$version"
if [ -f "$target/.complete" ]; then
  echo "$target"
  exit 0
fi
if ! command -v cargo >/dev/null; then
  echo "fetch-blake3: cargo is missing: install it (Debian: apt-get install cargo), or put the folder c/ of the blake3 crate $version into $target and create $target/.complete" >&2
  exit 1
fi
mkdir -p "$(dirname "$target")"
work=$(mktemp -d "$target.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/fetch" "$work/fetch/src"
: >"$work/fetch/src/lib.rs"
cat >"$work/fetch/Cargo.toml" <<EOF
[package]
name = "fetch"
version = "0.0.0"
edition = "2021"
[dependencies]
blake3 = "=$version"
EOF
for attempt in 1 2 3; do
  if (cd "$work/fetch" && cargo vendor --quiet "$work/vendor" >/dev/null); then break; fi
  if [ "$attempt" = 3 ]; then
    echo "fetch-blake3: cargo could not fetch blake3 $version: look at its message above, then run $0 again" >&2
    exit 1
  fi
  sleep 2
done
mkdir "$work/out"
cp "$work"/vendor/blake3/c/*.c "$work"/vendor/blake3/c/*.h "$work"/vendor/blake3/c/*_unix.S "$work/out/"
cp "$work"/vendor/blake3/LICENSE* "$work/out/"
: >"$work/out/.complete"
# Another run may have been faster: theirs is as good as ours.
mv -T "$work/out" "$target" 2>/dev/null || [ -f "$target/.complete" ]
echo "$target"

#!/bin/bash
# make-image.sh BUILD [CRIU]: Holdfast's image as an OCI archive, without an image engine, from a CMake build folder. Prints the archive's
# path: BUILD/image/holdfast-VERSION-HASH.tar, HASH telling its content. The image has two names: ghcr.io/holdfast/holdfast:VERSION and
# :HASH. CRIU: the folder of make-criu-bundle.sh (default: the local cluster's, which tests/cluster/build.sh made).
# HF_IMAGE_STAMP=TEXT: every program carries TEXT, so that it is another build of the same sources, in BUILD/image-TEXT (for tests).
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/tests/cluster/env.sh"
build=$(cd "$1" && pwd)
criu=${2:-$HF_STATE/criu}
[ -x "$criu/criu" ] || { echo "make-image.sh: no CRIU bundle in $criu: run tests/cluster/build.sh, or scripts/make-criu-bundle.sh" >&2; exit 1; }
version=$(sed -n 's/^project(holdfast VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
work=$(mktemp -d "$build/image.XXXXXX")
trap 'rm -rf "$work"' EXIT

"$root/scripts/image-root.sh" "$build" "$criu" "$work" >&2
if [ -n "${HF_IMAGE_STAMP:-}" ]; then
  printf '%s' "$HF_IMAGE_STAMP" >"$work/stamp"
  find "$work/programs" -type f -print0 | xargs -0 -n1 objcopy --add-section ".holdfast.stamp=$work/stamp"
  rm "$work/stamp"
fi
hash=$(cd "$work" && { find . -type f -print0 | sort -z | xargs -0 sha256sum; find . -printf '%P %m %l\n' | sort; } | sha256sum | cut -c1-12)
folder=$build/image${HF_IMAGE_STAMP:+-$HF_IMAGE_STAMP}
image=$folder/holdfast-$version-$hash.tar
if [ ! -s "$image" ]; then
  rm -rf "$folder"
  mkdir -p "$folder"
  "$root/tests/cluster/image.py" "$image" "ghcr.io/holdfast/holdfast:$version,ghcr.io/holdfast/holdfast:$hash" "$work/base" "$work/programs"
fi
echo "$image"

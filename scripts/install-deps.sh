#!/bin/bash
# install-deps.sh [build]: the Debian packages and the Go toolchain that building and testing Holdfast needs; `build`: only what building
# needs. Needs root only when something is missing; does nothing, quickly, when all is there.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../tests/cluster/lib.sh"

packages=(
  # the compiler and its tools
  g++ gcc cmake ninja-build make pkg-config ccache git ca-certificates openssl tzdata
  # libraries
  libcurl4-openssl-dev libuv1-dev nlohmann-json3-dev libssl-dev libyaml-cpp-dev prometheus-cpp-dev liblz4-dev libzstd-dev libarchive-dev zlib1g-dev
  libcpp-httplib-dev libtomlplusplus-dev libcli11-dev libprotobuf-dev protobuf-compiler
  # BLAKE3's C sources come in a crate
  cargo
)
[ "${1:-}" = build ] || packages+=(
  # tests and checks
  mold googletest libgtest-dev libgmock-dev libbenchmark-dev python3 python3-pytest python3-yaml clang-format-14 clang-tidy-14 clang-14 libclang-rt-14-dev shellcheck curl jq
  # the local cluster
  debootstrap iproute2 nftables iptables conntrack procps util-linux golang-go
)
missing=()
go_is_new_enough() { # 1.21 and later fetch the toolchain that a go.mod asks for by themselves, unless told not to
  local minor
  minor=$(go version 2>/dev/null | sed -n 's/.*go1\.\([0-9]*\).*/\1/p')
  [ -n "$minor" ] && { [ "$minor" -ge 26 ] || { [ "$minor" -ge 21 ] && [ "$(go env GOTOOLCHAIN)" != local ]; }; }
}
installed=$(dpkg-query -W -f '${db:Status-Abbrev}${Package}\n' 2>/dev/null | sed -n 's/^ii *//p')
for package in "${packages[@]}"; do
  case $package in
    # Any toolchain of one's own is as good as Debian's.
    golang-go) command -v go >/dev/null && continue ;;
    cargo) command -v cargo >/dev/null && continue ;;
  esac
  grep -qx "$package" <<<"$installed" || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  [ "$(id -u)" = 0 ] || fail "not root, and these packages are missing: ${missing[*]}"
  command -v apt-get >/dev/null || fail "not a Debian system; install the counterparts of: ${missing[*]}"
  log=${TMPDIR:-/tmp}/holdfast-install-deps.log
  export DEBIAN_FRONTEND=noninteractive
  step "package lists" "$log" apt-get update -q
  step "packages: ${missing[*]}" "$log" apt-get install -qy --no-install-recommends "${missing[@]}"
fi

# The local cluster's components need Go 1.26. Debian 12 has 1.19, which cannot fetch a newer one by itself.
if [ "${1:-}" != build ] && ! go_is_new_enough; then
  version=1.26.8
  toolchain=${XDG_CACHE_HOME:-$HOME/.cache}/holdfast/go
  if ! PATH=$toolchain/bin:$PATH go_is_new_enough; then
    # The toolchain is a Go module: the same one that newer versions of go fetch by themselves.
    module=golang.org/toolchain@v0.0.1-go$version.linux-amd64
    log=${TMPDIR:-/tmp}/holdfast-install-go.log
    fetch_toolchain() {
      local zip
      zip=$(cd / && GOFLAGS=-mod=mod go mod download -json "$module" | sed -n 's/.*"Zip": "\(.*\)",/\1/p')
      [ -n "$zip" ] || return 1
      rm -rf "$toolchain.new" && mkdir -p "$toolchain.new"
      python3 -m zipfile -e "$zip" "$toolchain.new"
      rm -rf "$toolchain" && mv "$toolchain.new/$module" "$toolchain" && rm -rf "$toolchain.new"
      chmod +x "$toolchain"/bin/* "$toolchain"/pkg/tool/*/* # zip archives carry no modes
    }
    step "Go $version" "$log" fetch_toolchain || fail "no Go >= 1.26: install one from https://go.dev/dl and put it in PATH"
  fi
fi
say "dependencies: all there"

#!/bin/bash
# image.sh common|heavy|hub: an OCI archive of real programs as Debian 12 ships them, and of our small ones (programs/), without an image engine.
# `hub` is a server for JupyterHub: its Python packages (HUB_VERSIONS: of which hub) come from PyPI.
# Prints "PATH REFERENCE", last. Made again only when what it is made of has changed; the tag is its content's. Needs root and Go.
# Cold on 2 cores: common 30 s (mostly unpacking), heavy 30 s more.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$root/tests/cluster/env.sh"
. "$root/tests/cluster/lib.sh"
[ -x "${XDG_CACHE_HOME:-$HOME/.cache}/holdfast/go/bin/go" ] && PATH=${XDG_CACHE_HOME:-$HOME/.cache}/holdfast/go/bin:$PATH

base=(bash hostname coreutils dash findutils grep sed mawk procps util-linux libc-bin python3 tmux)
wheels=()
case ${1:-} in
  common) packages=("${base[@]}" python3-numpy redis-server redis-tools memcached nginx postgresql-15 postgresql-client-15 mariadb-server-core mariadb-client-core) ;;
  heavy) packages=("${base[@]}" openjdk-17-jre-headless libclojure-java nodejs python3-ipykernel) ;;
  hub)
    packages=("${base[@]}" python3-numpy libsqlite3-0 libstdc++6)
    read -ra wheels <<<"${HUB_VERSIONS:?of which hub: scripts/hub.sh sets it} jupyterlab==4.6.6 ipykernel==7.4.0" ;;
  *) fail "usage: $0 common|heavy|hub" ;;
esac
name=$1
[ ${#wheels[@]} = 0 ] || name+=-$(printf '%s' "${wheels[*]}" | sha256sum | cut -c1-8)  # those of several hubs stay beside each other
# What nothing here runs, and what only configures packages.
without='perl|perl-base|perl-modules-.*|libperl.*|libllvm.*|libz3-.*|debconf|ucf|adduser|passwd|systemd.*|ssl-cert|postgresql-common|postgresql-client-common|locales.*|ca-certificates-java|iproute2|libbpf.*|debianutils|dpkg|tar|login|sysvinit-utils|init-system-helpers|libgtk.*|libx11.*|libdebconf.*'
folder=$HF_STATE/workloads
mkdir -p "$folder" "$HF_STATE/log"
exec 9>"$folder/lock"
flock -w 1800 9 || fail "$folder/lock is held for half an hour"

unpack_packages() { # OUT
  local out=$1 work mirror deb
  mirror=$(debian_mirror) || fail "no Debian mirror (a URI that ends in /debian) in /etc/apt/sources.list or sources.list.d"
  work=$(mktemp -d "$folder/apt.XXXXXX")
  # shellcheck disable=SC2064
  trap "rm -rf '$work'" RETURN
  mkdir -p "$work"/{state/lists/partial,cache/archives/partial,root/usr/{bin,sbin,lib,lib64}}
  : >"$work/status"
  # Packages alone, of one release, from nothing: what this machine has or prefers plays no part.
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror bookworm main" >"$work/sources.list"
  local options=(-q -o Dir::State="$work/state" -o Dir::State::status="$work/status" -o Dir::Cache="$work/cache" -o Dir::Etc::sourcelist="$work/sources.list"
    -o Dir::Etc::sourceparts=- -o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts=- -o APT::Sandbox::User=root -o APT::Install-Recommends=false
    -o Acquire::Languages=none -o APT::Get::AllowUnauthenticated=false -o Dir::Cache::archives="$work/cache/archives")
  apt-get "${options[@]}" update
  apt-get "${options[@]}" install -y --download-only "${packages[@]}"
  for dir in bin sbin lib lib64; do ln -s "usr/$dir" "$work/root/$dir"; done
  for deb in "$work"/cache/archives/*.deb; do
    [[ $(basename "$deb") =~ ^($without)_ ]] && continue
    dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$work/root" --keep-directory-symlink --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*' \
      --exclude='./usr/share/locale/*' --exclude='./usr/share/info/*' --exclude='*/numpy/*/tests/*' --exclude='./usr/lib/x86_64-linux-gnu/gconv/*' \
      --exclude='*/__pycache__/*' --exclude='./usr/share/i18n/*' --exclude='*/postgresql/15/lib/bitcode/*'
  done
  (
    cd "$work/root"
    # What maintainer scripts would have done.
    mkdir -p tmp run srv root proc sys dev etc/ld.so.conf.d var/lib/nginx var/log/nginx
    chmod 1777 tmp
    ln -sf dash usr/bin/sh
    ln -sf mawk usr/bin/awk
    printf 'root:x:0:0:root:/root:/bin/bash\nwww-data:x:33:33::/var/www:/bin/false\nprogram:x:1000:1000::/tmp:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n' >etc/passwd
    printf 'root:x:0:\ntty:x:5:\nwww-data:x:33:\nprogram:x:1000:\nnogroup:x:65534:\n' >etc/group
    printf '/usr/lib/x86_64-linux-gnu/blas\n/usr/lib/x86_64-linux-gnu/lapack\n' >etc/ld.so.conf.d/blas.conf
    printf '/usr/local/lib\n/usr/lib/x86_64-linux-gnu\n' >etc/ld.so.conf.d/x86_64.conf
    echo 'include /etc/ld.so.conf.d/*.conf' >etc/ld.so.conf
    # Files that a workload removes, replaces and changes.
    mkdir -p var/image/replaced
    for file in removed changed renamed replaced/one replaced/two; do echo "from the image: $file" >"var/image/$file"; done
  )
  if [ ${#wheels[@]} -gt 0 ]; then # of the same Python as Debian 12's
    python3 -m venv "$work/pip"
    "$work/pip/bin/python" -m pip install -q --target "$work/root/opt/notebook" --no-compile "${wheels[@]}"
    mkdir -p "$work/root/home/work"
  fi
  chroot "$work/root" /usr/sbin/ldconfig
  rm -rf "$out"
  mv "$work/root" "$out"
}

our_programs() { # OUT
  local out=$1 program
  rm -rf "$out"
  mkdir -p "$out/opt/workloads"
  for program in "$here"/programs/*.c; do
    gcc -std=gnu11 -O2 -Wall -Wextra -Werror -pthread -static -o "$out/opt/workloads/$(basename "$program" .c)" "$program"
  done
  (cd "$here/programs/go" && CGO_ENABLED=0 GOFLAGS=-buildvcs=false go build -trimpath -ldflags '-s -w' -o "$out/opt/workloads/go-server" .)
}

stamp_of() { { printf '%s\n' "$@"; } | sha256sum | cut -c1-12; }
packages_stamp=$(stamp_of "${packages[*]}" ${wheels[@]+"${wheels[*]}"} "$without" "$(declare -f unpack_packages)")
programs_stamp=$(stamp_of "$(cat "$here"/programs/*.[ch] "$here"/programs/go/*)" "$(declare -f our_programs)")
tag=$(stamp_of "$packages_stamp" "$programs_stamp" "$(cat "$root/tests/cluster/image.py")")
tar=$folder/$name-$tag.tar reference=ghcr.io/holdfast/workloads-$name:$tag
if [ ! -s "$tar" ]; then
  if [ "$(cat "$folder/$name.stamp" 2>/dev/null)" != "$packages_stamp" ]; then
    step "packages of the image $name" "$HF_STATE/log/workloads-$name.log" unpack_packages "$folder/$name"
    echo "$packages_stamp" >"$folder/$name.stamp"
  fi
  step "programs of the image $name" "$HF_STATE/log/workloads-programs.log" our_programs "$folder/programs-$name"
  rm -f "$folder/$name"-*.tar
  step "image $name" "$HF_STATE/log/workloads-image.log" python3 "$root/tests/cluster/image.py" --entrypoint /bin/bash "$tar" "$reference" "$folder/$name" "$folder/programs-$name"
  rm -rf "$folder/programs-$name"
fi
echo "$tar $reference"

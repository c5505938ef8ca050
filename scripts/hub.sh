#!/bin/bash
# hub.sh [PYTEST-ARGUMENT...]: tests/hub, with a real JupyterHub on this machine and its servers in the local cluster (HF_SLOT). Makes what it
# needs in the user's cache: a virtual environment, the hub's proxy, the servers' image. Everything with the newest hub, and the main path with the
# one before it; with arguments, or HUB_VERSIONS="jupyterhub==… jupyterhub-kubespawner==…": that hub only.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/tests/cluster/env.sh"
. "$root/tests/cluster/lib.sh"
newest="jupyterhub==6.1.1 jupyterhub-kubespawner==7.1.0"
before="jupyterhub==5.5.4 jupyterhub-kubespawner==7.0.0"
main_path="goes_on_with or drain_of_its_node or started_anew or says_why"
folder=$HF_STATE/hub
mkdir -p "$folder" "$HF_STATE/log"

missing=()
command -v chromium >/dev/null || missing+=(chromium)
command -v npm >/dev/null || missing+=(nodejs npm)
python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
if [ ${#missing[@]} -gt 0 ]; then
  [ "$(id -u)" = 0 ] || fail "not root, and these packages are missing: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  step "package lists" "$HF_STATE/log/hub-packages.log" apt-get update -q
  step "packages: ${missing[*]}" "$HF_STATE/log/hub-packages.log" apt-get install -qy --no-install-recommends "${missing[@]}"
fi

proxy_version=5.3.0
proxy=$folder/proxy-$proxy_version
[ -e "$proxy/node_modules/.bin/configurable-http-proxy" ] ||
  step "the hub's proxy" "$HF_STATE/log/hub-proxy.log" npm install --silent --no-fund --no-audit --prefix "$proxy" "configurable-http-proxy@$proxy_version"
export HUB_PROXY="node $proxy/node_modules/.bin/configurable-http-proxy"

make_venv() {
  rm -rf "$venv"
  python3 -m venv "$venv"
  # shellcheck disable=SC2086  # several words
  "$venv/bin/pip" install -q $HUB_VERSIONS pytest hypothesis mypy aiohttp playwright && touch "$venv/done"
}

test_with() { # VERSIONS PYTEST-ARGUMENT...
  export HUB_VERSIONS=$1
  shift
  echo "with $HUB_VERSIONS"
  venv=$folder/venv-$(echo "$HUB_VERSIONS 3" | sha256sum | cut -c1-12)
  [ -e "$venv/done" ] || step "virtual environment for the hub" "$HF_STATE/log/hub-venv.log" make_venv
  read -r HUB_IMAGE_TAR HUB_IMAGE_REFERENCE < <("$root/tests/workloads/image.sh" hub | tail -1)
  export HUB_IMAGE_TAR HUB_IMAGE_REFERENCE
  (cd "$root/jupyterhub" && MYPY_CACHE_DIR=$folder/mypy "$venv/bin/mypy" jupyterhub_holdfast && "$venv/bin/python" -B -m pytest -q -p no:cacheprovider tests)
  (cd "$root/tests/hub" && "$venv/bin/python" -B -m pytest -q -p no:cacheprovider "$@" .)
}

if [ $# -gt 0 ] || [ -n "${HUB_VERSIONS:-}" ]; then
  test_with "${HUB_VERSIONS:-$newest}" "$@"
else
  test_with "$newest"
  test_with "$before" -k "$main_path"
fi

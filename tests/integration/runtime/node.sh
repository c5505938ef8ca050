#!/bin/bash
# node.sh NODEROOT BIN_DIR CRIU_BUNDLE COUNTER TEST.py [ARGS]: runs the test as root of a small machine of its own: network, mount and IPC
# namespaces, an overlay over NODEROOT (Debian with runc and python3), holdfast-runc and CRIU under /opt/holdfast. All of it ends with it.
set -euo pipefail
noderoot=$1 bin=$2 criu=$3 counter=$4 test=$5; shift 5
work=$(mktemp -d "${TMPDIR:-/tmp}/holdfast-runtime.XXXXXX")
cat > "$work/inside.sh" <<X
set -e
ip link set lo up
mkdir -p $work/upper $work/work $work/root $work/data
mount -t overlay overlay -o lowerdir=$noderoot,upperdir=$work/upper,workdir=$work/work $work/root
cd $work/root
mkdir -p oldroot opt/holdfast/bin opt/holdfast/criu opt/test data noderoot
for m in proc sys dev; do mount --rbind /\$m \$m; done
mount -t tmpfs tmpfs run; mount -t tmpfs tmpfs tmp; mount --bind $work/data data; mount --bind $noderoot noderoot  # for containers with more than one program
cp $bin/holdfast-runc $bin/holdfast-wait opt/holdfast/bin/
cp -r $criu/. opt/holdfast/criu/
cp $counter opt/test/counter; cp $(dirname "$test")/*.py opt/test/; cp $test opt/test/test.py
if [ -e $(dirname "$counter")/gpu_counter ]; then cp $(dirname "$counter")/gpu_counter opt/test/; fi
pivot_root . oldroot; umount -l /oldroot; cd /
unset TMPDIR HOLDFAST_RUN_DIR HOLDFAST_INSTALL_DIR
exec /usr/bin/python3 /opt/test/test.py "\$@"
X
rc=0
unshare -m -n -i --propagation private bash "$work/inside.sh" "$@" || rc=$?
rm -rf "$work"
exit $rc

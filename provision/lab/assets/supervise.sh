#!/bin/sh
# Holds one container: its overlay in a mount namespace of its own (gone with this process), its control
# groups, and systemd-nspawn, which ends with 133 when the container asks for a reboot.
set -eu
folder=$1 rootfs=$2 netns=$3 machine=$4 cgroup=$5 console=$6
for top in /sys/fs/cgroup/systemd /sys/fs/cgroup/unified /sys/fs/cgroup; do
  [ -f "$top/cgroup.procs" ] || continue
  mkdir -p "$top/$cgroup"
  echo $$ >"$top/$cgroup/cgroup.procs"
done
mkdir -p /run/systemd "$folder/upper" "$folder/work" "$folder/root"
# systemd-nspawn leaves files below /run/systemd: keep them in this mount namespace.
mount -t tmpfs tmpfs /run/systemd
mount -t overlay overlay -o "lowerdir=$rootfs,upperdir=$folder/upper,workdir=$folder/work" "$folder/root"
echo $$ >"$folder/pid.new"
mv "$folder/pid.new" "$folder/pid"
# What the kernel shows of the machine and not of the container. systemd-nspawn takes sources of mounts below
# /proc from inside the container.
stand_ins=/usr/local/lib/lab-proc
mkdir -p "$folder/root$stand_ins"
printf 'Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n' >"$folder/root$stand_ins/swaps"
rc=133
while [ "$rc" = 133 ]; do
  rc=0
  set -- --bind-ro="$stand_ins/swaps:/proc/swaps"
  # Settings of the kernel that no container has of its own: copies, new with each boot.
  for part in vm fs fs/inotify; do
    mkdir -p "$folder/root$stand_ins/sys/$part"
    for setting in "/proc/sys/$part"/*; do
      [ ! -f "$setting" ] || cat "$setting" >"$folder/root$stand_ins/sys/$part/${setting##*/}" 2>/dev/null || true
    done
  done
  set -- "$@" --bind="$stand_ins/sys/vm:/proc/sys/vm" --bind="$stand_ins/sys/fs:/proc/sys/fs"
  if [ -x "$folder/before-boot" ]; then
    "$folder/before-boot" "$folder/root" "$stand_ins"
    set -- "$@" --bind-ro="$stand_ins/cmdline:/proc/cmdline"
  fi
  setpriv --pdeathsig KILL systemd-nspawn --quiet --boot --register=no --keep-unit \
    --directory="$folder/root" --machine="$machine" --network-namespace-path="$netns" \
    --capability=all --drop-capability=CAP_SYS_TIME --resolv-conf=off --timezone=off --link-journal=no \
    --console=read-only "$@" >>"$console" 2>&1 </dev/null || rc=$?
done
rm -f "$folder/pid"

#!/bin/sh
# The end state of inventories/lab.yaml, stated without anything of provision: ssh, curl and sysfs alone.
# Usage: end_state.sh LAB_FOLDER, inside the lab's network namespace. Exit 1 when a claim does not hold.
set -u
lab=$1
bad=0

claim() { # claim TEXT COMMAND...
    text=$1
    shift
    if "$@" >/dev/null 2>&1; then
        echo "holds  $text"
    else
        echo "FAILS  $text"
        bad=$((bad + 1))
    fi
}

# One connection a host for all claims; a host that does not answer fails its claims at once.
masters=$(mktemp -d)
trap 'for each in "$masters"/*.sock; do [ -S "$each" ] && ssh -o ControlPath="$each" -O exit any; done 2>/dev/null; rm -rf "$masters"' EXIT
options="-F none -o BatchMode=yes -o ConnectTimeout=30 -o IdentitiesOnly=yes -o LogLevel=ERROR
    -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o ControlMaster=auto -o ControlPersist=300"
on() { # on ADDRESS KEY USER COMMAND...
    on_host=$1 on_key=$2 on_user=$3
    shift 3
    [ ! -e "$masters/$on_host.away" ] || return 1
    [ -S "$masters/$on_host.sock" ] ||
        ssh $options -o ControlPath="$masters/$on_host.sock" -i "$lab/keys/$on_key" "$on_user@$on_host" true </dev/null ||
        { : >"$masters/$on_host.away"; return 1; }
    ssh $options -o ControlPath="$masters/$on_host.sock" -i "$lab/keys/$on_key" "$on_user@$on_host" "$@" </dev/null
}
pve() { on 198.18.0.5 site root "$@"; }
router() { on 198.18.0.1 site root "$@"; }
guest() { # guest ADDRESS COMMAND...
    whom=$1
    shift
    on "$whom" guest debian "$@"
}
api() {
    curl -sSf --noproxy '*' --insecure --header "Authorization: PVEAPIToken=provision@pve!lab=$(cat "$lab/keys/token")" \
        "https://198.18.0.5:8006/api2/json$1"
}
has() { api "$1" | grep -q -- "$2"; }
lacks() { # fails too when nothing answers
    answer=$(api "$1") || return 1
    ! printf '%s' "$answer" | grep -q -- "$2"
}
mac_of() { api "/nodes/pve/qemu/$1/config" | sed 's/.*"net0": *"virtio=\([0-9A-Fa-f:]*\).*/\1/' | tr A-F a-f; }
leased() { router "grep -qi ' $(mac_of "$1") $2 ' /var/lib/misc/dnsmasq.leases"; }
reserved() { router "test \"\$(grep -rhi '[,=]$2\\(,\\|\$\\)' /etc/dnsmasq.d | grep -ci '$(mac_of "$1")')\" = 1"; }

# The hypervisor
claim 'bochs is not loaded' pve '! grep -q "^bochs" /proc/modules'
claim 'the card is given to vfio-pci by its address' pve 'grep -qx vfio-pci /sys/bus/pci/devices/0000:01:00.0/driver_override'
claim 'the initramfs does so at each boot' pve 'grep -q "0000:01:00.0" /etc/initramfs-tools/scripts/init-top/provision-cards'
# An equal card beside it is the host's own.
claim 'no blacklist takes the driver of the other card' pve '! grep -q "modprobe.blacklist" /proc/cmdline && ! grep -qrs "^blacklist bochs" /etc/modprobe.d/'
claim 'the audio module is not blacklisted' pve '! modprobe -c | grep -q "^blacklist snd_hda_intel"'
claim 'vfio-pci holds the card' pve 'readlink -f /sys/bus/pci/devices/0000:01:00.0/driver | grep -q "/vfio-pci$"'
claim 'no snippet is left' pve 'test -z "$(ls /var/lib/vz/snippets)"'
claim 'its motd is ours' pve 'grep -q "managed by provision" /etc/motd'
claim 'vm.swappiness is 10' pve 'test "$(cat /proc/sys/vm/swappiness)" = 10'
claim 'its command ran' pve 'test -e /etc/site/ready'

# The VMs as the API holds them
for vmid in 201 202 203; do
    at=/nodes/pve/qemu/$vmid
    claim "VM $vmid runs" has $at/status/current '"status": *"running"'
    claim "VM $vmid does not start at boot" lacks $at/config '"onboot": *1'
    claim "VM $vmid names no snippet" lacks $at/config cicustom
    claim "VM $vmid has no pending change" lacks $at/pending '"pending"'
    claim "VM $vmid has 768 MiB" has $at/config '"memory": *"768"'
done
claim 'VM 201 has no card' lacks /nodes/pve/qemu/201/config hostpci
claim 'VM 202 has no card' lacks /nodes/pve/qemu/202/config hostpci
claim 'VM 203 is a q35' has /nodes/pve/qemu/203/config '"machine": *"[^"]*q35'
claim 'VM 203 has OVMF' has /nodes/pve/qemu/203/config '"bios": *"ovmf"'
claim 'VM 203 has no enrolled keys' has /nodes/pve/qemu/203/config 'pre-enrolled-keys=0'
claim 'VM 203 has cpu host' has /nodes/pve/qemu/203/config '"cpu": *"[^"]*host'
claim 'VM 203 has no balloon' has /nodes/pve/qemu/203/config '"balloon": *0'
claim 'VM 203 has the card by a mapping' has /nodes/pve/qemu/203/config '"hostpci0": *"[^"]*mapping='

# The guests
for pair in 201:198.18.0.11:vm-1 202:198.18.0.12:vm-2 203:198.18.0.13:vm-gpu; do
    vmid=${pair%%:*}
    name=${pair##*:}
    address=${pair#*:}
    address=${address%:*}
    claim "$name has its name" guest $address "test \"\$(uname -n)\" = $name"
    claim "$name holds $address" guest $address "ip -o -4 addr show | grep -q ' $address/'"
    claim "$name leased $address" leased $vmid $address
    claim "$name has the one reservation of $address" reserved $vmid $address
    claim "$name fills its disk" guest $address 'test "$(df -kP / | tail -n 1 | tr -s " " | cut -d " " -f 2)" -gt 3700000'
    claim "$name has no swap" guest $address 'test "$(wc -l </proc/swaps)" = 1'
    claim "$name follows the router's clock" guest $address 'chronyc -n sources | grep -q "^^[*].*198.18.0.1 "'
    claim "$name has its kernel parameter" guest $address 'test "$(cat /proc/sys/vm/max_map_count)" = 262144'
    claim "$name has its file" guest $address 'test "$(cat /etc/site/purpose)" = rehearsal'
    claim "$name runs cron" guest $address 'systemctl is-active cron && systemctl is-enabled cron'
    claim "$name ran its command" guest $address 'test -e /var/lib/site-setup.done'
done
claim 'vm-gpu sees the card' guest 198.18.0.13 'lspci -n | grep -q 1234:1111'
claim 'vm-1 sees no such card' guest 198.18.0.11 '! lspci -n | grep -q 1234:1111'

echo "$bad claims do not hold"
test $bad -eq 0

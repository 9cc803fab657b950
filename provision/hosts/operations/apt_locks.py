"""Calls of apt and dpkg: one wait for their locks around each of them, and what failed lists mean.

`DPkg::Lock::Timeout` covers one of the four locks, and only in apt-get: `dpkg --configure`, the lists and the
archives end at once when somebody else has theirs.
"""

from __future__ import annotations

OPTIONS = (
    "-y -q -o DPkg::Lock::Timeout=300 -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold"
)

SHELL = (
    r"""
export DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=l
provision_apt_wait=600 provision_apt_said=0

# Who holds a lock of apt or dpkg: PID and name. The kernel lists locks by inode, which two filesystems may
# share: the holder has the file open, too. The list is read at once: a shell reads line by line from a place
# in the file, and misses lines while others take and free locks.
provision_apt_holder() {
    locks=$(cat /proc/locks 2>/dev/null) || return 1
    for lock in /var/lib/dpkg/lock-frontend /var/lib/dpkg/lock /var/lib/apt/lists/lock \
        /var/cache/apt/archives/lock; do
        inode=$(stat -L -c %i "$lock" 2>/dev/null) || continue
        printf '%s\n' "$locks" | {
            while read -r _ first second third fourth fifth _; do
                if [ "$first" = '->' ]; then continue; fi
                case $fifth in *:"$inode") ;; *) continue ;; esac
                for open in /proc/"$fourth"/fd/*; do
                    if [ "$open" -ef "$lock" ]; then
                        name=
                        { read -r name <"/proc/$fourth/comm"; } 2>/dev/null || :
                        printf '%s (%s)\n' "$fourth" "${name:-unknown}"
                        exit 0
                    fi
                done
            done
            exit 1
        } && return 0
    done 2>/dev/null
    return 1
}

# Wait until nobody holds a lock of apt or dpkg.
provision_apt_idle() {
    while [ "$provision_apt_wait" -gt 0 ] && holder=$(provision_apt_holder); do
        provision_apt_wait=$((provision_apt_wait - 1)) provision_apt_said=$((provision_apt_said + 1))
        if [ $((provision_apt_said % 10)) -eq 0 ]; then
            printf 'waiting for process %s, which holds the lock of apt or dpkg\n' "$holder"
        fi
        sleep 1
    done
}

# Run a command of apt or dpkg, and again if somebody else held a lock meanwhile.
provision_apt() {
    while :; do
        provision_apt_idle
        provision_rc=0
        "$@" || provision_rc=$?
        if [ "$provision_rc" -eq 0 ]; then return 0; fi
        if [ "$provision_apt_wait" -le 0 ] || ! holder=$(provision_apt_holder); then break; fi
        provision_apt_wait=$((provision_apt_wait - 1))
    done
    if holder=$(provision_apt_holder); then
        printf 'process %s has held the lock of apt or dpkg for 10 minutes\n' "$holder" >&2
    fi
    return "$provision_rc"
}

# A dpkg that was killed leaves packages half configured, and apt-get refuses to work until they are not.
# Their questions about files that somebody changed are answered as for apt-get: the file stays.
provision_configure() { provision_apt dpkg --force-confdef --force-confold --configure -a; }

# Fetch the lists. One repository that refuses (401 without a subscription) is no reason to stop: the others
# were fetched, and the installation decides. For a name server or a mirror that is away for a while, apt-get
# warns and exits with 0, and old lists stay in use. apt 3 may write whole words for the letters.
provision_lists() {
    provision_failed='^(E|Error): |^(W|Warning): (Failed to fetch|GPG error|An error occurred during)'
    provision_apt_idle
    provision_said=$(provision_apt apt-get -q -o DPkg::Lock::Timeout=300 update 2>&1) ||
        provision_failed='^(E|W|Error|Warning): '
    printf '%s\n' "$provision_said"
    provision_failed=$(printf '%s\n' "$provision_said" | grep -E "$provision_failed" | head -n 5 || :)
    if [ -n "$provision_failed" ]; then printf 'warning: not all package lists could be fetched\n'; fi
}

# Install packages if no other must be removed for it; lists are fetched when the first try fails.
provision_install() {
    provision_configure
    if provision_apt apt-get @OPTIONS@ --no-remove install -- "$@"; then return 0; fi
    provision_lists
    provision_rc=0
    provision_apt apt-get @OPTIONS@ --no-remove install -- "$@" || provision_rc=$?
    if [ "$provision_rc" -ne 0 ] && [ -n "$provision_failed" ]; then
        printf '%s\n' 'not all package lists could be fetched:' "$provision_failed" \
            'disable this repository in /etc/apt/sources.list.d, or give it its credentials or a mirror' >&2
    elif [ "$provision_rc" -ne 0 ] && targets=$(apt-get indextargets 2>/dev/null) && [ -z "$targets" ]; then
        printf '%s\n' 'no package source is configured on this host: add one in /etc/apt/sources.list.d' >&2
    fi
    return "$provision_rc"
}
""".strip().replace("@OPTIONS@", OPTIONS)
    + "\n"
)
"""Functions that fixes of packages define once."""

#!/bin/sh
# Installs the Debian packages that `make test` uses and that are missing. Says what and why before it does anything.
#
# sshd and busybox are only run as ordinary processes, by tests, on loopback. Debian would also start and enable its
# SSH server. Where this script brings it in, it keeps the service off by the file that Debian's unit looks at.
set -eu
SSH_FOLDER=${SSH_FOLDER:-/etc/ssh}

missing=
need() { # PROOF PACKAGE WHY
    if [ ! -x "$1" ] && ! command -v "$1" >/dev/null 2>&1; then
        missing="$missing $2"
        echo "make test uses $2: $3"
    fi
}
need "${SSHD:-/usr/sbin/sshd}" openssh-server "tests log in to an SSH server of their own on 127.0.0.1"
need ssh openssh-client "tests compare with OpenSSH's own client"
need busybox busybox "scripts for hosts are run in its shell, too"
need curl curl "scripts for hosts download with it"
need setpriv util-linux "unit tests run as nobody and without a network"

[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ]; then
    echo "Install them as root, then run make test as your own user:"
    echo "  sudo make packages"
    exit 1
fi
case $missing in
    *openssh-server*)
        mkdir -p "$SSH_FOLDER"
        touch "$SSH_FOLDER/sshd_not_to_be_run"
        echo "The SSH service of this machine stays off: remove $SSH_FOLDER/sshd_not_to_be_run to use it."
        ;;
esac
apt-get -q update
# shellcheck disable=SC2086 # one word a package
apt-get -q install -y --no-install-recommends $missing

"""The site's router: a container with dnsmasq (DHCP and DNS), chrony (NTP) and sshd."""

from __future__ import annotations

import hashlib
from pathlib import Path

from provision.lab import keys
from provision.lab.nspawn import Container
from provision.lab.settings import LabSettings

KEY = "router"


def container(settings: LabSettings, rootfs: Path) -> Container:
    """Return the router's container."""
    return Container(settings.folder, KEY, "router", rootfs, (mac(settings.name, KEY),))


def prepare(settings: LabSettings, router: Container) -> None:
    """Write the router's files once, because roles may change them later."""
    if router.read("etc/dnsmasq.conf.d-lab") is not None:
        return
    lay_ssh(settings, router)
    router.write("etc/hostname", "router\n")
    router.write("etc/hosts", f"127.0.0.1 localhost\n{settings.gateway} router\n")
    router.write("etc/systemd/network/10-lab.network", static_network(settings, settings.gateway))
    router.write("etc/dnsmasq.conf", dnsmasq_conf(settings))
    router.write("etc/dnsmasq.d/hosts/.keep", "")
    router.write(
        "etc/chrony/chrony.conf", f"local stratum 8\nallow {settings.cidr}\ndriftfile /var/lib/chrony/drift\n"
    )
    router.lay_clock()
    router.enable("dnsmasq.service")
    # Written last, so that an interrupted preparation is repeated.
    router.write("etc/dnsmasq.conf.d-lab", "prepared\n")


def dnsmasq_conf(settings: LabSettings) -> str:
    """Return dnsmasq's configuration; Debian's unit adds /etc/dnsmasq.d, where reservations go."""
    first, last = settings.dhcp_range
    return "\n".join(
        (
            "# Router of the lab. Reservations: files in /etc/dnsmasq.d, or MAC,address,name lines in",
            "# /etc/dnsmasq.d/hosts (read at once). Clients are known by their hardware address alone.",
            "interface=eth0",
            # Not bind-interfaces: with it dnsmasq exits for good if the network is not set up yet.
            "bind-dynamic",
            "no-resolv",
            "no-hosts",
            "no-ping",
            "domain=lab.internal",
            "local=/lab.internal/",
            f"dhcp-range={first},{last},{settings.network.netmask},12h",
            "dhcp-authoritative",
            "dhcp-ignore-clid",
            f"dhcp-option=option:router,{settings.gateway}",
            f"dhcp-option=option:dns-server,{settings.gateway}",
            f"dhcp-option=option:ntp-server,{settings.gateway}",
            "dhcp-leasefile=/var/lib/misc/dnsmasq.leases",
            "dhcp-hostsdir=/etc/dnsmasq.d/hosts",
            "",
        )
    )


def lay_ssh(settings: LabSettings, machine: Container) -> None:
    """Write root's authorized key and a pinned host key into a container."""
    folder = settings.folder / "keys"
    host = folder / f"{machine.key}-host"
    public = keys.ensure_ssh_key(host, machine.hostname)
    authorized = keys.ensure_ssh_key(folder / "site", "provision lab")
    machine.write("etc/ssh/ssh_host_ed25519_key", host.read_text(), 0o600)
    machine.write("etc/ssh/ssh_host_ed25519_key.pub", public + "\n")
    machine.write("root/.ssh/authorized_keys", authorized + "\n", 0o600)


def static_network(settings: LabSettings, address: str) -> str:
    """Return the networkd file of a machine with a fixed address."""
    return (
        f"[Match]\nName=eth0\n\n[Network]\nAddress={address}/{settings.network.prefixlen}\n"
        "LinkLocalAddressing=no\nIPv6AcceptRA=no\n"
    )


def mac(lab: str, machine: str) -> str:
    """Return a stable, locally administered hardware address."""
    digest = hashlib.sha256(f"{lab}/{machine}".encode()).digest()
    return "52:54:00:" + ":".join(f"{byte:02x}" for byte in digest[:3])

"""Things of somebody else beside a site: a VM, a disk, a snippet, a reservation; none may be touched."""

from __future__ import annotations

import hashlib

from tests.e2e.site import HYPERVISOR, ROUTER, Site

CONFIG = "cores: 1\nmemory: 128\nname: somebody\nscsi0: local-disks:vm-900-disk-0,size=1G\n"
SNIPPET = "/var/lib/vz/snippets/somebody.yaml"


def plant(site: Site) -> dict[str, str]:
    """Put them there before the first apply, and return their bytes by name."""
    (site.lab / "api/qemu-server/900.conf").write_text(CONFIG)
    (site.lab / "api/storage/local-disks/vm-900-disk-0.raw").write_bytes(b"somebody's disk" * 1000)
    site.on(HYPERVISOR, f"mkdir -p /var/lib/vz/snippets; echo '#cloud-config' > {SNIPPET}")
    site.on(ROUTER, "echo '52:54:00:00:00:01,198.18.0.77,somebody' > /etc/dnsmasq.d/hosts/somebody")
    site.on(ROUTER, "echo '# nothing' > /etc/dnsmasq.d/somebody.conf")
    return looked_at(site)


def looked_at(site: Site) -> dict[str, str]:
    """Return their bytes as they are now."""
    disk = site.lab / "api/storage/local-disks/vm-900-disk-0.raw"
    return {
        "config": site.config(900),
        "disk": hashlib.sha256(disk.read_bytes()).hexdigest(),
        "snippet": site.on(HYPERVISOR, f"stat -c '%a %U %Y' {SNIPPET}; cat {SNIPPET}"),
        "reservation": site.on(
            ROUTER,
            "cd /etc/dnsmasq.d; tail -n +1 hosts/somebody *.conf; stat -c '%a %U %Y' hosts/somebody *.conf",
        ),
    }


def alone(site: Site) -> None:
    """Prove that of VMs, disks, snippets and reservations only theirs are there."""
    files = site.api_files()
    assert [name for name in files if name.startswith("qemu-server/")] == ["qemu-server/900.conf"]
    volumes = [name for name in files if name.startswith("storage/local-disks/")]
    assert volumes == ["storage/local-disks/vm-900-disk-0.raw"]
    assert site.on(HYPERVISOR, "ls /var/lib/vz/snippets") == "somebody.yaml\n"
    assert site.on(ROUTER, "ls /etc/dnsmasq.d/hosts") == "somebody\n"

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from provision.lab import seed
from provision.lab.container import apply_seed
from provision.lab.contracts import CloudInit, GuestError, Nic
from provision.lab.nspawn import Container
from provision.proxmox.resources.guest import KEEP_KEYS, KEPT_KEYS

NICS = (Nic("BC:24:11:00:00:01", "vmbr0"), Nic("BC:24:11:00:00:02", "vmbr0"))
VENDOR = (
    "#cloud-config\nssh_keys:\n  ed25519_private: |\n    SECRET\n  ed25519_public: ssh-ed25519 AAAA first\n"
)
PLAIN = CloudInit(
    hostname="vm-1", user="debian", ssh_keys="ssh-ed25519 AAAA me\n\n", instance_id="abc", vendor=VENDOR
)


def test_the_user_part_is_a_cloud_config_with_name_user_and_keys() -> None:
    text = seed.user_data(PLAIN)
    parsed = yaml.safe_load(text)
    assert text.startswith("#cloud-config\n")
    assert parsed["hostname"] == parsed["fqdn"] == "vm-1"
    assert parsed["user"] == "debian"
    assert parsed["ssh_authorized_keys"] == ["ssh-ed25519 AAAA me"]


def test_keys_in_the_api_s_url_encoding_are_read() -> None:
    encoded = replace(PLAIN, ssh_keys="ssh-ed25519%20AAAA%2B%20me%0Assh-rsa%20BBBB")
    assert seed.authorized_keys(encoded) == ("ssh-ed25519 AAAA+ me", "ssh-rsa BBBB")


def test_nics_are_matched_by_hardware_address_with_dhcp_or_a_fixed_address() -> None:
    given = replace(PLAIN, ipconfig=("ip=dhcp", "ip=198.18.0.9/24,gw=198.18.0.1"))
    first, second = yaml.safe_load(seed.network_config(given, NICS))["config"]
    assert first["mac_address"] == "bc:24:11:00:00:01"
    assert first["subnets"] == [{"type": "dhcp4"}]
    assert second["subnets"] == [{"type": "static", "address": "198.18.0.9/24", "gateway": "198.18.0.1"}]


def test_a_seed_without_snippet_has_no_vendor_part() -> None:
    assert "vendor-data" not in seed.files(replace(PLAIN, vendor=None), NICS)
    assert seed.files(PLAIN, NICS)["vendor-data"] == VENDOR


@pytest.mark.parametrize("text", ["#cloud-config\n- a\n", "#cloud-config\n{", "#!/bin/sh\n"])
def test_a_snippet_that_is_no_cloud_config_is_refused(text: str) -> None:
    with pytest.raises(GuestError, match="vendor snippet"):
        seed.vendor(replace(PLAIN, vendor=text))


def test_the_container_gets_what_the_seed_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.chown", lambda *_: None)
    rootfs = tmp_path / "rootfs"
    (rootfs / "etc").mkdir(parents=True)
    (rootfs / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    machine = Container(tmp_path / "lab", "100", "vm-1", rootfs, ())
    apply_seed(machine, "other", PLAIN, NICS)
    upper = machine.upper
    assert (upper / "etc/hostname").read_text() == "vm-1\n"
    assert "MACAddress=bc:24:11:00:00:02" in (upper / "etc/systemd/network/10-nic1.network").read_text()
    key = upper / "etc/ssh/ssh_host_ed25519_key"
    assert key.read_text() == "SECRET\n"
    assert key.stat().st_mode & 0o777 == 0o600
    assert (upper / "home/debian/.ssh/authorized_keys").read_text() == "ssh-ed25519 AAAA me\n"
    rows = (upper / "etc/passwd").read_text().splitlines()
    assert [row.split(":")[0] for row in rows] == ["root", "debian"]
    assert "NOPASSWD" in (upper / "etc/sudoers.d/90-cloud-init-users").read_text()


def test_another_instance_replaces_host_keys_unless_the_guest_keeps_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[list[str]] = []
    monkeypatch.setattr("os.chown", lambda *_: None)
    monkeypatch.setattr("provision.lab.container.run", made.append)
    (tmp_path / "rootfs/etc").mkdir(parents=True)
    (tmp_path / "rootfs/etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    machine = Container(tmp_path / "lab", "100", "vm-1", tmp_path / "rootfs", ())
    apply_seed(machine, "vm-1", PLAIN, NICS)
    machine.write(KEPT_KEYS.lstrip("/"), KEEP_KEYS.decode())
    renamed = replace(PLAIN, hostname="vm-2", vendor=None)
    apply_seed(machine, "vm-1", renamed, NICS)
    key = machine.upper / "etc/ssh/ssh_host_ed25519_key"
    assert (key.read_text(), made) == ("SECRET\n", [])
    (machine.upper / KEPT_KEYS.lstrip("/")).unlink()
    apply_seed(machine, "vm-1", renamed, NICS)
    assert not key.exists()
    assert len(made) == 1, "cloud-init makes another one"


def test_a_written_file_cannot_leave_the_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.chown", lambda *_: None)
    machine = Container(tmp_path / "lab", "100", "vm-1", tmp_path / "rootfs", ())
    hostile = VENDOR + "write_files:\n- path: /../../../../outside\n  content: x\n"
    with pytest.raises(GuestError, match="path"):
        apply_seed(machine, "vm-1", replace(PLAIN, vendor=hostile), NICS)
    assert not (tmp_path / "outside").exists()

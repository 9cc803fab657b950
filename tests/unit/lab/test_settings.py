from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from provision.lab import packages, record, router
from provision.lab.images import Image, Images
from provision.lab.record import Record
from provision.lab.settings import LABS, Card, LabError, LabSettings, lab_folder, labs_root, namespace


def settings(**changes: Any) -> LabSettings:
    return LabSettings(**{"name": "lab", "driver": "qemu", "hypervisors": {"pve": "198.18.0.5"}, **changes})


def test_addresses_follow_from_the_network() -> None:
    small = settings()
    assert small.host_address == "198.18.0.254"
    assert small.dhcp_range == ("198.18.0.100", "198.18.0.199")
    large = settings(cidr="198.18.0.0/16")
    assert large.host_address == "198.18.255.254"


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"name": "../etc"}, "name"),
        ({"name": "a.b"}, "name"),
        ({"name": "x" * 25}, "name"),
        ({"cidr": "192.168.1.0/24"}, "198.18.0.0/16"),
        ({"cidr": "198.18.0.0/28"}, "too small"),
        ({"hypervisors": {}}, "exactly one"),
        ({"hypervisors": {"pve": "198.18.1.5"}}, "198.18.1.5"),
        ({"gateway": "198.18.0.254"}, "own address"),
        ({"cards": (Card("a/b"),)}, "a/b"),
    ],
)
def test_a_lab_that_cannot_be_is_refused(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(LabError, match=word):
        settings(**changes)


@pytest.mark.parametrize("name", ["", "..", "a/b", "/", "A"])
def test_no_name_leaves_the_folder_of_labs(name: str) -> None:
    with pytest.raises(LabError):
        lab_folder(name)


def test_labs_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    assert namespace(LABS / "lab") == "provision-lab"
    assert namespace(LABS / "lab", "router") == "provision-lab.router"
    folders = (LABS / "lab", tmp_path / "lab", tmp_path / "more/lab", tmp_path / "other")
    assert len({namespace(folder) for folder in folders}) == len(folders)


def test_a_folder_of_labs_is_the_same_by_each_of_its_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "labs").mkdir()
    (tmp_path / "link").symlink_to("labs")
    monkeypatch.setenv("PROVISION_LAB_DIR", str(tmp_path / "link"))
    assert labs_root() == (tmp_path / "labs").resolve()


def make_record(folder: Path) -> Record:
    image = Image("debian-12", folder / "debian-12.qcow2", "ab" * 32)
    images = Images(folder / "rootfs", folder / "vm", (image,))
    return Record(settings(cards=(Card("gpu0", shares_group=True),)), images, ("-accel", "tcg"))


def test_the_record_survives_writing_and_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVISION_LAB_DIR", str(tmp_path))
    made = make_record(tmp_path)
    (tmp_path / "lab").mkdir()
    record.save(made)
    assert record.load(tmp_path / "lab") == made


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"settings": {"cards": 1}}'])
def test_a_broken_record_is_no_lab(tmp_path: Path, text: str) -> None:
    (tmp_path / record.FILE).write_text(text)
    with pytest.raises(LabError, match="no valid record of a lab"):
        record.load(tmp_path)


def test_the_overlay_names_files_and_pins_but_no_secret(tmp_path: Path) -> None:
    pins = {"router": "SHA256:r", "hypervisor": "SHA256:h"}
    text = record.overlay(make_record(tmp_path), api_fingerprint="AA:BB", token_id="u@pve!t", host_keys=pins)
    lines = [line.strip() for line in text.splitlines()]
    assert 'fingerprint: "AA:BB"' in lines
    assert "url: https://198.18.0.5:8006" in lines
    assert "url: http://198.18.0.254:8080/images/debian-12.qcow2" in lines
    assert 'host_key: "SHA256:r"' in lines
    assert 'host_key: "SHA256:h"' in lines
    assert any(line.startswith("token: !secret { file: ") for line in lines)


def test_the_router_knows_clients_by_hardware_address_and_hands_out_itself() -> None:
    text = router.dnsmasq_conf(settings())
    assert "dhcp-ignore-clid" in text
    assert "dhcp-range=198.18.0.100,198.18.0.199,255.255.255.0,12h" in text
    for option in ("router", "dns-server", "ntp-server"):
        assert f"dhcp-option=option:{option},198.18.0.1" in text


def test_made_hardware_addresses_differ_by_lab_and_machine() -> None:
    made = {router.mac(lab, machine) for lab in ("a", "b") for machine in ("router", "hypervisor")}
    assert len(made) == 4
    assert all(mac.startswith("52:54:00:") for mac in made)


def test_the_container_driver_needs_no_emulator() -> None:
    assert "qemu-system-x86" in packages.needed("qemu")
    assert "qemu-system-x86" not in packages.needed("container")

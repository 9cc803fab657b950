from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.proxmox.marker import Marker, read, read_smbios1, repaired_smbios1, smbios1, united, write

FULL = Marker("lab", "vm-1", "SHA256:aa", "SHA256:bb", "tok", "start")
WORD = st.text("abcdefghijklmnopqrstuvwxyzABC0123456789:+/-", min_size=1, max_size=20)


@given(WORD, WORD, st.one_of(st.just(""), WORD), st.one_of(st.just(""), WORD))
def test_a_marker_is_read_as_it_was_written(inventory: str, node: str, key: str, token: str) -> None:
    marker = Marker(inventory, node, key, "", token)
    assert read(str(marker)) == marker


@given(st.text(max_size=200).filter(lambda text: read(text) is None))
def test_text_of_the_user_is_kept(text: str) -> None:
    assert text.strip() in write(text, FULL)
    assert read(write(text, FULL)) == FULL


def test_a_marker_is_replaced_in_its_place() -> None:
    text = f"first line\n{FULL}\nlast line"
    assert write(text, FULL.settled()) == f"first line\n{FULL.settled()}\nlast line"


def test_unknown_and_damaged_fields_are_skipped() -> None:
    marker = read("notes\nprovision:  node=vm-1 junk inventory=lab later=field host-key=SHA256:x\r\nmore")
    assert marker == Marker("lab", "vm-1", "SHA256:x")


def test_a_marker_of_an_older_version_has_no_due_start() -> None:
    older = "provision: inventory=lab node=vm-1 host-key=SHA256:x replace=tok"
    assert read(older) == Marker("lab", "vm-1", "SHA256:x", replace="tok")
    assert write(older, read(older) or FULL) == older


def test_text_that_only_names_provision_is_not_a_marker() -> None:
    assert read("made with provision: see the wiki") is None
    assert read("provision: inventory=lab") is None


def test_the_guest_may_show_every_key_that_the_marker_names() -> None:
    marker = Marker("lab", "vm-1", "SHA256:new,SHA256:old", "SHA256:first")
    assert marker.fingerprints == ("SHA256:new", "SHA256:old", "SHA256:first")


KEPT = Marker("lab", "vm-1", "SHA256:" + "k" * 43, "SHA256:" + "f" * 43)
MAC = "BC:24:11:00:00:01"


@pytest.mark.parametrize(
    ("vmid", "name", "macs", "ours"),
    [
        (101, "vm-1", {MAC}, True),
        (101, "renamed", {MAC}, True),
        (101, "vm-1", {"BC:24:11:00:00:99"}, True),
        (101, "renamed", {"BC:24:11:00:00:99"}, False),
        (102, "vm-1", {MAC}, False),  # restored under another number, or a clone
    ],
)
def test_the_second_home_counts_with_its_witnesses(vmid: int, name: str, macs: set[str], ours: bool) -> None:
    text = smbios1(KEPT, 101, MAC.lower())
    assert read_smbios1(text, vmid, name, macs) == (KEPT if ours else None)


def test_the_second_home_fits_and_holds_no_token_of_a_moment() -> None:
    long = Marker("i" * 63, "n" * 63, KEPT.host_key, KEPT.first_key, replace="tok", owes="start")
    text = smbios1(long, 999_999_999, MAC)
    assert len(text) <= 512  # PVE's limit
    assert re.fullmatch(r"uuid=[0-9a-f-]{36},family=[A-Za-z0-9+/=]+,base64=1", text)
    assert read_smbios1(text, 999_999_999, "n" * 63, ()) == replace(long, replace="", owes="")


@pytest.mark.parametrize(
    "text", ["", "uuid=1", "family=%,base64=1", "uuid=1,family=AAAA,base64=1", "family=eA=="]
)
def test_a_foreign_smbios_is_no_marker(text: str) -> None:
    assert read_smbios1(text, 101, "vm-1", {MAC}) is None


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        (lambda text: text, False),
        (lambda text: text.partition(",")[0], True),
        (lambda text: f"{text.partition(',')[0]},serial=a1", True),
        (lambda text: f"{text.partition(',')[0]},manufacturer=QUNNRQ==,base64=1", True),
        (lambda text: re.sub("family=.{20}", "family=", text), True),
        (lambda text: text.replace(",base64=1", ""), True),
        (lambda text: f"manufacturer=QUNNRQ==,{text}", False),
        (lambda _: "uuid=00000000-0000-0000-0000-000000000001", False),  # adopted, or a person's own
        (lambda _: "", False),
    ],
)
def test_a_lost_second_home_is_written_again(change: Callable[[str], str], lost: bool) -> None:
    settled = KEPT.settled()
    text = change(smbios1(settled, 101, MAC))
    repaired = repaired_smbios1(text, settled, 101, MAC)
    assert bool(repaired) is lost
    if lost:
        assert read_smbios1(repaired, 101, "vm-1", {MAC}) == settled
        assert repaired_smbios1(repaired, settled, 101, MAC) == ""
        assert "base64=1" in repaired.split(",")
        assert ("manufacturer=QUNNRQ==" in repaired) is ("manufacturer" in text)
        assert ("serial=YTE=" in repaired) is ("serial" in text)


@pytest.mark.parametrize(
    ("host_key", "kept"),
    [
        ("SHA256:" + "n" * 43, False),
        ("SHA256:" + "n" * 43 + ",SHA256:" + "o" * 43, False),
        ("SHA256:" + "n" * 30, True),
        ("SHA256:", True),
        ("", False),  # adopted
        ("SHA256:" + "n" * 43 + ",SHA", True),
        ("<b>SHA256:" + "n" * 43, True),
    ],
)
def test_a_cut_host_key_in_the_notes_is_that_of_the_second_home(host_key: str, kept: bool) -> None:
    noted = Marker("lab", "vm-1", host_key, replace="tok", tags="a")
    expected = replace(noted, host_key=KEPT.host_key, first_key=KEPT.first_key) if kept else noted
    assert united(noted, KEPT) == expected
    assert united(noted, None) == united(noted, replace(KEPT, node="vm-2")) == noted

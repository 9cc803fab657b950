from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from provision.proxmox.marker import Marker, read, write

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

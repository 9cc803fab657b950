from __future__ import annotations

import base64
import hashlib
import hmac
import stat
from pathlib import Path

import pytest

from provision.connections.keys import fingerprint, new_host_key
from provision.connections.trust import KnownHosts, TrustStore, known_hosts

KEY = new_host_key()
OTHER = new_host_key()
PUBLIC = " ".join(KEY.public.split()[:2])
BLOB = base64.b64decode(KEY.public.split()[1])


def hashed(name: str) -> str:
    salt = b"0123456789abcdefghij"
    digest = hmac.new(salt, name.encode(), hashlib.sha1).digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


@pytest.mark.parametrize(
    ("names", "host", "port", "matches"),
    [
        ("node1", "node1", 22, True),
        ("node1", "NODE1", 22, True),
        ("node1", "node2", 22, False),
        ("node1,10.0.0.1", "10.0.0.1", 22, True),
        ("[node1]:2222", "node1", 2222, True),
        ("[node1]:2222", "node1", 22, False),
        ("node1", "node1", 2222, False),
        ("*.lab", "a.lab", 22, True),
        ("*.lab,!b.lab", "b.lab", 22, False),
        ("node?", "node7", 22, True),
        ("[node1]:*", "node1", 7, True),
        (hashed("node1"), "node1", 22, True),
        (hashed("node1"), "node2", 22, False),
        (hashed("[node1]:2222"), "node1", 2222, True),
        ("|1|broken", "node1", 22, False),
    ],
)
def test_names_match_as_in_openssh(tmp_path: Path, names: str, host: str, port: int, matches: bool) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(f"# comment\n\n{names} {PUBLIC} comment\n")
    assert [key.blob for key in KnownHosts(file).keys(host, port)] == ([BLOB] if matches else [])


def test_revoked_keys_are_marked_and_authorities_left_out(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(f"@revoked node1 {PUBLIC}\n@cert-authority node1 {PUBLIC}\n")
    assert [key.revoked for key in KnownHosts(file).keys("node1")] == [True]


@pytest.mark.parametrize(
    "line", ["node1", "node1 ssh-ed25519", "node1 ssh-ed25519 %%%", "\x00\xff", "@revoked"]
)
def test_damaged_lines_are_skipped(tmp_path: Path, line: str) -> None:
    file = tmp_path / "known_hosts"
    file.write_bytes(line.encode("latin-1") + b"\n" + f"node2 {PUBLIC}\n".encode())
    known = KnownHosts(file)
    assert known.keys("node1") == []
    assert len(known.keys("node2")) == 1


def test_absent_files_are_empty_and_changed_ones_read_again(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    assert known_hosts(file).keys("node1") == []
    file.write_text(f"node1 {PUBLIC}\n")
    assert len(known_hosts(file).keys("node1")) == 1
    assert known_hosts(file) is known_hosts(file)


def test_a_new_key_is_an_openssh_key_with_the_right_fingerprint() -> None:
    assert KEY.private.get_secret_value().startswith("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    assert KEY.public.startswith("ssh-ed25519 ")
    assert KEY.fingerprint == fingerprint(KEY.public)
    assert KEY.fingerprint == "SHA256:" + base64.b64encode(hashlib.sha256(BLOB).digest()).decode().rstrip("=")
    assert KEY.fingerprint != OTHER.fingerprint
    assert KEY.private.get_secret_value() not in repr(KEY)


@pytest.mark.parametrize("line", ["", "ssh-ed25519", "ssh-ed25519 %%%"])
def test_an_invalid_key_has_no_fingerprint(line: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        fingerprint(line)


def test_accepted_keys_are_kept_by_system(tmp_path: Path) -> None:
    store = TrustStore(tmp_path / "state" / "accepted")
    assert store.fingerprints("pve/ssh") == ()
    store.accept("pve/ssh", KEY.fingerprint)
    store.accept("vm-1/ssh", OTHER.fingerprint)
    assert store.fingerprints("pve/ssh") == (KEY.fingerprint,)
    store.accept("pve/ssh", OTHER.fingerprint)
    assert TrustStore(tmp_path / "state" / "accepted").fingerprints("pve/ssh") == (OTHER.fingerprint,)
    assert store.fingerprints("vm-1/ssh") == (OTHER.fingerprint,)
    assert stat.S_IMODE((tmp_path / "state" / "accepted").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("system", "accepted"),
    [("pve", "MD5:aa"), ("pve", "SHA256:short"), ("a b", KEY.fingerprint), ("", KEY.fingerprint)],
    ids=["another hash", "too short", "a space", "no system"],
)
def test_an_invalid_fingerprint_or_system_is_not_accepted(tmp_path: Path, system: str, accepted: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        TrustStore(tmp_path / "accepted").accept(system, accepted)
    assert not (tmp_path / "accepted").exists()

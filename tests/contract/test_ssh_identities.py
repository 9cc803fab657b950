"""Which keys are offered, and in which order: those that are configured first, each once."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from types import SimpleNamespace

import paramiko
import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_ssh_private_key,
)

from provision.connections import ssh_identities
from provision.connections.keys import new_host_key
from provision.connections.ssh_identities import Identities

PAIRS = {letter: new_host_key(letter) for letter in "abcd"}
KEYS = {
    letter: paramiko.Ed25519Key.from_private_key(io.StringIO(pair.private.get_secret_value()))
    for letter, pair in PAIRS.items()
}
ORDERS: tuple[tuple[str, bool, dict[str, str], str, str], ...] = (
    # configured files, whether only these, files (-: private, +: public, *: passphrase), agent, keys offered
    ("", False, {}, "ab", "ab"),
    ("k", False, {"k": "-c"}, "ab", "cab"),
    ("k", True, {"k": "-c"}, "ab", "c"),
    ("k.pub", False, {"k.pub": "+b"}, "ab", "ba"),
    ("k.pub", True, {"k.pub": "+b"}, "ab", "b"),
    ("k.pub", True, {"k.pub": "+c"}, "ab", ""),
    ("k.pub", False, {"k.pub": "+c"}, "ab", "ab"),
    ("k", False, {"k": "-b"}, "ab", "ba"),
    ("k", True, {"k": "*b"}, "ab", "b"),
    ("k", False, {"k": "*c"}, "ab", "ab"),
    ("k", True, {"k": "*c"}, "ab", ""),
    ("k", True, {}, "ab", ""),
    ("k", True, {"k.pub": "+a"}, "ab", "a"),  # the private key is in the agent alone
    ("k", False, {"k": "garbage"}, "ab", "ab"),
    ("k", True, {"k": "garbage"}, "ab", "ab"),  # it may be any of the agent's
    ("k", False, {"k": "token"}, "ab", "ab"),  # of a security token that the agent does not have
    ("k l", True, {"k": "token", "l": "-c"}, "ab", "c"),
    ("", False, {"id_ed25519": "*c", "id_rsa": "garbage"}, "ab", "ab"),
    ("k l", False, {"k": "-d", "l": "-c"}, "ab", "dcab"),
    ("k k", False, {"k": "-c"}, "ab", "cab"),
    ("k l", True, {"k": "-c", "l": "-c"}, "", "c"),
    ("k", True, {"k": "-c", "k.pub": "+a"}, "ab", "c"),  # a public file of another key beside it
    ("", False, {"id_ed25519": "-c"}, "ab", "abc"),
    ("", False, {"id_ed25519": "-a"}, "ab", "ab"),
    ("id_ed25519", False, {"id_ed25519": "-c"}, "a", "ca"),
)


def _content(text: str) -> str:
    if text == "token":
        return _token()
    if text[0] not in "-+*":
        return text
    if text[0] == "*":
        return _locked(text[1])
    pair = PAIRS[text[1]]
    return pair.public + "\n" if text[0] == "+" else pair.private.get_secret_value()


def _locked(letter: str) -> str:
    """Return a private key in OpenSSH's form under a passphrase."""
    key = load_ssh_private_key(PAIRS[letter].private.get_secret_value().encode(), None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, BestAvailableEncryption(b"x")).decode()


def _token() -> str:
    """Return the file of a key on a security token; PROTOCOL.key and PROTOCOL.u2f of OpenSSH."""

    def string(data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + data

    name, application = string(b"sk-ssh-ed25519@openssh.com"), string(b"ssh:")
    public = name + string(b"p" * 32) + application
    private = b"same" * 2 + public + b"\x01" + string(b"handle") + string(b"") + string(b"comment")
    private += bytes(range(1, 1 + -len(private) % 8))
    body = b"openssh-key-v1\0" + string(b"none") * 2 + string(b"") + (1).to_bytes(4, "big")
    text = base64.encodebytes(body + string(public) + string(private)).decode()
    return f"-----BEGIN OPENSSH PRIVATE KEY-----\n{text}-----END OPENSSH PRIVATE KEY-----\n"


@pytest.mark.parametrize(("configured", "only", "files", "agent", "offered"), ORDERS)
def test_configured_keys_come_first_and_each_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    configured: str,
    only: bool,
    files: dict[str, str],
    agent: str,
    offered: str,
) -> None:
    folder = tmp_path / ".ssh"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(_content(text))
    monkeypatch.setenv("HOME", str(tmp_path))
    holder = SimpleNamespace(get_keys=lambda: tuple(KEYS[letter] for letter in agent), _close=lambda: None)
    monkeypatch.setattr(ssh_identities, "_open_agent", lambda _name: holder)
    keys = tuple(folder / name for name in configured.split())
    target = SimpleNamespace(keys=keys, only_keys=only, agent="")
    identities = Identities(target)  # type: ignore[arg-type]  # what it reads of a target
    letters = {key.asbytes(): letter for letter, key in KEYS.items()}
    assert "".join(letters[key.asbytes()] for key in identities) == offered
    identities.close()

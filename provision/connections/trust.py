"""Which host keys are known: known_hosts files, and the keys that a person accepted for a system."""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hashlib
import hmac
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from provision.values.fingerprints import is_host_key
from provision.values.whole_file import make_private_folder, write_whole

_FIELDS = 3


@dataclass(frozen=True, slots=True)
class KnownKey:
    """One line of a known_hosts file (sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT").

    Args:
        names: host patterns, or one hashed name.
        kind: key type.
        blob: the key in its wire form.
        revoked: never to be accepted.
    """

    names: tuple[str, ...]
    kind: str
    blob: bytes
    revoked: bool


class KnownHosts:
    """The keys of known_hosts files; missing files count as empty."""

    def __init__(self, *files: Path) -> None:
        self._exact: dict[str, list[KnownKey]] = {}
        self._patterns: list[KnownKey] = []
        for file in files:
            for key in _read(file):
                self._add(key)

    def _add(self, key: KnownKey) -> None:
        if any(name[0] in "|!" or "*" in name or "?" in name for name in key.names):
            self._patterns.append(key)
            return
        for name in key.names:
            self._exact.setdefault(name, []).append(key)

    def keys(self, name: str, port: int = 22) -> list[KnownKey]:
        """Return the keys of a host, also the revoked ones."""
        entry = name.lower() if port == 22 else f"[{name.lower()}]:{port}"  # noqa: PLR2004 - SSH's own port
        patterns = [key for key in self._patterns if _matches(key.names, entry)]
        return [*self._exact.get(entry, ()), *patterns]


def _matches(patterns: tuple[str, ...], name: str) -> bool:
    matches = False
    for pattern in patterns:
        if pattern.startswith("|1|"):
            matches |= _matches_hash(pattern, name)
            continue
        negated = pattern.startswith("!")
        # only * and ? are special in OpenSSH; brackets are part of names with ports
        plain = pattern.removeprefix("!").replace("[", "[[]")
        if fnmatch.fnmatchcase(name, plain):
            if negated:
                return False
            matches = True
    return matches


def _matches_hash(pattern: str, name: str) -> bool:
    parts = pattern.split("|")
    try:
        salt, digest = (base64.b64decode(part, validate=True) for part in parts[2:4])
    except (ValueError, binascii.Error):
        return False
    return hmac.compare_digest(hmac.new(salt, name.encode(), hashlib.sha1).digest(), digest)


def _read(file: Path) -> Iterator[KnownKey]:
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        marker = fields.pop(0) if fields[0].startswith("@") else ""
        if marker not in {"", "@revoked"} or len(fields) < _FIELDS:
            continue  # certificate authorities are not supported
        try:
            blob = base64.b64decode(fields[2], validate=True)
        except (ValueError, binascii.Error):
            continue
        names = tuple(
            name.lower() if not name.startswith("|") else name for name in fields[0].split(",") if name
        )
        if names:
            yield KnownKey(names, fields[1], blob, marker == "@revoked")


@lru_cache(maxsize=16)
def _load(stamps: tuple[tuple[Path, int, int], ...]) -> KnownHosts:
    return KnownHosts(*(path for path, _, _ in stamps))


def known_hosts(*files: Path) -> KnownHosts:
    """Return the keys of some files, which are read again only after a change."""
    stamps = []
    for file in files:
        try:
            stat = file.stat()
        except OSError:
            continue
        stamps.append((file, stat.st_mtime_ns, stat.st_size))
    return _load(tuple(stamps))


class TrustStore:
    """The fingerprints that a person accepted for a system (`provision trust`): lines `SYSTEM SHA256:...`.

    Args:
        path: the file; it and its folder are made by the first `accept`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()

    def fingerprints(self, system: str) -> tuple[str, ...]:
        """Return the accepted keys of a system, in the order of the file."""
        return tuple(fingerprint for name, fingerprint in self._lines() if name == system)

    def accept(self, system: str, fingerprint: str) -> None:
        """Accept a key for a system from now on, and no other one.

        Raises:
            ValueError: an invalid fingerprint, or a system's name with blanks.
        """
        if not is_host_key(fingerprint):
            raise ValueError(f"invalid fingerprint {fingerprint!r}: expected SHA256: and 43 characters")
        if not system or system.split() != [system] or system.startswith("#"):
            raise ValueError(f"invalid system name {system!r}")
        with self._lock:
            kept = [line for line in self._lines() if line[0] != system]
            self._write([*kept, (system, fingerprint)])

    def _lines(self) -> list[tuple[str, str]]:
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        fields = (line.split() for line in text.splitlines() if not line.startswith("#"))
        return [(words[0], words[1]) for words in fields if len(words) == 2 and is_host_key(words[1])]  # noqa: PLR2004 - system, key

    def _write(self, lines: list[tuple[str, str]]) -> None:
        make_private_folder(self.path.parent)
        kept = "".join(f"{system} {fingerprint}\n" for system, fingerprint in lines)
        write_whole(self.path, f"# accepted SSH host keys: system, fingerprint\n{kept}")

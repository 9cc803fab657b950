"""Keeps secrets and control bytes out of everything that a person or a file gets to see."""

from __future__ import annotations

import base64
import json
import re
import shlex
import threading
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from pydantic import SecretStr  # slow, and the command line has a redactor from its first moment

MASK = "***"
SHORTEST = 4
"""Shorter secrets are not masked: they would blank out ordinary text."""

_SHORTEST_FORM = 8
"""Shortest encoded form or single line of a secret that is masked."""

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # OSC, DCS and the like: titles, links
    r"|\x1b[ -/]*[0-~]?"
)
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")


def printable(text: str) -> str:
    """Return the text without escape sequences, control characters (but tab, newline) and bidi overrides."""
    return _CONTROLS.sub("", _ESCAPES.sub("", text))


def _base64_forms(secret: bytes) -> Iterator[bytes]:
    """Yield what base64 makes of a secret at each of the three offsets at which it can lie in other text."""
    for offset in range(3):
        encoded = base64.b64encode(b"\0" * offset + secret)
        first = -(-offset * 8 // 6)
        last = (offset + len(secret)) * 8 // 6
        yield encoded[first:last]
        yield encoded[first:last].replace(b"+", b"-").replace(b"/", b"_")


def _forms(secret: str) -> set[bytes]:
    raw = secret.encode("utf-8", "surrogateescape")
    forms = {raw, json.dumps(secret)[1:-1].encode(), quote(raw, safe="").encode()}
    forms |= {repr(secret)[1:-1].encode("utf-8", "surrogateescape"), repr(raw)[2:-1].encode()}
    forms.add(shlex.quote(secret)[1:-1].encode("utf-8", "surrogateescape") if "'" in secret else raw)
    forms.update(line for line in raw.splitlines() if len(line) >= _SHORTEST_FORM)
    forms.update(form for form in _base64_forms(raw) if len(form) >= _SHORTEST_FORM)
    return forms


class Redactor:
    """Masks secrets in text and in streams; secrets may be added at any time from any thread."""

    def __init__(self, *secrets: SecretStr | str) -> None:
        self._lock = threading.Lock()
        self._values: frozenset[str] = frozenset()
        self._forms: frozenset[bytes] = frozenset()
        self._pattern: re.Pattern[bytes] | None = None
        self.add(*secrets)
        with _LIVING:
            _living.add(self)

    def add(self, *secrets: SecretStr | str) -> None:
        """Mask these too: as they are, line by line, quoted (shell, JSON, Python, URLs), and in base64."""
        found: set[bytes] = set()
        for each in secrets:
            value = each if isinstance(each, str) else each.get_secret_value()
            if value in self._values:
                continue
            self._values |= {value}
            for one in {value, value.strip()}:
                if len(one) >= SHORTEST:
                    found |= _forms(one)
        with self._lock:
            if found <= self._forms:
                return
            self._forms |= found
            self._pattern = None  # made when something is found to mask: most runs add secrets and meet none

    @property
    def pattern(self) -> re.Pattern[bytes]:
        """What is masked, as one regular expression."""
        with self._lock:
            if self._pattern is None:
                longest_first = sorted(self._forms, key=lambda form: (-len(form), form))
                self._pattern = re.compile(b"|".join(map(re.escape, longest_first)) or rb"(?!)")
            return self._pattern

    @property
    def forms(self) -> frozenset[bytes]:
        """Every form of every secret."""
        return self._forms

    def data(self, data: bytes) -> bytes:
        """Return the bytes with every secret masked."""
        # looking for plain strings is far faster than one regular expression, and most data holds none
        if not any(form in data for form in self._forms):
            return data
        return self.pattern.sub(MASK.encode(), data)

    def text(self, text: str) -> str:
        """Return the text with every secret masked."""
        if not self._forms:
            return text
        return self.data(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    def stream(self) -> RedactedStream:
        """Return a filter for one stream."""
        return RedactedStream(self)


_LIVING = threading.Lock()
_living: weakref.WeakSet[Redactor] = weakref.WeakSet()


def opened(secret: SecretStr) -> SecretStr:
    """Make a secret known to every redactor of this process, and return it: it may be met anywhere now."""
    with _LIVING:
        redactors = list(_living)
    for each in redactors:
        each.add(secret)
    return secret


class RedactedStream:
    """Masks secrets in bytes that come in pieces; holds back only what may be the beginning of a secret."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Return what may pass."""
        if not self._redactor.forms:
            return data
        buffer = self._held + data
        cut = self._cut(buffer)
        if cut < len(buffer):
            # a whole secret that reaches over the cut stays in one piece
            for match in self._redactor.pattern.finditer(buffer):
                if match.start() < cut < match.end():
                    cut = match.start()
        self._held = buffer[cut:]
        return self._redactor.data(buffer[:cut])

    def ahead(self, data: bytes) -> bytes:
        """Return what would pass if this came next; nothing is taken."""
        looking = RedactedStream(self._redactor)
        looking._held = self._held
        return looking.feed(data)

    def flush(self) -> bytes:
        """Return what was held back."""
        held, self._held = self._held, b""
        return self._redactor.data(held)

    def _cut(self, buffer: bytes) -> int:
        """Return where the first unfinished secret may begin (the end if none may)."""
        cut = len(buffer)
        for form in self._redactor.forms:
            first = form[:1]
            at = buffer.find(first, max(0, len(buffer) - len(form) + 1), cut)
            while at >= 0:
                if form.startswith(buffer[at:]):
                    cut = at
                    break
                at = buffer.find(first, at + 1, cut)
        return cut

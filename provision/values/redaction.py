"""Keeps secrets and control bytes out of everything that a person or a file gets to see."""

from __future__ import annotations

import base64
import html
import json
import quopri
import re
import shlex
import struct
import threading
from bisect import bisect_right, insort
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from pydantic import SecretStr  # slow, and the command line has a redactor from its first moment

MASK = "***"
SHORTEST = 4
"""Shorter secrets are not masked: they would blank out ordinary text."""

_SHORTEST_FORM = 8
"""Shortest encoded form or single line of a secret that is masked."""

_WORD = 4
"""Bytes that are compared at once when data is searched for all forms together."""

_LONGEST_SPELLED = 8192
"""Longest secret whose forms that spell each byte are masked: these are up to eight times as long."""

_FEW = 96
"""Forms that are looked for one by one: faster than all together."""

_CONTEXT = 62
"""Bytes before a place that decide what is invisible there."""

_HELD = 64 * 1024
"""Bytes that a stream holds back before it drops the invisible ones among them."""

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # OSC, DCS and the like: titles, links
    r"|\x1b[ -/]*[0-~]?"
)
_LONELY = re.compile("[\ud800-\udc7f\udd00-\udfff]")
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")

_INVISIBLE = re.compile(
    rb"[\x00-\x08\x0b-\x1f\x7f\xc2\xd8\xe2\xef](?:"  # a set of first bytes: re looks for these alone
    rb"(?<=\x1b)(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b\n]{0,255}(?:\x07|\x1b\\)|[ -/]*[0-~]?)"
    # In UTF-8: C1 controls, soft hyphen, zero-width characters, marks of direction, byte order mark
    rb"|(?<=\xc2)[\x80-\x9f\xad]|(?<=\xd8)\x9c|(?<=\xe2)(?:\x80[\x8b-\x8f\xaa-\xae]|\x81[\xa0-\xaf])"
    rb"|(?<=\xef)\xbb\xbf|(?<![\x1b\xc2\xd8\xe2\xef]))"
)
_WRAPPED = re.compile(
    # base64(1), openssl(1) and PEM files break lines after 76, 64 or 70 columns
    rb"\n(?:(?<=[A-Za-z0-9+/_-]{60}\n)|(?<=[A-Za-z0-9+/_-]{60}\r\n))[ \t]*(?=[A-Za-z0-9+/_=-])"
)
_INCOMPLETE = re.compile(
    rb"(?:\x1b(?:\[[0-?]{0,64}[ -/]{0,8}|[\]PX^_][^\x07\x1b\n]{0,255}\x1b?|[ -/]{0,8})?"
    rb"|[\xc2\xd8\xe2\xef]|\xe2[\x80\x81]|\xef\xbb|(?<=[A-Za-z0-9+/_-]{60})\r?\n[ \t]*)\Z"
)
"""What may become invisible by the bytes that follow it."""

Span = tuple[int, int]


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


_HTML_IN_JSON = str.maketrans({letter: f"\\u{ord(letter):04x}" for letter in "<>&'"})
"""What Go's encoding/json (`<`, `>`, `&`) and templates for the web escape besides JSON's own."""


def _escaped_texts(secret: str, in_json: str) -> Iterator[str]:
    """Yield a secret as YAML, SQL, quoting by the shell, Go and quoted-printable write single characters."""
    go_json = in_json.translate({ord(letter): _HTML_IN_JSON[ord(letter)] for letter in "<>&"})
    yield from (go_json, go_json.upper().replace("\\U", "\\u") if go_json != in_json else go_json)
    yield in_json.translate(_HTML_IN_JSON)
    yield secret.replace("'", "''")
    yield re.sub(r'([$`"\\])', r"\\\1", secret)
    yield re.sub(r"([^\w%+,./:=@-])", r"\\\1", secret)  # printf %q of bash
    yield re.escape(secret)
    yield re.sub(r"(\W)", r"\\\1", secret)
    yield re.sub(r"(\W)", r"\\\1", secret, flags=re.ASCII)
    yield html.escape(secret).replace("&#x27;", "&apos;")


def _spelled_forms(raw: bytes, secret: str) -> Iterator[bytes]:
    """Yield a secret as tools write it that spell each byte or each character."""
    for pattern in ("%%%02X", "%%%02x", "\\x%02x", "\\x%02X", "\\%03o", "\\0%03o", "=%02X"):
        yield b"".join(pattern.encode() % byte for byte in raw)
    for pattern in ("&#%d;", "&#x%x;", "&#x%X;", "\\u%04x", "\\u%04X", "\\u{%x}"):
        yield "".join(pattern % ord(letter) for letter in secret).encode("utf-8", "replace")
    for separator in (":", " ", "-", ", 0x"):
        spelled = raw.hex(":").replace(":", separator)
        yield from (spelled.encode(), spelled.upper().replace("0X", "0x").encode())
    printed = quopri.encodestring(raw, quotetabs=False).rstrip(b"\n")
    yield from (printed, printed.replace(b"=\n", b""))
    yield quote(quote(raw, safe=""), safe="").encode()
    yield base64.b32encode(raw).rstrip(b"=")
    yield from _base64_forms(json.dumps(secret)[1:-1].encode())
    yield from _base64_forms(base64.b64encode(raw))


def _forms(secret: str) -> set[bytes]:
    """Return a secret as shells, JSON, Python, URLs, HTML, hex and base64 write it, and its lines."""
    raw = _LONELY.sub("\ufffd", secret).encode("utf-8", "surrogateescape")
    in_json = json.dumps(secret)[1:-1]
    in_url = quote(raw, safe="")
    texts = {
        in_json,
        json.dumps(secret, ensure_ascii=False)[1:-1],
        in_json.replace("/", "\\/"),
        json.dumps(in_json)[1:-1],
        in_url,
        re.sub("%..", lambda match: match[0].lower(), in_url),
        in_url.replace("%2F", "/"),
        in_url.replace("%20", "+"),
        html.escape(secret),
        html.escape(secret).replace("&#x27;", "&#39;").replace("&quot;", "&#34;"),
        html.escape(secret, quote=False),
        repr(secret)[1:-1],
        repr(raw)[2:-1],
        shlex.quote(secret)[1:-1] if "'" in secret else secret,
        *_escaped_texts(secret, in_json),
    }
    forms = {
        raw,
        _INVISIBLE.sub(b"", raw),
        *(_LONELY.sub("\ufffd", text).encode("utf-8", "surrogateescape") for text in texts),
    }
    encoded = {*_base64_forms(raw), raw.hex().encode(), raw.hex().upper().encode(), *raw.splitlines()}
    if len(raw) <= _LONGEST_SPELLED:
        encoded.update(_spelled_forms(raw, _LONELY.sub("\ufffd", secret)))
    return {form for form in forms if len(form) >= SHORTEST} | {
        form for form in encoded if len(form) >= _SHORTEST_FORM
    }


class Redactor:
    """Masks secrets in text and in streams; secrets may be added at any time from any thread.

    Data is searched for all forms of all secrets at once, in time that does not grow with their number: every
    form that lies in it covers a whole word of four bytes at an even place, and a set knows these words.
    """

    def __init__(self, *secrets: SecretStr | str) -> None:
        self._lock = threading.Lock()
        self._values: set[str] = set()
        self._forms: set[bytes] = set()
        self._words: set[int] = set()
        self._by_head: dict[bytes, tuple[bytes, ...]] = {}
        """Forms by their first word, the longest first."""
        self._beginnings: set[bytes] = set()
        """What forms begin with, up to the length at which their words are found."""
        self._few: tuple[bytes, ...] = ()
        self._longest = 0
        self._steps = range(1)
        """Where words begin: one of four places in a row is enough unless a form is shorter than 7 bytes."""
        self.add(*secrets)

    def add(self, *secrets: SecretStr | str) -> None:
        """Mask these too: as they are, line by line, quoted, and in hex and base64."""
        for secret in secrets:
            value = secret if isinstance(secret, str) else secret.get_secret_value()
            if value in self._values:
                continue
            with self._lock:
                for text in {value, value.strip()}:
                    if len(text) >= SHORTEST:
                        self._index(_forms(text) - self._forms)
                self._values.add(value)

    def _index(self, forms: Collection[bytes]) -> None:
        by_head: dict[bytes, list[bytes]] = {}
        for form in forms:
            words = (struct.unpack_from("=I", form, offset)[0] for offset in range(min(4, len(form) - 3)))
            self._words.update(words)
            self._beginnings.update(form[:length] for length in range(1, min(2 * _WORD - 1, len(form))))
            if len(form) < 2 * _WORD - 1:
                self._steps = range(_WORD)
            self._longest = max(self._longest, len(form))
            head = form[:_WORD]
            if head not in by_head:  # all keys of one kind begin alike, so there may be many already
                by_head[head] = list(self._by_head.get(head, ()))
            insort(by_head[head], form, key=lambda longer: -len(longer))
        self._by_head.update({head: tuple(same) for head, same in by_head.items()})
        self._forms.update(forms)
        self._few = tuple(self._forms) if len(self._forms) <= _FEW else ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to mask."""
        return not self._forms

    def data(self, data: bytes) -> bytes:
        """Return the bytes with every secret masked."""
        return _masked(data, self.spans(data))

    def text(self, text: str) -> str:
        """Return the text with every secret masked."""
        if self.is_empty:
            return text
        try:
            data = text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:  # half of a surrogate pair, as JSON can write it, stands for no byte
            text = _LONELY.sub("\ufffd", text)
            data = text.encode("utf-8", "surrogateescape")
        masked = self.data(data)
        return text if masked is data else masked.decode("utf-8", "surrogateescape")

    def stream(self) -> RedactedStream:
        """Return a filter for one stream."""
        return RedactedStream(self)

    def spans(self, data: bytes) -> list[Span]:
        """Return where secrets are, in order: also those that invisible bytes or wrapped lines interrupt."""
        return self._spans(data, _View.of(data))

    def spans_and_rest(self, data: bytes) -> tuple[list[Span], int]:
        """Return `spans` and `first_unfinished`."""
        view = _View.of(data)
        return self._spans(data, view), self._first_unfinished(data, view)

    def first_unfinished(self, data: bytes) -> int:
        """Return where the first secret may begin that these bytes do not end (their length if none may)."""
        return self._first_unfinished(data, _View.of(data))

    def _spans(self, data: bytes, view: _View | None) -> list[Span]:
        spans = list(self._search(data))
        if view is not None:
            spans += map(view.original, self._search(view.data))
        return _merged(spans) if spans else spans

    def _first_unfinished(self, data: bytes, view: _View | None) -> int:
        first = self._unfinished(data)
        if view is not None:
            start = self._unfinished(view.data)
            if start < len(view.data):
                first = min(first, view.original((start, start + 1))[0])
        return first

    def _search(self, data: bytes) -> Iterator[Span]:
        """Yield where forms are: the longest at each place."""
        few = self._few
        if few and not any(form in data for form in few):
            return
        for start in self._candidates(data):
            for form in self._by_head.get(data[start : start + _WORD], ()):
                if data.startswith(form, start):
                    yield start, start + len(form)
                    break

    def _unfinished(self, data: bytes) -> int:
        """Return where the first form may begin that is longer than what is left of the bytes."""
        skipped = max(0, len(data) - self._longest)
        tail = data[skipped:]
        starts = [len(tail)]
        for start in self._candidates(tail):
            rest = tail[start:]
            forms = self._by_head.get(rest[:_WORD], ())
            if any(len(form) > len(rest) and form.startswith(rest) for form in forms):
                starts.append(start)
        ends = range(max(0, len(tail) - 2 * _WORD + 2), len(tail))
        starts += [start for start in ends if tail[start:] in self._beginnings]
        return skipped + min(starts)

    def _candidates(self, data: bytes) -> Iterator[int]:
        """Yield places at which a form may begin."""
        known = self._words
        for step in self._steps:
            count = (len(data) - step) // _WORD
            words = struct.unpack_from(f"={count}I", data, step) if count > 0 else ()
            if known.isdisjoint(words):
                continue
            for index, word in enumerate(words):
                if word in known:
                    last = step + index * _WORD
                    yield from range(max(0, last - _WORD + 1), last + 1)


class _View:
    """Bytes without what is invisible in them, and where each of them was."""

    def __init__(self, data: bytes, gaps: Sequence[Span]) -> None:
        pieces, index, kept = [], 0, 0
        self._places = [0]
        self._shifts = [0]
        for start, end in gaps:
            pieces.append(data[index:start])
            kept += start - index
            index = end
            self._places.append(kept)
            self._shifts.append(end - kept)
        self.data = b"".join((*pieces, data[index:]))

    @classmethod
    def of(cls, data: bytes) -> _View | None:
        """Return the view of some bytes, None if it would be the bytes themselves."""
        gaps = [match.span() for pattern in (_INVISIBLE, _WRAPPED) for match in pattern.finditer(data)]
        return cls(data, sorted(gaps)) if gaps else None

    def original(self, span: Span) -> Span:
        """Return where a stretch of the view is in the bytes."""
        first, last = self._place(span[0]), self._place(span[1] - 1)
        return first, last + 1

    def _place(self, index: int) -> int:
        return index + self._shifts[bisect_right(self._places, index) - 1]


def _merged(spans: Sequence[Span]) -> list[Span]:
    """Return stretches in order, those that overlap as one."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _masked(data: bytes, spans: Sequence[Span]) -> bytes:
    if not spans:
        return data
    pieces, index = [], 0
    for start, end in spans:
        pieces.append(data[index:start])
        index = end
    return MASK.encode().join((*pieces, data[index:]))


class RedactedStream:
    """Masks secrets in bytes that come in pieces; holds back only what may be the beginning of a secret."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._passed = b""
        """The end of what has passed: by it a line is known to be wrapped."""
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Return what may pass."""
        if self._redactor.is_empty:
            return data
        buffer, start = self._passed + self._held + data, len(self._passed)
        spans, cut = self._redactor.spans_and_rest(buffer)
        cut = max(start, self._without_incomplete(buffer, cut))
        # a whole secret that reaches over the cut stays in one piece
        cut = next((first for first, end in spans if start <= first < cut < end), cut)
        self._passed, self._held = buffer[max(0, cut - _CONTEXT) : cut], buffer[cut:]
        if len(self._held) > _HELD:  # a flood of invisible bytes inside of what may be a secret
            self._held = _INVISIBLE.sub(b"", self._held)
        return _masked(
            buffer[start:cut], [(a - start, b - start) for a, b in spans if start <= a and b <= cut]
        )

    def ahead(self, data: bytes) -> bytes:
        """Return what would pass if this came next; nothing is taken."""
        preview = RedactedStream(self._redactor)
        preview._passed, preview._held = self._passed, self._held
        return preview.feed(data)

    def flush(self) -> bytes:
        """Return what was held back."""
        held, self._held, self._passed = self._held, b"", b""
        return self._redactor.data(held)

    def _without_incomplete(self, buffer: bytes, cut: int) -> int:
        """Return where the first unfinished secret may begin if what may become invisible does."""
        incomplete = _INCOMPLETE.search(buffer, max(0, len(buffer) - 512))
        if incomplete is not None:
            before = self._redactor.first_unfinished(buffer[: incomplete.start()])
            cut = min(cut, before) if before < incomplete.start() else cut
        return cut

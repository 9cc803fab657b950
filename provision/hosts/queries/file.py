"""Queries about files: state with content hash, small texts, link targets."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from provision.contracts.query import Frame, Unknown
from provision.hosts.operations.basic import INLINE_LIMIT, quote, words
from provision.hosts.resources.base import lines_of, no_answer

CONTENT_BUDGET = 48 * 1024
"""Bytes of differing content that one fragment sends back in all: a frame keeps 128 KiB."""


@dataclass(frozen=True, slots=True)
class FileState:
    """What is at a path.

    Args:
        path: absolute path.
        want: SHA-256 in hex of the desired content, other content is sent back; empty: it is not compared.
        salt: for secrets: the answer's hash is over salt and content, and content never comes back.
    """

    kind: ClassVar[str] = "file"
    path: str
    want: str = ""
    salt: str = ""

    @property
    def secret(self) -> bool:
        """Whether the answer holds the salted hash of a secret, by which a short one can be guessed."""
        return bool(self.salt)


@dataclass(frozen=True, slots=True)
class FileStatus:
    """Type, permissions and content of what is at a path.

    Args:
        type: absent, file, directory, link or other.
        mode: octal permission bits with a leading zero (`0644`).
        owner: user name, or its number when it has none.
        group: group name, likewise.
        uid: user number.
        gid: group number.
        size: bytes.
        digest: SHA-256 of the content (salted for secrets), empty for all but readable files.
        content: the content where it is small and not the desired one.
    """

    type: str
    mode: str = ""
    owner: str = ""
    group: str = ""
    uid: str = ""
    gid: str = ""
    size: int = 0
    digest: str = ""
    content: bytes | None = field(default=None, repr=False)

    @property
    def exists(self) -> bool:
        """Whether anything is there."""
        return self.type != "absent"


ABSENT = FileStatus("absent")
_TYPES = {
    b"regular file": "file",
    b"regular empty file": "file",
    b"directory": "directory",
    b"symbolic link": "link",
}
_FORMAT = "s|%F|%a|%U|%G|%u|%g|%s|%n"
# Builtins only: a path whose folder may not be searched is not absent.
_MISSING = """for f do
  if [ ! -e "$f" ] && [ ! -L "$f" ]; then
    d=${f%/*}
    while [ -n "$d" ] && [ ! -e "$d" ]; do d=${d%/*}; done
    if [ -z "$d" ] || [ -x "$d" ] || [ ! -d "$d" ]; then printf 'a|%s\\n' "$f"; else printf 'x|%s\\n' "$f"; fi
  fi
done"""
_HASH = """n=$#
for f do if [ -f "$f" ] && [ -r "$f" ]; then set -- "$@" "$f"; fi; done
shift "$n"
sums=
if [ $# -gt 0 ]; then sums=$(sha256sum -- "$@" 2>/dev/null) || :; printf '%s\\n' "$sums"; fi"""
_SEND = """send() {
  case "$nl$sums$nl" in *"$nl$2  $1$nl"*) return 0;; *"  $1$nl"*) ;; *) return 0;; esac
  c=$(wc -c <"$1") || return 0
  c=$((c))
  if [ "$c" -gt "$budget" ]; then return 0; fi
  budget=$((budget - c))
  printf 'c|%s\\n' "$1"
  sed 's/^/:/' <"$1"
  printf '\\n.\\n'
}"""


class FileStateKind:
    """All paths in one stat and one sha256sum; secrets take a hash of their own each."""

    query = FileState

    def script(self, queries: Sequence[FileState]) -> str:
        """Return the fragment."""
        lines: list[str] = []
        paths = words(dict.fromkeys(query.path for query in queries))
        lines.append(f'set -- {paths}\nstat -c {quote(_FORMAT)} -- "$@" 2>/dev/null || :\n{_MISSING}')
        plain = sorted({query.path for query in queries if query.want and not query.salt})
        if plain:
            lines.append(f"printf 'sums\\n'\nset -- {words(plain)}\n{_HASH}")
        salted = dict.fromkeys((query.path, query.salt) for query in queries if query.salt)
        for path, salt in salted:
            file = quote(path)
            lines.append(
                f"if [ -f {file} ] && [ -r {file} ]; then printf 'h|%s|%s\\n' "
                f'"$( {{ printf %s {salt}; cat -- {file}; }} | sha256sum | cut -c1-64)" {file}; fi'
            )
        sent: dict[str, set[str]] = {}
        for query in queries:
            if query.want and not query.salt:
                sent.setdefault(query.path, set()).add(query.want)
        if sent:
            lines.append(f"budget={CONTENT_BUDGET}\nnl='\n'\n{_SEND}")
            # Of two desired contents of one file at least one differs from what is there.
            wants = {path: min(digests) if len(digests) == 1 else "-" for path, digests in sent.items()}
            lines += [f"send {quote(path)} {digest}" for path, digest in wants.items()]
        return "\n".join(lines)

    def parse(self, frame: Frame, queries: Sequence[FileState]) -> Mapping[FileState, object]:
        """Return a FileStatus for each path that the answer mentions."""
        parsed = _Parsed(b"" if frame.dropped else frame.stdout)
        return {query: self._one(parsed, frame, query) for query in queries}

    @staticmethod
    def _one(parsed: _Parsed, frame: Frame, query: FileState) -> FileStatus | Unknown:
        path = query.path.encode()
        status = parsed.plain.get(path)
        if status is None:
            return no_answer(frame, query.path)
        if isinstance(status, Unknown) or status.type != "file":
            return status
        if not query.salt and not query.want:
            return status
        digest = (parsed.salted if query.salt else parsed.sums).get(path, "")
        if not digest:
            return Unknown(f"{query.path} could not be read")
        content = None if query.salt or digest == query.want else parsed.contents.get(path)
        return replace(status, digest=digest, content=content)


class _Parsed:
    """The answer of a file fragment, by path."""

    def __init__(self, data: bytes) -> None:
        self.plain: dict[bytes, FileStatus | Unknown] = {}
        self.sums: dict[bytes, str] = {}
        self.salted: dict[bytes, str] = {}
        self.contents: dict[bytes, bytes] = {}
        lines = data.split(b"\n")
        index, count = 0, len(lines) - 1  # what follows the last newline is cut
        while index < count:
            line = lines[index]
            index += 1
            tag, _, rest = line.partition(b"|")
            if tag == b"s":
                self._stat(self.plain, rest)
            elif tag == b"a":
                self.plain[rest] = ABSENT
            elif tag == b"x":
                self.plain[rest] = Unknown("its folder may not be searched")
            elif tag == b"h" and rest[64:65] == b"|":
                self.salted[rest[65:]] = rest[:64].decode("ascii", "replace")
            elif tag == b"c":
                index = self._content(lines, index, rest)
            elif line[64:66] == b"  " and len(line) > 66:  # noqa: PLR2004 - 64 hex digits, two blanks
                self.sums[line[66:]] = line[:64].decode("ascii", "replace")

    def _content(self, lines: list[bytes], index: int, path: bytes) -> int:
        """Read lines marked by `:` up to the lone dot; an empty line before it ends the last one."""
        start, count = index, len(lines) - 1
        while index < count and lines[index].startswith(b":"):
            index += 1
        marked = [line[1:] for line in lines[start:index]]
        ended = index < count and lines[index] == b""
        if index + ended < count and lines[index + ended] == b".":
            self.contents[path] = b"\n".join(marked) + (b"\n" if marked and ended else b"")
            return index + ended + 1
        return index

    @staticmethod
    def _stat(target: dict[bytes, FileStatus | Unknown], rest: bytes) -> None:
        fields = rest.split(b"|", 7)
        if len(fields) != 8 or not fields[6].isdigit() or not fields[1].isdigit():  # noqa: PLR2004 - the format's
            return
        mode, owner, group, uid, gid, size = (data.decode("ascii", "replace") for data in fields[1:7])
        owner, group = (uid if owner == "UNKNOWN" else owner), (gid if group == "UNKNOWN" else group)
        kind = _TYPES.get(fields[0], "other")
        target[fields[7]] = FileStatus(kind, mode.zfill(4), owner, group, uid, gid, int(size))


@dataclass(frozen=True, slots=True)
class FileText:
    """The content of a small public file, also below /proc and /sys; b"" when empty, None when absent."""

    kind: ClassVar[str] = "text"
    path: str


class FileTextKind:
    """One fragment for all texts, read by the shell itself: no process a file, and no NUL bytes.

    Of each come its lines up to the one that passes 64 KiB.
    """

    query = FileText

    def script(self, queries: Sequence[FileText]) -> str:
        """Return the fragment."""
        return (
            f"set -- {words(dict.fromkeys(query.path for query in queries))}\n"
            "for f do\n"
            '  if [ -f "$f" ] && [ -r "$f" ]; then\n'
            "    printf 'c|%s\\n' \"$f\"\n"
            "    case $f in\n"
            # a number there can only be read at once, and dash reads byte by byte
            "    /proc/sys/*) sed 's/^/:/' 2>/dev/null <\"$f\" || :;;\n"
            "    *) n=0 l=\n"
            f'      while [ "$n" -lt {INLINE_LIMIT} ] && IFS= read -r l; do\n'
            "        n=$((n + ${#l} + 1)); printf ':%s\\n' \"$l\"; l=\n"
            '      done 2>/dev/null <"$f" || :\n'
            '      if [ -n "$l" ]; then printf \':%s\' "$l"; fi;;\n'
            "    esac\n"
            "    printf '\\n.\\n'\n"
            '  elif [ ! -e "$f" ]; then printf \'a|%s\\n\' "$f"\n'
            "  else printf 'x|%s\\n' \"$f\"; fi\n"
            "done"
        )

    def parse(self, frame: Frame, queries: Sequence[FileText]) -> Mapping[FileText, object]:
        """Return bytes, None (absent) or Unknown for each path."""
        parsed = _Parsed(b"" if frame.dropped else frame.stdout)
        texts: dict[FileText, object] = {}
        for query in queries:
            path = query.path.encode()
            if path in parsed.contents:
                texts[query] = parsed.contents[path]
            elif path in parsed.plain:
                absent = parsed.plain[path] is ABSENT
                texts[query] = None if absent else Unknown(f"{query.path} may not be read")
            else:
                texts[query] = no_answer(frame, query.path)
        return texts


@dataclass(frozen=True, slots=True)
class LinkTarget:
    """Where a symbolic link points; empty when the path is none or absent."""

    kind: ClassVar[str] = "link"
    path: str


class LinkTargetKind:
    """One fragment for all links."""

    query = LinkTarget

    def script(self, queries: Sequence[LinkTarget]) -> str:
        """Return the fragment."""
        return (
            f"set -- {words(dict.fromkeys(query.path for query in queries))}\n"
            'for f do t=; if [ -L "$f" ]; then t=$(readlink -- "$f"); fi; printf \'%s|%s\\n\' "$f" "$t"; done'
        )

    def parse(self, frame: Frame, queries: Sequence[LinkTarget]) -> Mapping[LinkTarget, object]:
        """Return the target for each path."""
        targets = dict(line.split("|", 1) for line in lines_of(frame) if "|" in line)
        return {query: targets.get(query.path, no_answer(frame, query.path)) for query in queries}


def digest_of(content: bytes) -> str:
    """Return the SHA-256 of content in hex."""
    return hashlib.sha256(content).hexdigest()


def salt_of(system: str, path: str) -> str:
    """Return the salt for a secret file: stable, so that its query is the same each time."""
    return hashlib.sha256(f"provision {system} {path}".encode()).hexdigest()[:32]

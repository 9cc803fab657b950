"""Operations that edit a file as it is when they run: it may have changed since the plan was made."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from provision.hosts.operations.basic import WriteFile, quote, rewritten

OFF = "# off by provision: "
"""Stands before a line that is kept as a comment."""

_COMMENT = r"""$3 == "swap" && $1 !~ /^#/ { print ENVIRON["PROVISION_OFF"] $0; next } { print }"""


@dataclass(frozen=True, slots=True)
class CommentOutSwap:
    """Make comments of the swap lines of a file like fstab(5); all other bytes stay."""

    path: str

    def shell(self) -> str:
        """Return it as a POSIX fragment."""
        awk = f"PROVISION_OFF={quote(OFF)} awk {quote(_COMMENT)}"
        return f"if [ -e {quote(self.path)} ]; then\n{rewritten(self.path, awk)}\nfi"


def is_swap(line: bytes) -> bool:
    """Whether a line of fstab(5) is of a swap area."""
    fields = re.split(rb"[ \t]+", line.strip(b" \t"))
    return len(fields) > 2 and not fields[0].startswith(b"#") and fields[2] == b"swap"  # noqa: PLR2004 - fstab(5)


def without_swap(content: bytes) -> bytes:
    """Return a content as CommentOutSwap changes it; the same bytes when it has no swap."""
    lines = content.removesuffix(b"\n").split(b"\n")
    if not any(map(is_swap, lines)):
        return content
    return b"".join((OFF.encode() if is_swap(line) else b"") + line + b"\n" for line in lines)


_COMMENT_LINE = r"""{ text = $0; gsub(/^[ \t]+|[ \t]+$/, "", text) }
text == ENVIRON["PROVISION_LINE"] { print ENVIRON["PROVISION_OFF"] $0; next }
{ print }"""


@dataclass(frozen=True, slots=True)
class CommentOutLine:
    """Make a comment of each line of a file that is equal to a text; all other bytes stay.

    Args:
        path: absolute path; mode and owner stay.
        line: the text, without blanks around it.
    """

    path: str
    line: str

    def shell(self) -> str:
        """Return it as a POSIX fragment."""
        awk = f"PROVISION_OFF={quote(OFF)} PROVISION_LINE={quote(self.line)} awk {quote(_COMMENT_LINE)}"
        return f"if [ -e {quote(self.path)} ]; then\n{rewritten(self.path, awk)}\nfi"


def without_line(content: bytes, line: str) -> bytes:
    """Return a content as CommentOutLine changes it; the same bytes when it has no such line."""
    text = line.encode("utf-8", "surrogateescape")
    lines = content.removesuffix(b"\n").split(b"\n")
    if text not in [old.strip(b" \t") for old in lines]:
        return content
    return b"".join((OFF.encode() if old.strip(b" \t") == text else b"") + old + b"\n" for old in lines)


@dataclass(frozen=True, slots=True)
class ReplaceUnchanged:
    """Replace a file that is still as expected, and keep a copy of that; refuse any other file.

    Args:
        path: absolute path; mode and owner stay.
        content: its new bytes; never shown.
        expected: SHA-256 in hex of the present content.
        copy: path of the copy of the old file, with its mode and owner; empty for none.
    """

    path: str
    content: bytes = field(repr=False)
    expected: str
    copy: str

    @property
    def desired(self) -> str:
        """SHA-256 in hex of the new content; a file that has it already is left alone."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def refusal(self) -> str:
        """The message about another file."""
        return f"refused: {self.path} changed after it was read; run the command again"

    def shell(self) -> str:
        """Return it as a POSIX fragment."""
        keep = f'cp -p -- "$p" {quote(self.copy)}' if self.copy else ":"
        return "\n".join(
            (
                f"p={quote(self.path)}",
                'case $(sha256sum <"$p") in',
                f"{self.desired}*) ;;",
                f"{self.expected}*) {keep}",
                WriteFile(self.path, self.content, mode="").shell(),
                ";;",
                f"*) printf '%s\\n' {quote(self.refusal)} >&2; exit 1;;",
                "esac",
            )
        )


# The text behind the address stays as it is: other names, their blanks, the comment.
_ADD_NAMES = r"""BEGIN { address = ENVIRON["PROVISION_ADDRESS"]
count = split(ENVIRON["PROVISION_NAMES"], names, " ") }
{ words = $0; sub(/#.*/, "", words); split(words, word, " ") }
!done && word[1] == address {
  present = " " tolower(words) " "; gsub(/[ \t\r]+/, " ", present)
  added = ""
  for (i = 1; i <= count; i++) if (index(present, " " tolower(names[i]) " ") == 0) added = added " " names[i]
  end = index($0, address) + length(address)
  print substr($0, 1, end - 1) added substr($0, end); done = 1; next
}
{ print }
END { if (!done) print address " " ENVIRON["PROVISION_NAMES"] }"""


@dataclass(frozen=True, slots=True)
class AddHostNames:
    """Put names first on the line of an address in a file like hosts(5); all its other words stay.

    Args:
        path: absolute path; mode and owner stay.
        address: the first line with it gets the names; without one there is a new line at the end.
        names: those that are not on the line yet are added, in this order.
    """

    path: str
    address: str
    names: tuple[str, ...]

    def shell(self) -> str:
        """Return it as a POSIX fragment."""
        names = quote(" ".join(self.names))
        awk = f"PROVISION_ADDRESS={quote(self.address)} PROVISION_NAMES={names} awk {quote(_ADD_NAMES)}"
        return rewritten(self.path, awk)


def with_host_names(content: bytes, address: str, names: Sequence[str]) -> bytes:
    """Return a content as AddHostNames changes it."""
    text = content.decode("utf-8", "surrogateescape")
    lines = text.removesuffix("\n").split("\n") if text else []
    for index, line in enumerate(lines):
        words = host_words(line)
        if words[:1] == [address]:
            end = line.index(address) + len(address)
            added = "".join(f" {name}" for name in names if name.lower() not in map(str.lower, words))
            lines[index] = line[:end] + added + line[end:]
            break
    else:
        lines.append(" ".join((address, *names)))
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")


def host_words(line: str) -> list[str]:
    """Return address and names of a line of hosts(5), without its comment."""
    return line.partition("#")[0].split()

"""What modprobe.d(5) says about modules, file by file: who keeps a driver off, and by what."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from provision.hosts.queries.kernel import module_name
from provision.hosts.resources.base import HostFactKind, Rows


@dataclass(frozen=True, slots=True)
class ModprobeRules:
    """The rules of all files of modprobe.d; answer: tuple of ModprobeRule."""

    kind: ClassVar[str] = "modprobe-rules"


@dataclass(frozen=True, slots=True)
class ModprobeRule:
    """One line of a file, as `blacklist nouveau` or `softdep nouveau pre: vfio-pci`."""

    file: str
    words: tuple[str, ...]

    @property
    def verb(self) -> str:
        """The command."""
        return self.words[0]

    @property
    def module(self) -> str:
        """The module that it is about, with underscores."""
        return module_name(self.words[1])

    @property
    def keeps_off(self) -> bool:
        """Whether the module is not loaded when a device asks for it."""
        if self.verb == "blacklist":
            return True
        command = self.words[2].rpartition("/")[2] if len(self.words) > 2 else ""  # noqa: PLR2004 - a command
        return self.verb == "install" and command in {"false", "true", ":"}

    @property
    def loads_first(self) -> frozenset[str]:
        """The modules that a `softdep` loads before the module."""
        if self.verb != "softdep":
            return frozenset()
        first: set[str] = set()
        section = ""
        for word in self.words[2:]:
            if word in {"pre:", "post:"}:
                section = word
            elif section == "pre:":
                first.add(module_name(word))
        return frozenset(first)

    @property
    def ids(self) -> frozenset[str]:
        """What `options vfio-pci ids=...` gives to that driver, as `matches` reads it."""
        if self.verb != "options" or self.module != "vfio_pci":
            return frozenset()
        return frozenset(vfio_ids(self.words[2:]))


def vfio_ids(options: Iterable[str]) -> tuple[str, ...]:
    """Return the members of `ids=` among a module's options, in lower case, without the kernel's quotes."""
    texts = (word.removeprefix("ids=").strip('"').lower() for word in options if word.startswith("ids="))
    return tuple(identity for text in texts for identity in text.split(",") if identity)


# A file hides those of the same name in the folders behind it (modprobe.d(5)).
_SCRIPT = """s=' '
for d in /etc/modprobe.d /run/modprobe.d /usr/local/lib/modprobe.d /usr/lib/modprobe.d /lib/modprobe.d; do
  for f in "$d"/*.conf; do
    [ -r "$f" ] || continue
    n=${f##*/}
    case $s in *" $n "*) continue;; esac
    s="$s$n "
    grep -E '^[[:blank:]]*(blacklist|install|softdep|options)[[:blank:]]' "$f" |
      while IFS= read -r l; do printf 'm|%s|%s\\n' "$f" "$l"; done
  done
done
echo 'done|'"""


def _read(rows: Rows) -> tuple[ModprobeRule, ...]:
    lines = ((row[0], tuple("|".join(row[1:]).split())) for row in rows.get("m", ()) if len(row) > 1)
    return tuple(ModprobeRule(file, words) for file, words in lines if len(words) > 1)


MODPROBE_RULES_KIND = HostFactKind(ModprobeRules, "rules of modprobe.d", _SCRIPT, _read)

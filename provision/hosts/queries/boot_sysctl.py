"""What sets a kernel parameter at the next boot: the merged files of sysctl.d(5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from provision.contracts.query import Frame
from provision.hosts.operations.basic import sysctl_file
from provision.hosts.resources.base import lines_of, no_answer

FOLDERS = (
    "/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d", "/lib/sysctl.d",
)  # fmt: skip
"""Of files with one name, the one in the first of these folders counts; see sysctl.d(5)."""
CONF = "/etc/sysctl.conf"
"""systemd reads it only where a file of sysctl.d links to it; sysctl(8) reads it last."""
_LAST = "\x7f"


@dataclass(frozen=True, slots=True)
class BootSysctl:
    """What sets a kernel parameter at the next boot, in the order of reading; later settings win."""

    kind: ClassVar[str] = "boot-sysctl"
    key: str


@dataclass(frozen=True, slots=True)
class BootSetting:
    """One line of a file.

    Args:
        place: name of the file that decides its place in the order.
        file: path of the file that has the line (of its target, if it is a link).
        value: words separated by single blanks.
    """

    place: str
    file: str
    value: str


class BootSysctlKind:
    """One awk over all files that count."""

    query = BootSysctl

    def script(self, queries: Sequence[BootSysctl]) -> str:
        """Return the fragment."""
        del queries
        patterns = " ".join(f'"$r"{folder}/*.conf' for folder in FOLDERS)
        return rf"""r=
seen=/
set --
for f in {patterns}; do
  n=${{f##*/}}
  case $seen in */"$n"/*) continue;; esac
  if [ -e "$f" ] || [ -L "$f" ]; then seen=$seen$n/; fi
  if [ -f "$f" ] && [ -s "$f" ]; then set -- "$@" "$f"; fi
done
if [ ! -d "$r/run/systemd/system" ] && [ -s "$r{CONF}" ]; then set -- "$@" "$r{CONF}"; fi
for f do
  t=$f
  if [ -L "$f" ]; then t=$(readlink -f -- "$f"); fi
  printf 'p|%s|%s\n' "$f" "$t"
done
if [ $# -gt 0 ]; then awk '/=/ && !/^[ \t]*[#;]/ {{ print "l|" FILENAME "|" $0 }}' "$@"; fi
echo 'done|'"""

    def parse(self, frame: Frame, queries: Sequence[BootSysctl]) -> Mapping[BootSysctl, object]:
        """Return the settings of each parameter."""
        lines = lines_of(frame)
        if "done|" not in lines:
            return dict.fromkeys(queries, no_answer(frame, "kernel parameters at boot"))
        targets: dict[str, str] = {}
        settings: dict[str, list[BootSetting]] = {}
        for line in lines:
            tag, _, rest = line.partition("|")
            path, _, text = rest.partition("|")
            if tag == "p":
                targets[path] = text
            elif tag == "l":
                key, _, value = text.partition("=")
                setting = BootSetting(_place(path), targets.get(path, path), " ".join(value.split()))
                settings.setdefault(_file_of(key), []).append(setting)
        return {
            query: tuple(sorted(settings.get(sysctl_file(query.key), ()), key=lambda setting: setting.place))
            for query in queries
        }


def _place(path: str) -> str:
    return _LAST if path.endswith(CONF) else path.rpartition("/")[2]


def _file_of(key: str) -> str:
    """Return the file of a parameter as it is written: a slash as first separator makes it a path already."""
    name = key.strip().removeprefix("-").strip()
    first = next((char for char in name if char in "./"), ".")
    return sysctl_file(name) if first == "." else f"/proc/sys/{name}"

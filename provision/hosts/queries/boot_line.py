"""The kernel line of the next boot: what boot loaders will hand over, and what GRUB's defaults make of ours.

Sources: grub-mkconfig(8) (`/etc/default/grub`, then Debian's `/etc/default/grub.d/*.cfg` by name, all sourced
by a shell), proxmox-boot-tool(8) (partitions listed in /etc/kernel/proxmox-boot-uuids, mounted only while
written; GRUB's own configuration in /boot is not read there), the Boot Loader Specification (`options`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from provision.hosts.resources.base import HostFactKind, Rows
from provision.inventory.kernel_line import line_of_grub

GRUB_DROP_IN = "/etc/default/grub.d/50-provision.cfg"
OURS = "provision.here"
"""Stands for our arguments while GRUB's defaults are evaluated."""


@dataclass(frozen=True, slots=True)
class BootLine:
    """What the next boot hands to the kernel."""

    kind: ClassVar[str] = "boot-line"


@dataclass(frozen=True, slots=True)
class BootLineStatus:
    """What the next boot hands to the kernel.

    Args:
        lines: generated lines as the kernel reads them, with boot loader and file; none if none is readable.
        defaults: what GRUB's defaults hold without our file.
        overriding: the file that GRUB sources after ours and that drops what was there; empty for none.
        later: file and line after each file that GRUB sources after ours, with `OURS` in the place of ours.
    """

    lines: tuple[tuple[str, str, str], ...] = ()
    defaults: str = ""
    overriding: str = ""
    later: tuple[tuple[str, str], ...] = ()

    def of(self, loader: str) -> tuple[tuple[str, str], ...]:
        """Return file and line of each configuration of a boot loader."""
        return tuple((file, line) for name, file, line in self.lines if name == loader)


# Of GRUB's entries the first one with a root is the default, of the other loader's the newest kernel's.
_SHOW = r"""show() { # FOLDER NAME
  for f in "$1/grub/grub.cfg" "$1/grub2/grub.cfg"; do
    if [ -r "$f" ]; then
      n=$2${f#"$1"}
      sed -n "/^[[:blank:]]*linux[a-z0-9]*[[:blank:]].*root=/{s;^[[:blank:]]*;g|$n|;p;q;}" "$f"
    fi
  done
  e=$(ls -1 "$1/loader/entries" 2>/dev/null | grep '\.conf$' | sort -V | tail -n 1) || e=
  if [ -n "$e" ]; then
    { cat "$1/loader/entries/$e"; echo; } | sed -n "s;^options[[:blank:]]*;s|$2/loader/entries/$e|;p"
  fi
}"""

# A sourced file may use any variable, print, or end the shell: ours have names of their own, it gets no
# input, no output, and a subshell. Nothing is written: a partition is mounted read-only, in a namespace
# that ends with its process.
_SCRIPT = rf"""r=
d=$r/etc/default/grub.d
{{ ls -1 "$d" 2>/dev/null || :; echo {GRUB_DROP_IN.rpartition("/")[2]}; }} | sort -u | (
  set +eu
  provision_f=$d provision_a=
  if [ -r "$r/etc/default/grub" ]; then . "$r/etc/default/grub" >/dev/null 2>&1 </dev/null; fi
  while IFS= read -r provision_n; do
    case $provision_n in
      {GRUB_DROP_IN.rpartition("/")[2]})
        provision_a={OURS}
        GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT {OURS}"
        continue;;
      *.cfg) ;;
      *) continue;;
    esac
    [ -r "$provision_f/$provision_n" ] || continue
    . "$provision_f/$provision_n" >/dev/null 2>&1 </dev/null
    case " $GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT " in
      *" {OURS} "*) ;;
      *) if [ -n "$provision_a" ]; then
        printf 'o|%s\n' "$provision_f/$provision_n"
        GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT {OURS}"
      fi;;
    esac
    if [ -n "$provision_a" ]; then
      printf 'l|%s|%s\n' "$provision_f/$provision_n" "$GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT"
    fi
  done
  printf 'd|%s\n' "$GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT"
) || :
{_SHOW}
if [ -s "$r/etc/kernel/proxmox-boot-uuids" ]; then
  while read -r u || [ -n "$u" ]; do
    case $u in ''|*[!0-9A-Fa-f-]*) continue;; esac
    t=$(findmnt -rnfo TARGET "/dev/disk/by-uuid/$u" 2>/dev/null) || t=
    if [ -n "$t" ]; then show "$t" "ESP $u"; continue; fi
    unshare -m sh -s "$u" <<'PROVISION_ESP' 2>/dev/null || :
{_SHOW}
mount -r "/dev/disk/by-uuid/$1" /mnt && show /mnt "ESP $1"
PROVISION_ESP
  done <"$r/etc/kernel/proxmox-boot-uuids"
else
  for b in "$r/boot" "$r/boot/efi" "$r/efi"; do show "$b" "${{b#"$r"}}"; done
fi
echo 'done|'"""


def _read(rows: Rows) -> BootLineStatus:
    lines = [("grub", file, line_of_grub("|".join(text))) for file, *text in rows.get("g", ())]
    options: dict[str, list[str]] = {}  # an entry may have several lines of them: the kernel gets all
    for file, *text in rows.get("s", ()):
        options.setdefault(file, []).append("|".join(text))
    lines += [("systemd-boot", file, " ".join(texts)) for file, texts in options.items()]
    defaults = "|".join(rows["d"][0]) if "d" in rows else ""
    words = line_of_grub(defaults).split(" ")
    without_ours = " ".join(word for word in words if word and word != OURS)
    overriding = rows["o"][-1][0] if "o" in rows else ""
    later = tuple((file, line_of_grub("|".join(text))) for file, *text in rows.get("l", ()))
    return BootLineStatus(tuple(lines), without_ours, overriding, later)


BOOT_LINE_KIND = HostFactKind(BootLine, "the next boot's kernel line", _SCRIPT, _read)
"""By the files that boot loaders read, and by sourcing GRUB's defaults as grub-mkconfig does."""

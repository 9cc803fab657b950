"""What a node says of its GPUs: the driver in kernel, on disk and in libraries, and every card."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from provision.contracts.query import Unknown
from provision.gpu.words import Meaning, meaning
from provision.hosts.resources.base import HostFactKind, Rows
from provision.values.numbers import is_number

FIELDS = (
    "index",
    "name",
    "uuid",
    "pci.bus_id",
    "memory.total",
    "driver_version",
    "compute_cap",
    "ecc.mode.current",
    "mig.mode.current",
    "persistence_mode",
    "power.limit",
)
"""Fields of nvidia-smi that all branches since 470 know; the last is in watts, memory in MiB."""
_ADDRESS = re.compile(r"([0-9a-fA-F]{1,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.([0-7]))?")
_HANDLE = re.compile(
    r"(?i)handle for GPU ?(?:[0-9]+: ?)?([0-9a-fA-F]{3,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
)
_VERSION = re.compile(r"\b([0-9]{3,4}\.[0-9]+(?:\.[0-9]+)?)\b")


def pci_address(text: str) -> str:
    """Return a PCI address as sysfs writes it (`000f:01:00.0`), or an empty string.

    nvidia-smi pads the domain to 32 bits and writes capitals; its errors leave digits and the function out.
    """
    match = _ADDRESS.fullmatch(text.strip())
    if match is None:
        return ""
    domain, bus, device, function = match.groups()
    return f"{int(domain, 16):04x}:{bus}:{device}.{function or 0}".lower()


def upstream(version: str) -> str:
    """Return NVIDIA's version in a package's or module's version, or an empty string."""
    match = _VERSION.search(version)
    return match[1] if match is not None else ""


_NO_EFI = Unknown("the firmware's variables are not readable")


@dataclass(frozen=True, slots=True)
class GpuState:
    """The driver and all cards of a host."""

    kind: ClassVar[str] = "gpu"


@dataclass(frozen=True, slots=True)
class CardStatus:
    """A card as its driver shows it. A `Meaning` says why there is no value.

    Args:
        address: PCI address as sysfs has it.
        uuid: `GPU-...`.
        memory: MiB.
        power_limit: watts.
        fabric: fabric state and status (`Completed`, `Success`); empty where the driver knows no such field.
        problem: what the driver says where it cannot open the card, or tell which one it is.
    """

    address: str
    index: int | Meaning = Meaning.UNKNOWN
    name: str | Meaning = Meaning.UNKNOWN
    uuid: str | Meaning = Meaning.UNKNOWN
    memory: int | Meaning = Meaning.UNKNOWN
    compute: str | Meaning = Meaning.UNKNOWN
    ecc: str | Meaning = Meaning.UNKNOWN
    mig: str | Meaning = Meaning.UNKNOWN
    persistence: str | Meaning = Meaning.UNKNOWN
    power_limit: float | Meaning = Meaning.UNKNOWN
    fabric: tuple[str, ...] = ()
    problem: str = ""

    @property
    def answers(self) -> bool:
        """Whether it can be used: its identity is readable."""
        return not self.problem and not isinstance(self.uuid, Meaning) and self.name is not Meaning.BROKEN


@dataclass(frozen=True, slots=True)
class GpuStatus:
    """The driver and the cards.

    Args:
        loaded: version of the loaded module; empty for none.
        is_open: whether the loaded module is the open one.
        next_kernel: the kernel that boots next.
        on_disk: version of the module for that kernel; empty for none.
        signed: who signed that module; empty for nobody.
        libraries: versions of the driver's user-space library.
        secure_boot: whether the firmware enforces signatures; Unknown without EFI variables.
        nvlink_off: whether the loaded module keeps NVLink off.
        peer_memory: whether the kernel has the symbol that nvidia_peermem needs.
        peermem_loaded: whether nvidia_peermem is loaded.
        tool: whether nvidia-smi is installed.
        cards: by address; only those that the driver lists.
        failure: what nvidia-smi said where it listed no card at all.
        modinfo: whether modinfo could be asked.
        unlinked: device files without a link in /dev/char: a reload of systemd takes them from running pods.
        license: what a vGPU says of its license (`Unlicensed (Restricted)`); empty for other cards.
    """

    loaded: str = ""
    is_open: bool = False
    next_kernel: str = ""
    on_disk: str = ""
    signed: str = ""
    libraries: tuple[str, ...] = ()
    secure_boot: bool | Unknown = _NO_EFI
    nvlink_off: bool = False
    peer_memory: bool = False
    peermem_loaded: bool = False
    tool: bool = False
    cards: tuple[CardStatus, ...] = ()
    failure: str = ""
    modinfo: bool = True
    license: str = ""
    unlinked: tuple[str, ...] = ()


# All cards at once; only where that fails, each by its address, so that one dead card hides no other. A card
# that hangs may block nvidia-smi for ever: hence timeout(1). The kernel of the next boot is the newest one
# with an image, as grub-mkconfig(8) and kernel-install(8) order them. Debian calls the file of the module
# nvidia-current or nvidia-current-open, and has the libraries in a folder of their own.
_SCRIPT = (
    "q='"
    + ",".join(FIELDS)
    + "'\n"
    + r"""t=
if command -v timeout >/dev/null 2>&1; then t='timeout -k 2 60'; fi
if command -v nvidia-smi >/dev/null 2>&1; then
  echo 'tool|yes'
  r=0; o=$($t nvidia-smi --query-gpu="$q" --format=csv,noheader,nounits 2>&1) || r=$?
  printf '%s\n' "$o" | sed 's/^/smi|/'
  if [ "$r" -ne 0 ]; then
    for d in /sys/bus/pci/drivers/nvidia/*:*; do
      [ -e "$d" ] || continue
      a=${d##*/}; c=0
      o=$($t nvidia-smi -i "$a" --query-gpu="$q" --format=csv,noheader,nounits 2>&1) || c=$?
      printf '%s\n' "$o" | sed "s/^/one|$a|$c|/"
    done
  fi
  case $o in
  *-[0-9]*[ABCQ],*|*GRID*)
    $t nvidia-smi -q 2>/dev/null | sed -n 's/^ *License Status *: */license|/p' | sed 1q ;;
  esac
  o=$($t nvidia-smi --query-gpu=pci.bus_id,fabric.state,fabric.status --format=csv,noheader 2>/dev/null) || o=
  [ -z "$o" ] || printf '%s\n' "$o" | sed 's/^/fabric|/'
fi
p=/proc/driver/nvidia
if [ -r $p/version ]; then sed -n 's/^NVRM version: */nvrm|/p' $p/version; fi
if [ -r $p/params ]; then sed -n 's/^NvLinkDisable: */nvlink|/p' $p/params; fi
if [ -r /sys/module/nvidia/version ]; then read -r v </sys/module/nvidia/version || :; echo "loaded|$v"; fi
if [ -d /sys/module/nvidia_peermem ]; then echo 'peermem|yes'; fi
n=$(ls /boot/vmlinuz-* 2>/dev/null | sed 's,.*/vmlinuz-,,' | sort -V | tail -n 1) || n=
[ -n "$n" ] || n=$(uname -r)
echo "next|$n"
if command -v modinfo >/dev/null 2>&1; then
  echo 'modinfo|yes'
  for m in nvidia nvidia-current nvidia-current-open; do
    v=$(modinfo -k "$n" -F version "$m" 2>/dev/null) || v=
    s=$(modinfo -k "$n" -F signer "$m" 2>/dev/null) || s=
    if [ -n "$v" ]; then break; fi
  done
  echo "disk|$v|$s"
fi
for f in /usr/lib/*/libnvidia-ml.so.*.* /usr/lib64/libnvidia-ml.so.*.* /usr/lib/libnvidia-ml.so.*.* \
  /usr/lib/*/nvidia/current/libnvidia-ml.so.*.*; do
  if [ -e "$f" ]; then echo "library|${f##*/libnvidia-ml.so.}"; fi
done
for f in /sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c; do
  if [ -r "$f" ]; then echo "secure|$(od -An -tu1 -j4 -N1 "$f" | tr -d ' ')"; fi
done
if [ ! -d /sys/firmware/efi ]; then echo 'secure|0'; fi
if grep -qs ' ib_register_peer_memory_client' /proc/kallsyms; then echo 'symbol|yes'; fi
for f in /dev/nvidia[0-9]* /dev/nvidiactl /dev/nvidia-uvm; do
  if [ -c "$f" ] && n=$(stat -c '%t:%T' "$f"); then
    if [ ! -e "/dev/char/$((0x${n%:*})):$((0x${n#*:}))" ]; then echo "unlinked|$f"; fi
  fi
done
echo 'done|'"""
)


def _read(rows: Rows) -> GpuStatus:
    """Read everything; what is not understood in one line spoils no other."""
    nvrm, secure = _first(rows, "nvrm"), _first(rows, "secure")
    disk, *signer = rows.get("disk", [["", ""]])[0]
    lines = [*map("|".join, rows.get("smi", ())), *("|".join(row[2:]) for row in rows.get("one", ()))]
    cards = _cards(lines, _fabrics(map("|".join, rows.get("fabric", ()))))
    cards += [_dead(row) for row in rows.get("one", ()) if _is_dead(row, cards)]
    text = "; ".join(line for line in lines if line and not _row(line))
    return GpuStatus(
        loaded=upstream(_first(rows, "loaded") or nvrm),
        is_open="Open Kernel Module" in nvrm,
        next_kernel=_first(rows, "next"),
        on_disk=upstream(disk),
        signed="".join(signer),
        libraries=tuple(sorted({upstream(row[0]) for row in rows.get("library", ()) if upstream(row[0])})),
        secure_boot=secure == "1" if secure in ("0", "1") else _NO_EFI,
        nvlink_off=_first(rows, "nvlink") == "1",
        peer_memory="symbol" in rows,
        peermem_loaded="peermem" in rows,
        tool="tool" in rows,
        cards=tuple(sorted(cards, key=lambda card: card.address)),
        failure="" if cards else text[:300],
        modinfo="modinfo" in rows,
        license=_first(rows, "license").strip(),
        unlinked=tuple(row[0] for row in rows.get("unlinked", ())),
    )


def _first(rows: Rows, tag: str) -> str:
    return "|".join(rows[tag][0]) if rows.get(tag) else ""


def _row(line: str) -> list[str]:
    """Return the fields of a card; none where the line is a message."""
    fields = [field.strip() for field in line.split(",")]
    if len(fields) != len(FIELDS) or not pci_address(fields[3]):
        return []
    return fields


def _cards(lines: Sequence[str], fabrics: dict[str, tuple[str, ...]]) -> list[CardStatus]:
    cards: dict[str, CardStatus] = {}
    for line in lines:
        if fields := _row(line):
            card = _card(fields, fabrics)
            cards[card.address] = card
        elif handle := _HANDLE.search(line):
            address = pci_address(handle[1])
            if address:
                cards.setdefault(address, CardStatus(address, problem=line.strip()[:200]))
    return list(cards.values())


def _card(fields: Sequence[str], fabrics: dict[str, tuple[str, ...]]) -> CardStatus:
    index, name, uuid, bus, memory, _, compute, ecc, mig, persistence, power = fields
    address = pci_address(bus)
    return CardStatus(
        address,
        index=_whole(index),
        name=_word(name),
        uuid=uuid if uuid.startswith("GPU-") else meaning(uuid) or Meaning.UNKNOWN,
        memory=_whole(memory),
        compute=_word(compute),
        ecc=_word(ecc),
        mig=_word(mig),
        persistence=_word(persistence),
        power_limit=_number(power),
        fabric=fabrics.get(address, ()),
        problem=uuid.strip("[]") if meaning(uuid) is Meaning.BROKEN else "",
    )


def _word(text: str) -> str | Meaning:
    return meaning(text) or text


def _whole(text: str) -> int | Meaning:
    number = text.removesuffix("MiB").strip()
    return int(number) if is_number(number) else meaning(text) or Meaning.UNKNOWN


def _number(text: str) -> float | Meaning:
    number = text.removesuffix("W").strip()
    if re.fullmatch(r"[0-9]{1,6}(?:\.[0-9]{1,6})?", number):
        return float(number)
    return meaning(text) or Meaning.UNKNOWN


def _fabrics(lines: Sequence[str] | map[str]) -> dict[str, tuple[str, ...]]:
    fabrics: dict[str, tuple[str, ...]] = {}
    for line in lines:
        bus, *state = (field.strip() for field in line.split(","))
        if pci_address(bus) and len(state) == 2 and meaning(state[0]) is None:  # noqa: PLR2004 - state, status
            fabrics[pci_address(bus)] = tuple(state)
    return fabrics


def _is_dead(row: Sequence[str], cards: Sequence[CardStatus]) -> bool:
    """Whether asking for one card by its address ended in an error of that card."""
    address, code = pci_address(row[0]), row[1]
    return bool(address) and code != "0" and all(card.address != address for card in cards)


def _dead(row: Sequence[str]) -> CardStatus:
    text = "|".join(row[2:]).strip()
    return CardStatus(pci_address(row[0]), problem=text[:200] or f"nvidia-smi ended with status {row[1]}")


GPU_STATE_KIND = HostFactKind(GpuState, "GPUs", _SCRIPT, _read)

"""PCI functions of a host, their drivers and groups, and the proof that a card has no host driver."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from provision.contracts.change import Change, Key, Op, Settles
from provision.contracts.effect import Effect
from provision.contracts.query import Frame, Unknown
from provision.contracts.remedy import Impossible, Remedy
from provision.contracts.snapshot import Snapshot
from provision.hosts.operations import basic as ops
from provision.hosts.queries.kernel import CMDLINE, missing_arguments
from provision.hosts.resources.base import cannot_tell, unknown, why
from provision.values.diagnostics import Diagnostic, Source

_SLOT = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class PciFunctions:
    """All PCI functions of the host."""

    kind: ClassVar[str] = "pci"


@dataclass(frozen=True, slots=True)
class PciFunction:
    """One PCI function, as sysfs shows it.

    Args:
        address: `0000:02:00.0`.
        vendor: four hex digits.
        device: four hex digits.
        cls: class code, six hex digits (`030000` is a VGA controller).
        driver: bound driver; empty for none.
        group: IOMMU group; empty for none.
        boot_vga: the firmware's console is on it.
        subsystem: ids of the card's maker, `1458:4043`; empty for none.
    """

    address: str
    vendor: str
    device: str
    cls: str
    driver: str = ""
    group: str = ""
    boot_vga: bool = False
    subsystem: str = ""

    @property
    def slot(self) -> str:
        """The address without the function."""
        return _slot(self.address)

    @property
    def id(self) -> str:
        """`10de:2204`."""
        return f"{self.vendor}:{self.device}"

    @property
    def is_display(self) -> bool:
        """Whether it is a display controller (class 03) or a processing accelerator (class 12)."""
        return self.cls[:2] in ("03", "12")

    @property
    def is_bridge(self) -> bool:
        """Whether it is a bridge (class 06): these stay in a group without harm."""
        return self.cls[:2] == "06"


class PciFunctionsKind:
    """Reads /sys/bus/pci with shell builtins only."""

    query = PciFunctions

    def script(self, queries: Sequence[PciFunctions]) -> str:
        """Return the fragment."""
        del queries
        return (
            "for d in /sys/bus/pci/devices/*; do\n"
            '  [ -r "$d/vendor" ] || continue\n'
            "  v= i= c= s= t= b=0 r= g=\n"
            '  read -r v <"$d/vendor" || :; read -r i <"$d/device" || :; read -r c <"$d/class" || :\n'
            '  if [ -r "$d/subsystem_vendor" ]; then '
            'read -r s <"$d/subsystem_vendor" || :; read -r t <"$d/subsystem_device" || :; fi\n'
            '  if [ -r "$d/boot_vga" ]; then read -r b <"$d/boot_vga" || :; fi\n'
            '  if [ -d "$d/driver" ]; then cd -P "$d/driver" && r=${PWD##*/}; fi\n'
            '  if [ -d "$d/iommu_group" ]; then cd -P "$d/iommu_group" && g=${PWD##*/}; fi\n'
            "  printf 'f|%s|%s|%s|%s|%s|%s|%s|%s|%s\\n' "
            '"${d##*/}" "$v" "$i" "$c" "$r" "$g" "$b" "$s" "$t"\n'
            "done\n"
            "echo 'done|'"
        )

    def parse(self, frame: Frame, queries: Sequence[PciFunctions]) -> Mapping[PciFunctions, object]:
        """Return a tuple of PciFunction by address."""
        lines = frame.stdout.decode("utf-8", "replace").split("\n")
        if "done|" not in lines or frame.dropped:
            return dict.fromkeys(queries, why(frame, "PCI functions"))
        found: list[PciFunction] = []
        for line in lines:
            row = line.split("|")
            if len(row) == 10 and row[0] == "f":  # noqa: PLR2004 - the format's fields
                vendor, device, cls, *maker = (each.removeprefix("0x") for each in (*row[2:5], *row[8:]))
                subsystem = ":".join(maker) if all(maker) else ""
                found.append(
                    PciFunction(row[1], vendor, device, cls, row[5], row[6], row[7] == "1", subsystem)
                )
        return dict.fromkeys(queries, tuple(sorted(found, key=lambda each: each.address)))


@dataclass(frozen=True, slots=True)
class ModuleCandidates:
    """Which modules of each installed kernel would drive a card; `slot` as in the inventory."""

    kind: ClassVar[str] = "candidates"
    slot: str


class ModuleCandidatesKind:
    """`modprobe -R` for each function and each kernel; it looks at aliases, not at blacklists."""

    query = ModuleCandidates

    def script(self, queries: Sequence[ModuleCandidates]) -> str:
        """Return the fragment."""
        slots = [each.slot for each in queries if _SLOT.fullmatch(each.slot)]
        patterns = " ".join(f"/sys/bus/pci/devices/{slot}.*" for slot in dict.fromkeys(slots))
        return (
            "command -v modprobe >/dev/null || { echo 'there is no modprobe' >&2; exit 1; }\n"
            f"for d in {patterns}; do\n"
            '  [ -r "$d/modalias" ] || continue\n'
            '  read -r m <"$d/modalias" || :; read -r c <"$d/class" || :\n'
            "  printf 'f|%s\\n' \"${d##*/}\"\n"
            "  for k in /lib/modules/*/; do\n"
            "    k=${k%/}; k=${k##*/}\n"
            '    for n in $(modprobe -S "$k" -R "$m" 2>/dev/null || :); do '
            'printf \'m|%s|%s|%s|%s\\n\' "${d##*/}" "$c" "$k" "$n"; done\n'
            "  done\n"
            "done\n"
            "echo 'done|'"
        )

    def parse(self, frame: Frame, queries: Sequence[ModuleCandidates]) -> Mapping[ModuleCandidates, object]:
        """Return for each card a frozenset of (class code, module); Unknown when there is no card."""
        lines = frame.stdout.decode("utf-8", "replace").split("\n")
        if "done|" not in lines or frame.dropped:
            return dict.fromkeys(queries, why(frame, "modules of PCI cards"))
        seen = {_slot(line.partition("|")[2]) for line in lines if line.startswith("f|")}
        rows = [line.split("|") for line in lines if line.startswith("m|")]
        found: dict[ModuleCandidates, object] = {}
        for each in queries:
            if each.slot not in seen:
                found[each] = Unknown(f"there is no PCI function {each.slot}")
                continue
            found[each] = frozenset(
                (row[2].removeprefix("0x"), row[4].replace("-", "_"))
                for row in rows
                if len(row) == 5 and _slot(row[1]) == each.slot  # noqa: PLR2004 - the format's fields
            )
        return found


def _slot(function: str) -> str:
    return function.partition(".")[0]


@dataclass(frozen=True, slots=True)
class IommuState:
    """Whether the IOMMU works."""

    kind: ClassVar[str] = "iommu"


@dataclass(frozen=True, slots=True)
class IommuStatus:
    """State of the IOMMU.

    Args:
        units: names below /sys/class/iommu; none means that it is off.
        groups: number of IOMMU groups.
        cpu: CPU vendor as /proc/cpuinfo has it.
        table: the firmware's ACPI table: DMAR (Intel VT-d), IVRS (AMD-Vi), empty when there is none.
    """

    units: tuple[str, ...]
    groups: int
    cpu: str = ""
    table: str = ""

    @property
    def active(self) -> bool:
        """Whether devices are isolated in groups."""
        return bool(self.units) and self.groups > 0


class IommuStateKind:
    """Reads sysfs and /proc."""

    query = IommuState

    def script(self, queries: Sequence[IommuState]) -> str:
        """Return the fragment."""
        del queries
        return (
            'for u in /sys/class/iommu/*; do if [ -e "$u" ]; then printf \'u|%s\\n\' "${u##*/}"; fi; done\n'
            'n=0; for g in /sys/kernel/iommu_groups/*; do if [ -e "$g" ]; then n=$((n + 1)); fi; done\n'
            "printf 'n|%s\\n' \"$n\"\n"
            'for t in DMAR IVRS; do if [ -e /sys/firmware/acpi/tables/$t ]; then echo "t|$t"; fi; done\n'
            "sed -n 's/^vendor_id[[:space:]]*: */c|/p;/^vendor_id/q' /proc/cpuinfo\n"
            "echo 'done|'"
        )

    def parse(self, frame: Frame, queries: Sequence[IommuState]) -> Mapping[IommuState, object]:
        """Return an IommuStatus."""
        fields: dict[str, list[str]] = {}
        for line in frame.stdout.decode("utf-8", "replace").split("\n"):
            tag, mark, value = line.partition("|")
            if mark:
                fields.setdefault(tag, []).append(value)
        count = fields.get("n", [""])[0]
        if "done" not in fields or not count.isdigit():
            return dict.fromkeys(queries, why(frame, "the IOMMU"))
        cpu, table = fields.get("c", [""])[0], fields.get("t", [""])[0]
        status = IommuStatus(tuple(sorted(fields.get("u", ()))), int(count), cpu, table)
        return dict.fromkeys(queries, status)


@dataclass(frozen=True, slots=True)
class CardUnbound:
    """No host driver has the display functions of a card; `vfio-pci` may, for a running VM.

    Args:
        system: `pve/ssh`.
        slot: PCI address with domain, without function.
        arguments: kernel arguments that keep its drivers off; once they are active, a driver that is bound
            all the same is nothing that another reboot would mend.
        reboot: what unbinds it.
        source: inventory line.
    """

    system: str
    slot: str
    arguments: tuple[str, ...]
    reboot: Effect
    source: Source | None = field(default=None, compare=False)

    @property
    def key(self) -> Key:
        """Identity."""
        return Key(self.system, "card-unbound", self.slot)

    def queries(self) -> tuple[Any, ...]:
        """Return the questions: PCI functions, the active command line."""
        return PciFunctions(), CMDLINE

    def _bound(self, functions: Sequence[PciFunction]) -> list[PciFunction]:
        return [
            each
            for each in functions
            if each.slot == self.slot and each.is_display and each.driver not in ("", "vfio-pci")
        ]

    def changes(self, seen: Snapshot) -> tuple[Change, ...]:
        """Return each display function that a host driver has."""
        functions = seen[PciFunctions()]
        if isinstance(functions, Unknown):
            return (unknown("driver", functions, "none"),)
        if not any(each.slot == self.slot for each in functions):
            return (Change(Op.ATTENTION, "card", "not there", self.slot),)
        return tuple(
            Change(Op.UPDATE, f"{each.address} driver", each.driver, "none", settles=Settles.AFTER_EFFECT)
            for each in self._bound(functions)
        )

    def fix(self, seen: Snapshot) -> Remedy:
        """Return the reboot, or why it would not help."""
        functions, line = seen[PciFunctions()], seen[CMDLINE]
        for answer in (functions, line):
            if isinstance(answer, Unknown):
                return cannot_tell(self.key, answer.reason, self.source)
        bound = self._bound(functions)
        if not bound:
            return self._refused("CARD_MISSING", f"there is no PCI card at {self.slot}", ())
        text = (line or b"").decode("utf-8", "replace")
        if missing_arguments(text, self.arguments):
            return ops.fix((), (self.reboot,))
        evidence = tuple(f"{each.address} [{each.id}] driver {each.driver}" for each in bound)
        summary = f"the card {self.slot} has a host driver although the kernel was told to keep it off"
        return self._refused("HOST_DRIVER_BOUND", summary, evidence)

    def _refused(self, code: str, summary: str, evidence: tuple[str, ...]) -> Impossible:
        return Impossible(
            Diagnostic(
                code,
                summary,
                subject=self.system,
                evidence=evidence,
                source=self.source,
                untouched="the card was left as it is",
                remedy="see `lspci -nnk` on the host; correct the address or extend blacklist_extra",
            )
        )

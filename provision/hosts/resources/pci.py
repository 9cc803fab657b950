"""PCI functions of a host, their drivers and groups, and the proof that a card has no host driver."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from provision.contracts.change import Change, Op, Settles
from provision.contracts.effect import Effect
from provision.contracts.query import Frame, Unknown
from provision.contracts.remedy import Impossible
from provision.contracts.snapshot import Snapshot
from provision.hosts.queries.kernel import CMDLINE, module_name
from provision.hosts.resources.base import HostFactKind, HostResource, Operations, Rows, no_answer, rows_of
from provision.inventory.kernel_line import missing_arguments

VFIO = "vfio-pci"
"""The driver by which a VM has a function."""
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
        override: the only driver that may have it (sysfs, `driver_override`); empty for any.
        module: kernel module of the bound driver; empty for a built-in driver, and for none.
    """

    address: str
    vendor: str
    device: str
    cls: str
    driver: str = ""
    group: str = ""
    boot_vga: bool = False
    subsystem: str = ""
    override: str = ""
    module: str = ""

    @property
    def driver_module(self) -> str:
        """The module of the bound driver, in the kernel's spelling; empty for none.

        A driver may have another name than its module: `bochs-drm` of `bochs`, `xhci_hcd` of `xhci_pci`.
        """
        return module_name(self.module or self.driver)

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
    def is_network(self) -> bool:
        """Whether it is a network controller (class 02): Ethernet, or InfiniBand."""
        return self.cls[:2] == "02"

    @property
    def is_bridge(self) -> bool:
        """Whether it is a bridge (class 06): these stay in a group without harm."""
        return self.cls[:2] == "06"


_ANY = "ffffffff"
"""Any vendor, device or subsystem (PCI_ANY_ID)."""


def matches(identity: str, function: PciFunction) -> bool:
    """Whether an id of `vfio-pci.ids=` names a function.

    Its parts are vendor, device, the subsystem's vendor and device, class and mask of the class, in hex; of
    those that are left out any counts (`vfio_pci_fill_ids` of drivers/vfio/pci/vfio_pci.c).
    """
    parts = identity.lower().split(":")
    maker = function.subsystem.split(":") if function.subsystem else [_ANY, _ANY]
    named = zip(parts, (function.vendor, function.device, *maker), strict=False)
    if len(parts) == 1 or any(part not in (present, _ANY) for part, present in named if present != _ANY):
        return False
    try:
        numbers = [int(text, 16) for text in (*parts[4:6], function.cls)]
    except ValueError:
        return False
    cls, mask, own = numbers if len(numbers) == 3 else (0, 0, 0)  # noqa: PLR2004 - without a mask any class
    return not (own ^ cls) & mask


_PCI_SCRIPT = """for d in /sys/bus/pci/devices/*; do
  [ -r "$d/vendor" ] || continue
  v= i= c= s= t= b=0 r= g= o= m=
  read -r v <"$d/vendor" || :; read -r i <"$d/device" || :; read -r c <"$d/class" || :
  if [ -r "$d/subsystem_vendor" ]; then
    read -r s <"$d/subsystem_vendor" || :; read -r t <"$d/subsystem_device" || :
  fi
  if [ -r "$d/driver_override" ]; then read -r o <"$d/driver_override" || :; fi
  if [ -r "$d/boot_vga" ]; then read -r b <"$d/boot_vga" || :; fi
  if [ -d "$d/driver" ]; then cd -P "$d/driver" && r=${PWD##*/}; fi
  if [ -d "$d/driver/module" ]; then cd -P "$d/driver/module" && m=${PWD##*/}; fi
  if [ -d "$d/iommu_group" ]; then cd -P "$d/iommu_group" && g=${PWD##*/}; fi
  printf 'f|%s|%s|%s|%s|%s|%s|%s|%s|%s|%s|%s\\n' "${d##*/}" "$v" "$i" "$c" "$r" "$g" "$b" "$s" "$t" "$o" "$m"
done
echo 'done|'"""


def _without_0x(rows: Sequence[Sequence[str]]) -> Iterator[list[str]]:
    for row in rows:
        yield [field.removeprefix("0x") for field in row]


def _read_functions(rows: Rows) -> tuple[PciFunction, ...]:
    """Read each function from sysfs, ordered by address."""
    functions = []
    for address, vendor, device, cls, driver, group, boot_vga, *more in _without_0x(rows.get("f", ())):
        maker = more[:2]
        subsystem = ":".join(maker) if all(maker) else ""
        override = "".join(more[2:3]).replace("(null)", "")  # what the kernel prints for none
        function = PciFunction(address, vendor, device, cls, driver, group, boot_vga == "1", subsystem)
        functions.append(replace(function, override=override, module="".join(more[3:4])))
    return tuple(sorted(functions, key=lambda function: function.address))


PCI_FUNCTIONS_KIND = HostFactKind(PciFunctions, "PCI functions", _PCI_SCRIPT, _read_functions)
"""From /sys/bus/pci, with shell builtins only."""


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
        slots = [query.slot for query in queries if _SLOT.fullmatch(query.slot)]
        patterns = " ".join(f"/sys/bus/pci/devices/{slot}.*" for slot in dict.fromkeys(slots))
        return (
            "command -v modprobe >/dev/null || { echo 'modprobe is not installed' >&2; exit 1; }\n"
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
        rows = rows_of(frame)
        if rows is None:
            return dict.fromkeys(queries, no_answer(frame, "modules of PCI cards"))
        cards: dict[str, set[tuple[str, str]]] = {_slot(row[0]): set() for row in rows.get("f", ()) if row}
        for function, cls, _, module in (row for row in rows.get("m", ()) if len(row) == _MODULE_FIELDS):
            cards.setdefault(_slot(function), set()).add((cls.removeprefix("0x"), module.replace("-", "_")))
        return {
            query: frozenset(cards[query.slot])
            if query.slot in cards
            else Unknown(f"there is no PCI function {query.slot}")
            for query in queries
        }


_MODULE_FIELDS = 4


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


_IOMMU_SCRIPT = """for u in /sys/class/iommu/*; do if [ -e "$u" ]; then printf 'u|%s\\n' "${u##*/}"; fi; done
n=0; for g in /sys/kernel/iommu_groups/*; do if [ -e "$g" ]; then n=$((n + 1)); fi; done
printf 'n|%s\\n' "$n"
for t in DMAR IVRS; do if [ -e /sys/firmware/acpi/tables/$t ]; then echo "t|$t"; fi; done
sed -n 's/^vendor_id[[:space:]]*: */c|/p;/^vendor_id/q' /proc/cpuinfo
echo 'done|'"""


def _read_iommu(rows: Rows) -> IommuStatus:
    cpu, table = (rows.get(tag, [[""]])[0][0] for tag in "ct")
    units = tuple(sorted(row[0] for row in rows.get("u", ())))
    return IommuStatus(units, int(rows["n"][0][0]), cpu, table)


IOMMU_STATE_KIND = HostFactKind(IommuState, "the IOMMU", _IOMMU_SCRIPT, _read_iommu)
"""From sysfs and /proc."""


@dataclass(frozen=True, slots=True)
class CardUnbound(HostResource):
    """No host driver has the display functions of a card; `vfio-pci` may, for a running VM.

    Args:
        slot: PCI address with domain, without function.
        arguments: kernel arguments that keep its drivers off; once they are active, another reboot would not
            unbind a driver that is bound all the same.
        reboot: what unbinds it.
        functions: numbers of the functions that count; none for all.
        by_slot: its functions are given to vfio-pci by their address instead: once they are, a reboot would
            not help.
    """

    kind: ClassVar[str] = "card-unbound"

    slot: str
    arguments: tuple[str, ...]
    reboot: Effect
    functions: tuple[int, ...] = ()
    by_slot: bool = False

    def _key_name(self) -> str:
        return self.slot

    def queries(self) -> tuple[Any, ...]:
        """Return the queries: PCI functions, the active command line."""
        return PciFunctions(), CMDLINE

    def _bound(self, functions: Sequence[PciFunction]) -> list[PciFunction]:
        return [
            function
            for function in functions
            if function.slot == self.slot
            and function.is_display
            and (not self.functions or int(function.address[-1], 16) in self.functions)
            and function.driver not in ("", VFIO)
        ]

    def changes(self, snapshot: Snapshot, /) -> tuple[Change, ...]:
        """Return each display function that a host driver has."""
        functions = snapshot[PciFunctions()]
        if not any(function.slot == self.slot for function in functions):
            return (Change(Op.ATTENTION, "card", "not there", self.slot),)
        return tuple(
            Change(
                Op.UPDATE, f"{function.address} driver", function.driver, "none", settles=Settles.AFTER_EFFECT
            )
            for function in self._bound(functions)
        )

    def operations(self, snapshot: Snapshot, /) -> Operations:
        """Return nothing where the reboot does it, or why it would not."""
        bound = self._bound(snapshot[PciFunctions()])
        if not bound:
            return self._left_alone("CARD_MISSING", f"there is no PCI card at {self.slot}")
        if self._reboot_helps(snapshot, bound):
            return ()
        evidence = (f"{function.address} [{function.id}] driver {function.driver}" for function in bound)
        summary = f"a host driver has the card {self.slot} although its drivers are kept off"
        return self._left_alone("HOST_DRIVER_BOUND", summary, *evidence)

    def _reboot_helps(self, snapshot: Snapshot, bound: Sequence[PciFunction]) -> bool:
        if self.by_slot:
            return any(function.override != VFIO for function in bound)
        line = (snapshot[CMDLINE] or b"").decode("utf-8", "replace")
        return bool(missing_arguments(line, self.arguments))

    def _due_effects(self, snapshot: Snapshot, /) -> tuple[Effect, ...]:
        del snapshot
        return (self.reboot,)

    def _left_alone(self, code: str, summary: str, *evidence: str) -> Impossible:
        return self._refused(
            code,
            summary,
            evidence=evidence,
            untouched="the card was not changed",
            remedy="correct the address or extend blacklist_extra; list the drivers: `lspci -nnk`",
        )

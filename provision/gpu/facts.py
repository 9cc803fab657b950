"""Facts of a node's GPUs, joined from PCI and driver by address: the one place that others ask."""

from __future__ import annotations

from dataclasses import dataclass

from provision.contracts.query import Unknown
from provision.gpu.queries import CardStatus, GpuState, GpuStatus
from provision.gpu.words import BRIDGE_CLASS, NVIDIA, OPEN_FROM, OPEN_ONLY_FROM, SXM_IDS
from provision.hosts.facts import HostFacts
from provision.hosts.resources.pci import PciFunction


@dataclass(frozen=True, slots=True)
class GpuCard:
    """One card: its PCI function, and what its driver shows of it.

    Args:
        function: from sysfs.
        status: None where the driver does not list it.
    """

    function: PciFunction
    status: CardStatus | None = None

    @property
    def address(self) -> str:
        """PCI address as sysfs has it."""
        return self.function.address

    @property
    def uuid(self) -> str:
        """`GPU-...`, empty where it cannot be read."""
        status = self.status
        return status.uuid if status is not None and status.answers and isinstance(status.uuid, str) else ""

    @property
    def problem(self) -> str:
        """Why the card cannot be used; empty where it can."""
        if self.function.driver != "nvidia":
            bound = f"the driver {self.function.driver}" if self.function.driver else "no driver"
            return f"{self.address} has {bound}"
        if self.status is None:
            return f"the driver does not list {self.address}"
        if not self.status.answers:
            return f"{self.address} does not answer: {self.status.problem or 'its UUID cannot be read'}"
        return ""


class GpuFacts(HostFacts):
    """The facts of a node with GPUs; slot n of the inventory is the n-th card by PCI address."""

    __slots__ = ()

    @property
    def gpu(self) -> GpuStatus | Unknown:
        """Driver and cards as the driver shows them: GpuState."""
        return self.answer_as(GpuState(), GpuStatus)

    @property
    def gpu_functions(self) -> tuple[PciFunction, ...] | Unknown:
        """NVIDIA's display and 3D controllers, by address: PciFunctions."""
        functions = self.functions
        if isinstance(functions, Unknown):
            return functions
        return tuple(function for function in functions if function.vendor == NVIDIA and function.is_display)

    @property
    def cards(self) -> tuple[GpuCard, ...] | Unknown:
        """All cards by PCI address: PciFunctions, GpuState. One that does not answer is among them."""
        functions, gpu = self.gpu_functions, self.gpu
        if isinstance(functions, Unknown):
            return functions
        if isinstance(gpu, Unknown):
            return gpu
        by_address = {card.address: card for card in gpu.cards}
        return tuple(GpuCard(function, by_address.get(function.address)) for function in functions)

    @property
    def has_nvswitch(self) -> bool | Unknown:
        """Whether an NVSwitch is seen: a bridge of NVIDIA's, class 0680. PciFunctions.

        NVLink 5 shows its switches as functions of the NIC's driver, which only a declaration can name.
        """
        functions = self.functions
        if isinstance(functions, Unknown):
            return functions
        return any(
            function.vendor == NVIDIA and function.cls.startswith(BRIDGE_CLASS) for function in functions
        )


def has_sxm(functions: tuple[PciFunction, ...]) -> bool:
    """Whether a card is of the SXM form, by its device id."""
    return any(function.device.lower() in SXM_IDS for function in functions)


def kernel_modules(functions: tuple[PciFunction, ...], declared: str | None = None) -> str:
    """Return `open` or `proprietary`: declared, else what all cards can use; open where both can be.

    Before Turing only the proprietary modules work, since Blackwell only the open ones.
    """
    if declared:
        return declared
    return "proprietary" if any(0 < _device(function) < OPEN_FROM for function in functions) else "open"


def unfit_modules(functions: tuple[PciFunction, ...], kind: str) -> tuple[str, ...]:
    """Return the cards that a kind of kernel modules cannot drive."""
    unfit = [
        function
        for function in functions
        if (0 < _device(function) < OPEN_FROM if kind == "open" else _device(function) >= OPEN_ONLY_FROM)
    ]
    return tuple(f"{function.address} [{function.id}]" for function in unfit)


def _device(function: PciFunction) -> int:
    """Return the device id as a number; 0 where it is none."""
    try:
        return int(function.device, 16)
    except ValueError:
        return 0

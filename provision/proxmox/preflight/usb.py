"""Rules about USB devices that VMs take: they are there, they are one, and nobody else has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from provision.contracts.query import Unknown
from provision.contracts.rule import Evidence, Finding, Rule, UnknownYet
from provision.inventory.models.hypervisor import Hypervisor, UsbDevice
from provision.inventory.models.node import Node
from provision.proxmox import formats
from provision.proxmox.preflight.site import api_facts, host_facts, managed_vms, own_vm
from provision.proxmox.queries import PciMap, UsbMappings
from provision.proxmox.usb_facts import UsbPlugged
from provision.values.diagnostics import Diagnostic, Severity


def usb(evidence: Evidence) -> list[Finding]:
    """Refuse a USB device that is missing, that two devices could be, or that the host or another VM has."""
    findings: list[Finding] = []
    for hypervisor, nodes in managed_vms(evidence):
        taken = [(node, alias) for node in nodes for alias in node.usb if alias in hypervisor.usb]
        plugged = host_facts(evidence, hypervisor).usb
        if taken and isinstance(plugged, Unknown):
            reason = f"USB devices of {hypervisor.name}: {plugged.reason}"
            findings.append(UnknownYet(reason, hypervisor.name))
        elif not isinstance(plugged, Unknown):
            for node, alias in taken:
                findings += _judged(evidence, hypervisor, node, alias, plugged)
    return findings


def _fitting(device: UsbDevice, plugged: Sequence[UsbPlugged]) -> list[UsbPlugged]:
    return [each for each in plugged if each.id == device.id and device.port in (None, each.port)]


def _judged(
    evidence: Evidence, hypervisor: Hypervisor, node: Node, alias: str, plugged: Sequence[UsbPlugged]
) -> Iterator[Diagnostic]:
    device = hypervisor.usb[alias]
    fitting = _fitting(device, plugged)
    source = evidence.inventory.source(("hypervisors", hypervisor.name, "usb", alias))
    place = f" at port {device.port}" if device.port else ""
    untouched = "Nothing was changed."
    if not fitting:
        state = own_vm(evidence, hypervisor, node)
        has_it = state is not None and any(key.startswith("usb") for key in state.config)
        yield Diagnostic(
            "USB_MISSING",
            f"{hypervisor.name} has no USB device {device.id}{place} ({alias})",
            node.name,
            Severity.WARNING if has_it else Severity.ERROR,  # it was pulled out: the VM goes on without it
            evidence=tuple(f"{each.port}: {each.id}" for each in plugged),
            source=source,
            untouched=untouched,
            remedy="Plug it in, or correct `id` and `port`; list the devices on the host: `lsusb -t`.",
        )
    elif len(fitting) > 1:
        yield Diagnostic(
            "USB_NOT_UNIQUE",
            f"{len(fitting)} USB devices of {hypervisor.name} are {device.id}, and {alias} names no port",
            node.name,
            evidence=tuple(f"{each.port}: {each.id}" for each in fitting),
            source=source,
            untouched=untouched,
            remedy=f"Write the port of the one for {node.name}: `port: {fitting[0].port}`.",
        )
    else:
        uses = [f"{hypervisor.name} has it as {use}" for use in fitting[0].uses]
        uses += _of_others(evidence, hypervisor, node, fitting[0], plugged)
        if uses:
            yield Diagnostic(
                "USB_IN_USE",
                f"the USB device {alias} of {hypervisor.name} is in use",
                node.name,
                evidence=tuple(uses),
                source=source,
                untouched=untouched,
                remedy="End that use: unmount it on the host, or take it from the other VM:"
                " `qm set VMID --delete usbN`.",
            )


def _of_others(
    evidence: Evidence,
    hypervisor: Hypervisor,
    node: Node,
    wanted: UsbPlugged,
    plugged: Sequence[UsbPlugged],
) -> Iterator[str]:
    """Yield the entries of other running VMs that take a device."""
    vms = api_facts(evidence, hypervisor).vms
    running = set() if isinstance(vms, Unknown) else {each.vmid for each in vms if each.status == "running"}
    answer = api_facts(evidence, hypervisor).answer(UsbMappings())
    mappings: Sequence[PciMap] = () if isinstance(answer, Unknown) else answer
    for row in host_facts(evidence, hypervisor).vm_devices:
        if row.node != hypervisor.node_name or row.vmid == node.vmid or row.vmid not in running:
            continue
        parts = formats.normal(row.value, formats.USB) if row.key.startswith("usb") else {}
        if wanted in _devices_of(parts, mappings, hypervisor.node_name, plugged):
            yield f"{row.vmid}.conf: {row.key}: {row.value}"


def _devices_of(
    parts: Mapping[str, str], mappings: Sequence[PciMap], node: str, plugged: Sequence[UsbPlugged]
) -> list[UsbPlugged]:
    """Return the devices that an entry may take: by port, or any with its id."""
    mapping = next((each for each in mappings if each.name == parts.get("mapping")), None)
    rows = [formats.parse(entry) for entry in mapping.entries] if mapping is not None else []
    hosts = [row.get("path") or row.get("id", "") for row in rows if row.get("node") == node]
    hosts += [parts["host"]] if "host" in parts else []
    wanted = {host.lower() for host in hosts}
    return [each for each in plugged if wanted & {each.port, each.id}]


def is_asked(hypervisor: Hypervisor, nodes: Sequence[Node]) -> bool:
    """Whether VMs take a USB device of a hypervisor."""
    return any(alias in hypervisor.usb for node in nodes if node.manage for alias in node.usb)


RULES = (
    Rule(
        ("USB_MISSING", "USB_NOT_UNIQUE", "USB_IN_USE"),
        "a USB device that a VM takes is not plugged in (a warning if the VM has it), two devices have its"
        " id, or the host or another running VM uses it",
        "plug it in, declare its `port`, unmount it on the host, or `qm set VMID --delete usbN`",
        usb,
    ),
)

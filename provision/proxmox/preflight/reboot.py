"""Rules about the reboot of a hypervisor: its cluster, HA, other guests, and the way back to it."""

from __future__ import annotations

from collections.abc import Iterator

from provision.contracts.query import Unknown
from provision.contracts.remedy import Fix
from provision.contracts.rule import Evidence, Finding, Rule, UnknownYet
from provision.hosts import names as host_names
from provision.hosts.queries.shell import ShellResult
from provision.hosts.resources.kernel import KernelArguments
from provision.inventory.models.hypervisor import Hypervisor
from provision.proxmox.preflight.site import host_facts, managed_vms_of
from provision.proxmox.reboot_facts import REBOOT_FACTS, RebootFacts, reboot_facts
from provision.values.diagnostics import Diagnostic, Severity

_LISTED = 10


def reboot_unsafe(evidence: Evidence) -> list[Finding]:
    """Refuse a reboot that cuts the host or its cluster off; warn of what else it costs."""
    findings: list[Finding] = []
    for hypervisor in evidence.inventory.hypervisors.values():
        if not _reboots(evidence, hypervisor):
            continue
        answer = host_facts(evidence, hypervisor).answer_as(REBOOT_FACTS, ShellResult)
        text = "" if isinstance(answer, Unknown) else answer.stdout.decode(errors="replace")
        facts = reboot_facts(text)
        if facts is None:
            reason = f"whether {hypervisor.name} may reboot: cluster and network were not read"
            findings.append(UnknownYet(reason, hypervisor.name))
            continue
        findings += _cluster(evidence, hypervisor, facts)
        findings += _network(evidence, hypervisor, facts)
        findings += _guests(evidence, hypervisor, facts)
    return findings


def _reboots(evidence: Evidence, hypervisor: Hypervisor) -> bool:
    """Whether the plan reboots a host, or an earlier run owes that."""
    system = host_names.ssh(hypervisor.name)
    snapshot = evidence.snapshot(system)
    if isinstance(snapshot, Unknown):
        return False
    owed = [pending.effect for pending in snapshot.pending if pending.boot_id == snapshot.boot_id]
    for resource in evidence.of_system(system):
        remedy = evidence.remedy(resource)
        owed += remedy.effects if isinstance(remedy, Fix) else ()
    return any(effect.cls.reboots for effect in owed)


def _cluster(evidence: Evidence, hypervisor: Hypervisor, facts: RebootFacts) -> Iterator[Diagnostic]:
    name, node = hypervisor.name, hypervisor.node_name
    count = f"{facts.online} of {facts.nodes} nodes are online"
    own = sorted(service for service, where in facts.ha.items() if where == node)
    if not facts.is_quorate:
        yield _finding(
            evidence,
            hypervisor,
            "REBOOT_NO_QUORUM",
            f"{name} would reboot into a cluster without quorum: no guest starts at boot",
            (count,),
            "Bring the other nodes back first: `pvecm status`.",
        )
    elif not facts.keeps_quorum:
        fences = f" and nodes with HA resources reset themselves ({', '.join(facts.ha)})" if facts.ha else ""
        yield _finding(
            evidence,
            hypervisor,
            "REBOOT_NO_QUORUM",
            f"while {name} reboots, its cluster has no quorum{fences}",
            (f"{count}, {facts.votes} votes",),
            "Bring more nodes or a quorum device up first, or set HA resources to `ignored` for the time:"
            " `ha-manager set SID --state ignored`."
            if facts.ha
            else "Nothing can be changed on the other nodes during the reboot. A quorum device helps:"
            " `pvecm qdevice setup ADDRESS`.",
            Severity.ERROR if facts.ha else Severity.WARNING,
        )
    if own:
        yield _finding(
            evidence,
            hypervisor,
            "REBOOT_HA_RESOURCES",
            f"HA manages {len(own)} guests on {name}, which would reboot",
            tuple(own[:_LISTED]),
            f"Move them away first: `ha-manager crm-command node-maintenance enable {node}`, and `disable`"
            " afterwards.",
            Severity.WARNING,
        )


def _network(evidence: Evidence, hypervisor: Hypervisor, facts: RebootFacts) -> Iterator[Diagnostic]:
    lost = list(facts.lost_ports)
    arguments = [
        resource
        for resource in evidence.of_system(host_names.ssh(hypervisor.name))
        if isinstance(resource, KernelArguments) and evidence.changes(resource)
    ]
    named = {word.partition("=")[0] for resource in arguments for word in resource.arguments}
    if named & {"net.ifnames", "net.naming-scheme", "biosdevname"} and facts.ports:
        lost += [
            f"the kernel argument gives {port} of {bridge} another name"
            for bridge, ports in facts.ports.items()
            for port in ports
            if port in facts.nics
        ]
    if lost:
        yield _finding(
            evidence,
            hypervisor,
            "REBOOT_NIC_RENAMED",
            f"{hypervisor.name} would lose its network with the reboot: a bridge names an interface that is"
            " called otherwise then",
            tuple(lost[:_LISTED]),
            "Write the new name into /etc/network/interfaces, or remove the file in /etc/systemd/network or"
            " /usr/local/lib/systemd/network that gives it.",
        )
    elif facts.next_kernel and facts.unpinned_ports:
        yield _finding(
            evidence,
            hypervisor,
            "REBOOT_NIC_UNPINNED",
            f"{hypervisor.name} may boot kernel {facts.next_kernel}, which may give its network interfaces"
            " other names than the bridges have",
            facts.unpinned_ports[:_LISTED],
            "Pin the names before: `pve-network-interface-pinning generate` (Proxmox VE 9), or a file in"
            " /etc/systemd/network with MACAddress and Name. Keep a console at hand otherwise.",
            Severity.WARNING,
        )
    if facts.pending:
        yield _finding(
            evidence,
            hypervisor,
            "REBOOT_NETWORK_PENDING",
            f"the reboot of {hypervisor.name} applies a network configuration that nobody has tried",
            ("/etc/network/interfaces.new is there",),
            "Apply or revert it in the web interface (Network) first.",
            Severity.WARNING,
        )


def _guests(evidence: Evidence, hypervisor: Hypervisor, facts: RebootFacts) -> Iterator[Diagnostic]:
    own = {f"VM {node.vmid}" for node in managed_vms_of(evidence.inventory, hypervisor)}
    others = [guest for guest in facts.guests if guest not in own]
    if others:
        yield _finding(
            evidence,
            hypervisor,
            "REBOOT_STOPS_GUESTS",
            f"{len(others)} running guests of {hypervisor.name} are not in this inventory and stop with its"
            " reboot",
            tuple(others[:_LISTED]),
            "Those that start at boot come back by themselves; start the others by hand: `qm start VMID`,"
            " `pct start CTID`.",
            Severity.WARNING,
        )


def _finding(
    evidence: Evidence,
    hypervisor: Hypervisor,
    code: str,
    summary: str,
    proof: tuple[str, ...],
    remedy: str,
    severity: Severity = Severity.ERROR,
) -> Diagnostic:
    return Diagnostic(
        code,
        summary,
        hypervisor.name,
        severity=severity,
        evidence=proof,
        source=evidence.inventory.source(("hypervisors", hypervisor.name)),
        untouched="The host was not rebooted.",
        remedy=remedy,
    )


RULES = (
    Rule(
        (
            "REBOOT_NO_QUORUM",
            "REBOOT_NIC_RENAMED",
            "REBOOT_NIC_UNPINNED",
            "REBOOT_HA_RESOURCES",
            "REBOOT_NETWORK_PENDING",
            "REBOOT_STOPS_GUESTS",
        ),
        "the plan reboots a hypervisor, and its cluster would lose its quorum, or a bridge would lose its"
        " port; warnings: HA resources, network changes that wait for a boot, a new kernel while names of"
        " interfaces are not pinned, and running guests of others",
        "bring other nodes up, name the new interface in /etc/network/interfaces or pin the old name, move HA"
        " resources away: `ha-manager crm-command node-maintenance enable NODE`",
        reboot_unsafe,
        of_resources=True,
    ),
)

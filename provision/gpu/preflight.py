"""Rules about drivers and cards, on what nodes answered before anything is changed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from provision.contracts.query import Unknown
from provision.contracts.rule import Evidence, Finding, Rule, UnknownYet
from provision.gpu import card_preflight, operator_preflight, reload_preflight
from provision.gpu.card_preflight import VGPU
from provision.gpu.facts import GpuFacts, has_sxm, unfit_modules
from provision.gpu.origins import ANY_DRIVER, ORIGINS, Gone, choose
from provision.gpu.queries import GpuState, GpuStatus
from provision.gpu.roles.gpu_driver import gone, managed_driver, meta_of, offers_query, wish_of
from provision.gpu.words import OPEN_ONLY_FROM
from provision.hosts import names
from provision.hosts.package_source import lists_questions
from provision.hosts.queries.apt import read_policy
from provision.hosts.queries.file import ABSENT, FileStatus
from provision.hosts.queries.shell import Shell, ShellResult
from provision.hosts.resources.package import PackageState, PackageStatus
from provision.hosts.resources.pci import PciFunction, PciFunctions
from provision.inventory import Inventory
from provision.inventory.models.node import Driver, Node
from provision.kube.names import API
from provision.values.diagnostics import Diagnostic

INSTALLED = Shell("dpkg-query -W -f='${db:Status-Abbrev}|${Package}|${Version}\\n' 2>/dev/null || true")
"""All packages with their state words, one a line."""
_UNTOUCHED = "Nothing was changed."


@dataclass(frozen=True, slots=True)
class Host:
    """A node with a declared driver, and what it answered."""

    node: Node
    driver: Driver
    facts: GpuFacts
    status: GpuStatus
    functions: tuple[PciFunction, ...]

    def refused(
        self, evidence: Evidence, code: str, summary: str, remedy: str, *rows: str, key: str = "driver"
    ) -> Diagnostic:
        """Return a finding about the node."""
        source = evidence.inventory.source(("nodes", self.node.name, key))
        return Diagnostic(
            code, summary, self.node.name, evidence=rows, source=source, untouched=_UNTOUCHED, remedy=remedy
        )


def _hosts(evidence: Evidence, *, managed: bool | None = None) -> Iterator[Host | UnknownYet]:
    """Yield the nodes that declare a driver and answered, and why others cannot be judged yet."""
    for node in evidence.inventory.nodes.values():
        system = names.ssh(node.name)
        driver = node.driver
        if driver is None or not node.manage or not evidence.covers(system):
            continue
        if managed is not None and managed != (managed_driver(evidence.inventory, node.name) is not None):
            continue
        facts = GpuFacts(evidence.snapshot(system))
        status, functions = facts.gpu, facts.functions
        reason = status if isinstance(status, Unknown) else functions
        if isinstance(reason, Unknown):
            # No step will ever ask a node whose driver is its own: there is nothing to wait for.
            if managed_driver(evidence.inventory, node.name) is not None:
                yield UnknownYet(f"driver of {node.name}: {reason.reason}", node.name)
            continue
        if isinstance(status, Unknown) or isinstance(functions, Unknown):
            continue
        yield Host(node, driver, facts, status, functions)


def foreign_driver(evidence: Evidence) -> list[Finding]:
    """Refuse to install over a driver that no package, or another origin's package, brought."""
    findings: list[Finding] = []
    for host in _hosts(evidence, managed=True):
        if isinstance(host, UnknownYet):
            findings.append(host)
            continue
        packages = _packages(host.facts)
        if isinstance(packages, Unknown):
            continue
        own = ORIGINS[host.driver.origin or ""]
        others = {
            name: origin
            for origin, table in ORIGINS.items()
            for name in packages
            if origin != host.driver.origin and table.marks.fullmatch(name) and not own.marks.fullmatch(name)
        }
        by_hand = bool(host.status.loaded or host.status.on_disk) and not packages
        if not others and not by_hand:
            continue
        rows = [f"{name} {packages[name]} (origin {origin})" for name, origin in sorted(others.items())]
        if by_hand:
            rows.append(f"driver {host.status.loaded or host.status.on_disk} belongs to no package")
        summary = f"{host.node.name} has a GPU driver that did not come from origin {host.driver.origin}"
        remedy = (
            "keep it with `driver: { manage: false, minimum: ... }`, or remove it on the node first"
            " (`nvidia-uninstall`, or `apt-get purge` of these packages)"
        )
        findings.append(host.refused(evidence, "DRIVER_FOREIGN_INSTALL", summary, remedy, *rows))
    return findings


def _packages(facts: GpuFacts) -> Mapping[str, str] | Unknown:
    """Return name and version of every package of a driver; what is only left as configuration is none."""
    result = facts.answer_as(INSTALLED, ShellResult)
    if isinstance(result, Unknown):
        return result
    packages: dict[str, str] = {}
    for line in result.stdout.decode("utf-8", "replace").splitlines():
        status, _, rest = line.partition("|")
        name, _, version = rest.partition("|")
        if status[1:2] not in ("", "n", "c") and ANY_DRIVER.fullmatch(name):
            packages[name] = version
    return packages


def not_offered(evidence: Evidence) -> list[Finding]:
    """Refuse a driver that no archive of its origin has in the declared version."""
    findings: list[Finding] = []
    for host in _hosts(evidence, managed=True):
        if isinstance(host, UnknownYet) or host.driver.origin is None:
            continue
        offers = read_policy(host.facts.answer(offers_query(host.driver)))
        if isinstance(offers, Unknown) or _comes_with_a_source(evidence, host):
            continue
        metas = {
            name: host.facts.known(PackageState(name), PackageStatus, PackageStatus()).installed
            for name in ORIGINS[host.driver.origin].metas
        }
        wish = wish_of(host.node, host.driver, host.functions)
        chosen = choose(wish, offers, meta_of(wish.origin, metas, host.status.next_kernel))
        source = evidence.inventory.source(("nodes", host.node.name, "driver"))
        if isinstance(chosen, Gone):
            findings.append(gone(chosen, host.node.name, wish, source))
        elif chosen.dkms and host.status.secure_boot is True and not host.status.loaded:
            findings.append(_unsigned(evidence, host))
    return findings


def _comes_with_a_source(evidence: Evidence, host: Host) -> bool:
    """Whether apt offers something else once the declared package source is there."""
    questions = lists_questions(evidence.inventory, host.node)
    return any(host.facts.known(question, FileStatus, ABSENT) == ABSENT for question in questions)


def _unsigned(evidence: Evidence, host: Host) -> Diagnostic:
    return host.refused(
        evidence,
        "SECURE_BOOT_UNSIGNED",
        f"{host.node.name} enforces Secure Boot, and modules built on it are not signed by its keys",
        "declare `efi: { pre_enrolled_keys: false }` and run `provision rebuild`, enrol the key of DKMS"
        " (`mokutil --import /var/lib/dkms/mok.pub`), or take signed modules with `driver.origin: ubuntu`",
    )


def too_old(evidence: Evidence) -> list[Finding]:
    """Refuse a driver of the node's own that is older than declared, or not loaded at all."""
    findings: list[Finding] = []
    for host in _hosts(evidence, managed=False):
        if isinstance(host, UnknownYet):
            findings.append(host)
            continue
        minimum = host.driver.minimum
        if minimum is None or _number(host.status.loaded) >= _number(minimum):
            continue
        shown = host.status.loaded or "none"
        summary = f"{host.node.name} has driver {shown}, and at least {minimum} is declared"
        remedy = f"update the driver on the node, or declare `driver.minimum: '{shown}'`"
        findings.append(host.refused(evidence, "DRIVER_TOO_OLD", summary, remedy))
    return findings


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"[0-9]+", version)[:3])


def no_switch(evidence: Evidence) -> list[Finding]:
    """Refuse a declared NVSwitch that is not there, and SXM cards whose fabric nobody initialises."""
    findings: list[Finding] = []
    for host in _hosts(evidence):
        if isinstance(host, UnknownYet):
            continue
        cards = host.facts.gpu_functions
        if isinstance(cards, Unknown) or not cards or host.facts.has_nvswitch:
            continue
        finding = _without_switch(evidence, host, cards)
        if finding is not None:
            findings.append(finding)
    return findings


def _without_switch(evidence: Evidence, host: Host, cards: tuple[PciFunction, ...]) -> Diagnostic | None:
    node, expected = host.node, host.node.gpu_cards
    # The switches of NVLink 5 are not functions of NVIDIA's: nothing says that they are missing.
    is_visible = all(int(card.device, 16) < OPEN_ONLY_FROM for card in cards)
    if expected is not None and expected.nvswitch and is_visible:
        return host.refused(
            evidence,
            "NVSWITCH_MISSING",
            f"{node.name} declares an NVSwitch, but has no NVIDIA PCI function of class 0680",
            "declare `gpu_cards.nvswitch: false`, or look for the switch: lspci -nn -d 10de:",
            key="gpu_cards",
        )
    states = {card.fabric[0] for card in host.status.cards if card.fabric}
    if host.driver.nvlink is not None or not has_sxm(cards) or states == {"Completed"}:
        return None
    return host.refused(
        evidence,
        "SXM_WITHOUT_NVSWITCH",
        f"{node.name} has SXM cards and no NVSwitch: CUDA waits for the NVLink fabric for ever",
        "declare `driver.nvlink: false` to keep NVLink off, or `true` if the hypervisor runs the fabric",
        *(f"fabric state: {state}" for state in sorted(states)),
    )


def unfit(evidence: Evidence) -> list[Finding]:
    """Refuse kernel modules that a card's generation does not have, and a host driver on a vGPU."""
    findings: list[Finding] = []
    for host in _hosts(evidence, managed=True):
        if isinstance(host, UnknownYet):
            continue
        cards = host.facts.gpu_functions
        wish = wish_of(host.node, host.driver, host.functions)
        rows = () if isinstance(cards, Unknown) else unfit_modules(cards, wish.kind)
        if rows:
            summary = f"the {wish.kind} kernel modules do not drive all cards of {host.node.name}"
            remedy = (
                "remove `driver.kind`, so that it follows the cards; a mix of generations needs another node"
            )
            findings.append(host.refused(evidence, "DRIVER_KIND_UNFIT", summary, remedy, *rows))
        virtual = [str(card.name) for card in host.status.cards if VGPU.search(str(card.name))]
        if virtual:
            summary = f"{host.node.name} has a vGPU, which only the guest driver of its host's release drives"
            remedy = "declare `driver: { manage: false }`"
            findings.append(host.refused(evidence, "VGPU_GUEST", summary, remedy, *virtual))
    return findings


RULES = (
    Rule(
        ("DRIVER_FOREIGN_INSTALL",),
        "the GPU driver of a node comes from another origin than declared, or from no package",
        "`driver: { manage: false, minimum: ... }`, or remove that driver on the node: `nvidia-uninstall`",
        foreign_driver,
    ),
    Rule(
        ("DRIVER_VERSION_GONE", "DRIVER_ORIGIN_MISSING", "SECURE_BOOT_UNSIGNED"),
        "the archives of `driver.origin` lack the declared version or all packages, or Secure Boot would"
        " refuse the modules",
        "declare a listed `driver.version`, add the archive, or declare `efi.pre_enrolled_keys: false`",
        not_offered,
    ),
    Rule(
        ("DRIVER_TOO_OLD",),
        "the node's own driver is older than `driver.minimum`, or not loaded",
        "update the driver on the node, or declare a lower `driver.minimum`",
        too_old,
    ),
    Rule(
        ("NVSWITCH_MISSING", "SXM_WITHOUT_NVSWITCH"),
        "`gpu_cards.nvswitch` is declared and the node has no switch, or SXM cards have neither",
        "declare `gpu_cards.nvswitch: false`, or `driver.nvlink`",
        no_switch,
    ),
    Rule(
        ("DRIVER_KIND_UNFIT", "VGPU_GUEST"),
        "`driver.kind` does not fit a card's generation, or the card is a vGPU",
        "remove `driver.kind`, or declare `driver.manage: false`",
        unfit,
    ),
    *card_preflight.RULES,
    *operator_preflight.RULES,
    *reload_preflight.RULES,
)


def evidence(inventory: Inventory) -> dict[str, tuple[Any, ...]]:
    """Return what these rules ask beyond the role: nodes that declare a driver, and cards for pods."""
    is_shared = card_preflight.shares(inventory)
    nodes: dict[str, tuple[Any, ...]] = {
        names.ssh(node.name): (PciFunctions(), GpuState(), INSTALLED) if node.driver else (GpuState(),)
        for node in inventory.nodes.values()
        if node.manage and (node.driver or (node.wants_gpu and (is_shared or node.k3s)))
    }
    cluster = operator_preflight.asked(inventory)
    return {**nodes, **({API: cluster} if cluster else {})}

"""Rules about rights: what this plan needs of the token, no more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from provision.contracts.query import Unknown
from provision.contracts.remedy import ApiCall, Request
from provision.contracts.rule import Evidence, Finding, Rule, UnknownYet
from provision.inventory.models.hypervisor import Hypervisor
from provision.inventory.models.node import Node
from provision.inventory.placeholders import bootstrap_command
from provision.proxmox import names
from provision.proxmox.preflight.site import api_facts, managed_vms_or_changed
from provision.proxmox.privileges import USER, Grant, Need, needs_of
from provision.proxmox.queries import Rights
from provision.proxmox.resources.image import ImageFile
from provision.proxmox.resources.vm_lifecycle import VmResource
from provision.proxmox.roles.pci_mapping import used
from provision.values.diagnostics import Diagnostic


def missing(evidence: Evidence) -> list[Finding]:
    """Refuse a token that lacks what this plan needs: its lists are empty instead of refused."""
    findings: list[Finding] = []
    for hypervisor, nodes in managed_vms_or_changed(evidence):
        rights = api_facts(evidence, hypervisor).rights
        if isinstance(rights, Unknown):
            if nodes:
                findings.append(UnknownYet(f"rights on {hypervisor.name}: {rights.reason}", hypervisor.name))
            continue
        needs = dict.fromkeys((*_to_see(evidence, hypervisor, nodes), *_to_change(evidence, hypervisor)))
        lacking = [grant for alternatives in needs for grant in _lacking(rights, alternatives)]
        if lacking:
            findings.append(_diagnostic(evidence, hypervisor, lacking))
    return findings


def _lacking(rights: Rights, alternatives: Need) -> Sequence[Grant]:
    """Return the grants that a token lacks of the first alternative, or none if it has all of one."""
    lacking = [[grant for grant in grants if not rights.may(*grant)] for grants in alternatives]
    return () if [] in lacking else lacking[0]


def _to_see(evidence: Evidence, hypervisor: Hypervisor, nodes: tuple[Node, ...]) -> Iterator[Need]:
    """Yield what it takes to see what is there: without it, lists are empty."""
    base = f"/nodes/{hypervisor.node_name}"
    for node in nodes:
        if node.vmid is not None:
            yield from needs_of(Request("GET", f"{base}/qemu/{node.vmid}/pending"))
    if any(node.image or node.iso for node in nodes):
        yield from needs_of(Request("GET", f"{base}/storage/{hypervisor.storage.images}/content"))
    if used(evidence.inventory, hypervisor.name):
        yield from needs_of(Request("GET", "/cluster/mapping/pci"))


def _to_change(evidence: Evidence, hypervisor: Hypervisor) -> Iterator[Need]:
    """Yield what the plan's requests take."""
    base = f"/nodes/{hypervisor.node_name}/qemu"
    for resource in evidence.of_system(names.api(hypervisor.name)):
        remedy = evidence.remedy(resource)
        if not isinstance(remedy, ApiCall):
            continue
        config: Mapping[str, str] = {}
        if isinstance(resource, VmResource):
            state = api_facts(evidence, hypervisor).vm(resource.vmid)
            config = state.config if state is not None else {}
            if remedy.effects:  # the power cycle
                yield from needs_of(Request("POST", f"{base}/{resource.vmid}/status/start"))
        for request in (each for each in remedy.requests if not each.login):  # root may do all
            yield from needs_of(request, config)


def downloads(evidence: Evidence, hypervisor: Hypervisor) -> bool:
    """Whether an image would be downloaded to a hypervisor."""
    return any(
        isinstance(resource, ImageFile) and not resource.absent and bool(evidence.changes(resource))
        for resource in evidence.of_system(names.api(hypervisor.name))
    )


def _diagnostic(evidence: Evidence, hypervisor: Hypervisor, lacking: list[tuple[str, str]]) -> Diagnostic:
    by_path: dict[str, list[str]] = {}
    for path, privilege in lacking:
        by_path.setdefault(path, []).append(privilege)
    token = hypervisor.api.token_id or "the token"
    return Diagnostic(
        "PVE_PRIV_MISSING",
        f"{token} lacks {len(lacking)} privileges on {hypervisor.name} that this plan needs",
        hypervisor.name,
        evidence=tuple(f"{path}: {', '.join(privileges)}" for path, privileges in by_path.items()),
        source=evidence.inventory.source(("hypervisors", hypervisor.name, "api")),
        untouched="Nothing was changed.",
        remedy=_remedy(hypervisor),
    )


def _remedy(hypervisor: Hypervisor) -> str:
    user, _, token = (hypervisor.api.token_id or "").partition("!")
    if user == USER:
        command, _ = bootstrap_command(hypervisor.name, hypervisor, token)
        return f"{command} gives the token and its user their role again"
    return (
        f"on the host: pveum acl modify PATH --roles ROLE --tokens '{user}!{token}', for each path;"
        f" a privilege-separated token needs the same for its user: --users {user}"
    )


RULES = (
    Rule(
        ("PVE_PRIV_MISSING",),
        "the API token lacks a privilege that this plan needs",
        "`provision bootstrap root@HOST --name TOKEN --out FILE`, or"
        " `pveum acl modify PATH --tokens TOKEN --roles ROLE`",
        missing,
        removal=True,
        of_resources=True,
    ),
)

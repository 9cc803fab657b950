"""Policy, sources, access, DHCP back ends, what a lab may leave out."""

from __future__ import annotations

import re

from provision.inventory.models.inventory import Inventory
from provision.inventory.placeholders import bootstrap_remedy
from provision.inventory.rules.findings import Findings
from provision.inventory.scalars import near
from provision.inventory.tree import KeyPath

_ROUTER_KEYS = ("address", "ssh", "api", "file", "server")


def check(inventory: Inventory, findings: Findings) -> None:
    """Find problems of the site as a whole."""
    _policy(inventory, findings)
    _dhcp(inventory, findings)
    _sources(inventory, findings)
    if inventory.hypervisors and inventory.network is None and not findings.written(("network",)):
        findings.lacks("the inventory", "network", ("hypervisors",))
    if inventory.lab is None:
        _endpoints(inventory, findings)
        return
    taken: dict[str, KeyPath] = {}
    for index, card in enumerate(inventory.lab.hypervisor.cards):
        findings.unique("the card", card.name, ("lab", "hypervisor", "cards", index, "name"), taken)
    if len(inventory.hypervisors) > 1:
        findings.conflict("a lab has one hypervisor", ("hypervisors",))


def _sources(inventory: Inventory, findings: Findings) -> None:
    sources = inventory.sources
    for key in ("mirror", "bundle"):
        given = getattr(sources, key) is not None
        if sources.mode == key and not given and not findings.written(("sources", key)):
            findings.lacks("sources", key, ("sources", "mode"))
        if sources.mode != key and given:
            findings.conflict(f"sources mode {sources.mode} does not use {key!r}", ("sources", key))
    for key in ("apt_key", "apt_more"):
        if getattr(sources, key) and sources.apt is None and sources.mode != "bundle":
            findings.conflict(f"sources.{key} needs sources.apt, or a bundle", ("sources", key))
    for index, line in enumerate(sources.apt_more):
        if re.match(r"deb(-src)? ", line) is None or re.search(r"://[^/\s]*@", line):
            summary = "expected a line like 'deb [signed-by=FILE] URL SUITE COMPONENT' without a login in it"
            findings.add("INVENTORY_VALUE", summary, ("sources", "apt_more", index))


def _policy(inventory: Inventory, findings: Findings) -> None:
    known = findings.vocabulary.effect_classes
    verdicts: dict[str, str] = {}
    for verdict in ("allow", "ask", "never"):
        for index, effect_class in enumerate(getattr(inventory.policy, verdict)):
            path = ("policy", verdict, index)
            if effect_class not in known:
                summary = f"unknown effect class {effect_class!r}{near(effect_class, known)}"
                findings.add("INVENTORY_VALUE", summary, path, remedy=f"known are {', '.join(known)}")
            first = verdicts.setdefault(effect_class, verdict)
            if first != verdict:
                summary = f"the policy says both {first} and {verdict} for {effect_class}"
                findings.add("INVENTORY_CONFLICT", summary, path)


def _dhcp(inventory: Inventory, findings: Findings) -> None:
    dhcp = inventory.dhcp
    if dhcp is None:
        for name, hypervisor in inventory.hypervisors.items():
            if hypervisor.reserve_address and not findings.written(("network", "dhcp")):
                where = ("hypervisors", name, "reserve_address")
                findings.conflict("reserving an address needs network.dhcp", where)
        return
    path = ("network", "dhcp")
    known = findings.vocabulary.dhcp_backends
    backend = known.get(dhcp.backend)
    if backend is None:
        summary = f"unknown DHCP back end {dhcp.backend!r}{near(dhcp.backend, known)}"
        findings.add("INVENTORY_VALUE", summary, (*path, "backend"), remedy=f"known are {', '.join(known)}")
        return
    way = backend.reached
    used = (way, *backend.keys)
    for key in _ROUTER_KEYS:
        if getattr(dhcp, key) is not None and key not in used:
            findings.conflict(f"the DHCP back end {dhcp.backend} does not use {key!r}", (*path, key))
    if (
        way not in ("by hand", "nowhere")
        and getattr(dhcp, way) is None
        and not findings.written((*path, way))
    ):
        remedy = "" if inventory.lab is None else "the lab writes it when it starts"
        if inventory.lab is None or way != "ssh":
            findings.lacks(f"the DHCP back end {dhcp.backend}", way, (*path, "backend"), remedy=remedy)


def _endpoints(inventory: Inventory, findings: Findings) -> None:
    """Without a lab that writes them, endpoints, keys and images are declared."""
    for name, hypervisor in inventory.hypervisors.items():
        for key in ("token_id", "token", "fingerprint"):
            path = ("hypervisors", name, "api", key)
            if getattr(hypervisor.api, key) is None and not findings.written(path):
                remedy = bootstrap_remedy(name, hypervisor)
                findings.lacks(f"hypervisors.{name}.api", key, path, remedy=remedy)
    for name, image in inventory.images.items():
        where = ("images", name, "url")
        if image.url is None and not findings.written(where):
            findings.lacks(f"images.{name}", "url", where)
    machine = next((name for name, node in inventory.nodes.items() if node.is_virtual), None)
    if machine is None:
        return
    remedies = {
        "user": "write access.user (debian, ubuntu, ...): new VMs get this login",
        "key": "write access.key, a private key file with its .pub beside it: new VMs accept this key",
    }
    written = findings.written(("access",))
    for key, remedy in remedies.items():
        if getattr(inventory.access, key) is not None or findings.written(("access", key)):
            continue
        if written:
            findings.lacks("access", key, ("access",), remedy=remedy)
        else:  # there is nothing to point at but the first VM that needs it
            findings.lacks("the inventory", f"access.{key}", ("nodes", machine), remedy=remedy)

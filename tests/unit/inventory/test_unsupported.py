# ruff: noqa: E501 - tables with one case a line
from __future__ import annotations

import pytest

from provision.api.domains import role_references
from provision.api.support import unsupported, untested

from .conftest import SITE, Loads

# old text, new text, the role that would serve it, its words, the line and what it says
OPTIONS = [
    ("backend: manual,", "backend: dnsmasq, ssh: {}, order: boot_first,", "dhcp_boot_first", "boot_first with dnsmasq (vm-1, vm-2)", "order:"),
    ("gateway: 10.0.0.1\n", "gateway: 10.0.0.1\n  dns: [10.0.0.2]\n", "resolver", "network.dns", "dns:"),
    ("gateway: 10.0.0.1\n", "gateway: 10.0.0.1\n  domain: example.org\n", "resolver", "network.domain", "domain:"),
    ("name: site\n", "name: site\nsources: { registries: { docker.io: https://m } }\n", "sources_registries", "sources.registries", "registries:"),
    ("name: site\n", "name: site\ngpu: { toolkit: host }\n", "gpu_toolkit", "the container toolkit", "toolkit:"),
    ("name: site\n", "name: site\nrdma: { operator: { version: v26.4.0 }, method: sriov }\n", "network_sriov", "virtual functions for pods", "rdma:"),
    ("vmid: 101,", "vmid: 101, ofed: { manage: true },", "ofed", "NIC driver stack", "ofed:"),
    ("vmid: 101,", "vmid: 101, container_runtime: { minimum: '2' },", "container_runtime", "a container runtime", "container_runtime:"),
    ("vmid: 101,", "vmid: 101, interfaces: { node: eth0 },", "node_interfaces", "interfaces of a node", "interfaces:"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "role", "words", "line"), OPTIONS, ids=[each[2] for each in OPTIONS])
def test_an_option_that_nothing_reads_is_named_with_its_place(
    loads: Loads, old: str, new: str, role: str, words: str, line: str
) -> None:
    assert old in SITE
    inventory = loads(SITE.replace(old, new, 1))
    problems = [each.problem(inventory) for each in unsupported(inventory)]
    shown = [(problem.summary, problem.source.text if problem.source else "") for problem in problems]
    assert [(words in summary, f"(role {role})" in summary, line in text) for summary, text in shown] == [
        (True, True, True)
    ], shown
    assert untested(inventory) == []


@pytest.mark.parametrize("role", sorted({each[2] for each in OPTIONS}))
def test_what_is_refused_waits_for_a_role_that_is_not_there(role: str) -> None:
    assert role not in role_references(), "its lines in unsupported.py can go"


@pytest.mark.parametrize(
    "option",
    [
        "verify: { strict: true, skip: [test_clock], timeout: 60 }",
        "sources: { mode: online }",
        "proxy: { url: null, no_proxy: [] }",
    ],
)
def test_what_is_read_or_says_nothing_is_no_problem(loads: Loads, option: str) -> None:
    assert unsupported(loads(f"{SITE}{option}\n")) == ()


MANY = (
    SITE.replace("vmid: 101,", "vmid: 101, interfaces: { node: eth0 },").replace(
        "backend: manual,", "backend: dnsmasq, ssh: {}, order: boot_first,"
    )
    + "sources: { registries: { docker.io: https://m } }\n"
)


@pytest.mark.parametrize(
    ("targets", "steps", "roles"),
    [
        ((), (), {"sources_registries", "dhcp_boot_first", "node_interfaces"}),
        (("vm-2",), (), {"sources_registries", "dhcp_boot_first"}),
        (("pve",), (), {"sources_registries"}),
        ((), ("base_os",), {"sources_registries"}),
        ((), ("dhcp_reservation",), {"sources_registries", "dhcp_boot_first"}),
        ((), ("address", "verify"), {"sources_registries", "dhcp_boot_first"}),
        (("vm-1",), ("k3s_agent",), {"sources_registries", "node_interfaces"}),
    ],
)
def test_targets_and_steps_leave_out_what_they_do_not_meet(
    loads: Loads, targets: tuple[str, ...], steps: tuple[str, ...], roles: set[str]
) -> None:
    inventory = loads(MANY)
    met = [each for each in unsupported(inventory) if each.concerns(targets, steps)]
    assert {each.role for each in met} == roles
    for each in met:
        assert ("--target" in each.problem(inventory).remedy) == (each.role != "sources_registries")

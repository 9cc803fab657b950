# ruff: noqa: E501 - tables with one case a line
from __future__ import annotations

import pytest

from .conftest import SITE, Fails, Loads, marked

K3S = "k3s: { version: v1.35.7+k3s1 }\n"
SERVED = SITE.replace("vmid: 101,", "vmid: 101, k3s: server,") + K3S
RDMA = """\
version: 1
name: pair
network: { cidr: 10.18.96.0/24 }
profiles:
  p: { rails: { r0: { device: eth1 } }, interfaces: { node: eth0 }, gpu_cards: { count: 8 } }
nodes:
  a: { profile: p, address: 10.18.96.1, rail_addresses: { r0: 10.224.7.143/12 }, k3s: server }
  b: { profile: p, address: 10.18.96.2, rail_addresses: { r0: 10.224.7.236/12 } }
k3s: { version: v1.35.7+k3s1 }
rdma:
  resources: { ib: { rail: r0, pods_per_node: 64 } }
  networks:
    roce: { rail: r0, resource: ib, pool: { subnet: 10.224.240.0/24, block: 16, exclude: [] } }
"""

OF_TWO = """\
    card_pools: { any: [two, three] }
    cards:
      two: { address: "0000:03:00", id: "10de:2204" }
      three: { address: "0000:04:00", OTHER }
"""
TWO = """\
  two:
    address: 10.0.0.6
    api: { token_id: a@pve!b, token: !secret { env: TOKEN }, fingerprint: "@PRINT" }
    OWN
  pve:
""".replace("@PRINT", ":".join(["AB"] * 32))

# old text, new text, code, marked text, words of the summary
CASES = [
    # unknown keys, wrong types, bad values
    ("user: debian", "user: debian, prt: 22", "INVENTORY_UNKNOWN_KEY", "prt", "did you mean port?"),
    ("cores: 2", "coers: 2", "INVENTORY_UNKNOWN_KEY", "coers", "did you mean cores?"),
    # what Proxmox VE, lspci and nvidia-smi call it
    ("gpus: [one]", 'hostpci0: "02:00,pcie=1"', "INVENTORY_UNKNOWN_KEY", "hostpci0", "did you mean gpus?"),
    ("cores: 2", "cores: 2, onboot: 1", "INVENTORY_UNKNOWN_KEY", "onboot", "did you mean start_at_boot?"),
    ("cores: 2", "cores: 2, scsi1: x", "INVENTORY_UNKNOWN_KEY", "scsi1", "did you mean disks?"),
    ("cores: 2", "vcpus: 2", "INVENTORY_UNKNOWN_KEY", "vcpus", "did you mean cores?"),
    ("cores: 2", "cores: 2, bridge: vmbr1", "INVENTORY_UNKNOWN_KEY", "bridge", "did you mean nics?"),
    ("cores: 2", "cores: 2, memory: 8192", "INVENTORY_VALUE", "8192", "did you mean 8192MiB or 8192GiB?"),
    ('"0000:02:00"', '"00000000:0A:00"', "INVENTORY_VALUE", '"00000000:0A:00"', "did you mean 0000:0a:00?"),
    ('"0000:02:00"', '"0A:00.1"', "INVENTORY_VALUE", '"0A:00.1"', "did you mean 0000:0a:00? For it alone add"),
    ("name: site", "name: Site", "INVENTORY_VALUE", "Site", "DNS label"),
    ("version: 1", "version: 2", "INVENTORY_VALUE", "2", "not a known version"),
    ("cores: 2", "cores: two", "INVENTORY_VALUE", "two", "whole number"),
    ("cores: 2", "cores: 0", "INVENTORY_VALUE", "0", "from 1 to"),
    ("cores: 2", "cores: [2]", "INVENTORY_VALUE", "cores", "found a list"),
    ("disk: 4GiB", "disk: 60GB", "INVENTORY_VALUE", "60GB", "did you mean 60GiB?"),
    ("disk: 4GiB", "disk: 4100MiB", "INVENTORY_VALUE", "4100MiB", "did you mean 5GiB?"),
    ("vmid: 101", "vmid: 99", "INVENTORY_VALUE", "99", "from 100"),
    ("access: {", "access: [", "INVENTORY_SYNTAX", "", ""),
    ("nodes:\n", "nodes: []\nx:\n", "INVENTORY_VALUE", "nodes", "expected a mapping, found a list"),
    ("address: 10.0.0.11", "address: 10.0.0.300", "INVENTORY_VALUE", "10.0.0.300", "not an IPv4 address"),
    ("address: 10.0.0.11", 'address: "fd00::11"', "INVENTORY_VALUE", '"fd00::11"', "IPv6, which is unsupported"),
    ("vmid: 101,", "vmid: 101, kube_name: 'fd00::11',", "INVENTORY_VALUE", "'fd00::11'", "IPv6, which is unsupported"),
    ("version: 1", "version: 1\nk3s: { version: v1.35.7+k3s1, endpoint: '[fd00::5]' }", "INVENTORY_VALUE", "'[fd00::5]'", "IPv6, which is unsupported"),
    ("cidr: 10.0.0.0/24", 'cidr: "10.0.0.0/24,fd00::/64"', "INVENTORY_VALUE", '"10.0.0.0/24,fd00::/64"', "unsupported"),
    ("cidr: 10.0.0.0/24", "cidr: 10.0.0.1/24", "INVENTORY_VALUE", "10.0.0.1/24", "did you mean 10.0.0.0/24?"),
    ("backend: manual", "backend: dnsmask", "INVENTORY_VALUE", "dnsmask", "did you mean dnsmasq?"),
    ('"0000:02:00"', '"02:00"', "INVENTORY_VALUE", '"02:00"', "did you mean 0000:02:00?"),
    ('"0000:02:00"', '"0000:02:00.1"', "INVENTORY_VALUE", '"0000:02:00.1"', "did you mean 0000:02:00?"),
    ("token: !secret { env: TOKEN }", "token: hunter2", "INVENTORY_SECRET", "", "by reference"),
    ("token: !secret { env: TOKEN }", "token: !secret { envy: T }", "INVENTORY_SECRET", "", "env, file or command"),
    ("token: !secret { env: TOKEN }", "token: !secret { command: x }", "INVENTORY_SECRET", "", "list of words"),
    ("vmid: 101,", "vmid: 101, power: runing,", "INVENTORY_VALUE", "runing", "did you mean running?"),
    ("vmid: 101,", "vmid: 101, nics: [{ mac: 53:54:00:12:34:56 }],", "INVENTORY_VALUE", "53:54:00:12:34:56", "group address"),
    ("  vm-1:", "  VM_1:", "INVENTORY_VALUE", "VM_1", "DNS label"),
    ("vmid: 101,", "vmid: 101, name: x,", "INVENTORY_UNKNOWN_KEY", "name", "a node's name is its key"),
    ("    address: 10.0.0.5\n", "    address: 10.0.0.5\n    name: x\n", "INVENTORY_UNKNOWN_KEY", "name", "did you mean node"),
    ("cores: 2", "cores: 2, packages: [--purge]", "INVENTORY_VALUE", "--purge", "not a valid package name"),
    ("cores: 2", "cores: 2, packages: [a b]", "INVENTORY_VALUE", "a b", "not a valid package name"),
    # missing keys
    ("vmid: 101, address: 10.0.0.11", "vmid: 101", "INVENTORY_MISSING_KEY", "vm-1", "lacks the key 'address'"),
    ("vmid: 101, ", "", "INVENTORY_MISSING_KEY", "vm-1", "lacks the key 'vmid'"),
    ("version: 1\n", "", "INVENTORY_MISSING_KEY", "", "the inventory lacks the key 'version'"),
    ("token_id: a@pve!b, ", "", "INVENTORY_MISSING_KEY", "api", "lacks the key 'token_id'"),
    ("token: !secret { env: TOKEN }, ", "", "INVENTORY_MISSING_KEY", "api", "lacks the key 'token'"),
    ("url: https://images.example/debian.img, ", "", "INVENTORY_MISSING_KEY", "debian-12", "lacks the key 'url'"),
    (", key: ~/.ssh/id", "", "INVENTORY_MISSING_KEY", "access", "access lacks the key 'key'"),
    ("access: { user: debian, key: ~/.ssh/id }\n", "", "INVENTORY_MISSING_KEY", "vm-1", "the inventory lacks the key 'access.user'"),
    ("access: { user: debian, key: ~/.ssh/id }\n", "", "INVENTORY_MISSING_KEY", "vm-1", "the inventory lacks the key 'access.key'"),
    # duplicates
    ("address: 10.0.0.12", "address: 10.0.0.11", "INVENTORY_DUPLICATE", "10.0.0.11", "first by nodes.vm-1"),
    ("address: 10.0.0.12", "address: 10.0.0.5", "INVENTORY_DUPLICATE", "10.0.0.5", "first by hypervisors.pve"),
    ("address: 10.0.0.12", "address: 10.0.0.1", "INVENTORY_DUPLICATE", "10.0.0.1", "first by network.gateway"),
    ("vmid: 102", "vmid: 101", "INVENTORY_DUPLICATE", "101", "VMID 101"),
    ("vmid: 102", "vmid: 102, hostname: vm-1", "INVENTORY_DUPLICATE", "vm-1", "host name"),
    ("  vm-2:", "  pve:", "INVENTORY_DUPLICATE", "pve", "first by hypervisors.pve"),
    ("  vm-2:", "  cluster:", "INVENTORY_DUPLICATE", "cluster", "reserved for provision"),
    ("vmid: 101,", "vmid: 101, gpus: [one],", "INVENTORY_DUPLICATE", "one", "card one of pve"),
    ("      one: {", '      two: { address: "0000:02:00" }\n      one: {', "INVENTORY_DUPLICATE", '"0000:02:00"', "PCI address"),
    # pools of cards
    ("    cards:\n", "    card_pools: { any: [one] }\n    cards:\n", "INVENTORY_DUPLICATE", "one", "first by hypervisors.pve"),
    ("    cards:\n", "    card_pools: { any: [on] }\n    cards:\n", "INVENTORY_REFERENCE", "on", "no card of pve 'on': did you mean one?"),
    ("    cards:\n", "    card_pools: { any: [] }\n    cards:\n", "INVENTORY_VALUE", "any", "the pool any has no cards"),
    ("    cards:\n", "    card_pools: { one: [] }\n    cards:\n", "INVENTORY_CONFLICT", "one", "one is a card and a pool of pve"),
    ("    cards:\n", '    card_pools: { any: [two] }\n    cards:\n      two: { address: "0000:03:00" }\n', "INVENTORY_MISSING_KEY", "two", "card two of the pool any lacks the key 'id'"),
    ("    cards:\n", OF_TWO.replace("OTHER", 'id: "10de:2684"'), "INVENTORY_CONFLICT", "three", "cards of the pool any differ in `id` or `rom`"),
    ("    cards:\n", OF_TWO.replace("OTHER", 'id: "10de:2204", functions: [0]'), "INVENTORY_CONFLICT", "functions", "a card of a pool cannot have `functions`"),
    ("    cards:\n", OF_TWO.replace("OTHER", 'id: "10de:2204", drives_console: true'), "INVENTORY_CONFLICT", "drives_console", "a card of a pool cannot have `drives_console`"),
    ("memory: 1GiB", "memory: 1GiB, nics: [{ mac: BC:24:11:00:00:01 }, { mac: bc:24:11:00:00:01 }]", "INVENTORY_DUPLICATE", "bc:24:11:00:00:01", "MAC address"),
    ("  pve:\n", TWO.replace("OWN", "node: pve"), "INVENTORY_DUPLICATE", "pve", "node name pve is declared twice, first by hypervisors.two"),
    ("address: 10.0.0.5\n", "address: 10.0.0.5\n    node: vm-1\n", "INVENTORY_DUPLICATE", "vm-1", "host name vm-1"),
    ("  pve:\n", TWO.replace("OWN", "mac: BC:24:11:00:00:01") + "    mac: bc:24:11:00:00:01\n", "INVENTORY_DUPLICATE", "bc:24:11:00:00:01", "MAC address"),
    ("nodes:\n", "lab: { hypervisor: { cards: [{ name: a }, { name: b }, { name: a }] } }\nnodes:\n", "INVENTORY_DUPLICATE", "a", "the card a"),
    ("  vm-2:", "  vm-[1-2]: { profile: small, vmid: 110, address: 10.0.0.21-10.0.0.22 }\n  vm-2:", "INVENTORY_DUPLICATE", "vm-2", "vm-2"),
    # dangling references
    ("{ profile: small, vmid: 101", "{ profile: smal, vmid: 101", "INVENTORY_REFERENCE", "smal", "did you mean small?"),
    ("image: debian-12", "image: debian-13", "INVENTORY_REFERENCE", "debian-13", "did you mean debian-12?"),
    ("hypervisor: pve", "hypervisor: pvee", "INVENTORY_REFERENCE", "pvee", "did you mean pve?"),
    ("gpus: [one]", "gpus: [two]", "INVENTORY_REFERENCE", "two", "no card of pve 'two'"),
    # networks
    ("gateway: 10.0.0.1", "gateway: 10.0.1.1", "INVENTORY_NETWORK", "10.0.1.1", "outside the network"),
    ("address: 10.0.0.11", "address: 10.0.0.255", "INVENTORY_NETWORK", "10.0.0.255", "not an address for a host"),
    ("address: 10.0.0.11", "address: 10.0.0.150", "INVENTORY_NETWORK", "10.0.0.150", "inside the DHCP range"),
    ("10.0.0.100-10.0.0.199", "10.0.0.100-10.0.1.199", "INVENTORY_NETWORK", "10.0.0.100-10.0.1.199", "outside"),
    ("10.0.0.100-10.0.0.199", "10.0.0.199-10.0.0.100", "INVENTORY_VALUE", "10.0.0.199-10.0.0.100", "address range"),
    # conflicts
    ("backend: manual", "backend: manual, file: /etc/x", "INVENTORY_CONFLICT", "file", "manual does not use 'file'"),
    ("backend: manual", "backend: dnsmasq", "INVENTORY_MISSING_KEY", "backend", "lacks the key 'ssh'"),
    ("gpus: [one]", "gpus: [one], machine: i440fx", "INVENTORY_CONFLICT", "machine", "needs machine q35"),
    ("gpus: [one]", "gpus: [one], balloon: 512MiB", "INVENTORY_CONFLICT", "balloon", "cannot have a balloon"),
    ("name: site\n", "name: site\npolicy: { allow: [drain], never: [drain] }\n", "INVENTORY_CONFLICT", "drain", "allow and never"),
    ("name: site\n", "name: site\npolicy: { allow: [rebot-guest] }\n", "INVENTORY_VALUE", "rebot-guest", "did you mean reboot-guest?"),
    ("name: site\n", "name: site\nsources: { mode: mirror }\n", "INVENTORY_MISSING_KEY", "mode", "lacks the key 'mirror'"),
    ("name: site\n", "name: site\nsources: { apt_key: ./key }\n", "INVENTORY_CONFLICT", "apt_key", "needs sources.apt, or a bundle"),
    ("name: site\n", "name: site\nsources: { apt: https://m/debian, apt_more: [https://m ./] }\n", "INVENTORY_VALUE", "https://m ./", "expected a line like"),
    ("name: site\n", "name: site\nsources: { apt: https://m/debian, apt_more: ['deb https://a:b@m ./'] }\n", "INVENTORY_VALUE", "'deb https://a:b@m ./'", "without a login"),
    ("name: site\n", "name: site\nsources: { bundle: ./x }\n", "INVENTORY_CONFLICT", "bundle", "sources mode online does not use"),
    ("name: site\n", "name: site\ncluster: { helm: { backend: cli } }\n", "INVENTORY_MISSING_KEY", "helm", "lacks the key 'version'"),
    ("name: site\n", "name: site\ncluster: { helm: { version: v4.2.3 } }\n", "INVENTORY_CONFLICT", "version", "the Helm controller of k3s does not use"),
    ("name: site\n", "name: site\ncluster: { helm: { backend: cli, version: v4.2.3, binary: ./helm } }\n", "INVENTORY_CONFLICT", "binary", "one origin"),
    ("name: site\n", "name: site\ncluster: { helm: { backend: cli, version: v2.17.0 } }\n", "INVENTORY_VALUE", "v2.17.0", "Helm release like v4.2.3"),
    ("vmid: 101,", "vmid: 101, labels: { a: b },", "INVENTORY_CONFLICT", "", "vm-1 is not in a cluster"),
    ("vmid: 101,", "vmid: 101, taints: ['a=b:NoSchedule'],", "INVENTORY_CONFLICT", "", "vm-1 is not in a cluster"),
    ("nodes:\n", "nodes:\n  bare: { address: 10.0.0.20, cores: 2 }\n", "INVENTORY_CONFLICT", "cores", "no hypervisor"),
    ("nodes:\n", "nodes:\n  bare: { address: 10.0.0.20, nics: [{ vlan: 5 }] }\n", "INVENTORY_CONFLICT", "nics", "no hypervisor"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "code", "mark", "words"), CASES, ids=lambda value: str(value)[:24])
def test_a_mistake_is_found_where_it_was_made(
    fails: Fails, old: str, new: str, code: str, mark: str, words: str
) -> None:
    assert old in SITE
    _found(fails(SITE.replace(old, new, 1)), code, mark, words)


def _found(problems: object, code: str, mark: str, words: str) -> None:
    assert isinstance(problems, tuple)
    shown = [(problem.code, marked(problem), problem.summary) for problem in problems]
    assert any(
        problem_code == code and words in summary and (not mark or covered == mark)
        for problem_code, covered, summary in shown
    ), shown
    assert len(problems) <= 2, shown


CLUSTER_CASES = [
    ("k3s: server", "k3s: agent", "INVENTORY_REFERENCE", "k3s", "no node has `k3s: server`"),
    (K3S, "", "INVENTORY_MISSING_KEY", "k3s", "lacks the key 'k3s'"),
    ("vmid: 102", "vmid: 102, k3s: agent, kube_name: vm-1", "INVENTORY_DUPLICATE", "vm-1", "Kubernetes name vm-1"),
    ("v1.35.7+k3s1", "1.35.7", "INVENTORY_VALUE", "1.35.7", "k3s release"),
    ("k3s1 }", "k3s1, pod_cidr: 10.0.0.0/16 }", "INVENTORY_NETWORK", "10.0.0.0/16", "the pod network 10.0.0.0/16 overlaps the site"),
    ("k3s1 }", "k3s1, service_cidr: 10.42.1.0/24 }", "INVENTORY_NETWORK", "10.42.1.0/24", "overlaps the pod network"),
    ("k3s1 }\n", "k3s1 }\nsharing: { mode: kai, version: v1, slots_per_card: 2 }\n", "INVENTORY_CONFLICT", "slots_per_card", "does not use"),
    ("k3s1 }\n", "k3s1 }\nsharing: { mode: hami }\n", "INVENTORY_MISSING_KEY", "mode", "lacks the key 'version'"),
    ("k3s1 }\n", "k3s1 }\nsharing: { mode: hami, version: '1', cards: { e: [vm-3/0] } }\n", "INVENTORY_REFERENCE", "vm-3/0", "did you mean vm-"),
    ("k3s1 }\n", "k3s1 }\nsharing: { mode: hami, version: '1', cards: { e: [vm-2] } }\n", "INVENTORY_VALUE", "vm-2", "not a card slot"),
    ("k3s1 }\n", "k3s1 }\nsharing: { mode: kai, version: v1, queues: { a: { parent: b } } }\n", "INVENTORY_REFERENCE", "b", "no queue 'b'"),
    ("k3s1 }\n", "k3s1 }\nexpect: { gpu_cards: { three: { name: X } } }\n", "INVENTORY_REFERENCE", "three", "no hypervisor has the card 'three'"),
    ("k3s1 }\n", "k3s1 }\nexpect: { rdma: { write: 90 } }\n", "INVENTORY_VALUE", "90", "not a percentage"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "code", "mark", "words"), CLUSTER_CASES, ids=lambda value: str(value)[:24]
)
def test_a_mistake_of_the_cluster_is_found(
    fails: Fails, old: str, new: str, code: str, mark: str, words: str
) -> None:
    assert old in SERVED
    _found(fails(SERVED.replace(old, new, 1)), code, mark, words)


POOL_CASES = [
    ("10.224.240.0/24", "10.224.7.0/24", "INVENTORY_POOL", "10.224.7.0/24", "contains a's address 10.224.7.143"),
    ("10.224.240.0/24", "10.240.0.0/24", "INVENTORY_POOL", "10.240.0.0/24", "is not inside a's network"),
    ("block: 16", "block: 200", "INVENTORY_POOL", "200", "need more than the 256"),
    ("exclude: []", "exclude: [10.224.241.1]", "INVENTORY_POOL", "10.224.241.1", "is not inside"),
    ("exclude: []", "exclude: [here]", "INVENTORY_VALUE", "here", "not an IPv4 address"),
    ("exclude: []", "gateway: 10.224.240.1", "INVENTORY_POOL", "10.224.240.0/24", "contains the pool's gateway"),
    ("k3s1 }", "k3s1, pod_cidr: 10.224.240.0/20 }", "INVENTORY_POOL", "10.224.240.0/24", "overlaps the pod network"),
    ("rail: r0, resource: ib", "rail: r1, resource: ib", "INVENTORY_REFERENCE", "r1", "no node has the rail 'r1'"),
    ("resource: ib", "resource: ibx", "INVENTORY_REFERENCE", "ibx", "did you mean ib?"),
    ("node: eth0", "node: eth1", "INVENTORY_CONFLICT", "eth1", "is a rail"),
    ("r0: 10.224.7.236/12", "r1: 10.224.7.236/12", "INVENTORY_REFERENCE", "10.224.7.236/12", "no rail of b 'r1'"),
    ("10.224.7.236/12", "10.224.7.143/12", "INVENTORY_DUPLICATE", "10.224.7.143/12", "rail address"),
    ("10.224.7.236/12", "10.224.7.236", "INVENTORY_VALUE", "10.224.7.236", "address with a prefix"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "code", "mark", "words"), POOL_CASES, ids=lambda value: str(value)[:24]
)
def test_a_pool_that_overlaps_hosts_or_routes_is_refused(
    fails: Fails, old: str, new: str, code: str, mark: str, words: str
) -> None:
    assert old in RDMA
    _found(fails(RDMA.replace(old, new, 1)), code, mark, words)


def test_a_pool_may_hold_what_it_excludes(loads: Loads) -> None:
    text = RDMA.replace("10.224.240.0/24", "10.224.7.0/24").replace(
        "exclude: []", "exclude: [10.224.7.143, 10.224.7.200-10.224.7.254]"
    )
    assert loads(text).rdma is not None


def test_reserved_addresses_may_be_in_the_range_if_the_router_accepts_it(loads: Loads) -> None:
    text = SITE.replace("backend: manual,", "backend: manual, in_range: true,").replace(
        "10.0.0.11", "10.0.0.150"
    )
    assert loads(text).nodes["vm-1"].address == "10.0.0.150"


RESOURCE_CASES = [
    ("{ kind: fil, path: /x }", "'fil' is not a kind of resource"),
    ("{ path: /x }", "lacks the key 'kind'"),
    ("{ kind: file, path: x, content: a }", "absolute path"),
    ("{ kind: file, path: /x }", "found nothing"),
    ("{ kind: file, path: /x, content: a, line: b }", "found content and line"),
    ("{ kind: file, path: /x, absent: true, content: a }", "is declared absent and has 'content'"),
    ("{ kind: file, path: /x, content: a, mode: 999 }", "file mode"),
    ("{ kind: file, path: /x, content: a, vars: { b: 1 } }", "has vars but no template"),
    ("{ kind: file, path: /x, content: a, secret: b }", "by reference"),
    ("{ kind: package, nam: x }", "did you mean name?"),
    ("{ kind: service, name: x }", "neither running nor enabled"),
    ("{ kind: command, name: x, run: y }", "needs one guard"),
    ("{ kind: command, name: x, run: y, creates: /a, unless: b }", "needs one guard"),
    ("{ kind: sysctl, key: a.b, value: 1 }, { kind: sysctl, key: a.b, value: 2 }", "declared twice"),
]


@pytest.mark.parametrize(("resources", "words"), RESOURCE_CASES)
def test_a_wrong_resource_is_found_once_in_its_profile(fails: Fails, resources: str, words: str) -> None:
    problems = fails(SITE.replace("cores: 2,", f"cores: 2, host_resources: [{resources}],"))
    shown = [(problem.summary, problem.source.line if problem.source else 0) for problem in problems]
    assert any(words in summary for summary, _ in shown), shown
    assert {line for _, line in shown} == {17}
    assert len(shown) <= 2


def test_a_secret_written_in_plain_is_not_repeated(fails: Fails) -> None:
    text = SITE.replace("token: !secret { env: TOKEN }", "token: hunter2").replace("token_id", "tokn_id")
    problems = fails(text)
    assert len(problems) == 3
    assert "hunter2" not in repr(problems)


def test_a_lab_gives_endpoints_keys_and_digests(loads: Loads) -> None:
    text = (
        "version: 1\nname: lab\nlab: { driver: container }\nnetwork: { cidr: 198.18.0.0/24, dhcp: { backend: dnsmasq } }\n"
        "images: { d: {} }\nhypervisors: { pve: { address: 198.18.0.5 } }\n"
        "nodes: { a: { hypervisor: pve, image: d, vmid: 100, address: 198.18.0.9 } }\n"
    )
    inventory = loads(text)
    assert inventory.lab is not None
    assert inventory.hypervisors["pve"].api_url == "https://198.18.0.5:8006"
    assert inventory.hypervisors["pve"].node_name == "pve"


def test_an_address_is_reserved_only_where_somebody_hands_them_out(fails: Fails) -> None:
    text = SITE.replace("  dhcp: { backend: manual, range: 10.0.0.100-10.0.0.199 }\n", "")
    (problem,) = fails(
        text.replace("    address: 10.0.0.5\n", "    address: 10.0.0.5\n    reserve_address: true\n")
    )
    assert (problem.code, marked(problem)) == ("INVENTORY_CONFLICT", "reserve_address")


def test_without_access_each_key_says_what_to_write(fails: Fails) -> None:
    problems = fails(SITE.replace("access: { user: debian, key: ~/.ssh/id }\n", ""))
    assert [problem.remedy.partition("write ")[2].partition(" ")[0].rstrip(",") for problem in problems] == [
        "access.user",
        "access.key",
    ]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("vmid: 101,", "vmid: 101, connection: local,", "the VM vm-1 cannot have `connection: local`"),
        (
            "vmid: 101,",
            "vmid: 101, driver: { branch: '580' },",
            "the GPU driver of vm-1 lacks the key 'origin'",
        ),
    ],
)
def test_what_a_machine_cannot_be_is_named(fails: Fails, old: str, new: str, words: str) -> None:
    assert words in [problem.summary for problem in fails(SITE.replace(old, new, 1))]

# ruff: noqa: E501 - a table with one case a line
"""What a join needs of the network: name servers as pods get them, the API's port, folders of CNI."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from provision.api.domains import load_inventory
from provision.contracts.query import Frame, Unknown
from provision.contracts.rule import Evidence
from provision.contracts.snapshot import Snapshot
from provision.k3s import join_preflight
from provision.k3s.join_network import JoinNetwork, JoinNetworkKind, JoinNetworkStatus, ResolverFile
from provision.values.diagnostics import Diagnostic, Severity

E, W = Severity.ERROR, Severity.WARNING
ETC, RESOLVED = "/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"
RDMA = "rdma: { netns: shared, networks: { n: { rail: r0, namespaces: [x], pool: { subnet: 10.9.0.0/24, block: 16 } } } }\n"


def problems(
    folder: Path, statuses: Mapping[str, JoinNetworkStatus], config: str = "", tail: str = "", node: str = ""
) -> list[Diagnostic]:
    file = folder / "site.yaml"
    file.write_text(
        "version: 1\nname: site\naccess: { user: root }\nnodes:\n"
        f"  s1: {{ address: 10.0.0.1, k3s: server{node} }}\n  a1: {{ address: 10.0.0.2, k3s: agent }}\n"
        f"k3s: {{ version: v1.35.7+k3s1, config: {{ {config} }} }}\n{tail}"
    )
    inventory = load_inventory(file)
    snapshots = {
        f"{name}/ssh": Snapshot(
            f"{name}/ssh", "boot", {join_preflight.query(inventory, inventory.nodes[name]): status}
        )
        for name, status in statuses.items()
    }
    evidence = Evidence(inventory, snapshots, ())
    found = [item for rule in join_preflight.RULES for item in rule.check(evidence)]
    diagnostics = [item for item in found if isinstance(item, Diagnostic)]
    assert all(item.remedy and item.subject in statuses for item in diagnostics)
    assert {item.code for item in diagnostics} <= {
        code for rule in join_preflight.RULES for code in rule.codes
    }
    return diagnostics


def file(*servers: str, path: str = ETC, domains: int = 1, characters: int = 10) -> ResolverFile:
    return ResolverFile(path, True, servers, domains, characters)


NONE = ResolverFile(RESOLVED, readable=False)
GOOD = JoinNetworkStatus(files=(file("10.0.0.254"), NONE), names={"10.0.0.254": "open"})
STUB = file("127.0.0.53")
CASES = [
    # what the node meets, k3s.config, codes
    (GOOD, "", {}),
    (replace(GOOD, files=(file("127.0.0.1"), NONE)), "", {"NODE_DNS_LOOPBACK": E}),
    (replace(GOOD, files=(file("127.0.0.1", "10.0.0.254"), NONE)), "", {"NODE_DNS_LOOPBACK": E}),
    (replace(GOOD, files=(file("fe80::1%eth0"), NONE)), "", {"NODE_DNS_LOOPBACK": E}),
    (replace(GOOD, files=(file("169.254.169.253"), NONE)), "", {"NODE_DNS_LOOPBACK": E}),
    (replace(GOOD, files=(file("10.0.0.254#comment"), NONE)), "", {"NODE_DNS_LOOPBACK": E}),
    (replace(GOOD, files=(file("224.0.0.251"), NONE)), "", {"NODE_DNS_LOOPBACK": E}),
    (replace(GOOD, files=(file(), NONE)), "", {"NODE_DNS_LOOPBACK": E}),
    (replace(GOOD, files=(ResolverFile(ETC, readable=False), NONE)), "", {"NODE_DNS_LOOPBACK": E}),
    (replace(GOOD, files=(STUB, file("10.0.0.254", path=RESOLVED))), "", {}),
    (replace(GOOD, files=(STUB, file("127.0.0.1", path=RESOLVED))), "", {"NODE_DNS_LOOPBACK": E}),
    (replace(GOOD, files=(file("2001:db8::1"), NONE)), "", {}),
    (replace(GOOD, files=(file("127.0.0.1", path="/etc/r"),)), "resolv-conf: /etc/r", {}),
    (replace(GOOD, files=(file(path="/etc/r"),)), "resolv-conf: /etc/r", {"NODE_DNS_FILE": E}),
    (replace(GOOD, files=(ResolverFile("/etc/r", readable=False),)), "kubelet-arg: [v=2, resolv-conf=/etc/r]", {"NODE_DNS_FILE": E}),
    (replace(GOOD, names={"10.0.0.254": "silent"}), "", {"NODE_DNS_SILENT": E}),
    (replace(GOOD, names={"10.0.0.254": "refused"}), "", {"NODE_DNS_SILENT": E}),
    (replace(GOOD, names={"10.0.0.254": "unknown"}), "", {}),
    (replace(GOOD, names={}), "", {}),
    (replace(GOOD, files=(file("10.0.0.254", "10.0.0.253"), NONE), names={"10.0.0.254": "open", "10.0.0.253": "silent"}), "", {"NODE_DNS_SILENT": W}),
    (replace(GOOD, files=(file("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"), NONE)), "", {"NODE_DNS_LIMITS": W}),
    (replace(GOOD, files=(file("10.0.0.254", domains=33), NONE)), "", {"NODE_DNS_LIMITS": W}),
    (replace(GOOD, files=(file("10.0.0.254", characters=2049), NONE)), "", {"NODE_DNS_LIMITS": W}),
    (replace(GOOD, networks=("10-flannel.conflist",)), "", {}),
    (replace(GOOD, networks=("00-multus.conf", "10-flannel.conflist")), "", {}),
    (replace(GOOD, networks=("00-multus.conf.cilium_bak", "05-cilium.conflist", "10-flannel.conflist")), "", {}),
    (replace(GOOD, networks=("05-cilium.conflist", "10-flannel.conflist")), "", {"CNI_CONFIG_FOREIGN": E}),
    (replace(GOOD, networks=("10-calico.conflist",)), "flannel-backend: none", {}),
    (replace(GOOD, networks=("10-flannel.conflist", "87-podman.conflist")), "", {}),
    (replace(GOOD, programs=(("config.toml", "/opt/cni/bin"),)), "", {}),
]  # fmt: skip


@pytest.mark.parametrize(("status", "config", "codes"), CASES)
def test_what_pods_would_lack_is_said_before_the_join(
    tmp_path: Path, status: JoinNetworkStatus, config: str, codes: dict[str, Severity]
) -> None:
    said = problems(tmp_path, {"s1": status}, config)
    assert {item.code: item.severity for item in said} == codes


FOLDERS = [
    (replace(GOOD, programs=(("config.toml", "/opt/cni/bin"),)), "", True),
    (replace(GOOD, programs=(("config.toml", "/opt/cni/bin"), ("config.toml", "/var/lib/rancher/k3s/data/cni"))), "", False),
    (replace(GOOD, programs=(("config.toml", "/var/lib/rancher/k3s/data/0a1b/bin"),)), "", True),
    (replace(GOOD, configuration=(("config.toml.tmpl", "/etc/cni/net.d"),)), "", True),
    (replace(GOOD, configuration=(("config.toml", "/var/lib/rancher/k3s/agent/etc/cni/net.d"),)), "", False),
    (GOOD, "container-runtime-endpoint: /run/containerd/containerd.sock", True),
    (GOOD, "docker: true", True),
    (GOOD, "", False),
]  # fmt: skip


@pytest.mark.parametrize(("status", "config", "refused"), FOLDERS)
def test_networks_of_pods_need_the_folders_that_containerd_uses(
    tmp_path: Path, status: JoinNetworkStatus, config: str, refused: bool
) -> None:
    node = ", rails: { r0: { device: eth1 } }"
    said = problems(tmp_path, {"s1": status}, config, RDMA, node)
    assert [item.code for item in said] == ["CNI_FOLDER_MOVED"] * refused


@pytest.mark.parametrize(
    ("word", "runs", "refused"),
    [
        ("silent", True, True),
        ("prohibited", True, True),
        ("silent", False, False),
        ("refused", True, False),
        ("open", True, False),
        ("unknown", True, False),
    ],
)
def test_a_server_that_runs_must_be_reached_by_others(
    tmp_path: Path, word: str, runs: bool, refused: bool
) -> None:
    statuses = {"s1": replace(GOOD, runs=runs), "a1": replace(GOOD, api={"10.0.0.1": word})}
    said = problems(tmp_path, statuses)
    assert [item.code for item in said] == ["K3S_API_UNREACHABLE"] * refused


def test_a_server_that_does_not_answer_provision_is_not_judged(tmp_path: Path) -> None:
    assert problems(tmp_path, {"a1": replace(GOOD, api={"10.0.0.1": "silent"})}) == []


def test_an_answer_is_read_and_what_a_template_computes_is_left_out(tmp_path: Path) -> None:
    inventory_of = problems(tmp_path, {"s1": GOOD})
    assert inventory_of == []
    text = b"""runs|no
file|/etc/resolv.conf|yes
server|/etc/resolv.conf|10.0.0.254
search|/etc/resolv.conf|a.example b.example
name|10.0.0.254|open
file|/run/systemd/resolve/resolv.conf|no
api|10.0.0.1|refused
cni|config.toml.tmpl|bin_dir|"{{ .NodeConfig.AgentConfig.CNIBinDir }}"
cni|config.toml|bin_dirs|["/a", '/b']
cni|config.toml|conf_dir|"/c"
network|10-flannel.conflist
done|
"""
    query = JoinNetwork()
    status = JoinNetworkKind().parse(Frame(text, b"", 0), [query])[query]
    assert isinstance(status, JoinNetworkStatus)
    assert status.resolver == ResolverFile(ETC, True, ("10.0.0.254",), 2, 19)
    assert status.programs == (("config.toml", "/a"), ("config.toml", "/b"))
    assert status.configuration == (("config.toml", "/c"),)
    assert (status.names, status.api) == ({"10.0.0.254": "open"}, {"10.0.0.1": "refused"})
    cut = JoinNetworkKind().parse(Frame(text[:-7], b"", None), [query])[query]
    assert isinstance(cut, Unknown)

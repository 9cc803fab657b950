# ruff: noqa: E501 - a table with one case a line
"""Every code of k3s's preflight: the machine that it refuses, and the nearest one that it accepts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from provision.api.domains import load_inventory
from provision.contracts.rule import Evidence
from provision.contracts.snapshot import Snapshot
from provision.hosts.queries.file import FileStatus
from provision.k3s import paths
from provision.k3s.adoption import networks
from provision.k3s.preflight import RULES
from provision.k3s.queries import Machine, MachineStatus
from provision.k3s.resources.membership import joined_address
from provision.k3s.settings_query import K3sSettings, Place, SettingPlaces
from provision.values.diagnostics import Diagnostic, Severity

ADDRESSES = (("eth0", "10.0.0.1/24"),)
GOOD = MachineStatus(ADDRESSES, (), (("default", "eth0"), ("10.0.0.0/24", "eth0")), inotify=128, cgroup=2)
UNIT = ("/usr/local/bin/k3s", "server")


def found(
    folder: Path, status: MachineStatus, node: str = "", k3s: str = "", skew: float = 0.0
) -> dict[str, Severity]:
    """Return codes and severities of what the rules say of one server."""
    file = folder / "site.yaml"
    file.write_text(
        "version: 1\nname: site\naccess: { user: root }\n"
        f"nodes: {{ s1: {{ address: 10.0.0.1, k3s: server{node} }} }}\n"
        f"k3s: {{ version: v1.35.7+k3s1{k3s} }}\n"
    )
    snapshots = {"s1/ssh": Snapshot("s1/ssh", "boot", {Machine(): status}, skew=skew)}
    evidence = Evidence(load_inventory(file), snapshots, ())
    findings = [finding for rule in RULES for finding in rule.check(evidence)]
    problems = [finding for finding in findings if isinstance(finding, Diagnostic)]
    assert all(problem.remedy and problem.subject == "s1" for problem in problems)
    codes = {code for rule in RULES for code in rule.codes}
    assert {problem.code for problem in problems} <= codes
    return {problem.code: problem.severity for problem in problems}


E, W = Severity.ERROR, Severity.WARNING
NFT = "chain `INPUT' in table `filter' is incompatible, use 'nft' tool."
CASES = [
    # machine, what the node and k3s declare besides, what is said
    (GOOD, "", "", {}),
    (replace(GOOD, routes=(("10.0.0.0/24", "eth0"),)), "", "", {"NODE_NO_DEFAULT_ROUTE": E}),
    (replace(GOOD, addresses=(*ADDRESSES, ("dummy0", "169.254.1.1/16")), routes=(("default", "dummy0"),)), "", "", {"NODE_NO_DEFAULT_ROUTE": E}),
    (replace(GOOD, routes=(("default", "eth0"), ("10.42.0.0/16", "eth1"))), "", "", {"POD_NETWORK_ROUTED": E}),
    (replace(GOOD, routes=(("default", "eth0"), ("10.43.7.0/24", "eth1"))), "", "", {"POD_NETWORK_ROUTED": E}),
    (replace(GOOD, routes=(("default", "eth0"), ("10.42.0.0/16", "eth1"))), "", ", pod_cidr: 10.52.0.0/16", {}),
    (replace(GOOD, routes=(("default", "eth0"), ("unreachable", "lo"))), "", "", {}),
    (replace(GOOD, addresses=(("eth0", "10.0.0.9/24"),)), "", "", {"NODE_ADDRESS_ABSENT": E}),
    (replace(GOOD, dynamic=("10.0.0.1",)), "", "", {"SERVER_ADDRESS_DYNAMIC": W}),
    (replace(GOOD, filters=(("iptables-legacy", 3, (NFT,)),)), "", "", {"HOST_FIREWALL": E}),
    (replace(GOOD, filters=(("iptables-nft", 0, ("-P FORWARD DROP",)),)), "", "", {"HOST_FIREWALL": W}),
    (replace(GOOD, filters=(("iptables-nft", 4, ("Permission denied",)),)), "", "", {}),
    (replace(GOOD, foreign=("kubeadm (/etc/kubernetes/kubelet.conf)",)), "", "", {"KUBERNETES_PRESENT": E}),
    (replace(GOOD, foreign=("docker (/lib/systemd/system/docker.service)",)), "", "", {"KUBERNETES_PRESENT": W}),
    (replace(GOOD, foreign=("docker (/lib/systemd/system/docker.service)",)), ", container_runtime: {}", "", {}),
    (replace(GOOD, flags=(*UNIT, "--kube-apiserver-arg", "v=2")), "", "", {"K3S_FLAGS_IN_UNIT": E}),
    (replace(GOOD, flags=(*UNIT, "--kube-apiserver-arg", "v=2")), "", ", config: { kube-apiserver-arg: [v=2] }", {}),
    (replace(GOOD, flags=(*UNIT, "-c", "/etc/k3s.yaml")), "", "", {"K3S_FLAGS_IN_UNIT": E}),
    (replace(GOOD, flags=(*UNIT, "--disable", "traefik", "--token=abc")), "", "", {}),
    (replace(GOOD, cgroup=1), "", "", {"CGROUP_V1": E}),
    (replace(GOOD, cgroup=0), "", "", {}),
    (replace(GOOD, overlay=False), "", "", {"OVERLAYFS_MISSING": E}),
    (replace(GOOD, controllers=("cpuset", "cpu", "io", "pids")), "", "", {"CGROUP_CONTROLLER_MISSING": E}),
    (replace(GOOD, controllers=("cpuset", "cpu", "io", "memory")), "", "", {}),
    (replace(GOOD, filesystem="nfs"), "", "", {"K3S_FILESYSTEM": E}),
    (replace(GOOD, filesystem="zfs"), "", "", {"K3S_FILESYSTEM": W}),
    (replace(GOOD, filesystem="zfs"), "", ", config: { snapshotter: native }", {}),
    (replace(GOOD, filesystem="ext2/ext3", used=84), "", "", {}),
    (replace(GOOD, used=85), "", "", {"K3S_DISK_FULL": W}),
    (replace(GOOD, version="v1.34.9+k3s1"), "", "", {}),
    (replace(GOOD, version="v1.35.9+k3s1"), "", "", {"K3S_VERSION_SKEW": E}),
    (replace(GOOD, version="v1.33.4+k3s1"), "", "", {"K3S_VERSION_SKEW": E}),
    (replace(GOOD, version="dev"), "", "", {}),
    (GOOD, ", gpu_cards: { count: 1 }", "", {"INOTIFY_LIMIT": W}),
    (GOOD, ", gpu_cards: { count: 1 }, sysctl: { fs.inotify.max_user_instances: 8192 }", "", {}),
]  # fmt: skip


@pytest.mark.parametrize(("status", "node", "k3s", "codes"), CASES)
def test_what_k3s_would_stumble_over_is_said_before(
    tmp_path: Path, status: MachineStatus, node: str, k3s: str, codes: dict[str, Severity]
) -> None:
    assert found(tmp_path, status, node, k3s) == codes


@pytest.mark.parametrize(
    ("skew", "node", "codes"),
    [(3, "", {}), (-90, "", {"CLOCK_SKEW": E}), (90, ", ntp: [10.0.0.9]", {"CLOCK_SKEW": W})],
)
def test_a_clock_that_differs_is_refused_before_certificates_are_made(
    tmp_path: Path, skew: float, node: str, codes: dict[str, Severity]
) -> None:
    assert found(tmp_path, GOOD, node, skew=skew) == codes


def places(*found: Place) -> SettingPlaces:
    return SettingPlaces(found)


FILE, DROP, DEFAULT = (
    "/etc/rancher/k3s/config.yaml",
    "/etc/rancher/k3s/config.yaml.d/a.yaml",
    "/etc/default/k3s",
)
ADOPTED = [
    # where k3s has settings, what the inventory declares, what is said, a word of it
    (places(Place(FILE, ("node-ip", "token", "disable+"), False)), "", [], ""),
    (places(Place(FILE, ("kubelet-arg", "kubelet-arg"), False)), "", ["K3S_SETTINGS_LOST"], "kubelet-arg"),
    (places(Place(FILE, ("kubelet-arg+",), False)), ", config: { kubelet-arg: [v=2] }", [], ""),
    (places(Place("/etc/k3s.yaml", ("data-dir",), False)), "", ["K3S_SETTINGS_LOST"], "kubeconfig: FILE"),
    (places(Place(DROP, ("kubelet-arg", "tls-san+"), True)), "", [], ""),
    (places(Place(DROP, ("tls-san",), True)), "", ["K3S_SETTINGS_SHADOWED"], f"remove these lines from {DROP}"),
    (places(Place(DROP, ("kubelet-arg",), True)), ", config: { kubelet-arg: [v=2] }", ["K3S_SETTINGS_SHADOWED"], "kubelet-arg"),
    (places(Place(DEFAULT, ("token", "debug"), True)), "", ["K3S_SETTINGS_SHADOWED"], ": token"),
    (places(Place(DEFAULT, ("config",), True)), "", ["K3S_SETTINGS_SHADOWED"], ": config"),
    (places(Place("/etc/systemd/system/k3s.service.d/a.conf", ("ExecStart",), True)), "", ["K3S_SETTINGS_SHADOWED"], "ExecStart"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "k3s", "codes", "words"), ADOPTED)
def test_settings_of_a_k3s_that_is_there_are_neither_lost_nor_win(
    tmp_path: Path, answer: SettingPlaces, k3s: str, codes: list[str], words: str
) -> None:
    found(tmp_path, GOOD, k3s=k3s)
    snapshots = {"s1/ssh": Snapshot("s1/ssh", "boot", {Machine(): GOOD, K3sSettings(): answer})}
    evidence = Evidence(load_inventory(tmp_path / "site.yaml"), snapshots, ())
    problems = [item for rule in RULES for item in rule.check(evidence) if isinstance(item, Diagnostic)]
    assert [problem.code for problem in problems] == codes
    assert not words or any(words in f"{problem.summary} {problem.remedy}" for problem in problems)


def test_the_token_in_a_foreign_unit_is_not_shown(tmp_path: Path) -> None:
    status = replace(GOOD, flags=(*UNIT, "--token", "hunter2", "--agent-token=hunter3", "--debug"))
    file = tmp_path / "site.yaml"
    assert found(tmp_path, status) == {"K3S_FLAGS_IN_UNIT": E}
    snapshots = {"s1/ssh": Snapshot("s1/ssh", "boot", {Machine(): status})}
    findings = [item for rule in RULES for item in rule.check(Evidence(load_inventory(file), snapshots, ()))]
    assert "hunter" not in str(findings)


DUAL = "10.42.0.0/16,fd42::/56"


@pytest.mark.parametrize(
    ("config", "flags", "k3s", "words"),
    [
        ("", (), "", ""),
        ("cluster-cidr: 10.42.0.0/16\nservice-cidr: '10.43.0.0/16'\n", (), "", ""),
        ("cluster-cidr: 10.52.0.0/16\n", (), "", "cluster-cidr: 10.52.0.0/16, declared 10.42.0.0/16"),
        ("cluster-cidr: 10.52.0.0/16\n", (), ", pod_cidr: 10.52.0.0/16", ""),
        ("service-cidr: 10.53.0.0/16\n", (), "", "service-cidr: 10.53.0.0/16"),
        (f"cluster-cidr: {DUAL}\n", (), "", "IPv6, which is unsupported"),
        ("cluster-cidr:\n- 10.42.0.0/16\n- fd42::/56\n", (), "", "IPv6, which is unsupported"),
        ("", (*UNIT, "--cluster-cidr", DUAL), "", "IPv6, which is unsupported"),
        ("", (*UNIT, "--service-cidr=10.53.0.0/16"), "", "service-cidr: 10.53.0.0/16"),
        ("cluster-cidr: [\n", (), "", ""),
    ],
)
def test_networks_of_a_cluster_are_not_changed(
    tmp_path: Path, config: str, flags: tuple[str, ...], k3s: str, words: str
) -> None:
    file = tmp_path / "site.yaml"
    file.write_text(
        "version: 1\nname: site\naccess: { user: root }\nnodes: { s1: { address: 10.0.0.1, k3s: server } }\n"
        f"k3s: {{ version: v1.35.7+k3s1{k3s} }}\n"
    )
    for has_joined in (True, False):
        joined = FileStatus("file" if has_joined else "absent")
        answers = {
            Machine(): replace(GOOD, flags=flags),
            paths.OWN_CONFIG: config.encode(),
            paths.PASSWORD: joined,
        }
        evidence = Evidence(load_inventory(file), {"s1/ssh": Snapshot("s1/ssh", "boot", answers)}, ())
        said = [
            f"{finding.summary} {finding.evidence}"
            for finding in networks(evidence)
            if isinstance(finding, Diagnostic)
        ]
        assert len(said) == bool(words and has_joined)
        assert all(words in text for text in said)


@pytest.mark.parametrize(
    ("config", "address"),
    [
        ("node-ip: 10.0.0.1\n", "10.0.0.1"),
        ('node-ip: "10.0.0.1"\n', "10.0.0.1"),
        ("node-ip: fd00::1,10.0.0.1\n", "10.0.0.1"),
        ("node-ip: 10.0.0.1,fd00::1\n", "10.0.0.1"),
        ("node-ip: fd00::1\n", ""),
        ("node-ips: 10.0.0.1\n#node-ip: 10.0.0.1\n", ""),
    ],
)
def test_the_address_of_a_member_is_its_ipv4_one(config: str, address: str) -> None:
    assert joined_address(config.encode()) == address
    assert joined_address(None) == ""

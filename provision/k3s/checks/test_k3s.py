"""Nodes of the cluster from inside: the unit, the binary, its files, the process and its certificate."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import pytest
from testinfra.host import Host

from provision.contracts.check import NotDeclared, Site, Trivial
from provision.hosts.systemd_units import unit
from provision.inventory import Inventory
from provision.inventory.models.cluster import K3s
from provision.inventory.models.node import Node
from provision.kube.names import API

ETC = "/etc/rancher/k3s"
BINARY = "/usr/local/bin/k3s"
SUBNET = "/run/flannel/subnet.env"
"""Written by flannel once it has its device, which goes with the one below it (flannel-io/flannel#2247)."""
UNITS = {"server": "k3s.service", "agent": "k3s-agent.service"}
CERTIFICATE = "/var/lib/rancher/k3s/server/tls/serving-kube-apiserver.crt"
KUBELET = "/var/lib/rancher/k3s/agent/client-kubelet.crt"
"""An agent gets it when it starts: a restart of the servers does not renew it (k3s-io/k3s#4097)."""
OK = 200
DAYS = 30
"""k3s renews its certificates when it starts and fewer than 90 days are left."""


@pytest.fixture
def host(site: Site, node: str) -> Host:
    """The node by SSH."""
    return site.host(f"{node}/ssh")


@pytest.fixture
def declared(site: Site, node: str) -> Node:
    """What the inventory says of it."""
    item = site.inventory.nodes[node]
    if item.k3s is None or site.inventory.k3s is None:
        raise NotDeclared("it is not in the cluster")
    return item


@pytest.fixture
def k3s(site: Site, declared: Node) -> K3s:
    """What the inventory says of the cluster."""
    section = site.inventory.k3s
    if section is None or declared.k3s is None:
        raise NotDeclared("it is not in the cluster")
    return section


def _unit_of(declared: Node) -> str:
    return UNITS[str(declared.k3s)]


def test_k3s_runs(host: Host, declared: Node) -> None:
    """The unit of k3s is active and starts at boot."""
    name = _unit_of(declared)
    state = unit(host, name)
    assert state.active == "active", f"{name} is {state.active} ({state.sub})"
    assert state.starts_at_boot, f"{name} is {state.file or 'not enabled'}"


def test_k3s_version(host: Host, k3s: K3s) -> None:
    """The binary is the declared release."""
    assert host.run(f"test -e {BINARY}").rc == 0, f"{BINARY} is missing"
    text = host.check_output(f"{BINARY} --version")
    assert k3s.version in text.split(), f"it is {text.splitlines()[0][:80] if text else 'silent'}"


def _private_files(declared: Node, k3s: K3s, inventory: Inventory) -> list[str]:
    """Return the files that may hold tokens, keys, logins of registries, or a proxy's password."""
    names = ["token", "config.yaml"]
    own = [key for key in declared.labels if not re.match(r"([^/]*\.)?(kubernetes|k8s)\.io/", key)]
    names += ["config.yaml.d/50-registration.yaml"] if own or declared.taints else []
    sources = inventory.sources
    names += ["registries.yaml"] if k3s.registries or sources.registries or sources.logins else []
    if declared.k3s == "server":
        names += ["k3s.yaml", *(["agent-token"] if k3s.agent_token is not None else [])]
    return [*(f"{ETC}/{name}" for name in names), f"/etc/systemd/system/{_unit_of(declared)}.env"]


def test_k3s_files_are_private(site: Site, host: Host, declared: Node, k3s: K3s) -> None:
    """Only root can read the token, the configuration, the environment and the admin's access."""
    problems = []
    for path in _private_files(declared, k3s, site.inventory):
        status = host.run("stat -c '%%U %%a' -- %s", path)
        if status.rc != 0:
            problems.append(f"{path} is missing")
        elif status.stdout.split() != ["root", "600"]:
            problems.append(f"{path}: {status.stdout.strip()}")
    assert not problems, "; ".join(problems)


def _settings(text: str) -> Mapping[str, str]:
    """Return the keys with one value; lists are not among them."""
    return dict(re.findall(r"(?m)^([a-z-]+): (.+)$", text.replace("'", "").replace('"', "")))


def test_k3s_configuration(host: Host, declared: Node, k3s: K3s) -> None:
    """The configuration names the node, its address, and the networks of pods and services."""
    settings = _settings(host.check_output(f"cat {ETC}/config.yaml"))
    expected = {"node-name": declared.kubernetes_name, "node-ip": declared.address}
    if declared.k3s == "server":
        expected |= {"cluster-cidr": k3s.pod_cidr, "service-cidr": k3s.service_cidr}
    wrong = [f"{key} is {settings.get(key)}" for key, value in expected.items() if settings.get(key) != value]
    assert not wrong, "; ".join(wrong)


def _arguments(text: str) -> Mapping[str, list[str]]:
    """Return the values of each flag in the annotation `k3s.io/node-args`: flags and values one by one."""
    found: dict[str, list[str]] = {}
    key = ""
    for word in json.loads(text)[1:]:
        if str(word).startswith("--"):
            key, equals, value = str(word)[2:].partition("=")
            found.setdefault(key, []).extend([value] if equals else [])
        elif key:
            found[key].append(str(word))
    return found


def _words(value: object) -> list[str]:
    values = value if isinstance(value, list | tuple) else [value]
    return [str(item).lower() if isinstance(item, bool) else str(item) for item in values]


def test_k3s_arguments(site: Site, declared: Node, k3s: K3s) -> None:
    """The cluster says of the node that it was started with the declared settings."""
    reply = site.get(API, f"/api/v1/nodes/{declared.kubernetes_name}")
    assert reply.status == OK, f"the API answers {reply.status}: {reply.text[:200]}"
    text = json.loads(reply.text)["metadata"].get("annotations", {}).get("k3s.io/node-args")
    if not text:
        raise Trivial("this k3s does not say how it was started")
    expected: dict[str, object] = {"node-name": declared.kubernetes_name, "node-ip": declared.address}
    if declared.k3s == "server":
        expected |= {**k3s.config, "cluster-cidr": k3s.pod_cidr, "service-cidr": k3s.service_cidr}
        expected |= {"disable": list(k3s.disable)} if k3s.disable else {}
    arguments = _arguments(text)
    wrong = [
        f"{key} is {', '.join(arguments.get(key, ())) or 'not set'}"
        for key, value in expected.items()
        if not set(_words(value)) <= set(arguments.get(key, ()) or ("true",) * (key in arguments))
    ]
    assert not wrong, f"a restart of k3s is missing, or another place overrides ours: {'; '.join(wrong)}"


def _of_process(name: str, command: str) -> str:
    """Return a command about the process `$p` of a unit: the same one after each restart."""
    return f'p=$(systemctl show -p MainPID --value -- {name}) && [ "$p" -gt 0 ] && {command}'


def test_k3s_process(host: Host, declared: Node) -> None:
    """The running process has no flags of its own, and pods may lock memory without limit."""
    name = _unit_of(declared)
    said = host.run(_of_process(name, "tr '\\0' ' ' < /proc/$p/cmdline && echo && cat /proc/$p/limits"))
    assert said.rc == 0, f"{name} has no process"
    command, _, limits = said.stdout.partition("\n")
    flags = [word.partition("=")[0] for word in command.split() if word.startswith("-")]
    assert not flags, f"{name} was started with {' '.join(flags)}"
    match = re.search(r"(?m)^Max locked memory\s+(\S+)", limits)
    assert match is not None
    if match[1] != "unlimited" and host.run("systemd-detect-virt -c || true").stdout.strip() not in (
        "",
        "none",
    ):
        raise Trivial("a container has the limits of its machine")
    assert match[1] == "unlimited", f"{name} may lock {match[1]} bytes of memory"


def test_flannel_device(host: Host, k3s: K3s) -> None:
    """The network device of flannel, which reaches pods of other nodes, is there if flannel made one."""
    if k3s.config.get("flannel-backend", "vxlan") != "vxlan":
        raise NotDeclared("flannel uses no VXLAN")
    if host.run(f"test -e {SUBNET}").rc:
        raise Trivial("flannel does not run")
    is_there = host.run("test -e /sys/class/net/flannel.1").rc == 0
    assert is_there, "flannel.1 is missing although the node is Ready: restart k3s"


PROXIES = re.compile(r"(?:CONTAINERD_)?(?:HTTPS?|ALL)_PROXY|(?:https?|all)_proxy")


def test_k3s_environment(site: Site, host: Host, declared: Node) -> None:
    """The running process has the declared proxy and its exceptions, and no other proxy."""
    said = host.run(_of_process(_unit_of(declared), "tr '\\0' '\\n' < /proc/$p/environ"))
    if said.rc:
        raise Trivial("k3s does not run")
    values = {name: value for name, _, value in (line.partition("=") for line in said.stdout.splitlines())}
    url = site.inventory.proxy.url
    # Values may hold a password: names alone are shown.
    wrong = sorted(name for name, value in values.items() if PROXIES.fullmatch(name) and value != url)
    assert not wrong, f"it has other values than declared: {', '.join(wrong)}"
    if url is None:
        return
    assert values.get("HTTPS_PROXY") == url, "it has no HTTPS_PROXY: a restart of k3s is missing"
    exceptions = set(values.get("NO_PROXY", "").split(","))
    missing = [name for name in site.inventory.no_proxy if name not in exceptions]
    assert not missing, f"NO_PROXY lacks {', '.join(missing)}"


def test_k3s_certificate(host: Host, declared: Node) -> None:
    """The certificate of a server's API, or of an agent's kubelet, is valid for at least 30 more days."""
    path = CERTIFICATE if declared.k3s == "server" else KUBELET
    if path == KUBELET and host.run(f"test -e {KUBELET}").rc:
        raise Trivial("this k3s has made no certificate of its kubelet")
    seconds = DAYS * 24 * 3600
    result = host.run(f"openssl x509 -noout -enddate -checkend {seconds} -in {path}")
    assert result.rc in (0, 1), "openssl is not installed"
    end = result.stdout.partition("notAfter=")[2].splitlines()[:1]
    assert result.rc == 0, f"it ends {end[0] if end else 'soon'}; a restart of k3s renews it"

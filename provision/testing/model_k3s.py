"""k3s on ModelHost: what its start makes of its files, and the operations of its fixes."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from provision.k3s import paths, runtimes
from provision.k3s.join_network import (
    BLOCKED,
    OPEN,
    RESOLVERS,
    JoinNetwork,
    JoinNetworkStatus,
    ProveServer,
    ResolverFile,
)
from provision.k3s.operations import KeepFormerToken, LeaveCluster, RemoveK3s, RotateToken
from provision.k3s.queries import LastWords, Machine, MachineStatus, ServiceLog
from provision.k3s.settings_query import K3sSettings, SettingPlaces
from provision.k3s.snapshots import EtcdSnapshots, SnapshotFile, SnapshotListing
from provision.testing.model_state import HostState, ModelFile, OperationFailedError

UNITS = (paths.SERVER, paths.AGENT)
CERTIFICATE = f"{paths.DATA}/server/tls/serving-kube-apiserver.crt"
KUBELET = f"{paths.DATA}/agent/client-kubelet.crt"


def started(state: HostState, name: str) -> None:
    """Do what a start of k3s does: a server makes its datastore, its CA and the full token."""
    if name not in UNITS:
        return
    token = state.text(paths.TOKEN).strip()
    config = state.text(paths.CONFIG)
    if name == paths.SERVER:
        node = re.search(r"(?m)^node-name: (\S+)$", config)
        head, separator, _ = token.partition("::")
        own = "K10" + hashlib.sha256((node[1] if node else "").encode()).hexdigest()
        present = state.text(paths.FULL_TOKEN.path).partition("::")[0]
        authority = head if separator else present or own
        full = f"{authority}::server:{token.rpartition(':')[2]}\n".encode()
        state.files[paths.FULL_TOKEN.path] = ModelFile(full, "0600")
        state.files[f"{paths.DATASTORE.path}/state.db"] = ModelFile(b"datastore")
        state.files[CERTIFICATE] = ModelFile(b"valid")
        if "cluster-init: true" in config or "\nserver: " in config:
            state.commands.setdefault("etcd-snapshots", {"etcd-snapshot-1": b"600 4096"})
        state.files[paths.KUBECONFIG] = ModelFile(kubeconfig(authority), "0600")
    else:
        state.files[KUBELET] = ModelFile(b"valid")
    state.commands["k3s-started"] = {"config": config.encode()}
    state.files.setdefault(paths.PASSWORD.path, ModelFile(b"node password", "0600"))
    state.files[runtimes.CONTAINERD] = ModelFile(_containerd(state))
    state.files["/run/flannel/subnet.env"] = ModelFile(b"FLANNEL_NETWORK=10.42.0.0/16\n")
    state.files["/sys/class/net/flannel.1"] = ModelFile()


def node_args(state: HostState) -> str:
    """Return what k3s writes into `k3s.io/node-args` when it starts; empty before its first start."""
    import yaml  # noqa: PLC0415 - slow to import

    config = state.commands.get("k3s-started", {}).get("config")
    if config is None:
        return ""
    words = ["server" if paths.SERVER in state.units else "agent"]
    for key, value in (yaml.safe_load(config) or {}).items():
        for item in value if isinstance(value, list) else [value]:
            words += [f"--{key}", str(item).lower() if isinstance(item, bool) else str(item)]
    return json.dumps(words)


def registration(state: HostState) -> dict[str, Any]:
    """Return labels and taints with which a node registers, as a Node has them."""
    import yaml  # noqa: PLC0415 - slow to import

    values = yaml.safe_load(state.text(paths.REGISTRATION)) or {}
    taints = []
    for text in values.get("node-taint", ()):
        head, _, effect = text.rpartition(":")
        key, equals, value = head.partition("=")
        taints.append({"key": key, "effect": effect, **({"value": value} if equals else {})})
    return {
        "labels": dict(text.partition("=")[::2] for text in values.get("node-label", ())),
        "taints": taints,
    }


def _containerd(state: HostState) -> bytes:
    """Return the configuration that k3s writes when it starts: with the runtime, if it is installed."""
    binary = installed_runtime(state)
    head = "version = 3\n"
    if not binary:
        return head.encode()
    table = "plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.'nvidia'"
    text = f'{head}[{table}]\n  runtime_type = "io.containerd.runc.v2"\n'
    return f'{text}[{table}.options]\n  BinaryName = "{binary}"\n  SystemdCgroup = true\n'.encode()


def installed_runtime(state: HostState) -> str:
    """Return NVIDIA's container runtime, as k3s looks for it."""
    toolkit = f"{runtimes.TOOLKIT}/{runtimes.RUNTIME}"
    if toolkit in state.files:
        return toolkit if runtimes.INSTALLED_LAST in state.files else ""
    return f"/usr/bin/{runtimes.RUNTIME}" if state.packages.get("nvidia-container-toolkit") else ""


def install_toolkit(state: HostState) -> None:
    """Do what the toolkit's container of the GPU Operator does on its node."""
    state.files[f"{runtimes.TOOLKIT}/{runtimes.RUNTIME}"] = ModelFile(b"", "0755")
    state.files[runtimes.INSTALLED_LAST] = ModelFile(b"")


def _runtime(state: HostState, query: runtimes.NvidiaRuntime) -> object:
    del query
    binary = re.search(r"(?m)^ *BinaryName = \"(.*)\"$", state.text(runtimes.CONTAINERD))
    configured = binary[1] if binary is not None else ""
    runs = any(name in state.units and state.units[name].active for name in UNITS)
    return runtimes.RuntimeStatus(installed_runtime(state), configured, runs, runs)


def kubeconfig(authority: str) -> bytes:
    """Return a kubeconfig as k3s writes it, with what stands for certificates."""
    data = base64.b64encode(authority.encode()).decode()
    return f"""apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: {data}
    server: https://127.0.0.1:6443
  name: default
contexts:
- context:
    cluster: default
    user: default
  name: default
current-context: default
kind: Config
users:
- name: default
  user:
    client-certificate-data: {data}
    client-key-data: {data}
""".encode()


def rotate(state: HostState, op: RotateToken) -> None:
    """Give the cluster another token."""
    head, _, _ = state.text(paths.FULL_TOKEN.path).partition("::")
    full = f"{head}::server:{op.new.get_secret_value()}\n".encode()
    state.files[paths.FULL_TOKEN.path] = ModelFile(full, "0600")
    former = state.files.get(paths.FORMER_TOKENS, ModelFile()).content
    line = f"now {op.former.get_secret_value()}\n".encode()
    if line not in former:
        state.files[paths.FORMER_TOKENS] = ModelFile(former + line, "0600")


def remove(state: HostState, op: RemoveK3s) -> None:
    """Remove a unit and all that it made."""
    state.units.pop(op.unit, None)
    for folder in ("/etc/rancher", "/var/lib/rancher"):
        for path in [path for path in state.files if path == folder or path.startswith(f"{folder}/")]:
            del state.files[path]
    for path in (paths.unit_file(op.unit), paths.environment_file(op.unit), paths.BINARY):
        state.files.pop(path, None)


def leave(state: HostState, op: LeaveCluster) -> None:
    """Stop a unit, and remove what makes the machine a member."""
    state.units[op.unit].active = False
    files = (paths.PASSWORD.path, paths.FULL_TOKEN.path, paths.FULL_AGENT_TOKEN.path, CERTIFICATE, KUBELET)
    for path in (*files, f"{paths.DATASTORE.path}/state.db"):
        state.files.pop(path, None)


def keep_token(state: HostState, op: KeepFormerToken) -> None:
    """Note the token of the file, unless it is the new one or noted already."""
    token = state.text(paths.TOKEN).strip().rpartition(":")[2]
    former = state.files.get(paths.FORMER_TOKENS, ModelFile()).content
    last = former.decode().split()[-1:]
    if token and token != op.new.get_secret_value() and [token] != last:
        state.files[paths.FORMER_TOKENS] = ModelFile(former + f"now {token}\n".encode(), "0600")


def prove(state: HostState, op: ProveServer) -> None:
    """Fail where the server cannot be reached."""
    met = state.join_network
    if met is not None and met.api.get(op.server) in BLOCKED:
        raise OperationFailedError(f"K3S_API_UNREACHABLE: {op.server}, port 6443 does not answer this node")


OPERATIONS: dict[type[Any], Any] = {
    RotateToken: rotate,
    LeaveCluster: leave,
    RemoveK3s: remove,
    KeepFormerToken: keep_token,
    ProveServer: prove,
}
"""How each operation of k3s is done."""


def _machine(state: HostState, query: Machine) -> object:
    del query
    held = [value.decode() for value in state.commands.get("link", {}).values()]
    addresses = tuple(("eth0", f"{address}/24") for address in held)
    if state.machine is not None:
        return state.machine
    routes = (("default", "eth0"),)
    version = state.k3s_version if paths.BINARY in state.files else ""
    return MachineStatus(addresses, (), routes, inotify=8192, cgroup=2, version=version)


def _join_network(state: HostState, query: JoinNetwork) -> object:
    runs = any(name in state.units and state.units[name].active for name in UNITS)
    files = (ResolverFile(query.resolv_conf or RESOLVERS[0], servers=("198.18.0.1",)),)
    met = state.join_network or JoinNetworkStatus(files=files, names={"198.18.0.1": OPEN})
    return replace(met, runs=runs)


def _log(state: HostState, query: ServiceLog) -> object:
    unit = state.units.get(query.unit)
    return LastWords(("level=fatal msg=stopped",) if unit is not None and unit.waiting else ())


def _process(state: HostState, name: str) -> tuple[int, str]:
    unit = state.units.get(name)
    if unit is None or not unit.active:
        return 1, ""
    limit = "unlimited" if "LimitMEMLOCK=infinity" in state.text(paths.unit_file(name)) else "8388608"
    row = f"Max locked memory         {limit}            {limit}            bytes"
    return 0, f"{paths.BINARY} {'server' if name == paths.SERVER else 'agent'} \n{row}\n"


def _environment(state: HostState, name: str) -> tuple[int, str]:
    unit = state.units.get(name)
    if unit is None or not unit.active:
        return 1, ""
    files = (paths.environment_file(name), f"/etc/default/{name.removesuffix('.service')}")
    lines = "\n".join(map(state.text, files)).splitlines()
    return 0, "".join(f"{line.replace(chr(34), '')}\n" for line in lines if "=" in line)


def _certificate(state: HostState, path: str) -> tuple[int, str]:
    expires = state.text(path) != "valid"
    return int(
        expires
    ), f"notAfter=Dec 1 06:00:00 2027 GMT\nCertificate will {'' if expires else 'not '}expire\n"


NOW = 1_800_000_000
"""The clock of a model."""


def _snapshots(state: HostState, query: EtcdSnapshots) -> object:
    del query
    files = []
    for name, text in state.commands.get("etcd-snapshots", {}).items():
        age, size = text.decode().split()
        files.append(SnapshotFile(float(NOW - int(age)), name, int(size)))
    return SnapshotListing(tuple(sorted(files)))


def _snapshot_ages(state: HostState, _folder: str) -> tuple[int, str]:
    ages = [text.decode().split()[0] for text in state.commands.get("etcd-snapshots", {}).values()]
    born = state.commands.get("etcd-born", {}).get("age", b"864000").decode()
    lines = [f"now {NOW}", f"born {NOW - int(born)}", *(f"taken {NOW - int(age)}" for age in ages)]
    return 0, "".join(f"{line}\n" for line in lines)


COMMANDS: tuple[tuple[str, Callable[..., tuple[int, str]]], ...] = (
    (r"/usr/local/bin/k3s --version", lambda state: (0, f"k3s version {state.k3s_version} (model)\n")),
    (r"p=\$\(systemctl show -p MainPID --value -- (k3s\S*)\) .* cat /proc/\$p/limits", _process),
    (r"p=\$\(systemctl show -p MainPID --value -- (k3s\S*)\) .* < /proc/\$p/environ", _environment),
    (r"date '\+now %s'; .* stat -c 'taken %Y' -- (\S+)/\* .*", _snapshot_ages),
    (r"openssl x509 -noout -enddate -checkend \d+ -in (\S+)", _certificate),
)
"""What the commands of checks answer, by their form."""

ANSWERS: dict[type[Any], Any] = {
    Machine: _machine,
    JoinNetwork: _join_network,
    ServiceLog: _log,
    runtimes.NvidiaRuntime: _runtime,
    EtcdSnapshots: _snapshots,
    K3sSettings: lambda _state, _query: SettingPlaces(),
}
"""How each query of k3s is answered."""

"""A damage behind our back, and ways to damage the parts of a site."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from provision.hosts.operations.basic import sysctl_file
from provision.hosts.resources.pci import PciFunction
from provision.testing.model_host import HostState, ModelFile, ModelFunction
from tests.model.model_site import Api, ModelSite


@dataclass(frozen=True)
class Damage:
    """What somebody does to a site behind our back.

    Args:
        check: the check that must turn red.
        words: what its message names.
        do: the damage.
        subject: of whom.
        also: other checks, with their subjects, that rightly turn red with it.
        alone: other checks rightly cannot see what they look at.
    """

    check: str
    words: str
    do: Callable[[ModelSite], object]
    subject: str = "vm"
    also: tuple[tuple[str, str], ...] = ()
    alone: bool = False


def on(system: str, change: Callable[[HostState], object]) -> Callable[[ModelSite], object]:
    """Return a damage of a host's state."""
    return lambda site: change(site.hosts[system].state)


def vm(key: str, value: str | None) -> Callable[[ModelSite], object]:
    """Return a damage of the VM's configuration."""

    def change(site: ModelSite) -> None:
        config = site.apis["pve/api"].vms[201].config
        config.pop(key, None)
        if value is not None:
            config[key] = value

    return change


def edit(key: str, old: str, new: str) -> Callable[[ModelSite], object]:
    """Return a damage of a part of a value of the VM's configuration."""

    def change(site: ModelSite) -> None:
        config = site.apis["pve/api"].vms[201].config
        assert old in config[key], config[key]
        config[key] = config[key].replace(old, new)

    return change


def outdate_tags(site: ModelSite) -> None:
    """Give the VM a tag that the inventory declared once."""
    config = site.apis["pve/api"].vms[201].config
    config["tags"] += ";old"
    config["description"] = config["description"].replace("tags=lab", "tags=lab,old")


def file(path: str, **fields: Any) -> Callable[[HostState], object]:
    """Return a damage of a file: fields of ModelFile."""
    return lambda state: state.files.__setitem__(path, replace(state.files.get(path, ModelFile()), **fields))


def gone(path: str) -> Callable[[HostState], object]:
    return lambda state: state.files.pop(path)


def unit(name: str, **fields: Any) -> Callable[[HostState], object]:
    return lambda state: state.units.__setitem__(name, replace(state.units[name], **fields))


def sysctl(name: str, value: str) -> Callable[[HostState], object]:
    return lambda state: state.sysctls.__setitem__(sysctl_file(name), value)


def api(change: Callable[[Api], object]) -> Callable[[ModelSite], object]:
    return lambda site: change(site.apis["pve/api"])


def driver(name: str) -> Callable[[HostState], object]:
    def change(state: HostState) -> None:
        for function in state.functions:
            if function.pci.slot == "0000:01:00":
                function.driver = name
        state.modules.update({name} - {"vfio-pci", ""})

    return change


def fabric_error(state: HostState) -> None:
    """Let the kernel report that the NVLink fabric is out of step."""
    state.kernel_log = (*state.kernel_log, "NVRM: NV_ERR_FABRIC_STATE_OUT_OF_SYNC")


def take_another(state: HostState) -> None:
    """Give vfio-pci a device of the host that shares the card's group."""
    group = next(each.pci.group for each in state.functions if each.pci.slot == "0000:01:00")
    device = PciFunction("0000:03:00.0", "8086", "1533", "020000", group=group)
    state.functions.append(ModelFunction(device, driver="vfio-pci"))


def mapped(old: str, new: str) -> Callable[[Api], object]:
    def change(model: Api) -> None:
        for name, entries in model.mappings.items():
            model.mappings[name] = [entry.replace(old, new) for entry in entries]

    return change


def add_key(state: HostState, line: bytes) -> None:
    state.files[KEYS].content += line


def fill(state: HostState) -> None:
    state.free = 10


def add_host(state: HostState) -> None:
    state.files["/etc/hosts"].content += b"192.0.2.1 registry.lab\n"


def not_shared(site: ModelSite) -> None:
    """Take a node's view of the shared storage away."""
    site.is_shared = False
    site.hosts[GUEST].state.files.pop("/srv/models/.provision-gpu")


def card(**faults: Any) -> Callable[[HostState], object]:
    """Return a damage of the second GPU: fields of CardStatus."""
    return lambda state: state.card_faults.setdefault("0000:02:00.0", {}).update(faults)


def port(**fields: Any) -> Callable[[HostState], object]:
    """Return a damage of the RDMA port."""
    return lambda state: setattr(
        state, "rdma", replace(state.rdma, ports=(replace(state.rdma.ports[0], **fields),))
    )


def interface(**fields: Any) -> Callable[[HostState], object]:
    """Return a damage of the rail's interface."""
    return lambda state: setattr(
        state, "rdma", replace(state.rdma, interfaces=(replace(state.rdma.interfaces[0], **fields),))
    )


def netns(mode: str) -> Callable[[HostState], object]:
    """Return a damage of the mode of namespaces."""
    return lambda state: setattr(state, "rdma", replace(state.rdma, netns=mode))


GUEST, PVE, ROUTER, GPU = "vm/ssh", "pve/ssh", "router", "gpu/ssh"
UPGRADES = "/etc/apt/apt.conf.d/52provision-gpu"
PID = "pid='<unknown>', name=<unknown>"
GPU_LISTS = (
    "test_gpu_count",
    "test_gpu_model",
    "test_gpu_ecc",
    "test_gpu_mig",
    "test_gpu_compute_mode",
    "test_gpu_is_not_slowed_down",
    "test_gpu_power_limit",
    "test_gpu_driver_at_next_boot",
)
"""Checks that fail where the driver lists no card."""


def zram(state: HostState) -> None:
    """Install and configure the generator of zram swap."""
    state.files["/usr/lib/systemd/system-generators/zram-generator"] = ModelFile(b"ELF", "0755")
    state.files["/etc/systemd/zram-generator.conf"] = ModelFile(b"[zram0]\n")


def zram_service(state: HostState) -> None:
    """Install and enable zram-tools."""
    unit_file = "/usr/lib/systemd/system/zramswap.service"
    state.files[unit_file] = ModelFile(b"[Service]\n")
    link = ModelFile(mode="0777", type="link", target=unit_file)
    state.files["/etc/systemd/system/multi-user.target.wants/zramswap.service"] = link


KEYS = "/home/debian/.ssh/authorized_keys"
LATER = ModelFile(b"vm.max_map_count = 65530\n")
RESERVED = "/etc/dnsmasq.d/hosts/provision-tiny-vm"
RESERVED_HYPERVISOR = "/etc/dnsmasq.d/hosts/provision-tiny-pve"


def kube_node(change: Callable[[Any], object]) -> Callable[[ModelSite], object]:
    """Return a damage of the Node object of the server."""

    def do(site: ModelSite) -> None:
        store = site.cluster.api.store
        change(store.of_kind(store.kind("Node"))["", "vm"])

    return do


def other_arguments(node: dict[str, Any]) -> None:
    """Let the cluster say that a node runs with another setting than its file has."""
    notes = node["metadata"]["annotations"]
    notes["k3s.io/node-args"] = notes["k3s.io/node-args"].replace("10.42.0.0/16", "10.99.0.0/16")


def learner(node: dict[str, Any]) -> None:
    """Take the vote of a server, as k3s's controller writes it."""
    for condition in node["status"]["conditions"]:
        if condition["type"] == "EtcdIsVoter":
            condition.update(status="False", reason="MemberIsLearner")


def another_node(site: ModelSite) -> None:
    """Let a machine join that nobody declared."""
    site.cluster.add_node("stranger", "198.18.0.99")


def cordon(node: Any) -> None:
    node["spec"]["unschedulable"] = True


def not_ready(node: Any) -> None:
    node["status"]["conditions"] = [{"type": "Ready", "status": "False", "message": "no network"}]


K3S = "k3s.service"
K3S_UNIT = f"/etc/systemd/system/{K3S}"

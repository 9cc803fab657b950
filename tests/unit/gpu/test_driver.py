"""The driver role on hosts in memory: each origin, versions, what is refused, and what a boot brings."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.api.domains import load_inventory as load
from provision.contracts.remedy import Impossible
from provision.contracts.resource import changes_of, remedy_of
from provision.gpu.queries import GpuState, GpuStatus
from provision.gpu.resources.driver import GpuDriver
from provision.gpu.roles import gpu_driver
from provision.hosts.resources.pci import PciFunction
from provision.inventory import Inventory, Subject
from provision.testing.model_gpu import archive_drivers, gpu_state
from provision.testing.model_host import HostState, ModelFunction, ModelHost, guest_state
from provision.values.errors import Permanent
from tests.unit.hosts.converge import converge, killed_everywhere, snapshot_of
from tests.unit.hosts.roles.test_shipped_inventories import resources_of

NODE = Subject("node", "n1")


def inventory_of(folder: Path, driver: str, more: str = "gpu_cards: { count: 1 }") -> Inventory:
    (folder / "site.yaml").write_text(
        "version: 1\nname: site\naccess: { user: root }\n"
        f"nodes:\n  n1: {{ address: 10.0.0.9, driver: {{ {driver} }}, {more} }}\n"
    )
    return load(folder / "site.yaml", environ={})


def node(origin: str = "debian", *versions: str, device: str = "2330", switch: bool = False) -> ModelHost:
    state = guest_state()
    if origin != "debian":
        state.kernels, state.running = ("6.8.0-79-generic",), "6.8.0-79-generic"
        state.initramfs = {"6.8.0-79-generic": frozenset()}
    card = PciFunction("0000:01:00.0", "10de", device, "030200")
    state.functions = [ModelFunction(card, ("nouveau",), "nouveau")]
    if switch:
        state.functions.append(ModelFunction(PciFunction("0000:05:00.0", "10de", "22a3", "068000")))
    state.modules.add("nouveau")
    archive_drivers(state, origin, *versions)
    return ModelHost("n1/ssh", state)


def status_of(state: HostState) -> GpuStatus:
    answer = gpu_state(state, GpuState())
    assert isinstance(answer, GpuStatus)
    return answer


def apply(inventory: Inventory, host: ModelHost) -> bool:
    return converge(host, resources_of(gpu_driver, inventory, NODE, host))


ORIGINS = [
    (
        "debian",
        "origin: debian",
        {"nvidia-smi", "libcuda1", "nvidia-open-kernel-dkms", "linux-headers-amd64"},
    ),
    (
        "ubuntu",
        "origin: ubuntu, branch: 580-server",
        {"nvidia-driver-580-server-open", "linux-modules-nvidia-580-server-open-generic"},
    ),
    ("nvidia", "origin: nvidia, branch: '580'", {"nvidia-open", "linux-headers-generic"}),
]


@pytest.mark.parametrize(("origin", "driver", "packages"), ORIGINS, ids=[case[0] for case in ORIGINS])
def test_each_origin_brings_a_driver_by_one_boot(
    tmp_path: Path, origin: str, driver: str, packages: set[str]
) -> None:
    inventory, host = inventory_of(tmp_path, f"{driver}, hold: true"), node(origin)
    boots = host.state.boots
    assert apply(inventory, host)
    assert host.state.boots == boots + 1
    assert packages <= set(host.state.packages)
    assert packages <= host.state.held
    assert status_of(host.state).loaded == "580.178.04"
    assert host.state.functions[0].driver == "nvidia"
    assert "nouveau" not in host.state.modules
    assert host.state.units["nvidia-persistenced.service"].active
    assert not apply(inventory, host)


def test_prebuilt_modules_come_before_those_that_are_built(tmp_path: Path) -> None:
    host = node("ubuntu")
    for kind in ("", "-open"):
        del host.state.archive[f"linux-modules-nvidia-580-server{kind}-generic"]
    apply(inventory_of(tmp_path, "origin: ubuntu, branch: 580-server"), host)
    assert {"nvidia-dkms-580-server-open", "linux-headers-generic"} <= set(host.state.packages)


def test_modules_follow_the_kernels_meta_package(tmp_path: Path) -> None:
    host = node("ubuntu")
    host.state.packages["linux-image-generic-hwe-24.04"] = "6.11"
    name = "linux-modules-nvidia-580-server-open-generic-hwe-24.04"
    host.state.archive[name] = (("6.11.0-1+1", "Ubuntu"),)
    apply(inventory_of(tmp_path, "origin: ubuntu, branch: 580-server"), host)
    assert name in host.state.packages


@pytest.mark.parametrize(
    ("version", "before", "after"),
    [
        ("", "580.159.04", "580.159.04"),
        ("version: newest-in-branch", "580.159.04", "580.178.04"),
        ("version: 580.159.04", "580.178.04", "580.159.04"),
    ],
)
def test_the_declared_version_is_what_moves(tmp_path: Path, version: str, before: str, after: str) -> None:
    host = node()
    apply(inventory_of(tmp_path, f"origin: debian, version: {before}"), host)
    inventory = inventory_of(tmp_path, f"origin: debian, {version}".rstrip(", "))
    assert apply(inventory, host) == (before != after)
    assert status_of(host.state).loaded == after


@pytest.mark.parametrize(
    ("driver", "code", "words"),
    [
        ("origin: debian, version: 570.1.2", "DRIVER_VERSION_GONE", "nvidia-smi 580.178.04-1~deb12u1"),
        ("origin: debian, branch: '535'", "DRIVER_VERSION_GONE", "nvidia-smi 580.159.04-1~deb12u1"),
        ("origin: nvidia, branch: '580'", "DRIVER_ORIGIN_MISSING", ""),
    ],
)
def test_a_driver_that_nobody_offers_is_refused(tmp_path: Path, driver: str, code: str, words: str) -> None:
    with pytest.raises(Permanent) as caught:
        resources_of(gpu_driver, inventory_of(tmp_path, driver), NODE, node())
    assert caught.value.diagnostics[0].code == code
    assert words in "\n".join(caught.value.diagnostics[0].evidence)


def test_open_modules_that_lag_behind_the_driver_are_named(tmp_path: Path) -> None:
    """As Debian 12 with its security updates: those have the proprietary modules alone."""
    host = node()
    host.state.archive["nvidia-open-kernel-dkms"] = (("580.159.04-1~deb12u1", "Debian"),)
    with pytest.raises(Permanent) as caught:
        resources_of(gpu_driver, inventory_of(tmp_path, "origin: debian"), NODE, host)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.summary.endswith("no nvidia-open-kernel-dkms has version 580.178.04")
    assert diagnostic.remedy == "declare `driver.kind: proprietary`"


def refused(inventory: Inventory, host: ModelHost) -> str:
    resources = resources_of(gpu_driver, inventory, NODE, host)
    (driver,) = [resource for resource in resources if isinstance(resource, GpuDriver)]
    snapshot = snapshot_of(host, resources)
    assert changes_of(driver, snapshot)
    remedy = remedy_of(driver, snapshot)
    assert isinstance(remedy, Impossible)
    return remedy.diagnostic.code


def test_a_branch_that_installs_another_one_is_refused(tmp_path: Path) -> None:
    host = node("ubuntu", "580.1.2")
    archive_drivers(host.state, "ubuntu", "570.211.01")
    stub = "nvidia-driver-570-server-open"
    host.state.pulls[stub] = ("nvidia-driver-580-server-open",)
    inventory = inventory_of(tmp_path, "origin: ubuntu, branch: 570-server")
    assert refused(inventory, host) == "DRIVER_BRANCH_REPLACED"


def test_a_driver_removes_drivers_and_nothing_else(tmp_path: Path) -> None:
    host = node()
    host.state.packages |= {"nvidia-driver-510": "510.1.1", "desktop": "1"}
    host.state.conflicts["libcuda1"] = ("nvidia-driver-510",)
    inventory = inventory_of(tmp_path, "origin: debian")
    host.state.conflicts["nvidia-smi"] = ("desktop",)
    assert refused(inventory, host) == "DRIVER_REMOVES_OTHERS"
    host.state.conflicts["nvidia-smi"] = ()
    apply(inventory, host)
    assert "nvidia-driver-510" not in host.state.packages


def test_a_boot_is_owed_only_if_it_would_load_what_is_installed(tmp_path: Path) -> None:
    inventory, host = inventory_of(tmp_path, "origin: debian"), node()
    apply(inventory, host)
    host.state.loaded_driver = "570.1.1"
    assert apply(inventory, host)
    assert status_of(host.state).loaded == "580.178.04"
    host.state.foreign_driver = "570.1.1"  # a module of somebody else's hides the packages' one
    host.state.loaded_driver = "570.1.1"
    assert refused(inventory, host) == "DRIVER_MODULE_MISSING"


def test_a_working_driver_without_a_module_for_the_next_kernel_is_named(tmp_path: Path) -> None:
    inventory, host = inventory_of(tmp_path, "origin: debian"), node()
    apply(inventory, host)
    host.state.foreign_driver = "570.1.1"  # what the next boot would load
    assert status_of(host.state).loaded == "580.178.04"
    assert refused(inventory, host) == "DRIVER_MODULE_MISSING"


def test_cards_before_turing_get_the_proprietary_modules(tmp_path: Path) -> None:
    host = node(device="1b06")
    apply(inventory_of(tmp_path, "origin: debian"), host)
    assert "nvidia-kernel-dkms" in host.state.packages
    assert "nvidia-open-kernel-dkms" not in host.state.packages


def test_an_nvswitch_gets_a_fabric_manager_of_the_drivers_version(tmp_path: Path) -> None:
    host = node("ubuntu", switch=True)
    inventory = inventory_of(tmp_path, "origin: ubuntu, branch: 580-server, version: 580.159.04")
    apply(inventory, host)
    assert host.state.packages["nvidia-fabricmanager-580"] == "580.159.04-0ubuntu0.24.04.1"
    assert host.state.units["nvidia-fabricmanager.service"].active
    plain = node("ubuntu")
    apply(inventory, plain)
    assert "nvidia-fabricmanager-580" not in plain.state.packages


def test_declared_state_outlives_a_boot(tmp_path: Path) -> None:
    host = node()
    inventory = inventory_of(tmp_path, "origin: debian, power_limit: 250, nvlink: false, persistence: true")
    apply(inventory, host)
    assert host.state.nvlink_off
    assert host.state.power_limits == {"0000:01:00.0": 250.0}
    host.state.power_limits = {}
    assert apply(inventory, host)
    assert host.state.power_limits == {"0000:01:00.0": 250.0}


@pytest.mark.parametrize("has_symbol", [True, False])
def test_peer_memory_is_loaded_where_the_kernel_has_its_symbol(tmp_path: Path, has_symbol: bool) -> None:
    host = node()
    host.state.peer_memory = has_symbol
    inventory = inventory_of(
        tmp_path, "origin: debian", "gpu_cards: { count: 1 }, rails: { r0: { device: eth1 } }"
    )
    apply(inventory, host)
    assert ("nvidia_peermem" in host.state.modules) is has_symbol
    assert not apply(inventory, host)


def test_a_host_without_a_card_gets_packages_and_no_boot(tmp_path: Path) -> None:
    host = node()
    host.state.functions = []
    boots = host.state.boots
    inventory = inventory_of(tmp_path, "origin: debian")
    apply(inventory, host)
    assert host.state.boots == boots
    assert "libcuda1" in host.state.packages


def test_an_interrupted_installation_ends_as_an_uninterrupted_one(tmp_path: Path) -> None:
    inventory = inventory_of(tmp_path, "origin: debian, hold: true, power_limit: 250")
    assert killed_everywhere(node, lambda host: resources_of(gpu_driver, inventory, NODE, host)) > 10


def test_a_driver_of_somebody_else_is_no_step(tmp_path: Path) -> None:
    inventory = inventory_of(tmp_path, "manage: false, minimum: '580'")
    assert not gpu_driver.declared(inventory, NODE)

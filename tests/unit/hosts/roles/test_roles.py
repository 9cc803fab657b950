"""What single declarations become."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from provision.api.domains import load_inventory as load
from provision.contracts.effect import Effect, EffectClass
from provision.contracts.resource import Resource
from provision.hosts import host_effects
from provision.hosts.change_effects import effects_of_path
from provision.hosts.queries.system import ClockStatus
from provision.hosts.resources.command import Command
from provision.hosts.resources.file import File, FileLine
from provision.hosts.resources.kernel import KernelArguments, KernelModule, ModprobeBlacklist
from provision.hosts.resources.package import Package
from provision.hosts.resources.pci import CardUnbound
from provision.hosts.resources.service import Service
from provision.hosts.resources.system import TimeSync
from provision.hosts.roles import base_os, host_resources
from provision.inventory import Inventory, Subject
from provision.proxmox.roles import hypervisor_host
from provision.testing.model_host import HostState, ModelHost, guest_state, hypervisor_state
from provision.testing.model_state import ModelFile
from provision.values.errors import Permanent, UsageError
from tests.unit.hosts.converge import converge, differing, snapshot_of
from tests.unit.hosts.roles.test_shipped_inventories import context_of, resources_of

NODE = Subject("node", "n1")
PVE = Subject("hypervisor", "pve")
FINGERPRINT = ":".join(["AA"] * 32)


def inventory_of(tmp_path: Path, *, node: str = "", host: str = "", top: str = "") -> Inventory:
    (tmp_path / "inventory.yaml").write_text(
        "version: 1\nname: site\n"
        f"{top}\n"
        "network: { cidr: 10.0.0.0/24, gateway: 10.0.0.1 }\n"
        "hypervisors:\n  pve:\n    address: 10.0.0.5\n"
        f"    api: {{ token_id: a@pve!b, token: !secret {{ env: T }}, fingerprint: '{FINGERPRINT}' }}\n"
        f"{_indented(host, 4)}"
        "nodes:\n  n1:\n    address: 10.0.0.9\n    vars: { port: 80, word: hello }\n"
        f"{_indented(node, 4)}",
        encoding="utf-8",
    )
    return load(tmp_path / "inventory.yaml", environ={})


def _indented(text: str, by: int) -> str:
    return "".join(f"{' ' * by}{line}\n" for line in text.splitlines())


def made(
    role: ModuleType, inventory: Inventory, subject: Subject, state: HostState | None = None
) -> list[Resource]:
    start = state or (guest_state() if subject is NODE else hypervisor_state())
    return list(resources_of(role, inventory, subject, ModelHost(f"{subject.name}/ssh", start)))


def one(tmp_path: Path, resource: str) -> Resource:
    inventory = inventory_of(tmp_path, node=f"host_resources:\n  - {resource}")
    (found,) = made(host_resources, inventory, NODE)
    return found


# ---------------------------------------------------------------- host_resources


@pytest.mark.parametrize("wanted", ["line: 10.0.0.5 pve", "content: 10.0.0.5 pve"])
def test_files_that_cloud_init_writes_at_each_boot_keep_what_is_declared(tmp_path: Path, wanted: str) -> None:
    inventory = inventory_of(
        tmp_path, node=f"host_resources:\n  - {{ kind: file, path: /etc/hosts, {wanted} }}"
    )
    state = guest_state()
    own = made(host_resources, inventory, NODE, state)
    assert [getattr(each, "path", "") for each in own] == ["/etc/hosts"]
    state.files["/etc/hosts"] = ModelFile(b"# 'manage_etc_hosts' is True\n127.0.1.1 n1\n")
    made_anew = made(host_resources, inventory, NODE, state)
    template = "/etc/cloud/templates/hosts.debian.tmpl"
    assert [getattr(each, "path", "") for each in made_anew] == [template, "/etc/hosts"]


def test_content_is_filled_in(tmp_path: Path) -> None:
    found = one(
        tmp_path, '{ kind: file, path: "/etc/{{ word }}", content: "{{ name }} {{ site }} {{ port + 1 }}" }'
    )
    assert isinstance(found, File)
    assert (found.path, found.content, found.mode) == ("/etc/hello", b"n1 site 81", "")
    assert found.source is not None
    assert found.source.line > 1


def test_a_template_is_read_beside_the_inventory(tmp_path: Path) -> None:
    (tmp_path / "t.j2").write_text("port={{ port }} {{ own }}\n", encoding="utf-8")
    found = one(tmp_path, "{ kind: file, path: /etc/t, template: t.j2, vars: { own: mine, port: 81 } }")
    assert isinstance(found, File)
    assert found.content == b"port=81 mine\n"


def test_a_secret_is_opened_and_never_shown(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("planted-51c\n", encoding="utf-8")
    found = one(tmp_path, f"{{ kind: file, path: /etc/s, secret: !secret {{ file: {tmp_path}/s }} }}")
    assert isinstance(found, File)
    assert (found.content, found.secret, found.mode) == (b"planted-51c", True, "0600")
    assert "planted" not in repr(found)


def test_a_file_restarts_its_units_and_pays_for_its_place(tmp_path: Path) -> None:
    found = one(
        tmp_path, "{ kind: file, path: /etc/systemd/system/a.service, content: x, restart: [a, b.timer] }"
    )
    assert [str(each) for each in getattr(found, "effects", ())] == [
        "daemon-reload",
        "restart a.service",
        "restart b.timer",
    ]


@pytest.mark.parametrize(
    ("path", "classes"),
    [
        ("/etc/modprobe.d/x.conf", [host_effects.INITRAMFS, host_effects.REBOOT_NODE]),
        ("/etc/default/grub.d/x.cfg", [host_effects.BOOT_LOADER, host_effects.REBOOT_NODE]),
        ("/etc/systemd/system/x.service", [host_effects.DAEMON_RELOAD]),
        ("/etc/motd", []),
    ],
)
def test_effects_follow_from_a_files_place(path: str, classes: list[EffectClass]) -> None:
    assert [each.cls for each in effects_of_path(path, Effect(host_effects.REBOOT_NODE))] == classes


@pytest.mark.parametrize(
    ("resource", "kind"),
    [
        ("{ kind: package, name: jq, hold: true }", Package),
        ("{ kind: service, name: cron, running: true }", Service),
        ("{ kind: kernel_module, name: dummy, options: a=1 }", KernelModule),
        ("{ kind: kernel_module, name: dummy, blacklisted: true }", ModprobeBlacklist),
        ("{ kind: command, name: c, run: 'true', unless: 'false' }", Command),
        ("{ kind: file, path: /etc/a, line: x }", FileLine),
    ],
)
def test_each_kind_becomes_its_resource(tmp_path: Path, resource: str, kind: type[object]) -> None:
    assert isinstance(one(tmp_path, resource), kind)


def test_a_line_cannot_be_kept_secret_and_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as raised:
        one(tmp_path, "{ kind: file, path: /etc/a, line: password=planted-88, sensitive: true }")
    (problem,) = raised.value.diagnostics
    assert "sensitive" in problem.summary
    assert "planted-88" not in problem.summary
    assert problem.source is not None


@pytest.mark.parametrize(
    ("resource", "code"),
    [
        ('{ kind: file, path: /etc/a, content: "{{ nope }}" }', "TEMPLATE_ERROR"),
        ("{ kind: file, path: /etc/a, template: missing.j2 }", "TEMPLATE_UNREADABLE"),
        ('{ kind: file, path: "{{ word }}", content: x }', "HOST_RESOURCE_INVALID"),
        ("{ kind: file, path: '/etc/../{{ word }}', content: x }", "HOST_RESOURCE_INVALID"),
        ("{ kind: package, name: '{{ word }} b' }", "HOST_RESOURCE_INVALID"),
        ("{ kind: sysctl, key: '{{ word }} b.c', value: 1 }", "HOST_RESOURCE_INVALID"),
        ("{ kind: service, name: '-{{ word }}', running: true }", "HOST_RESOURCE_INVALID"),
    ],
)
def test_what_is_wrong_is_told_with_its_position(tmp_path: Path, resource: str, code: str) -> None:
    with pytest.raises(UsageError) as raised:
        one(tmp_path, resource)
    (problem,) = raised.value.diagnostics
    assert problem.code == code
    assert problem.source is not None
    assert "kind:" in problem.source.text


def test_what_goes_needs_no_secret_no_template_and_no_value_of_what_it_was(tmp_path: Path) -> None:
    lines = [
        "kind: file, path: '/etc/{{ name }}.key', secret: !secret { env: PROVISION_TEST_UNSET }",
        "kind: file, path: /etc/two, template: ./missing.j2",
        "kind: file, path: /etc/three, content: '{{ unset }}', restart: [ssh]",
        "kind: file, path: /etc/four, line: '{{ unset }}'",
        "kind: file, path: /etc/five, absent: true",
        "kind: sysctl, key: vm.swappiness, value: '{{ unset }}'",
        "kind: kernel_module, name: one, options: '{{ unset }}'",
        "kind: kernel_module, name: two, blacklisted: true",
        "kind: package, name: cron",
    ]
    declared = "".join(f"  - {{ {each} }}\n" for each in lines)
    inventory = inventory_of(tmp_path, host=f"host_resources:\n{declared}")
    host = ModelHost("pve/ssh", hypervisor_state())
    with pytest.raises(UsageError):
        resources_of(host_resources, inventory, PVE, host)
    found = host_resources.retired(context_of(host_resources, inventory, PVE, host))
    assert [each.key.name for each in found] == [
        "noted",
        "no-two",
        "one",
        "vm.swappiness",
        "/etc/three",
        "/etc/two",
        "/etc/pve.key",
    ]
    assert [each.effects for each in found if isinstance(each, File) and each.effects] == [
        (Effect(host_effects.RESTART, "ssh.service"),)
    ]
    state = host.state
    state.files |= {path: ModelFile(b"ours") for path in ("/etc/pve.key", "/etc/two", "/etc/three")}
    assert converge(host, found)
    assert not state.files.keys() & {"/etc/pve.key", "/etc/two", "/etc/three"}


def test_a_host_that_may_not_be_changed_has_no_steps(tmp_path: Path) -> None:
    text = "manage: false\nhost_resources: [{ kind: package, name: jq }]"
    inventory = inventory_of(tmp_path, node=f"{text}\nhostname: n1", host=f"{text}\nkernel_arguments: [a]")
    for role in (hypervisor_host, base_os, host_resources):
        assert not role.declared(inventory, NODE)
        assert not role.declared(inventory, PVE)


def test_options_of_a_loaded_module_take_the_hosts_reboot(tmp_path: Path) -> None:
    found = one(tmp_path, "{ kind: kernel_module, name: dummy, options: a=1 }")
    assert isinstance(found, KernelModule)
    assert found.reboot == Effect(host_effects.REBOOT_NODE)


def test_a_kernel_is_held_and_vfio_gets_options_on_request(tmp_path: Path) -> None:
    """The reports: a new kernel broke what worked; a card was lost after its VM stopped."""
    declared = (
        "host_resources:\n"
        "  - { kind: package, name: proxmox-default-kernel, hold: true }\n"
        "  - { kind: kernel_module, name: vfio-pci, options: disable_idle_d3=1 }\n"
    )
    state = hypervisor_state()
    state.packages["proxmox-default-kernel"] = "2.0.1"
    state.modules.add("vfio_pci")
    host = ModelHost("pve/ssh", state)
    resources = resources_of(host_resources, inventory_of(tmp_path, host=declared), PVE, host)
    assert converge(host, resources)
    assert "proxmox-default-kernel" in host.state.held
    options = host.state.files["/etc/modprobe.d/provision-vfio-pci-options.conf"]
    assert b"options vfio-pci disable_idle_d3=1\n" in options.content
    assert not differing(host, resources)


# ---------------------------------------------------------------- base_os


@pytest.mark.parametrize(
    ("packages", "installed", "daemon"),
    [
        ("[]", {"systemd-timesyncd": "252"}, "timesyncd"),
        ("[]", {"chrony": "4", "systemd-timesyncd": ""}, "chrony"),
        ("[]", {"systemd-timesyncd": ""}, "chrony"),
        ("[chrony]", {"systemd-timesyncd": "252"}, "chrony"),
    ],
)
def test_the_time_daemon_is_the_one_that_is_there(
    tmp_path: Path, packages: str, installed: dict[str, str], daemon: str
) -> None:
    state = guest_state()
    state.packages.update(installed)
    inventory = inventory_of(tmp_path, node=f"ntp: [10.0.0.1]\npackages: {packages}")
    found = made(base_os, inventory, NODE, state)
    assert [each.daemon for each in found if isinstance(each, TimeSync)] == [daemon]


@pytest.mark.parametrize("declared", ["ntp: [10.0.0.1]\npackages: [chrony]", "packages: [chrony]"])
def test_that_chrony_takes_the_other_daemons_place_is_part_of_the_plan(tmp_path: Path, declared: str) -> None:
    host = ModelHost("n1/ssh", guest_state())
    inventory = inventory_of(tmp_path, node=declared)
    converge(host, resources_of(base_os, inventory, NODE, host))
    assert "chrony" in host.state.packages
    assert "systemd-timesyncd" not in host.state.packages
    assert differing(host, resources_of(base_os, inventory, NODE, host)) == []


def test_a_containers_clock_is_left_alone(tmp_path: Path) -> None:
    state = guest_state()
    state.clock = ClockStatus(synchronised=False, container="systemd-nspawn")
    inventory = inventory_of(tmp_path, node="ntp: [10.0.0.1]\ntimezone: Etc/UTC")
    assert not [each for each in made(base_os, inventory, NODE, state) if isinstance(each, TimeSync)]


def test_what_is_unset_is_unmanaged(tmp_path: Path) -> None:
    assert not base_os.declared(inventory_of(tmp_path), NODE)


def test_the_managed_list_of_keys_holds_our_own(tmp_path: Path) -> None:
    (tmp_path / "key.pub").write_text("ssh-ed25519 OWN me\n", encoding="utf-8")
    top = "access: { user: debian, key: key, authorized_keys: [ssh-ed25519 OTHER you] }"
    found = made(base_os, inventory_of(tmp_path, top=top), NODE)
    (keys,) = [each for each in found if isinstance(each, File)]
    assert keys.path == "/home/debian/.ssh/authorized_keys"
    assert keys.content == b"ssh-ed25519 OWN me\nssh-ed25519 OTHER you\n"


def test_a_list_of_keys_that_would_lock_us_out_is_refused(tmp_path: Path) -> None:
    inventory = inventory_of(tmp_path, top="access: { key: missing, authorized_keys: [] }")
    with pytest.raises(UsageError) as raised:
        made(base_os, inventory, NODE)
    assert raised.value.diagnostics[0].code == "PUBLIC_KEY_MISSING"


def test_a_list_of_keys_without_a_key_of_ours_is_refused(tmp_path: Path) -> None:
    inventory = inventory_of(tmp_path, top="access: { authorized_keys: [ssh-ed25519 OTHER you] }")
    with pytest.raises(UsageError) as raised:
        made(base_os, inventory, NODE)
    (problem,) = raised.value.diagnostics
    assert problem.code == "ACCESS_KEY_UNKNOWN"
    assert problem.remedy.startswith("declare access.key, with its .pub beside it")
    assert problem.source is not None
    assert "authorized_keys" in problem.source.text


# ---------------------------------------------------------------- hypervisor_host

CARD = 'cards: { c: { address: "0000:02:00", id: "10de:2204" } }'


def test_drivers_that_the_host_needs_are_never_kept_off(tmp_path: Path) -> None:
    state = hypervisor_state()
    state.functions[1].modules = (*state.functions[1].modules, "snd_hda_intel", "xhci-pci")
    blacklist = made(hypervisor_host, inventory_of(tmp_path, host=CARD), PVE, state)[0]
    assert isinstance(blacklist, ModprobeBlacklist)
    assert blacklist.modules == ("nouveau", "nova", "nova_core", "nova_drm", "nvidiafb")


def test_a_driver_that_the_inventory_names_is_kept_off_whatever_it_is(tmp_path: Path) -> None:
    inventory = inventory_of(tmp_path, host=f"{CARD}\nblacklist_extra: [snd_hda_intel, my-module]")
    blacklist = made(hypervisor_host, inventory, PVE)[0]
    assert isinstance(blacklist, ModprobeBlacklist)
    derived = ("nouveau", "nova", "nova_core", "nova_drm", "nvidiafb")
    assert blacklist.modules == ("my_module", *derived, "snd_hda_intel")


def test_a_card_without_a_monitor_leaves_the_console_alone(tmp_path: Path) -> None:
    found = made(hypervisor_host, inventory_of(tmp_path, host=CARD), PVE)
    (arguments,) = [each for each in found if isinstance(each, KernelArguments)]
    assert "nomodeset" not in arguments.arguments


def test_declared_arguments_and_lists_are_united(tmp_path: Path) -> None:
    host = f"{CARD}\nkernel_arguments: [iommu=pt, modprobe.blacklist=foo]"
    found = made(hypervisor_host, inventory_of(tmp_path, host=host), PVE)
    (arguments,) = [each for each in found if isinstance(each, KernelArguments)]
    assert arguments.arguments == (
        "modprobe.blacklist=nouveau,nova,nova_core,nova_drm,nvidiafb,foo",
        "iommu=pt",
    )


def test_a_card_that_is_not_there_is_a_problem_and_nothing_is_blacklisted(tmp_path: Path) -> None:
    inventory = inventory_of(tmp_path, host=CARD.replace("02:00", "09:00"))
    with pytest.raises(Permanent) as raised:
        made(hypervisor_host, inventory, PVE)
    assert raised.value.diagnostics[0].code == "CARD_UNREADABLE"


def test_a_network_card_keeps_its_host_driver(tmp_path: Path) -> None:
    state = hypervisor_state(cards={"0000:02:00": "15b3:1021"})
    state.functions[1].modules = ("mlx5_core",)
    state.functions[1].driver = "mlx5_core"
    state.modules.add("mlx5_core")
    object.__setattr__(state.functions[1].pci, "cls", "020000")
    found = made(hypervisor_host, inventory_of(tmp_path, host=CARD), PVE, state)
    assert isinstance(found[0], ModprobeBlacklist)
    assert found[0].modules == ()
    host = ModelHost("pve/ssh", state)
    assert differing(host, [each for each in found if isinstance(each, CardUnbound)]) == []
    assert snapshot_of(host, found).pending == ()


@pytest.mark.parametrize("loader", ["grub", "systemd-boot"])
def test_arguments_of_before_go_when_none_are_needed(tmp_path: Path, loader: str) -> None:
    state = hypervisor_state(cards={"0000:02:00": "15b3:1021"}, loader=loader)
    state.iommu = replace(state.iommu, table="IVRS", cpu="AuthenticAMD")
    found = made(hypervisor_host, inventory_of(tmp_path, host=CARD), PVE, state)
    assert [each.arguments for each in found if isinstance(each, KernelArguments)] == [()]


def test_destroy_asks_only_machines_that_stay(tmp_path: Path) -> None:
    inventory = inventory_of(tmp_path, node="hostname: n1", host="kernel_arguments: [a]")
    for role in (base_os, host_resources):
        assert role.retires(inventory, PVE)
        assert role.retires(inventory, NODE) is not inventory.nodes[NODE.name].is_virtual

# ruff: noqa: E501 - tables with one case a line
from __future__ import annotations

from pathlib import Path

import pytest

from provision.api.domains import load_inventory as load
from provision.inventory import Inventory, Login, select
from provision.values.consent import Consent
from provision.values.errors import UsageError
from provision.values.outcomes import ExitCode

from .conftest import SITE, Fails, Loads, Write, marked


def where(inventory: Inventory, *path: str | int) -> tuple[str, int, str]:
    source = inventory.source(path)
    assert source is not None
    shown = source.text[source.column - 1 : source.column - 1 + source.width]
    return Path(source.file).name, source.line, shown


def test_a_node_takes_its_profile_and_keeps_the_positions(loads: Loads) -> None:
    inventory = loads(SITE)
    node = inventory.nodes["vm-1"]
    assert (node.name, node.cores, node.memory, node.disk) == ("vm-1", 2, 1024, 4096)
    assert where(inventory, "nodes", "vm-1", "memory") == ("site.yaml", 17, "1GiB")
    assert where(inventory, "nodes", "vm-1", "vmid") == ("site.yaml", 19, "101")
    assert where(inventory, "nodes", "vm-1") == ("site.yaml", 19, "vm-1")
    assert where(inventory, "nodes", "vm-1", "swap") == ("site.yaml", 19, "vm-1")


def test_extends_merges_removes_and_replaces(loads: Loads, write: Write) -> None:
    write(SITE + "proxy: { no_proxy: [a, b] }\n", "base.yaml")
    inventory = loads(
        "extends: base.yaml\nname: other\naccess: { port: 2222 }\nproxy: { no_proxy: [c] }\n"
        "nodes:\n  vm-2: null\n  vm-1: { memory: 2GiB }\n"
    )
    assert inventory.name == "other"
    assert (inventory.access.user, inventory.access.port) == ("debian", 2222)
    assert inventory.proxy.no_proxy == ("c",)
    assert list(inventory.nodes) == ["vm-1"]
    assert inventory.extends is None
    assert where(inventory, "nodes", "vm-1", "memory") == ("site.yaml", 7, "2GiB")
    assert where(inventory, "nodes", "vm-1", "vmid") == ("base.yaml", 19, "101")


def test_a_placeholder_of_a_host_key_names_what_helps_there(loads: Loads) -> None:
    text = SITE.replace("address: 10.0.0.11 }", 'address: 10.0.0.11, ssh: { host_key: "SHA256:..." } }')
    text += '  metal: { address: 10.0.0.13, ssh: { user: root, host_key: "SHA256:..." } }\n'
    guest, metal = loads(text).placeholders()
    assert guest.remedy.startswith("remove it")
    assert "ssh-keygen -lf" in metal.remedy
    assert (
        "provision trust" not in guest.remedy + metal.remedy
    )  # it changes nothing where the inventory names one


@pytest.mark.parametrize("rest", ["", "nodes: {}\n", "nodes: null\n"])
def test_hypervisors_have_their_names_without_any_node(loads: Loads, rest: str) -> None:
    inventory = loads(SITE.partition("profiles:")[0] + rest)
    assert [hypervisor.name for hypervisor in inventory.hypervisors.values()] == ["pve"]


def test_a_name_within_a_hypervisor_is_told_without_any_node(fails: Fails) -> None:
    text = SITE.partition("profiles:")[0].replace(
        "    address: 10.0.0.5\n", "    address: 10.0.0.5\n    name: x\n"
    )
    (problem,) = fails(text)
    assert (problem.code, marked(problem)) == ("INVENTORY_UNKNOWN_KEY", "name")


@pytest.mark.parametrize("base", ["site.yaml", "./site.yaml", "loop.yaml"])
def test_a_loop_of_extends_is_an_error(write: Write, fails: Fails, base: str) -> None:
    write("extends: site.yaml\n", "loop.yaml")
    codes = {fail.code for fail in fails(f"extends: {base}\n" + SITE)}
    assert codes == {"INVENTORY_EXTENDS"}


def test_a_missing_base_is_marked_where_it_is_named(fails: Fails) -> None:
    problem = fails("extends: none.yaml\n" + SITE)[0]
    assert (problem.code, marked(problem)) == ("INVENTORY_UNREADABLE", "none.yaml")


def test_problems_of_a_base_are_shown_in_the_base(write: Write, fails: Fails) -> None:
    write(SITE.replace("memory: 1GiB", "memory: 1GB"), "base.yaml")
    (problem,) = fails("extends: base.yaml\nname: other\n")
    assert problem.source is not None
    assert Path(problem.source.file).name == "base.yaml"
    assert "did you mean 1GiB" in problem.summary


def test_overlays_come_last(loads: Loads, write: Write) -> None:
    overlay = write(
        "hypervisors: { pve: { ssh: { port: 2200 } } }\nimages: { debian-12: { url: https://x/y } }\n",
        "over.yaml",
    )
    inventory = loads(SITE, overlays=(overlay,))
    assert inventory.hypervisors["pve"].ssh.port == 2200
    assert inventory.images["debian-12"].url == "https://x/y"
    assert where(inventory, "hypervisors", "pve", "ssh", "port") == ("over.yaml", 1, "2200")


def test_another_sharing_mode_or_back_end_replaces_the_section(loads: Loads, write: Write) -> None:
    base = SITE.replace("backend: manual, ", "backend: dnsmasq, ssh: { user: root }, file: /etc/x, ")
    overlay = write("network: { dhcp: { backend: manual } }\n", "over.yaml")
    dhcp = loads(base, overlays=(overlay,)).network
    assert dhcp is not None
    assert dhcp.dhcp is not None
    assert (dhcp.dhcp.backend, dhcp.dhcp.file, dhcp.dhcp.range) == ("manual", None, None)


def test_a_range_makes_nodes_with_addresses_and_vm_numbers(loads: Loads) -> None:
    inventory = loads(SITE + '  "w-[08-11]": { profile: small, vmid: 200, address: 10.0.0.20-10.0.0.23 }\n')
    made = {name: (node.address, node.vmid) for name, node in inventory.nodes.items() if name.startswith("w")}
    assert made == {
        "w-08": ("10.0.0.20", 200),
        "w-09": ("10.0.0.21", 201),
        "w-10": ("10.0.0.22", 202),
        "w-11": ("10.0.0.23", 203),
    }
    assert where(inventory, "nodes", "w-10", "address") == ("site.yaml", 21, "10.0.0.20-10.0.0.23")


def test_a_range_spreads_rail_addresses_too(loads: Loads) -> None:
    inventory = loads(
        SITE + '  "g[1-2]": { address: 10.0.0.20-10.0.0.21, rails: { r0: { device: a } }, '
        "rail_addresses: { r0: 10.224.7.9-10.224.7.10/12 } }\n"
    )
    assert inventory.nodes["g1"].rail_addresses == {"r0": "10.224.7.9/12"}
    assert inventory.nodes["g2"].rail_addresses == {"r0": "10.224.7.10/12"}


@pytest.mark.parametrize(
    ("key", "address", "words"),
    [
        ("w-[1-3]", "10.0.0.20-10.0.0.21", "3 nodes, but 2 addresses"),
        ("w-[1-3]", "10.0.0.20", "3 nodes, but 1 addresses"),
        ("w-[1-3]", "here-there", "needs a range of addresses"),
        ("w-[3-1]", "10.0.0.20", "it ends before it begins"),
    ],
)
def test_a_range_that_does_not_fit_is_an_error(fails: Fails, key: str, address: str, words: str) -> None:
    problems = fails(SITE + f'  "{key}": {{ address: {address} }}\n')
    assert any(words in problem.summary and problem.code == "INVENTORY_RANGE" for problem in problems)


@pytest.mark.parametrize("keys", [("w-[1-30000]",), ("w-[1-10000]", "x-[1-20000]")])
def test_too_many_nodes_are_refused_with_their_number_and_the_limit(
    fails: Fails, keys: tuple[str, ...]
) -> None:
    text = SITE + "".join(f'  "{key}": {{ address: 10.0.0.20 }}\n' for key in keys)
    own = len(SITE.partition("nodes:\n")[2].splitlines())
    (problem,) = [fail for fail in fails(text) if fail.code == "INVENTORY_TOO_LARGE"]
    assert problem.summary == f"too many nodes: {30000 + own} (limit 20000)"
    assert problem.source is not None
    assert keys[-1] in problem.source.text


def test_driver_settings_merge_node_over_profile_over_gpu(loads: Loads) -> None:
    text = SITE.replace("disk: 4GiB }", "disk: 4GiB, driver: { version: newest-in-branch, hold: false } }")
    text = text.replace("gpus: [one]", "gpus: [one], driver: { hold: true }")
    inventory = loads(text + "gpu: { driver: { origin: ubuntu, branch: 580-server, version: '1' } }\n")
    driver = inventory.nodes["vm-2"].driver
    assert driver is not None
    assert (driver.origin, driver.branch, driver.version, driver.hold) == (
        "ubuntu",
        "580-server",
        "newest-in-branch",
        True,
    )
    assert where(inventory, "nodes", "vm-2", "driver", "branch")[2] == "580-server"


def test_cards_imply_the_machine_that_can_take_them(loads: Loads) -> None:
    nodes = loads(SITE).nodes
    plain, gpu = nodes["vm-1"], nodes["vm-2"]
    assert (
        plain.machine_type,
        plain.firmware,
        plain.cpu_type,
        plain.balloon_memory,
        plain.starts_at_boot,
    ) == (None,) * 5
    assert (gpu.machine_type, gpu.firmware, gpu.cpu_type) == ("q35", "ovmf", "host")
    assert (gpu.balloon_memory, gpu.starts_at_boot, gpu.power_state) == (0, False, "unmanaged")
    assert gpu.efi_disk is not None
    assert gpu.efi_disk.pre_enrolled_keys is False
    assert plain.managed_hostname == "vm-1"
    assert plain.grows_root


@pytest.mark.parametrize(
    ("typed", "mib"), [("off", 0), ("false", 0), ("0", 0), ("512MiB", 512), ("1GiB", 1024)]
)
def test_balloon_is_a_size_or_off(loads: Loads, typed: str, mib: int) -> None:
    assert (
        loads(SITE.replace("vmid: 101,", f"vmid: 101, balloon: {typed},")).nodes["vm-1"].balloon_memory == mib
    )


def test_a_mapping_under_gpus_says_what_must_be_shown(loads: Loads) -> None:
    text = (
        SITE
        + "  bare: { address: 10.0.0.20, gpus: { count: 8, memory: 80GiB } }\nexpect: { gpus: { one: { name: X } } }\n"
    )
    inventory = loads(text)
    node = inventory.nodes["bare"]
    assert node.gpus == ()
    assert node.gpu_cards is not None
    assert (node.gpu_cards.count, node.gpu_cards.memory, node.managed_hostname) == (8, 81920, None)
    assert inventory.expect.gpu_cards["one"].name == "X"


def test_selectors_follow_from_what_nodes_declare(loads: Loads) -> None:
    text = SITE.replace("vmid: 101,", "vmid: 101, k3s: server,").replace(
        "gpus: [one]", "gpus: [one], k3s: agent"
    )
    text += (
        "  bare: { address: 10.0.0.20, rails: { r0: { device: eth1 } } }\nk3s: { version: v1.35.7+k3s1 }\n"
    )
    inventory = loads(text)
    loaded = {
        selector: [each.name for each in select(inventory, selector)]
        for selector in (
            "hypervisors",
            "nodes",
            "nodes.virtual",
            "nodes.gpu",
            "nodes.rdma",
            "nodes.k3s_server",
            "nodes.k3s_agent",
            "cluster",
        )
    }
    assert loaded == {
        "hypervisors": ["pve"],
        "nodes": ["vm-1", "vm-2", "bare"],
        "nodes.virtual": ["vm-1", "vm-2"],
        "nodes.gpu": ["vm-2"],
        "nodes.rdma": ["bare"],
        "nodes.k3s_server": ["vm-1"],
        "nodes.k3s_agent": ["vm-2"],
        "cluster": ["cluster"],
    }
    with pytest.raises(UsageError, match=r"did you mean nodes\.gpu"):
        select(inventory, "nodes.gpus")


def test_consent_follows_the_policy_and_its_defaults(loads: Loads) -> None:
    inventory = loads(SITE + "policy: { allow: [reboot-guest], ask: [restart], never: [delete] }\n")
    consents = [inventory.consent(each) for each in ("reboot-guest", "restart", "delete", "initramfs")]
    assert consents == [Consent.ALLOW, Consent.ASK, Consent.NEVER, None]


def test_a_login_is_the_hosts_own_over_access(loads: Loads, tmp_path: Path) -> None:
    text = SITE.replace("key: ~/.ssh/id", "key: ./keys/id, port: 2222, jump: bastion, known_hosts: /k")
    text = text.replace("vmid: 101,", "vmid: 101, ssh: { user: root, port: 22 },")
    inventory = loads(text)
    key = tmp_path / "keys" / "id"
    assert inventory.login("vm-1") == Login("10.0.0.11", "root", 22, key, "bastion", Path("/k"), None)
    assert inventory.login("vm-2") == Login("10.0.0.12", "debian", 2222, key, "bastion", Path("/k"), None)
    assert inventory.login("pve") == Login("10.0.0.5", "root", None, key, None, Path("/k"), None)
    with pytest.raises(KeyError):
        inventory.login("nobody")


def test_a_login_may_do_without_sudo(loads: Loads) -> None:
    inventory = loads(SITE.replace("vmid: 101,", "vmid: 101, ssh: { sudo: false },"))
    assert [inventory.login(name).sudo for name in ("vm-1", "vm-2", "pve")] == [False, True, True]


def test_paths_of_a_base_start_at_the_base(loads: Loads, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "base.yaml").write_text(SITE.replace("key: ~/.ssh/id", "key: ./id"))
    inventory = loads("extends: sub/base.yaml\naccess: { known_hosts: ./known }\n")
    assert inventory.access.key == tmp_path / "sub" / "id"
    assert inventory.access.known_hosts == tmp_path / "known"


def test_no_proxy_names_what_the_site_needs(loads: Loads) -> None:
    inventory = loads(SITE + "proxy: { url: 'http://p:3128', no_proxy: [reg.lab, localhost] }\n")
    assert inventory.no_proxy == ("localhost", "127.0.0.1", "10.0.0.5", "10.0.0.11", "10.0.0.12", "reg.lab")


def test_the_digest_follows_the_content_only(loads: Loads) -> None:
    first = loads(SITE).digest
    assert loads(SITE + "# a comment\n").digest == first
    assert loads(SITE.replace("memory: 1GiB", "memory: 2GiB")).digest != first


def test_vars_are_the_nodes_over_the_profiles_over_the_sites(loads: Loads) -> None:
    text = SITE.replace("disk: 4GiB }", "disk: 4GiB, vars: { b: 2, c: 2 } }").replace(
        "vmid: 101,", "vmid: 101, vars: { c: 3 },"
    )
    inventory = loads(text + "vars: { a: 1, b: 1 }\n")
    assert inventory.vars_of("vm-1") == {"a": 1, "b": 2, "c": 3}
    assert inventory.vars_of("pve") == {"a": 1, "b": 1}


def test_a_shared_list_of_resources_is_one_object(loads: Loads) -> None:
    resources = "host_resources: [{ kind: package, name: x }]"
    inventory = loads(SITE.replace("disk: 4GiB }", f"disk: 4GiB, {resources} }}"))
    assert inventory.nodes["vm-1"].host_resources is inventory.nodes["vm-2"].host_resources


def test_every_problem_comes_at_once_in_order_of_the_file(fails: Fails) -> None:
    text = (
        SITE.replace("user: debian", "usr: debian")
        .replace("memory: 1GiB", "memory: 1GB")
        .replace("address: 10.0.0.11", "address: 10.0.1.11")
        .replace("vmid: 102", "vmid: 101")
    )
    problems = fails(text + "nodse: {}\n")
    places = [(problem.code, marked(problem)) for problem in problems]
    assert places == [
        ("INVENTORY_MISSING_KEY", "access"),
        ("INVENTORY_UNKNOWN_KEY", "usr"),
        ("INVENTORY_VALUE", "1GB"),
        ("INVENTORY_NETWORK", "10.0.1.11"),
        ("INVENTORY_DUPLICATE", "101"),
        ("INVENTORY_UNKNOWN_KEY", "nodse"),
    ]
    assert "did you mean user?" in " ".join(problem.summary for problem in problems)
    assert "did you mean nodes?" in problems[-1].summary


def test_a_wrong_inventory_exits_64(write: Write) -> None:
    with pytest.raises(UsageError) as caught:
        load(write("a: 1\n"))
    assert caught.value.exit_code == ExitCode.USAGE


LOCK = f"version: 1\nimages: {{ debian-12: {{ url: https://images.example/debian.img, sha256: '{'cd' * 32}' }} }}\n"


def test_the_lock_pins_what_the_inventory_leaves_open(loads: Loads, write: Write) -> None:
    text = SITE.replace("ab" * 32, "<64 hex digits>")
    assert [placeholder.code for placeholder in loads(text).placeholders()] == ["PLACEHOLDER"]
    assert loads(text).image_pin("debian-12") is None
    write(LOCK, "provision.lock.yaml")
    inventory = loads(text)
    pin = inventory.image_pin("debian-12")
    assert pin is not None
    assert (pin.url, pin.sha256) == ("https://images.example/debian.img", "cd" * 32)
    assert inventory.placeholders() == []


def test_a_pin_of_another_url_is_none(loads: Loads, write: Write) -> None:
    write(LOCK.replace("debian.img", "older.img"), "provision.lock.yaml")
    inventory = loads(SITE.replace("ab" * 32, "<64 hex digits>"))
    assert inventory.image_pin("debian-12") is None
    assert [placeholder.code for placeholder in inventory.placeholders()] == ["PLACEHOLDER"]


def test_a_broken_lock_is_a_usage_error(write: Write, fails: Fails) -> None:
    write("version: 2\nimages: { a: { url: x } }\nother: 1\n", "provision.lock.yaml")
    problems = fails(SITE)
    assert [problem.code for problem in problems] == ["LOCK_INVALID"] * 3


@pytest.mark.parametrize("kind", ["[file]", "{ a: b }", "null", "7", "nosuch"])
def test_a_kind_of_resource_that_is_none_is_refused(fails: Fails, kind: str) -> None:
    more = f"    host_resources: [{{ kind: {kind}, path: /etc/x }}]\n"
    assert "kind" in str(fails(SITE + more))

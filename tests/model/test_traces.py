"""`destroy --host` leaves nothing of ours on machines that stay; every write of the run is looked at."""

from __future__ import annotations

import copy
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from provision.api import Options
from provision.api.domains import load_inventory as load
from provision.hosts.apt_sources import RELEASES
from provision.testing.model_state import HostState, ModelFile
from tests.model.model_site import LEASES, ModelSite
from tests.model.verify.conftest import INVENTORY, OWN
from tests.traces import is_named, own_places

METAL = """
version: 1
name: metal
access: { user: root }
policy: { allow: [reboot-node] }
proxy: { url: "http://198.51.100.9:3128" }
sources: { apt: "https://mirror.example/debian" }
storage:
  models: { path: /srv/models, manage: true, server: "198.51.100.3:/models", same_on_all: true }
nodes:
  n1:
    address: 198.51.100.1
    hostname: n1
    timezone: Etc/UTC
    ntp: [198.51.100.2]
    swap: off
    packages: [curl]
    sysctl: { vm.max_map_count: 262144 }
    modules: [br_netfilter]
    hosts: { registry.lab: 198.51.100.3 }
    unattended_upgrades: keep_kernel
    driver: { origin: debian, branch: "580", hold: true, power_limit: 300, nvlink: false }
    gpu_cards: { count: 1 }
    host_resources:
      - { kind: file, path: /etc/app, content: "ours\\n" }
      - { kind: file, path: /etc/motd, content: "ours\\n" }
      - { kind: kernel_module, name: dummy, options: numdummies=2 }
      - { kind: kernel_module, name: pcspkr, blacklisted: true }
"""
KEPT = {
    "/etc/fstab": "swap lines stay comments: the machine runs without swap",
    "/etc/hosts": "names that others may use by now",
    "/etc/hostname": "the name by which others know the machine",
    "/etc/localtime": "the zone in which its logs are written",
    "/etc/timezone": "the same",
    "/home/debian/.ssh/authorized_keys": "without it nobody might get in",
    "/etc/site": "a command made it: nobody knows what else is in it",
    LEASES: "dnsmasq's own",
}
"""What docs/roles/base_os.md says that it stays."""
ELSEWHERE = {
    "/etc/chrony/sources.d/provision.sources": "the other time daemon",
    "/etc/cloud/cloud.cfg.d/90-provision-host-keys.cfg": "on VMs alone, which go as a whole",
    "/etc/initramfs-tools/scripts/init-top/provision-cards": "of a card with a twin: test_host_drivers.py",
    "*/*.provision-**": "copies of kernel lines, for a person: test_orphans.py",
    "*/.provision-*.*": "a folder in which a write happens: test_placement_race.py",
    "*/provision-pve*": "a list of repositories: without any, the host gets no updates",
    "*/provision-sharing*": "of a label",
    "/provision-": "the beginning of a name",
    "/etc/modules-load.d/provision-nvidia_peermem.conf": "while the driver is not loaded: test_driver.py",
    "/run/provision-fabric-reset": "goes with the boot: test_fabric.py",
    "/var/lib/provision": "notes of what was before: test_saved_files.py",
    "/var/lib/provision/": "the same",
    "/var/lib/provision/reserved": "a person's word: test_manual_dhcp.py",
}
"""Places of the list that these sites do not write, and who does."""


class Recorded(dict[str, ModelFile]):
    """Files that keep what each path held before it was first written."""

    def __init__(self, files: dict[str, ModelFile]) -> None:
        super().__init__(files)
        self.before: dict[str, ModelFile | None] = {}

    def _note(self, path: str) -> None:
        self.before.setdefault(path, copy.copy(self.get(path)))

    def __setitem__(self, path: str, file: ModelFile) -> None:
        self._note(path)
        super().__setitem__(path, file)

    def pop(self, path: str, *default: Any) -> Any:
        self._note(path)
        return super().pop(path, *default)


def recorded(site: ModelSite) -> dict[str, HostState]:
    """Let each machine that stays keep what its paths held."""
    for host in site.hosts.values():
        host.state.files = Recorded(host.state.files)
    return {name: host.state for name, host in site.hosts.items()}


def left(state: HostState) -> dict[str, str]:
    """Return what of the written paths is not as before; empty folders do no harm."""
    files = state.files
    assert isinstance(files, Recorded)
    present = {path: files.get(path) for path in files.before}
    return {
        path: "written" if before is None else "changed"
        for path, before in files.before.items()
        if present[path] != before and getattr(present[path], "type", "") != "directory"
    }


def tiny(folder: Path) -> ModelSite:
    for name, text in OWN.items():
        (folder / name).write_text(text)
    return site_of(folder, INVENTORY)


def metal(folder: Path) -> ModelSite:
    site = site_of(folder, METAL)
    files = site.hosts["n1/ssh"].state.files
    files["/etc/motd"] = ModelFile(b"theirs\n", "0640")
    files.update({release.keyring: ModelFile(b"keys") for release in RELEASES.values()})
    return site


def site_of(folder: Path, text: str) -> ModelSite:
    (folder / "site.yaml").write_text(text)
    return ModelSite(load(folder / "site.yaml"), folder / "state")


ALL = Options(host=True, allow=frozenset({"delete"}))


@pytest.fixture(autouse=True)
def _tasks_end_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provision.proxmox.driver.FIRST_POLL", 0.0)


def test_nothing_is_left_and_a_second_destroy_changes_nothing(tmp_path: Path) -> None:
    written: set[str] = set()
    for make in (tiny, metal):
        folder = tmp_path / make.__name__
        folder.mkdir()
        site = make(folder)
        states = recorded(site)
        report = site.apply()
        assert report.exit_code == 0, [step for step in report.steps if step.diagnostics]
        report = site.destroy(ALL)
        assert report.exit_code == 0, [step for step in report.steps if step.diagnostics]
        for name, state in states.items():
            assert {path: what for path, what in left(state).items() if path not in KEPT} == {}, name
            assert isinstance(state.files, Recorded)
            written |= {path for path, before in state.files.before.items() if before is None}
        report = site.destroy(ALL)
        assert {str(step.outcome) for step in report.steps} <= {"unchanged"}
    own = {path for path in written if "provision" in path}
    assert {path for path in own if not is_named(path)} == set(), "the list lacks a place"
    unwritten = {
        place for place in own_places() if not any(fnmatchcase(path, place) for path in own)
    } - ELSEWHERE.keys()
    assert unwritten == set(), "no site writes it: declare it here, or say who does"


def test_files_of_what_left_the_inventory_go_too(tmp_path: Path) -> None:
    site = metal(tmp_path)
    state = site.hosts["n1/ssh"].state
    site.apply()
    lines = METAL.splitlines(keepends=True)
    less = "".join(line for line in lines if not line.strip().startswith(("sysctl:", "driver:", "ntp:")))
    site.inventory = site_of(tmp_path, less).inventory
    assert "/etc/apt/apt.conf.d/52provision-gpu" in state.files
    assert site.destroy(ALL).exit_code == 0
    assert [path for path in state.files if "provision" in path.rpartition("/")[2]] == []


def test_a_file_with_our_name_that_somebody_else_made_stays(tmp_path: Path) -> None:
    site = metal(tmp_path)
    state = site.hosts["n1/ssh"].state
    for path in ("/etc/sysctl.d/provision-theirs.conf", "/etc/modprobe.d/provision-theirs.conf"):
        state.files[path] = ModelFile(b"theirs\n")
    before = dict(state.files)
    site.apply()
    site.destroy(ALL)
    assert {path: state.files.get(path) for path in before if "theirs" in path} == {
        path: file for path, file in before.items() if "theirs" in path
    }


def test_a_line_of_fstab_beside_somebody_s_own_stays(tmp_path: Path) -> None:
    site = metal(tmp_path)
    state = site.hosts["n1/ssh"].state
    site.apply()
    state.files["/etc/fstab"].content += b"other:/x /srv/models nfs defaults 0 0\n"
    site.destroy(ALL)
    assert b"other:/x /srv/models nfs defaults 0 0\n" in state.files["/etc/fstab"].content

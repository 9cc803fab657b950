"""`verify --break` on models: one thing is damaged, and the report turns red for it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

import pytest

from provision.api.breaking import break_check, breakable
from provision.api.domains import check_folders
from provision.hosts.operations.basic import sysctl_file
from provision.testing.model_host import HostState, ModelFile
from provision.values.errors import Permanent, UsageError
from provision.verify.claims import check_names
from tests.model.model_site import ModelSite
from tests.model.verify.cluster_damages import freeze


def _append(state: HostState, text: str, path: str) -> None:
    line = shlex.split(text)[0].replace("\\n", "")
    state.files.setdefault(path, ModelFile()).content += f"{line}\n".encode()


def _write(state: HostState, text: str, path: str) -> None:
    state.files[path] = ModelFile()
    _append(state, text, path)


def _without_line(state: HostState, line: str, path: str) -> None:
    rows = state.text(path).split("\n")
    state.files[path].content = "\n".join(row for row in rows if row != shlex.split(line)[0]).encode()


def _sysctl(state: HostState, name: str, value: str) -> None:
    state.sysctls[sysctl_file(name)] = value


def _sysctl_file(state: HostState, name: str, value: str) -> None:
    for path in state.below("/etc/sysctl.d/", ".conf"):
        if state.text(path).startswith(f"{name} "):
            state.files[path].content = f"{name} = {value}\n".encode()


def _reserve(state: HostState, address: str, mac: str, folder: str) -> None:
    for path in state.below(f"{folder}/"):
        text = state.text(path)
        state.files[path].content = re.sub(rf"(?m)^[^,]*,{address},", f"{mac},{address},", text).encode()


SCRIPTS: tuple[tuple[str, Callable[..., object]], ...] = (
    (r"printf (?:'%s\\n' )?('[^']*'|\S+) >> (\S+)", _append),
    (r"printf (?:'%s\\n' )?('[^']*'|\S+) > (\S+)", _write),
    (r": > (\S+)", lambda state, path: state.files.__setitem__(path, ModelFile())),
    (r"\{ grep -vxF -e ('[^']*') -- (\S+) .*", _without_line),
    (r"touch (\S+)", lambda state, path: state.files.__setitem__(path, ModelFile())),
    (r"rm -rf (\S+)", lambda state, path: state.files.pop(path)),
    (r"dpkg --force-all --remove (\S+)", lambda state, name: state.packages.pop(name)),
    (r"apt-mark unhold (\S+)", lambda state, name: state.held.discard(name)),
    (r"systemctl stop (\S+)", lambda state, name: setattr(state.units[name], "active", False)),
    (r"systemctl disable (\S+)", lambda state, name: setattr(state.units[name], "file", "disabled")),
    (r"sed -i 's/\^(\S+) .*= (\d+)/' /etc/sysctl.d/\*.conf", _sysctl_file),
    (r"sed -i 's/\^\[\^,\]\*,([\d.]+),/([\d:]+),.*/' (\S+)/\*", _reserve),
    (r"sysctl -w (\S+)=(\S+)", _sysctl),
    (r"modprobe -r (\S+)", lambda state, name: state.modules.discard(name)),
)
"""What the damages do to a host, by the form of their script."""


def damage(state: HostState, script: str) -> None:
    for pattern, do in SCRIPTS:
        match = re.fullmatch(pattern, script, re.DOTALL)
        if match is not None:
            do(state, *match.groups())
            return
    raise AssertionError(f"unknown damage: {script}")


@pytest.fixture
def models(site: ModelSite, monkeypatch: pytest.MonkeyPatch) -> ModelSite:
    for host in site.hosts.values():
        monkeypatch.setattr(host, "_on_script", damage)
    return site


@pytest.mark.parametrize(
    "check",
    [
        "test_files",
        "test_lines",
        "test_packages",
        "test_held_packages",
        "test_services",
        "test_kernel_parameters",
        "test_kernel_parameters_at_next_boot",
        "test_modules_are_loaded",
        "test_hostname",
        "test_name",
        "test_nothing_is_pending",
        "test_mappings",
        "test_blacklist_at_next_boot",
        "test_address_is_reserved",
    ],
)
def test_what_is_broken_on_purpose_turns_the_report_red(models: ModelSite, check: str) -> None:
    site = models.site()
    try:
        broken = break_check(site, check)
    finally:
        site.close()
    assert broken.is_red, broken.what
    assert broken.report.exit_code(strict=False) == 3
    assert not models.plan().empty, "apply repairs it"


@pytest.mark.parametrize(
    "check",
    [
        "test_gpu_policy_is_ready",
        "test_gpu_labels",
        "test_gpus_are_allocatable",
        "test_sharing_queues",
        "test_one_plugin_offers_the_cards",
        "test_cards_compute_in_pods",
        "test_pods_may_lock_memory",
    ],
)
def test_a_cluster_that_is_broken_on_purpose_turns_the_report_red(
    site: ModelSite, monkeypatch: pytest.MonkeyPatch, check: str
) -> None:
    def damage_node(_state: HostState, script: str) -> None:
        if script == "nvidia-smi -c PROHIBITED":
            site.cluster.cuda.code = 1
        else:
            assert "LimitMEMLOCK=65536" in script
            site.cluster.cuda.memlock = "64"

    for host in site.hosts.values():
        monkeypatch.setattr(host, "_on_script", damage_node)
    freeze(site)
    opened = site.site()
    try:
        broken = break_check(opened, check)
    finally:
        opened.close()
    assert broken.is_red, broken.what


def test_a_check_that_is_not_proven_breaks_nothing(models: ModelSite) -> None:
    models.hosts["vm/ssh"].state.files["/etc/nologin"] = ModelFile()
    before = models.dump()
    site = models.site()
    try:
        with pytest.raises(Permanent, match="CHECK_NOT_PROVEN"):
            break_check(site, "test_absent_files")
        with pytest.raises(UsageError, match="CHECK_NOT_BREAKABLE"):
            break_check(site, "test_flies")
    finally:
        site.close()
    assert models.dump() == before


def test_machines_outside_a_lab_are_never_broken(models: ModelSite) -> None:
    site = models.site()
    site.open_driver = None
    with pytest.raises(UsageError, match="BREAK_OUTSIDE_LAB"):
        break_check(site, "test_files")


def test_what_can_be_broken_are_checks() -> None:
    assert len(breakable()) >= 24
    assert set(breakable()) <= check_names(check_folders())

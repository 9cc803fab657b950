"""What is refused, with its code and its exit code, and that nothing was touched.

Not here, because a container has neither cards nor bridges: shared IOMMU groups, consoles that start at
boot, bridges that are not there; the story on virtual machines and the tests of preflight have them.
"""

from __future__ import annotations

import copy
import fcntl
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.e2e.site import HYPERVISOR, ROUTER, Site, brought_up, eventually, inventory

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and containers"),
]
GUEST = "198.18.0.11"
Declared = dict[str, Any]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Site:
    declared = inventory("e2e-c-refusals", nodes=1)
    # Of the user's own known hosts nothing is believed here.
    empty = tmp_path_factory.mktemp("trust") / "known_hosts"
    empty.write_text("")
    declared["access"]["known_hosts"] = str(empty)
    declared["policy"] = {"allow": ["delete"]}
    made = Site(tmp_path_factory.mktemp("refusals"), declared)
    return brought_up(made, request)


def everything(site: Site, *addresses: str) -> set[str]:
    """Return all that a run could have touched: machines, configurations, volumes, tasks."""
    files = (f"api {name}: {text}" for name, text in site.api_files().items())
    return {*files, *site.dump(ROUTER, HYPERVISOR, *addresses)}


@pytest.fixture
def overlay(site: Site) -> Iterator[Callable[[str, str], None]]:
    """Change the lab's overlay for one test; it is what a user would have written of the real site."""
    file = site.lab / "site.yaml"
    before = file.read_text()

    def change(pattern: str, by: str) -> None:
        text, count = re.subn(pattern, by, file.read_text())
        assert count == 1, (pattern, count)
        file.write_text(text)

    yield change
    file.write_text(before)


@dataclass(frozen=True)
class Case:
    """A refusal: what is declared or pinned wrongly, and how the run must end."""

    name: str
    code: str
    exit_code: int = 4
    declare: Callable[[Declared], object] | None = None
    pin: tuple[tuple[str, str], ...] = ()
    says: str = ""


def _set(*path: str | int, value: Any) -> Callable[[Declared], object]:
    def change(declared: Any) -> None:
        for word in path[:-1]:
            declared = declared[word]
        declared[path[-1]] = value

    return change


_SMALL = ("profiles", "small")
_PVE = ("hypervisors", "pve")
_OTHER = "A" * 43
CASES = (
    Case(
        "more memory than the host has",
        "HOST_MEMORY_OVERCOMMIT",
        declare=_set(*_SMALL, "memory", value="2TiB"),
    ),
    Case("more cores than the host has", "CORES_EXCEED_HOST", declare=_set(*_SMALL, "cores", value=512)),
    Case(
        "a storage without snippets",
        "STORAGE_NO_SNIPPETS",
        declare=_set(*_PVE, "storage", "snippets", value="local-disks"),
    ),
    Case(
        "a certificate that is not the pinned one",
        "CERTIFICATE_UNKNOWN",
        pin=((r'fingerprint: "[0-9A-F]{2}', 'fingerprint: "00'),),
    ),
    Case(
        "a hypervisor's key that nobody accepted",
        "HOST_KEY_UNKNOWN",
        pin=((r'(hypervisors:(?:.*\n)*?.*site")\n +host_key: .*\n', r"\1\n"),),
        says="provision trust",
    ),
    Case(
        "a router's key that nobody accepted",
        "HOST_KEY_UNKNOWN",
        pin=((r'(network:(?:.*\n)*?.*site")\n +host_key: .*\n', r"\1\n"),),
        says="provision trust",
    ),
    Case(
        "a hypervisor's key that is another",
        "HOST_KEY_CHANGED",
        pin=((r'(hypervisors:(?:.*\n)*?.*site"\n +host_key: ).*\n', rf'\1"SHA256:{_OTHER}"\n'),),
    ),
    Case(
        "a hypervisor that does not answer",
        "HOST_UNREACHABLE",
        exit_code=1,
        declare=_set(*_PVE, "ssh", "port", value=2222),
    ),
    Case(
        "an API that does not answer",
        "API_UNREACHABLE",
        exit_code=1,
        pin=((r"url: https://(.*):8006", r"url: https://\1:8007"),),
    ),
    Case("a token that is wrong", "API_AUTH_FAILED", exit_code=1, pin=((r"pve!lab", "pve!other"),)),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_refused_before_anything_is_touched(
    site: Site, overlay: Callable[[str, str], None], case: Case
) -> None:
    declared = copy.deepcopy(site.declared)
    if case.declare is not None:
        case.declare(declared)
    for pattern, by in case.pin:
        overlay(pattern, by)
    before = everything(site)
    file = site.write(site.folder / "wrong.yaml", declared)
    result = site.provision("apply", file, "--yes").ended(case.exit_code)
    assert case.code in result.codes(), result.said
    assert case.says in " ".join(result.said.split())
    assert everything(site) == before


def test_without_the_router_no_vm_is_made(site: Site) -> None:
    declared = copy.deepcopy(site.declared)
    declared["network"]["dhcp"]["ssh"]["port"] = 2222
    before = everything(site)
    result = site.provision("apply", site.write(site.folder / "silent.yaml", declared), "--yes").ended(1)
    assert "HOST_UNREACHABLE" in result.codes()
    # What does not depend on it goes on: the hypervisor's own files, and the image.
    changed = {line for line in everything(site) ^ before if "debian-12-" not in line}
    assert {line for line in changed if not line.startswith(f"{HYPERVISOR}: ")} == set()
    assert not list((site.lab / "api/qemu-server").iterdir())


def test_a_vmid_of_somebody_else_is_refused(site: Site) -> None:
    theirs = site.lab / "api/qemu-server/201.conf"
    theirs.write_text("cores: 1\nmemory: 128\nname: somebody\n")
    try:
        before = everything(site)
        result = site.apply().ended(4)
        assert result.codes() == {"VMID_TAKEN_FOREIGN"}
        assert "provision import" in result.said
        assert everything(site) == before
        site.provision("destroy", site.file, "--yes")
        assert everything(site) == before
    finally:
        theirs.unlink()


def request(site: Site, method: str, path: str, **fields: str) -> Any:
    """Ask the lab's API as its administrator would, with curl."""
    token = (site.lab / "keys/token").read_text().strip()
    lines = [
        f'header = "Authorization: PVEAPIToken=provision@pve!lab={token}"',
        f"request = {method}",
        f'url = "https://{HYPERVISOR}:8006/api2/json{path}"',
        *(f'data-urlencode = "{key}={value}"' for key, value in fields.items()),
    ]
    argv = ["curl", "-sS", "--fail", "--cacert", str(site.lab / "keys/api.pem"), "-K", "-"]
    return json.loads(site.inside(argv, "\n".join(lines)))["data"]


def test_a_token_without_rights_is_refused(site: Site, overlay: Callable[[str, str], None]) -> None:
    made = request(site, "POST", "/access/users/provision@pve/token/weak", privsep="1")
    secret = site.folder / "weak"
    secret.write_text(made["value"] + "\n")
    secret.chmod(0o600)
    overlay(r"pve!lab", "pve!weak")
    overlay(r'file: ".*keys/token"', f'file: "{secret}"')
    before = everything(site)
    result = site.apply().ended(4)
    assert "PVE_PRIV_MISSING" in result.codes(), result.said
    assert everything(site) == before


def test_a_wrong_checksum_is_a_failed_step_that_leaves_no_file(
    site: Site, overlay: Callable[[str, str], None]
) -> None:
    def kept() -> list[str]:
        return [name for name in site.api_files() if not name.startswith("tasks/")]

    before = kept()
    overlay(r'sha256: "[0-9a-f]{4}', 'sha256: "0123')
    result = site.apply().ended(1)
    assert "checksum" in result.said
    assert kept() == before
    assert not list((site.lab / "api/storage").rglob("*0123*"))


@pytest.mark.parametrize("words", [("apply",), ("destroy",)])
def test_nobody_to_ask_and_no_confirmation_is_wrong_usage(site: Site, words: tuple[str, ...]) -> None:
    before = everything(site)
    result = site.provision(*words, site.file).ended(64)
    assert result.codes() == {"CONFIRMATION_MISSING"}
    assert "--yes" in result.said
    assert everything(site) == before


def test_destroy_needs_allow_delete_where_the_policy_does_not_allow_it(site: Site) -> None:
    declared = copy.deepcopy(site.declared)
    declared["policy"] = {}
    file = site.write(site.folder / "careful.yaml", declared)
    before = everything(site)
    result = site.provision("destroy", file, "--yes").ended(64)
    assert "--yes --allow delete" in result.said
    assert everything(site) == before


def test_a_site_that_another_run_holds_is_left_alone(site: Site) -> None:
    before = everything(site)
    lock = site.state / site.name / "lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        held.write(
            '{"run": "20200101-000000-abcdef", "who": "somebody@elsewhere", "pid": 1, "since": 1577836800}'
        )
        held.flush()
        result = site.apply().ended(6)
    assert result.codes() == {"LOCKED"}
    assert "somebody@elsewhere" in result.said
    assert everything(site) == before


# ---------------------------------------------------------------- with a guest


@pytest.fixture(scope="module")
def built(site: Site) -> Site:
    site.apply().ended(0)
    return site


def held(site: Site) -> str:
    """Return the process that holds the guest: another one after every boot."""
    return (site.lab / "guests/201/pid").read_text()


def test_a_saved_plan_that_is_stale_is_refused(built: Site) -> None:
    built.on(GUEST, "echo changed >/etc/site/purpose")
    saved = built.folder / "saved.plan"
    built.provision("plan", built.file, "--out", saved).ended(0)
    built.on(GUEST, "echo changed again >/etc/site/purpose; rm /etc/chrony/conf.d/site.conf")
    before = everything(built, GUEST)
    result = built.provision("apply", saved, "--yes").ended(4)
    assert result.codes() == {"PLAN_STALE"}
    assert "/etc/site/purpose" in result.said
    assert everything(built, GUEST) == before
    built.provision("plan", built.file, "--out", saved).ended(0)
    built.provision("apply", saved, "--yes").ended(0)
    assert built.on(GUEST, "cat /etc/site/purpose") == "rehearsal\n"


def test_what_nobody_consented_to_waits_and_the_rest_goes_on(built: Site) -> None:
    declared = copy.deepcopy(built.declared)
    declared["profiles"]["small"]["memory"] = "832MiB"
    declared["profiles"]["small"]["host_resources"][0]["content"] = "another\n"
    file = built.write(built.folder / "grown.yaml", declared)
    boot = held(built)
    result = built.provision("apply", file, "--yes").ended(5)
    assert "power-cycle" in result.said
    assert "--allow power-cycle" in result.said
    assert held(built) == boot
    assert built.on(GUEST, "cat /etc/site/purpose") == "another\n"
    built.provision("apply", file, "--yes").ended(5)
    built.provision("apply", file, "--yes", "--allow", "power-cycle").ended(0)
    assert "memory: 832" in built.config(201)
    assert eventually(lambda: built.on(GUEST, "cat /etc/site/purpose")) == "another\n"
    built.provision("plan", file, "--detailed-exitcode").ended(0)


def test_what_is_never_allowed_no_flag_allows(built: Site) -> None:
    declared = copy.deepcopy(built.declared)
    declared["policy"] = {"never": ["power-cycle"]}
    declared["profiles"]["small"]["memory"] = "896MiB"
    file = built.write(built.folder / "never.yaml", declared)
    boot = held(built)
    built.provision("apply", file, "--yes", "--allow", "power-cycle").ended(5)
    assert held(built) == boot


def test_nothing_of_the_lab_is_left(site: Site) -> None:
    site.down()

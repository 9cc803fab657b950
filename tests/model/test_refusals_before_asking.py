"""What is refused before any system is asked: unserved options, secrets and files that cannot be opened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from provision.api import Options
from provision.api.domains import load_inventory as load
from provision.values.cancel import Cancel
from provision.values.errors import UsageError
from tests.model.model_site import ModelSite

FINGERPRINT = ":".join(["AA"] * 32)
HOST_KEY = "SHA256:" + "A" * 43
TEXT = f"""\
version: 1
name: promises
access: {{ user: debian, key: ./key }}
policy: {{ allow: [reboot-hypervisor, reboot-guest, power-cycle, delete] }}
network:
  cidr: 10.0.0.0/24
  gateway: 10.0.0.1
  dhcp: {{ backend: dnsmasq, ssh: {{ key: ./router-key, host_key: "{HOST_KEY}" }} }}
images: {{ debian-12: {{ url: "https://images.test/d.qcow2", sha256: "{"ab" * 32}" }} }}
hypervisors:
  pve:
    address: 10.0.0.5
    api:
      token_id: p@pve!x
      token: !secret {{ file: ./token }}
      fingerprint: "{FINGERPRINT}"
    ssh: {{ host_key: "{HOST_KEY}" }}
    host_resources:
      - {{ kind: file, path: /etc/one, template: ./one.j2 }}
profiles:
  small:
    hypervisor: pve
    image: debian-12
    cores: 1
    memory: 1GiB
    disk: 4GiB
    host_resources:
      - {{ kind: file, path: /etc/two, template: ./two.j2 }}
      - {{ kind: file, path: /etc/three, secret: !secret {{ env: PROVISION_TEST_THREE }} }}
nodes:
  vm-1: {{ profile: small, vmid: 101, address: 10.0.0.11 }}
  vm-2:
    profile: small
    vmid: 102
    address: 10.0.0.12
    host_resources:
      - {{ kind: file, path: /etc/four, secret: !secret {{ command: [cat, ./four] }} }}
  metal: {{ address: 10.0.0.20, ssh: {{ key: ./metal-key }}, sysctl: {{ vm.swappiness: 10 }} }}
"""
FILES = ("key", "key.pub", "router-key", "metal-key", "token", "one.j2", "two.j2", "four")

MORE = """\
    host_resources:
      - { kind: file, path: /etc/zero, secret: !secret { env: PROVISION_TEST_THREE } }
      - { kind: file, path: /etc/one,"""

Makes = Callable[..., ModelSite]


@pytest.fixture(autouse=True)
def _tasks_end_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provision.proxmox.driver.FIRST_POLL", 0.0)


@pytest.fixture
def makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Makes:
    """Make a site whose controller lacks some files."""

    def make(*missing: str, env: bool = True, text: str = TEXT) -> ModelSite:
        for name in FILES:
            (tmp_path / name).unlink(missing_ok=True)
            if name not in missing:
                (tmp_path / name).write_text(
                    "ssh-ed25519 AAAA me\n" if name.endswith(".pub") else "content\n"
                )
        monkeypatch.delenv("PROVISION_TEST_THREE", raising=False)
        if env:
            monkeypatch.setenv("PROVISION_TEST_THREE", "three")
        file = tmp_path / "promises.yaml"
        file.write_text(text.replace("[cat, ./four]", f"[cat, {tmp_path}/four]"))
        return ModelSite(load(file), tmp_path / "state")

    return make


def problems_of(call: Callable[[], object]) -> list[tuple[str, str]]:
    """Return the code of each problem with what its mark covers; it is one error that exits 64."""
    with pytest.raises(UsageError) as caught:
        call()
    assert int(caught.value.exit_code) == 64
    found = []
    for each in caught.value.diagnostics:
        assert each.source is not None, each
        marked = each.source.text[each.source.column - 1 :][: each.source.width]
        found.append((each.code, marked))
    return found


def trips(site: ModelSite) -> int:
    return sum(host.round_trips for host in site.hosts.values()) + sum(
        api.requests for api in site.apis.values()
    )


ALL = [
    ("FILE_UNREADABLE", "./key"),
    ("FILE_UNREADABLE", "./router-key"),
    ("SECRET_UNREADABLE", "!secret"),
    ("FILE_UNREADABLE", "./one.j2"),
    ("FILE_UNREADABLE", "./two.j2"),
    ("SECRET_UNREADABLE", "!secret"),
    ("SECRET_UNREADABLE", "!secret"),
    ("FILE_UNREADABLE", "./metal-key"),
    ("CHECK_UNKNOWN", "test_clok"),
]
"""In the order of their lines."""


@pytest.mark.parametrize("verb", ["plan", "apply"])
def test_all_that_cannot_be_opened_is_told_at_once_and_nobody_is_asked(makes: Makes, verb: str) -> None:
    site = makes(*FILES, env=False, text=TEXT + "verify: { skip: [test_clok] }\n")
    before = site.dump()
    assert problems_of(getattr(site, verb)) == ALL
    assert trips(site) == 0
    assert site.dump() == before
    assert not site.state.exists() or not list(site.state.rglob("*.json"))


def test_a_guests_template_is_missed_before_the_hypervisor_is_touched(makes: Makes) -> None:
    site = makes("two.j2")
    before = site.dump()
    assert problems_of(site.apply) == [("FILE_UNREADABLE", "./two.j2")]
    assert site.dump() == before
    assert site.apis["pve/api"].dump()["vms"] == {}


@pytest.mark.parametrize("verb", ["plan", "apply"])
def test_dynamo_is_refused_before_anything_is_asked(makes: Makes, verb: str) -> None:
    site = makes(text=TEXT + "dynamo: { version: 1.4.2 }\n")
    before = site.dump()
    assert problems_of(getattr(site, verb)) == [("FEATURE_UNSUPPORTED", "dynamo")]
    assert trips(site) == 0
    assert site.dump() == before


def test_with_all_in_place_the_same_site_is_made(makes: Makes) -> None:
    assert makes().apply().exit_code == 0


@pytest.mark.parametrize(
    ("missing", "options", "expected"),
    [
        (("two.j2", "four"), Options(targets=("metal",)), []),
        (("two.j2", "one.j2"), Options(steps=("base_os",)), []),
        (("metal-key",), Options(targets=("vm-1",)), []),
        (("two.j2",), Options(targets=("vm-2",)), []),
        (("two.j2",), Options(targets=("vm-1",)), ["./two.j2"]),
        (("four",), Options(targets=("vm-2",), steps=("host_resources",)), ["!secret"]),
        (("router-key",), Options(targets=("vm-1",), steps=("virtual_machine",)), []),
        (("router-key",), Options(targets=("vm-1",), steps=("dhcp_reservation",)), ["./router-key"]),
        (("token",), Options(targets=("vm-1",), steps=("base_os",)), ["!secret"]),
        (("token",), Options(targets=("metal",)), []),
    ],
)
def test_only_what_the_chosen_targets_and_steps_need_is_opened(
    makes: Makes, missing: tuple[str, ...], options: Options, expected: list[str]
) -> None:
    site = makes(*missing)
    if expected:
        assert [mark for _, mark in problems_of(lambda: site.plan(options))] == expected
        assert trips(site) == 0
    else:
        assert not site.plan(options).refusals


def test_what_a_playbook_has_no_step_for_is_neither_refused_nor_opened(makes: Makes) -> None:
    text = TEXT.replace("metal: {", "metal: { k3s: server,")
    text += "k3s: { version: v1.35.7+k3s1, token: !secret { env: PROVISION_TEST_UNSET } }\n"
    model = makes("router-key", text=text)
    found = problems_of(model.plan)
    assert found[0] == ("FILE_UNREADABLE", "./router-key")
    assert [code for code, _ in found[1:]] == ["SECRET_UNREADABLE"]
    site = model.site()
    site.playbook = "hosts"
    try:
        assert not site.plan(Options(), model.events.append, Cancel()).refusals
    finally:
        site.close()


def test_destroy_needs_its_connections_and_nothing_that_it_removes(makes: Makes) -> None:
    assert makes().apply().exit_code == 0
    contents = ("one.j2", "two.j2", "four", "key.pub")
    site = makes(*contents, env=False, text=TEXT + "proxy: { url: http://10.0.0.9 }\n")
    assert site.destroy().exit_code == 0
    site = makes(*contents, "token", "key", env=False)
    found = problems_of(site.destroy)
    assert sorted(found) == [("FILE_UNREADABLE", "./key"), ("SECRET_UNREADABLE", "!secret")]
    assert trips(site) == 0


def test_destroy_of_host_resources_needs_no_templates_or_secrets(makes: Makes) -> None:
    text = TEXT.replace("    host_resources:\n      - { kind: file, path: /etc/one,", MORE, 1)
    site = makes(text=text)
    assert site.apply().exit_code == 0
    files = site.hosts["pve/ssh"].state.files
    assert {"/etc/one", "/etc/zero"} <= files.keys()
    site.inventory = makes("one.j2", "two.j2", "four", "key.pub", env=False, text=text).inventory
    assert site.destroy(Options(host=True)).exit_code == 0
    assert not files.keys() & {"/etc/one", "/etc/zero"}


def verify(site: ModelSite, options: Options) -> object:
    opened = site.site()
    try:
        return opened.verify(options, site.events.append, Cancel())
    finally:
        opened.close()


def test_verify_needs_its_connections_only_and_says_all_that_it_lacks(makes: Makes) -> None:
    contents = ("one.j2", "two.j2", "four", "key.pub")
    verify(makes(*contents, env=False), Options())
    site = makes(*contents, "token", "metal-key", env=False, text=TEXT + "verify: { skip: [a] }\n")
    before = trips(site)
    assert sorted(problems_of(lambda: verify(site, Options()))) == [
        ("CHECK_UNKNOWN", "a"),
        ("FILE_UNREADABLE", "./metal-key"),
        ("SECRET_UNREADABLE", "!secret"),
    ]
    verify(makes("token"), Options(targets=("metal",)))
    assert trips(site) == before


def test_verify_refuses_no_feature_that_apply_alone_needs(makes: Makes) -> None:
    text = TEXT + 'sources: { registries: { docker.io: "https://m.example.org" } }\n'
    assert [code for code, _ in problems_of(lambda: makes(text=text).plan(Options()))] == [
        "FEATURE_UNSUPPORTED"
    ]
    verify(makes(text=text), Options(targets=("metal",)))


def test_a_host_that_the_controller_is_itself_needs_no_key(makes: Makes) -> None:
    text = TEXT.replace("    address: 10.0.0.5\n", "    address: 10.0.0.5\n    connection: local\n")
    site = makes("key", text=text)
    assert not site.plan(Options(targets=("pve",))).refusals
    assert problems_of(lambda: site.plan(Options(targets=("vm-1",)))) == [("FILE_UNREADABLE", "./key")]


def test_a_managed_list_of_keys_needs_the_public_one(makes: Makes) -> None:
    text = TEXT.replace("key: ./key }", "key: ./key, authorized_keys: [ssh-ed25519 AAAA you] }")
    site = makes("key.pub", text=text)
    assert problems_of(lambda: site.plan(Options(targets=("vm-1",), steps=("base_os",)))) == [
        ("FILE_UNREADABLE", "./key")
    ]


def test_the_end_of_an_apply_is_strict_where_the_inventory_says_so(makes: Makes) -> None:
    from provision.verify.model import CheckOutcome, CheckResult, VerifyReport  # noqa: PLC0415 - beside its use

    unsure = VerifyReport((CheckResult("a", "vm-1", CheckOutcome.UNKNOWN),))
    codes = []
    for more in ("", "verify: { strict: true }\n"):
        site = makes(text=TEXT + more)
        site.verifier = lambda *_: unsure
        codes.append(site.apply().exit_code)
        opened = site.site()
        opened.verify(Options(), site.events.append, Cancel())
        opened.close()
        codes.append(site.events[-1].exit_code)  # type: ignore[attr-defined]  # the last event is RunEnded
    assert codes == [0, 0, 7, 7]

"""Planted secrets are nowhere but where they belong: in no output, journal, plan, log or process list."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import os
import secrets
import threading
import time
import typing
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import pytest
from pydantic import BaseModel

from provision.inventory import Inventory
from provision.inventory.secrets import Secret
from tests.e2e.site import HYPERVISOR, ROUTER, Done, Reference, Site, brought_up, inventory

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and containers"),
]
GUEST = "198.18.0.11"
PLANTED_LIVE = {"Api.token", "FileResource.secret"}
"""Fields whose secrets are used by the runs of this file."""
PLANTED_READ = {"DhcpApi.token", "K3s.token", "K3s.agent_token", "RegistryLogin.password"}
"""Fields that a plan opens before it refuses the inventory."""
OPENED_LATE = {"Api.root_password"}
"""Fields that only the write of a raw device opens; `tests/contract/test_root_ticket.py` looks after them."""


def secret_fields() -> set[str]:
    """Walk the inventory's models and return all fields that hold a secret, as `Model.field`."""
    found: set[str] = set()
    seen: set[object] = set()

    def walk(kind: object, where: str) -> None:
        if kind is Secret:
            found.add(where)
        elif isinstance(kind, type) and issubclass(kind, BaseModel):
            if kind not in seen:
                seen.add(kind)
                for name, each in typing.get_type_hints(kind, include_extras=False).items():
                    walk(each, f"{kind.__name__}.{name}")
        else:
            for each in typing.get_args(kind):
                walk(each, where)

    # The loaded inventory is a model, or holds one.
    walk(Inventory, "Inventory")
    from provision.inventory.models.inventory import Inventory as Model  # noqa: PLC0415 - beside its namesake

    walk(Model, "Inventory")
    return found


@dataclass
class Watch:
    """Looks at the arguments of all processes, every few milliseconds; remembers each command line once."""

    lines: set[bytes] = field(default_factory=set)
    snippets: set[str] = field(default_factory=set)
    folder: Path | None = None
    _end: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._end.is_set():
            for entry in Path("/proc").iterdir():
                if entry.name.isdigit():
                    with contextlib.suppress(OSError):  # it has ended meanwhile
                        self.lines.add((entry / "cmdline").read_bytes())
            for path in self.folder.glob("*.yaml") if self.folder else ():
                with contextlib.suppress(OSError):
                    self.snippets.add(path.read_text())
            time.sleep(0.003)


@dataclass
class Story:
    """All that was said and sampled while the commands ran."""

    site: Site
    planted: dict[str, str]
    said: dict[str, str]
    watch: Watch
    final_key: str
    offered: set[str]


def key_lines(text: str) -> list[str]:
    """Return the lines of a private key that only this key has."""
    return [line for line in text.split("\n") if line and not line.startswith("-")][2:]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Story:
    folder = tmp_path_factory.mktemp("secrets")
    planted = {
        name: f"planted-{name}-{secrets.token_hex(12)}" for name in ("env", "file", "command", "broken")
    }
    (folder / "one").write_text(planted["file"] + "\n")
    (folder / "two").write_text(planted["command"] + "\n")
    (folder / "three").write_text(planted["broken"] + "\n")
    declared = inventory("e2e-c-secrets", nodes=1)
    guest = declared["profiles"]["small"]["host_resources"]
    guest += [
        {"kind": "file", "path": "/etc/site/env", "secret": Reference("env", "PLANTED")},
        {"kind": "file", "path": "/etc/site/file", "secret": Reference("file", str(folder / "one"))},
    ]
    declared["hypervisors"]["pve"]["host_resources"].append(
        {
            "kind": "file",
            "path": "/etc/site-secret",
            "secret": Reference("command", ["cat", str(folder / "two")]),  # type: ignore[arg-type]  # a list as YAML has it
        }
    )
    site = brought_up(Site(folder / "site", declared, {"PLANTED": planted["env"]}), request)
    return told(site, planted, folder)


def told(site: Site, planted: dict[str, str], folder: Path) -> Story:
    """Run everything that a user would, and a run that fails with a secret in its hands."""
    planted = {**planted, "token": (site.lab / "keys/token").read_text().strip()}
    said: dict[str, str] = {}
    watch = Watch(folder=site.lab / "guests/hypervisor/upper/var/lib/vz/snippets")

    def ran(code: int, *words: object) -> Done:
        result = site.provision(*words)
        said[" ".join(map(str, words))] = result.said
        return result.ended(code)

    failing = copy.deepcopy(site.declared)
    failing["profiles"]["small"]["host_resources"] += [
        {"kind": "file", "path": "/etc/hostname/not", "secret": Reference("file", str(folder / "three"))},
    ]
    broken = site.write(site.folder / "failing.yaml", failing)
    with watch:
        ran(0, "validate", site.file)
        ran(0, "plan", site.file, "--full", "--out", site.folder / "first.plan")
        ran(0, "apply", site.file, "--yes", "--json")
        final_key = (site.lab / "guests/201/upper/etc/ssh/ssh_host_ed25519_key").read_text()
        site.on(GUEST, "echo other >/etc/site/env; rm /etc/site/file")
        site.on(HYPERVISOR, "echo other >/etc/site-secret")
        ran(0, "plan", site.file, "--full", "--debug", "--out", site.folder / "second.plan")
        ran(0, "apply", site.folder / "second.plan", "--yes", "--full", "--debug")
        ran(1, "apply", broken, "--yes", "--full", "--debug")
        ran(0, "verify", site.file, "--full", "--junit", site.folder / "junit.xml")
        ran(0, "explain", site.file, "/etc/site", "--full")
        ran(0, "show", "last", "--full", "--debug")
        offered = site.fingerprints(GUEST)
    return Story(site, planted, said, watch, final_key, offered)


def sought(story: Story) -> dict[str, list[str]]:
    """Return by name what must not be found: each secret, its plain hashes, lines of private keys."""
    found = {name: [value] for name, value in story.planted.items()}
    for name, value in story.planted.items():
        found[name] += [hashlib.sha256(each.encode()).hexdigest() for each in (value, value + "\n")]
    found["final key"] = key_lines(story.final_key)
    first = [json.loads(text)["ssh_keys"]["ed25519_private"] for text in whole(story)]
    found["first key"] = [line for text in first for line in key_lines(text)]
    return found


def whole(story: Story) -> list[str]:
    """Return the settings of each snippet that was seen whole: its last line, a comment, says whose it is."""
    parts = (
        text.partition("\n")[2].rpartition("\n# ") for text in story.watch.snippets if text.endswith("\n")
    )
    return [settings for settings, mark, _ in parts if mark and settings.endswith("}")]


def hits(story: Story, name: str, data: bytes) -> list[str]:
    return [
        f"{secret} in {name}"
        for secret, values in sought(story).items()
        if any(value.encode() in data for value in values)
    ]


def files(root: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(root):
        yield from (Path(folder) / each for each in names if (Path(folder) / each).is_file())


def test_every_secret_field_of_the_models_is_planted_here() -> None:
    assert secret_fields() == PLANTED_LIVE | PLANTED_READ | OPENED_LATE


def test_the_samples_can_find_something(story: Story) -> None:
    assert whole(story), "the snippet with the first key was never seen"
    assert all(sought(story).values())
    assert any(b"provision.cli.main" in line for line in story.watch.lines)
    assert any(b"sh -s" in line.replace(b"\0", b" ") for line in story.watch.lines)
    assert story.site.on(GUEST, "cat /etc/site/env") == story.planted["env"]
    assert story.site.on(HYPERVISOR, "stat -c %a /etc/site-secret; cat /etc/site-secret") == (
        "600\n" + story.planted["command"]
    )


def test_no_output_has_a_secret(story: Story) -> None:
    assert [hit for name, text in story.said.items() for hit in hits(story, name, text.encode())] == []


def test_no_process_list_has_a_secret(story: Story) -> None:
    assert [hit for line in story.watch.lines for hit in hits(story, repr(line), line)] == []


def test_no_file_of_the_controller_has_a_secret(story: Story) -> None:
    site = story.site
    places = [*files(site.state), *(path for path in site.folder.iterdir() if path.is_file())]
    assert {"journal.sqlite", "first.plan", "second.plan", "junit.xml"} <= {path.name for path in places}
    assert [hit for path in places for hit in hits(story, str(path), path.read_bytes())] == []


def test_secrets_are_only_in_the_target_and_lab_files_that_need_them(story: Story) -> None:
    lab = story.site.lab
    homes = {
        "keys/token",
        "api/access.json",  # Proxmox keeps tokens as they are too
        "guests/201/upper/etc/site/env",
        "guests/201/upper/etc/site/file",
        "guests/201/upper/etc/ssh/ssh_host_ed25519_key",
        "guests/hypervisor/upper/etc/site-secret",
    }
    found = []
    for path in files(lab):
        name = str(path.relative_to(lab))
        # The drive that the lab makes of the first boot's data is the lab's own, not a file of the site's.
        if name not in homes and not name.endswith("cloudinit.raw") and path.stat().st_size < 64 << 20:
            found += hits(story, name, path.read_bytes())
    assert found == []


def test_no_journal_or_run_folder_of_a_target_has_a_secret(story: Story) -> None:
    script = (
        "journalctl -a -o export --no-pager; find /run /tmp /dev/shm -xdev -type f -size -2M -exec cat {} +"
    )
    for address in (ROUTER, HYPERVISOR, GUEST):
        text = story.site.on(address, f"( {script} ) 2>/dev/null | tr -d '\\000' || :").encode()
        assert hits(story, address, text) == []


def test_the_guests_key_was_known_and_the_first_one_is_dead(story: Story) -> None:
    site = story.site
    assert story.offered == {site.marker(201)["host-key"]}
    assert "first-key" not in site.marker(201)
    assert "cicustom" not in site.config(201)
    assert site.on(HYPERVISOR, "ls /var/lib/vz/snippets") == ""
    firsts = {json.loads(text)["ssh_keys"]["ed25519_public"].split()[1] for text in whole(story)}
    assert len(firsts) == 1
    offered = site.scanned(GUEST)
    assert not any(first in offered for first in firsts)
    log = site.on(ROUTER, "cat /root/.ssh/known_hosts 2>/dev/null || :")
    assert log == "", "nobody learned a key by trusting its first use"


def test_secrets_of_features_that_nothing_serves_are_not_shown_either(tmp_path: Path) -> None:
    """Needs no lab: whatever is declared is opened before anybody is asked, and refused with its place."""
    planted = {name: f"planted-{name}-{secrets.token_hex(12)}" for name in PLANTED_READ}
    opened = tmp_path / "opened"
    (tmp_path / "key").write_text("not a real key\n")

    def read_by_command(name: str) -> Reference:
        (tmp_path / name).write_text(planted[name])
        script = f"echo {name} >> {opened}; cat {tmp_path / name}"
        return Reference("command", ["sh", "-c", script])  # type: ignore[arg-type]  # a list as YAML has it

    declared = inventory("e2e-c-read", nodes=1)
    del declared["lab"]
    fingerprint = ":".join(["AB"] * 32)
    declared["access"]["key"] = str(tmp_path / "key")
    declared["images"]["debian-12"] = {"url": "https://images.test/d.qcow2", "sha256": "ab" * 32}
    declared["hypervisors"]["pve"]["api"] = {
        "token_id": "p@pve!x",
        "token": Reference("file", str(tmp_path / "key")),
        "fingerprint": fingerprint,
    }
    password = read_by_command("RegistryLogin.password")
    declared["sources"] = {"logins": {"registry.test": {"user": "somebody", "password": password}}}
    api = {"url": "https://198.18.0.1", "token": read_by_command("DhcpApi.token"), "fingerprint": fingerprint}
    declared["network"]["dhcp"] = {"backend": "opnsense", "api": api, "order": "boot_first"}
    tokens = {"token": read_by_command("K3s.token"), "agent_token": read_by_command("K3s.agent_token")}
    declared["k3s"] = {"version": "v1.35.7+k3s1", **tokens}
    declared["profiles"]["small"]["k3s"] = "server"
    site = Site(tmp_path / "site", declared)
    site.provision("validate", site.file).ended(0)
    assert not opened.exists(), "validate opens no secret"
    for words in (("plan", "--full"), ("plan", "--json"), ("apply", "--yes", "--json"), ("plan", "--debug")):
        opened.unlink(missing_ok=True)
        result = site.provision(words[0], site.file, *words[1:]).ended(64)
        assert sorted(opened.read_text().split()) == sorted(PLANTED_READ)
        assert "dhcp_boot_first" in result.said, result.said
        assert not [name for name, value in planted.items() if value in result.said]
    places = [path for path in files(site.folder) if path != site.file]
    assert not [path for path in places for value in planted.values() if value.encode() in path.read_bytes()]


def test_destroy_tells_no_secret_and_nothing_is_left(story: Story) -> None:
    with Watch() as watch:
        result = story.site.provision(
            "destroy", story.site.file, "--yes", "--host", "--full", "--debug"
        ).ended(0)
    assert hits(story, "destroy", result.said.encode()) == []
    assert [hit for line in watch.lines for hit in hits(story, repr(line), line)] == []
    journal = (story.site.state / "journal.sqlite").read_bytes()
    assert hits(story, "journal", journal) == []
    story.site.down()

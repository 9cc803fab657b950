from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from provision.api.bootstrap import look
from provision.api.domains import load_inventory as load
from provision.api.systems import systems
from provision.cli import bootstrap, main
from provision.connections.contracts import SshEndpoint
from provision.connections.local import LocalConnection
from provision.hosts.resources.pci import PciFunction
from provision.inventory.models.hypervisor import Api
from provision.proxmox import privileges
from provision.proxmox.first_inventory import Trusted, bridge_of, first_inventory
from provision.proxmox.preflight import access
from provision.proxmox.setup import ProxmoxHost, ProxmoxStorage, StorageChoice, choose, enable, grant
from provision.testing.model_proxmox import ALL_RIGHTS
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, UsageError
from provision.values.redaction import Redactor
from tests.model.model_site import ModelSite
from tests.unit.proxmox.roles.world import INVENTORY, World

SECRET = "11111111-2222-3333-4444-555555555555"
KEY = "SHA256:" + "k" * 43
CERTIFICATE = ":".join(["AB"] * 32)
ALL = [*privileges.role(ALL_RIGHTS)[0], "Sys.Audit", "Sys.Modify", "Sys.Console"]
OLD = [*(each for each in ALL if each != "Sys.AccessNetwork"), "VM.Monitor"]
GPU = PciFunction("0000:02:00.0", "10de", "2204", "030000", "vfio-pci", "14", boot_vga=True)
FOUND = ProxmoxHost(
    node="pve",
    version="pve-manager/9.0.10",
    roles={"Administrator": tuple(ALL)},
    users=("root@pam",),
    tokens=(),
    storages=(
        ProxmoxStorage("local", "dir", ("iso", "vztmpl", "backup")),
        ProxmoxStorage("local-zfs", "zfspool", ("images", "rootdir")),
    ),
    bridges=("vmbr0", "vmbr1"),
    functions=(GPU, PciFunction("0000:02:00.1", "10de", "1aef", "040300", "", "14")),
    memory=65536,
    networks={"192.168.1.5/24": "vmbr0"},
    gateway="192.168.1.1",
)
CHOICE = StorageChoice("local", "local-zfs", "local")


# ---------------------------------------------------------------- privileges


def rights_of_bootstrap(known: list[str]) -> dict[str, dict[str, int]]:
    """Return what a token may do after the script of `grant`."""
    used = {
        path: dict.fromkeys(privileges.role(known)[0], 1)
        for path in privileges.paths("pve", ["local", "local-zfs"])
    }
    return {**used, "/": dict.fromkeys(privileges.role(known, root=True)[0], 0)}


@pytest.mark.parametrize("known", [ALL, OLD], ids=["9", "8"])
def test_the_roles_of_bootstrap_are_enough_for_a_whole_life(tmp_path: Path, known: list[str]) -> None:
    world = World(tmp_path)
    world.write(INVENTORY.replace("cores: 2,", "cores: 2, startup: { order: 1 },"))
    world.pve.rights = rights_of_bootstrap(known)
    assert world.apply().exit_code == 0
    world.write(INVENTORY.replace("debian.img", "other.img").replace("abab", "cdcd"))
    assert world.apply(prune=True).exit_code == 0
    assert world.destroy().exit_code == 0
    del world.pve.rights["/vms"]
    assert [each.code for each in world.plan().refusals] == ["PVE_PRIV_MISSING"]


def test_versions_differ_in_what_a_download_needs() -> None:
    assert privileges.role(ALL)[1] == privileges.role(OLD)[1] == ()
    assert "Sys.AccessNetwork" not in privileges.role(OLD)[0]
    assert set(privileges.role(OLD, root=True)[0]) == {"Sys.Audit", "Sys.Modify"}
    assert privileges.role(ALL, root=True)[0] == ("Sys.Modify",)
    assert "VM.Monitor" not in privileges.role(OLD)[0]
    assert "/" not in privileges.paths("pve", ["local"])


# ---------------------------------------------------------------- pure parts


def test_storages_are_chosen_by_what_they_can() -> None:
    assert choose(FOUND) == CHOICE
    assert CHOICE.missing(FOUND) == {"local": ("import", "snippets")}
    ready = (*FOUND.storages, ProxmoxStorage("nas", "nfs", ("import", "snippets", "images")))
    assert choose(replace(FOUND, storages=ready)) == StorageChoice("nas", "local-zfs", "nas")
    only = (ProxmoxStorage("local", "dir", ("images", "import", "snippets")),)
    assert choose(replace(FOUND, storages=only)) == StorageChoice("local", "local", "local")
    volumes = ProxmoxStorage("lun", "iscsi", ("images",))  # it lists disks, and none can be made there
    assert choose(replace(FOUND, storages=(volumes, *FOUND.storages))) == CHOICE
    assert choose(replace(FOUND, storages=(volumes, ProxmoxStorage("local", "dir", ("iso",))))).disks == ""
    script = enable(FOUND, CHOICE.missing(FOUND))
    assert "pvesm set local --content iso,vztmpl,backup,import,snippets" in script


@pytest.mark.parametrize(
    ("networks", "line"),
    [
        # a second address of the bridge, as of keepalived or of a second network, hides no first one
        (
            {"192.168.1.5/24": "vmbr0", "192.168.1.9/32": "vmbr0", "10.10.0.1/24": "vmbr0"},
            'network: { cidr: "192.168.1.0/24", gateway: "192.168.1.1" }',
        ),
        # routed hosts of a provider: the address is alone, and VMs are behind a bridge of their own
        ({"192.168.1.5": "eno1", "10.10.10.1/24": "vmbr0"}, 'network: { cidr: "10.10.10.0/24" }'),
        ({"192.168.1.5/32": "eno1", "10.10.10.1/24": "vmbr0"}, 'network: { cidr: "10.10.10.0/24" }'),
        ({"192.168.1.5/32": "vmbr0"}, "# network: { cidr: ..., gateway: ... } # not found on the host"),
        ({"172.17.0.1/16": "docker0"}, "# network: { cidr: ..., gateway: ... } # not found on the host"),
    ],
)
def test_the_network_is_one_that_vms_can_be_in(networks: dict[str, str], line: str) -> None:
    trusted = Trusted("192.168.1.5", None, KEY, CERTIFICATE, Path("/key"), "site", Path("/token"))
    text = first_inventory("site", replace(FOUND, networks=networks), CHOICE, trusted)
    assert next(row for row in text.splitlines() if "network:" in row).startswith(line)


@pytest.mark.parametrize(
    ("bridges", "networks", "bridge"),
    [
        (("cni0", "dmz", "vmbr0"), {"192.168.1.5/24": "vmbr0", "10.42.0.1/24": "cni0"}, "vmbr0"),
        (("dmz", "vmbr0", "vmbr1"), {"10.0.0.5/24": "vmbr0", "192.168.1.5/24": "vmbr1"}, "vmbr1"),
        (("dmz", "vmbr1"), {"192.168.1.5/24": "vmbr1.20"}, "vmbr1"),
        (("dmz", "vmbr0"), {"192.168.1.5": "eno1", "10.10.10.1/24": "vmbr0"}, "vmbr0"),
        (("lan",), {"192.168.1.5/24": "eno1"}, "lan"),
        ((), {"192.168.1.5/24": "eno1"}, "vmbr0"),
        (("dmz", "vmbr0"), {"garbage": "dmz"}, "vmbr0"),
    ],
)
def test_the_bridge_of_vms_is_the_one_to_the_gateway(
    bridges: tuple[str, ...], networks: dict[str, str], bridge: str
) -> None:
    assert bridge_of(replace(FOUND, bridges=bridges, networks=networks)) == bridge


def test_the_token_is_separated_and_given_on_what_is_used_only() -> None:
    script = grant(FOUND, CHOICE, "site")
    assert "pveum role add Provision" in script
    assert "pveum user token add provision@pve site --privsep 1" in script
    paths = set(re.findall(r"acl modify (\S+) --roles Provision --tokens 'provision@pve!site'", script))
    assert paths == {
        "/vms",
        "/storage/local",
        "/storage/local-zfs",
        "/sdn/zones/localnetwork",
        "/mapping/pci",
        "/mapping/usb",
        "/nodes/pve",
    }
    assert "acl modify / --roles ProvisionHost --propagate 0 --tokens" in script
    assert "pveum role add ProvisionHost --privs Sys.Modify" in script


def test_repeating_keeps_the_token_unless_it_is_renewed() -> None:
    there = replace(FOUND, roles={**FOUND.roles, "Provision": ()}, users=("provision@pve",), tokens=("site",))
    again = grant(there, CHOICE, "site")
    assert "role modify Provision" in again
    assert "user add" not in again
    assert "token add" not in again
    renewed = grant(there, CHOICE, "site", rotate=True)
    assert renewed.index("token remove provision@pve site") < renewed.index("token add provision@pve site")


def first_file(folder: Path, found: ProxmoxHost = FOUND) -> Path:
    """Write the first inventory of a host, with the files that it names."""
    for name in ("id", "id.pub", "t"):
        (folder / name).write_text("ssh-ed25519 AAAA me\n")
    trusted = Trusted("192.168.1.5", 2222, KEY, CERTIFICATE, folder / "id", "site", folder / "t")
    file = folder / "site.yaml"
    file.write_text(first_inventory("site", found, CHOICE, trusted))
    return file


@pytest.mark.parametrize("functions", [FOUND.functions, ()], ids=["a card", "no cards"])
def test_the_first_inventory_is_planned_as_it_is(functions: tuple[PciFunction, ...], tmp_path: Path) -> None:
    inventory = load(first_file(tmp_path, replace(FOUND, functions=functions)))
    assert len(inventory.hypervisors["pve"].cards) == len(functions) // 2
    plan = ModelSite(inventory, tmp_path / "state").plan()
    assert plan.refusals == ()
    assert [each.problem for each in plan.steps if each.problem] == []
    assert ("hypervisor_host" in {each.step.id.role for each in plan.steps}) is bool(functions)


def test_the_first_inventory_is_valid_and_says_what_was_found(tmp_path: Path) -> None:
    file = first_file(tmp_path)
    inventory = load(file)
    host = inventory.hypervisors["pve"]
    assert (host.api.token_id, host.api.fingerprint) == ("provision@pve!site", CERTIFICATE)
    assert (host.ssh.host_key, host.ssh.port) == (KEY, 2222)
    assert (host.storage.images, host.storage.disks, host.storage.snippets) == ("local", "local-zfs", "local")
    assert host.cards["gpu1"].drives_console
    assert host.cards["gpu1"].id == "10de:2204"
    assert "IOMMU group 14" in file.read_text()
    assert inventory.placeholders() == []
    assert inventory.network is not None
    assert (str(inventory.network.cidr), inventory.network.gateway) == ("192.168.1.0/24", "192.168.1.1")


# ---------------------------------------------------------------- the command, on stand-ins for its tools


PVEUM = """#!/bin/sh
printf 'pveum %s\\n' "$*" >>"$FAKE/log"
case "$*" in
"role list"*) cat "$FAKE/roles" ;;
"user list"*) cat "$FAKE/users" ;;
"user token list"*) cat "$FAKE/tokens" 2>/dev/null || { echo 'no such user' >&2; exit 255; } ;;
"user token add"*) echo '[{"tokenid":"site"}]' >"$FAKE/tokens"
  echo '{"full-tokenid":"provision@pve!site","info":{"privsep":"1"},"value":"SECRET"}' ;;
*--tokens*) if [ -e "$FAKE/fail-acl" ]; then echo 'no such path' >&2; exit 13; fi ;;
"role add"*) if [ -e "$FAKE/fail" ]; then echo 'permission denied' >&2; exit 13; fi ;;
esac
""".replace("SECRET", SECRET)


@dataclass
class Fake:
    """A host with stand-ins for Proxmox VE's tools, and the command pointed at it."""

    folder: Path
    run: Callable[..., int]

    @property
    def log(self) -> list[str]:
        file = self.folder / "log"
        return file.read_text().splitlines() if file.exists() else []


class RefusingConnection(LocalConnection):
    """A host that takes none of our keys."""

    def execute(self, script: bytes, **_: Any) -> int | None:
        del script
        raise Permanent(Diagnostic("SSH_AUTH_FAILED", "none of our keys"))


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    folder = tmp_path / "fake"
    (folder / "bin").mkdir(parents=True)
    storages = [
        {
            "storage": each.name,
            "type": each.type,
            "content": ",".join(each.content),
            "active": 1,
            "enabled": 1,
        }
        for each in FOUND.storages
    ]
    (folder / "roles").write_text(
        json.dumps([{"roleid": "Administrator", "privs": ",".join(ALL), "special": 1}])
    )
    (folder / "users").write_text(json.dumps([{"userid": "root@pam"}]))
    (folder / "storages").write_text(json.dumps(storages))
    tools = {
        "pveum": PVEUM,
        "pvesh": '#!/bin/sh\ncat "$FAKE/storages"\n',
        "pvesm": '#!/bin/sh\nprintf \'pvesm %s\\n\' "$*" >>"$FAKE/log"\n',
        "ip": "#!/bin/sh\ncase $* in *route*) echo 'default via 192.168.1.1 dev vmbr0' ;;\n"
        "*) echo '4: vmbr0    inet 192.168.1.5/24 scope global vmbr0' ;; esac\n",
        "pveversion": "#!/bin/sh\necho pve-manager/9.0.10/abc\n",
    }
    for name, text in tools.items():
        tool = folder / "bin" / name
        tool.write_text(text)
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("FAKE", str(folder))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(bootstrap, "connect", lambda _endpoint: LocalConnection(("/bin/sh", "-s")))
    monkeypatch.setattr("provision.connections.ssh_open.shown_fingerprint", lambda _target, _system: KEY)
    monkeypatch.setattr("provision.connections.first_login.certificate_of", lambda _host, _port: CERTIFICATE)
    (tmp_path / "id").write_text("private")
    (tmp_path / "id.pub").write_text("ssh-ed25519 AAAA me\n")

    def run(*argv: str, typed: str | None = None, target: str = "root@192.168.1.5") -> int:
        monkeypatch.setattr(bootstrap, "on_terminal", lambda: typed is not None)
        monkeypatch.setattr("provision.cli.prompts._read", lambda _prompt: typed or "")
        out = ["--out", str(tmp_path / "site.yaml"), "--token-file", str(tmp_path / "secret" / "token")]
        return main.main(["bootstrap", target, "--key", str(tmp_path / "id"), *out, *argv])

    return Fake(folder, run)


GIVEN = ("--host-key", KEY, "--certificate", CERTIFICATE)


def test_bootstrap_makes_role_user_token_secret_and_inventory(
    fake: Fake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fake.run(*GIVEN, "--enable-content") == 0
    secret = tmp_path / "secret" / "token"
    assert secret.read_text().strip() == SECRET
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    token = load(tmp_path / "site.yaml").hypervisors
    (host,) = token.values()
    assert host.api.token is not None
    assert host.api.token.open(Redactor()).get_secret_value() == SECRET
    captured = capsys.readouterr()
    assert SECRET not in captured.out + captured.err
    assert SECRET not in "".join(fake.log) + (tmp_path / "site.yaml").read_text()
    assert any(each.startswith("pveum role add Provision --privs VM.A") for each in fake.log)
    assert "pvesm set local --content iso,vztmpl,backup,import,snippets" in fake.log


def test_one_question_confirms_both_fingerprints(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    assert fake.run(typed="n\n") == 4
    assert fake.log == []
    out = capsys.readouterr().out
    assert KEY in out
    assert CERTIFICATE in out
    assert fake.run(typed="y\n") == 0


@pytest.mark.parametrize(
    ("argv", "target", "code", "said"),
    [
        ((), "root@127.0.0.1", 64, "give --host-key and --certificate"),
        (("--host-key", "SHA256:" + "x" * 43), "root@127.0.0.1", 4, "HOST_KEY_CHANGED"),
        (("--certificate", ":".join(["CD"] * 32)), "root@127.0.0.1", 4, "CERTIFICATE_UNKNOWN"),
        (GIVEN, "admin@h", 64, "only root"),
        ((*GIVEN, "--name", "A B"), "root@127.0.0.1", 64, "lower-case"),
        ((*GIVEN, "--key", "/nonexistent/id"), "root@127.0.0.1", 64, "ssh-keygen"),
    ],
)
def test_nothing_is_touched_before_all_is_clear(
    argv: tuple[str, ...],
    target: str,
    code: int,
    said: str,
    fake: Fake,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert fake.run(*argv, target=target) == code
    assert said in " ".join(capsys.readouterr().err.split())
    assert fake.log == []


def test_without_content_types_the_person_is_told(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    assert fake.run(*GIVEN) == 0
    assert "--enable-content" in capsys.readouterr().out
    assert not [each for each in fake.log if each.startswith("pvesm")]


def test_a_token_whose_secret_is_lost_is_renewed_only_when_asked(
    fake: Fake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (fake.folder / "tokens").write_text('[{"tokenid": "site"}]')
    assert fake.run(*GIVEN) == 64
    assert "--rotate" in capsys.readouterr().err
    assert not (tmp_path / "site.yaml").exists()
    assert fake.run(*GIVEN, "--rotate") == 0
    assert "pveum user token remove provision@pve site" in fake.log


def remedies(folder: Path) -> dict[str, str]:
    """Return what is said where an inventory lacks a hypervisor's credentials, or has wrong ones."""
    file = first_file(folder)
    text = file.read_text()
    without = folder / "without.yaml"
    without.write_text("".join(line for line in text.splitlines(keepends=True) if "fingerprint" not in line))
    with pytest.raises(UsageError) as caught:
        load(without)
    found = {"missing": caught.value.diagnostics[0].remedy}
    inventory = load(file)
    waiting = folder / "waiting.yaml"
    waiting.write_text(text.replace(CERTIFICATE, "AA:BB:...").replace(KEY, "SHA256:..."))
    for number, each in enumerate(load(waiting).placeholders()):
        found[f"placeholder {number}"] = each.remedy
    bare = inventory.hypervisors["pve"].model_copy(update={"api": Api()})
    with pytest.raises(UsageError) as caught:
        systems(inventory.model_copy(update={"hypervisors": {"pve": bare}}))["pve/api"].endpoint({})
    found["credentials"] = caught.value.diagnostics[0].remedy
    found["rights"] = access._remedy(inventory.hypervisors["pve"])
    return found


@pytest.mark.parametrize("case", ["missing", "placeholder 0", "placeholder 1", "credentials", "rights"])
def test_the_command_of_a_remedy_writes_what_the_inventory_lacks(
    case: str, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remedy = remedies(tmp_path)[case]
    command = re.match(r"provision (bootstrap .*?--out (\S+)(?: --token-file \S+)?)(?:,| gives)", remedy)
    assert command is not None, remedy
    assert f"root@192.168.1.5:2222 --name {'site' if case == 'rights' else 'pve'} " in command[1]
    if case == "rights":  # the token that is there, with its secret where the inventory says
        (fake.folder / "tokens").write_text('[{"tokenid": "site"}]')
    else:
        assert f"copy `api` and `ssh` of its hypervisor from {command[2]}" in remedy
    before = (tmp_path / "site.yaml").read_text()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bootstrap, "on_terminal", lambda: False)
    assert main.main([*command[1].split(), "--key", str(tmp_path / "id"), *GIVEN]) == 0
    (host,) = load(tmp_path / command[2]).hypervisors.values()
    assert (host.api.fingerprint, host.ssh.host_key) == (CERTIFICATE, KEY)
    assert host.api.token is not None
    assert host.api.token.open(Redactor()).get_secret_value()
    assert (tmp_path / "site.yaml").read_text() == before
    assert any("acl modify" in each and "--tokens" in each for each in fake.log)


def test_rights_of_a_token_of_another_user_are_given_by_hand(tmp_path: Path) -> None:
    host = load(first_file(tmp_path)).hypervisors["pve"]
    other = host.model_copy(update={"api": host.api.model_copy(update={"token_id": "terraform@pve!t"})})
    assert "pveum acl modify PATH --roles ROLE --tokens 'terraform@pve!t'" in access._remedy(other)


@pytest.mark.parametrize("argv", [(), ("--rotate",), ("--enable-content",)])
def test_the_secret_of_another_host_is_never_replaced(
    argv: tuple[str, ...], fake: Fake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fake.run(*GIVEN, "--out", str(tmp_path / "first.yaml")) == 0
    secret = tmp_path / "secret" / "token"
    secret.write_text("the secret of the first host\n")
    (fake.folder / "tokens").unlink()  # another host: it has no token of ours
    (fake.folder / "log").unlink()
    assert fake.run(*GIVEN, *argv) == 64
    said = " ".join(capsys.readouterr().err.split())
    assert "SECRET_EXISTS" in said
    assert "--token-file" in said
    assert secret.read_text() == "the secret of the first host\n"
    assert all("list" in each for each in fake.log), "nothing was granted or enabled"
    assert not (tmp_path / "site.yaml").exists()


def test_a_token_that_is_there_keeps_its_secret_and_a_renewed_one_gets_it(fake: Fake, tmp_path: Path) -> None:
    (fake.folder / "tokens").write_text('[{"tokenid": "site"}]')
    secret = tmp_path / "secret" / "token"
    secret.parent.mkdir()
    secret.write_text("old\n")
    assert fake.run(*GIVEN, "--out", str(tmp_path / "again.yaml")) == 0
    assert secret.read_text() == "old\n"
    assert fake.run(*GIVEN, "--rotate") == 0
    assert secret.read_text().strip() == SECRET


def test_what_fails_on_the_host_is_shown_and_can_be_repeated(
    fake: Fake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (fake.folder / "fail").touch()
    assert fake.run(*GIVEN) == 1
    assert "permission denied" in capsys.readouterr().err
    assert not (tmp_path / "site.yaml").exists()
    (fake.folder / "fail").unlink()
    assert fake.run(*GIVEN) == 0
    assert fake.run(*GIVEN) == 64
    assert "FILE_EXISTS" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [(), ("--rotate",)])
def test_a_token_that_was_made_keeps_its_secret_when_its_rights_fail(
    argv: tuple[str, ...], fake: Fake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (fake.folder / "fail-acl").touch()
    assert fake.run(*GIVEN, *argv) == 1
    captured = capsys.readouterr()
    assert "run the command again" in " ".join(captured.err.split())
    assert SECRET not in captured.out + captured.err
    secret = tmp_path / "secret" / "token"
    assert secret.read_text().strip() == SECRET
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    (fake.folder / "fail-acl").unlink()
    assert fake.run(*GIVEN, *argv) == 0
    (host,) = load(tmp_path / "site.yaml").hypervisors.values()
    assert host.api.token is not None
    assert host.api.token.open(Redactor()).get_secret_value() == SECRET


def test_a_host_without_proxmox_is_left(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    (fake.folder / "bin" / "pveversion").unlink()
    assert fake.run(*GIVEN) == 1
    assert "NO_PROXMOX" in capsys.readouterr().err
    assert not [each for each in fake.log if "list" not in each]


def test_the_password_is_asked_once_and_installs_the_key(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[SshEndpoint, str, str]] = []
    monkeypatch.setattr("getpass.getpass", lambda _prompt: "hunter2")

    def install(endpoint: SshEndpoint, password: Any, public: str) -> None:
        asked.append((endpoint, password.get_secret_value(), public))

    def connect(_endpoint: SshEndpoint) -> LocalConnection:
        return LocalConnection(("/bin/sh", "-s")) if asked else RefusingConnection()

    monkeypatch.setattr(bootstrap, "connect", connect)
    monkeypatch.setattr("provision.connections.first_login.install_key", install)
    assert fake.run(*GIVEN) == 64  # no terminal: no password
    assert fake.run(*GIVEN, typed="n\n") == 0
    ((endpoint, password, public),) = asked
    assert endpoint.fingerprints == (KEY,)
    assert (password, public) == ("hunter2", "ssh-ed25519 AAAA me")


def test_one_execution_looks_and_changes_nothing(fake: Fake) -> None:
    connection = LocalConnection(("/bin/sh", "-s"))
    found = look(connection, "pve", Cancel())
    assert connection.executions == 1
    assert found.version == "pve-manager/9.0.10/abc"
    assert found.roles["Administrator"] == tuple(ALL)
    assert found.storages == FOUND.storages
    assert found.memory > 0
    assert found.tokens == ()
    assert all("list" in each for each in fake.log)

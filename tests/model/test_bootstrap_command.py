"""The command `bootstrap`, on stand-ins for the tools of a Proxmox VE host."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from provision.api.bootstrap import look
from provision.api.domains import load_inventory as load
from provision.api.systems import systems
from provision.cli import bootstrap, main
from provision.connections.contracts import SshEndpoint
from provision.connections.local import LocalConnection
from provision.inventory.models.hypervisor import Api
from provision.proxmox.preflight import access
from provision.values.cancel import Cancel
from provision.values.diagnostics import Diagnostic
from provision.values.errors import Permanent, UsageError
from provision.values.redaction import Redactor
from tests.model.test_bootstrap import ALL, CERTIFICATE, FOUND, KEY, SECRET, first_file

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

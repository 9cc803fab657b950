"""The shell text of k3s's questions and operations, in three shells."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from pydantic import SecretStr

from provision.k3s import operations, paths
from provision.k3s.k3s_effects import RESTART_K3S
from provision.k3s.operations import KeepFormerToken, LeaveCluster, RemoveK3s, RotateToken
from provision.k3s.queries import KINDS, JoinToken, LastWords, Machine, MachineStatus, ServiceLog
from provision.k3s.settings_query import K3sSettings, SettingPlaces
from provision.k3s.snapshots import EtcdSnapshots, SnapshotListing
from tests.model.shells import SHELLS, run

UNITS = {
    "one line": "[Service]\nExecStart=/usr/local/bin/k3s server --disable traefik\n",
    "several lines": "ExecStart=/usr/local/bin/k3s \\\n    server \\\n\t'--disable' \\\n\t'traefik' \\\n\n",
}


@pytest.mark.parametrize("shell", SHELLS)
def test_this_machine_is_read_as_a_whole(shell: str) -> None:
    kind = KINDS[Machine.kind]
    answer = kind.parse(run(shell, kind.script([Machine()])), [Machine()])[Machine()]
    assert isinstance(answer, MachineStatus), answer
    assert answer.cgroup in (0, 1, 2)
    assert answer.filesystem
    assert 0 <= answer.used <= 100
    assert answer.version == "" or answer.version.startswith("v")


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("text", UNITS.values(), ids=UNITS)
def test_the_flags_of_a_foreign_unit_are_read(shell: str, text: str, tmp_path: Path) -> None:
    unit = tmp_path / "k3s.service"
    kind = KINDS[Machine.kind]
    script = kind.script([Machine()]).replace("/etc/systemd/system/$u.service", f"{tmp_path}/$u.service")
    foreign = ("--disable", "traefik")
    for content, flags in (
        (text, foreign),
        (text.rstrip(), foreign),
        (f"# Written by provision; x\n{text}", ()),
    ):
        unit.write_text(content)
        answer = kind.parse(run(shell, script), [Machine()])[Machine()]
        assert isinstance(answer, MachineStatus)
        assert tuple(answer.flags[2:]) == flags


def table(name: str, *chains: str) -> str:
    """Return a table as nft(8) lists it; a chain is its name and the rest of its line."""
    rows = (chain.partition(" ") for chain in chains)
    return (
        f"table {name} {{\n" + "".join(f"\tchain {c} {{\n\t\t{rest}\n\t}}\n" for c, _, rest in rows) + "}\n"
    )


INPUT = "input type filter hook input priority filter; policy drop;"
FORWARD = "forward type filter hook forward priority filter; policy drop;"
CHAINS = {
    # what nft lists, what may drop packets of pods
    "debian": (
        table("inet filter", INPUT, FORWARD, "output type filter hook output priority filter; policy drop;"),
        ("table inet filter chain input policy drop", "table inet filter chain forward policy drop"),
    ),
    "number": (
        table("inet mine", "in type filter hook input priority -10; policy drop;"),
        ("table inet mine chain in policy drop",),
    ),
    "firewalld": (
        table("inet firewalld", "filter_INPUT type filter hook input priority filter + 10; policy accept;"),
        ("table inet firewalld",),
    ),
    "of iptables": (table("ip filter", FORWARD) + table("ip6 filter", FORWARD), ()),
    "accept": (table("inet filter", INPUT.replace("drop", "accept")), ()),
    "nat": (table("ip nat", "POSTROUTING type nat hook postrouting priority srcnat; policy accept;"), ()),
    "none": ("", ()),
}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("text", "drops"), CHAINS.values(), ids=CHAINS)
def test_rules_of_nftables_itself_are_read(
    shell: str, text: str, drops: tuple[str, ...], tmp_path: Path
) -> None:
    program = tmp_path / "nft"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}END\n")
    program.chmod(0o755)
    kind = KINDS[Machine.kind]
    answer = kind.parse(run(shell, kind.script([Machine()]), path=tmp_path), [Machine()])[Machine()]
    assert isinstance(answer, MachineStatus)
    assert [row for row in answer.filters if row[0] == "nft"] == [("nft", 0, drops)]


FOREIGN_UNIT = """[Service]
EnvironmentFile=-/etc/default/%N
ExecStart=/usr/local/bin/k3s \\
    server \\
	'--config=ROOT/etc/k3s.yaml' \\
"""
FOREIGN_FILES = {
    "etc/systemd/system/k3s.service": FOREIGN_UNIT,
    "etc/systemd/system/k3s.service.env": "K3S_TOKEN='hunter2'\nNO_PROXY=x\n# K3S_URL=x\n",
    "etc/systemd/system/k3s.service.d/a.conf": '[Service]\nEnvironment="K3S_DEBUG=1"\n',
    "etc/default/k3s": "export K3S_NODE_NAME=a\nK3S_CONFIG_FILE=ROOT/etc/other.yaml\n",
    "etc/k3s.yaml": "# mine\n'data-dir': /data\ntoken: hunter3\nkubelet-arg+:\n  - nested=1\n\tx: 1\n",
    "etc/k3s.yaml.d/z.yaml": "debug : true\n",
    "etc/other.yaml": "selinux: true\n",
    "etc/rancher/k3s/config.yaml": "node-ip: 10.0.0.1\n",
    "etc/rancher/k3s/config.yaml.d/50-registration.yaml": "node-label: [a]\n",
    "etc/rancher/k3s/config.yaml.d/90-user.yaml": "tls-san+: [a]\n",
    "etc/rancher/k3s/config.yaml.d/95-ours.yaml": "# Written by provision; changes are overwritten.\na: b\n",
}


@pytest.mark.parametrize("shell", SHELLS)
def test_all_places_of_settings_are_read_by_name_and_no_value(shell: str, tmp_path: Path) -> None:
    for name, text in FOREIGN_FILES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace("ROOT", str(tmp_path)).rstrip("\n"))  # as some editors leave it
    kind = KINDS[K3sSettings.kind]
    script = re.sub(
        r"(?<![\w/])/(etc|lib)/(systemd|default|rancher)", rf"{tmp_path}/\1/\2", kind.script([K3sSettings()])
    )
    frame = run(shell, script)
    assert b"hunter" not in frame.stdout
    answer = kind.parse(frame, [K3sSettings()])[K3sSettings()]
    assert isinstance(answer, SettingPlaces), answer
    assert {
        (place.file.removeprefix(f"{tmp_path}/"), place.keys, place.lasts) for place in answer.places
    } == {
        ("etc/k3s.yaml", ("data-dir", "token", "kubelet-arg+"), False),
        ("etc/k3s.yaml.d/z.yaml", ("debug",), False),
        ("etc/other.yaml", ("selinux",), False),
        ("etc/rancher/k3s/config.yaml", ("node-ip",), False),
        ("etc/rancher/k3s/config.yaml.d/90-user.yaml", ("tls-san+",), True),
        ("etc/default/k3s", ("node-name", "config"), True),
        ("etc/systemd/system/k3s.service.env", ("token",), False),
        ("etc/systemd/system/k3s.service.d/a.conf", ("debug",), True),
    }


UNIT_FILE = "etc/systemd/system/k3s.service"
START = "ExecStart=/usr/local/bin/k3s server\n"
PLACES: list[tuple[dict[str, str], set[tuple[str, tuple[str, ...], bool]]]] = [
    # files, and which of them have which settings, and whether they outlive the unit
    (
        {UNIT_FILE: f"Environment=K3S_CONFIG_FILE=ROOT/etc/a.yaml\n{START}", "etc/a.yaml": "debug: true\n"},
        {("etc/a.yaml", ("debug",), False), (UNIT_FILE, ("config",), False)},
    ),
    (
        {UNIT_FILE: f'Environment="K3S_TOKEN=x" "K3S_DATA_DIR=/d"\n{START}'},
        {(UNIT_FILE, ("token", "data-dir"), False)},
    ),
    (
        {UNIT_FILE: f"EnvironmentFile=-ROOT/etc/k3s.env\n{START}", "etc/k3s.env": "K3S_DATA_DIR=/d\n"},
        {("etc/k3s.env", ("data-dir",), False)},
    ),
    (
        {f"{UNIT_FILE}.d/a.conf": "EnvironmentFile=ROOT/etc/k3s.env\n", "etc/k3s.env": "K3S_DEBUG=true\n"},
        {("etc/k3s.env", ("debug",), True)},
    ),
    (
        {f"{UNIT_FILE}.d/a.conf": "Environment='K3S_KUBECONFIG_MODE=644' K3S_DEBUG=1\n"},
        {(f"{UNIT_FILE}.d/a.conf", ("write-kubeconfig-mode", "debug"), True)},
    ),
    (
        {f"{UNIT_FILE}.d/a.conf": "ExecStart=\nExecStart=/usr/local/bin/k3s server --debug\n"},
        {(f"{UNIT_FILE}.d/a.conf", ("ExecStart",), True)},
    ),
    (
        {"etc/rancher/k3s/config.yaml": '---\n# mine\n{"disable": ["traefik"], "debug": true}\n'},
        {("etc/rancher/k3s/config.yaml", ("{...}",), False)},
    ),
    (
        {"etc/rancher/k3s/config.yaml": "disable: traefik\r\nkube-apiserver-arg+:\r\n- { a }\r\n"},
        {("etc/rancher/k3s/config.yaml", ("disable", "kube-apiserver-arg+"), False)},
    ),
    ({"etc/default/k3s": "# K3S_DEBUG=1\n\n"}, set()),
    ({UNIT_FILE: f"# Written by provision; x\nEnvironment=K3S_DEBUG=1\n{START}"}, set()),
]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("files", "places"), PLACES, ids=range(len(PLACES)))
def test_every_form_of_a_setting_is_found(
    shell: str, files: dict[str, str], places: set[tuple[str, tuple[str, ...], bool]], tmp_path: Path
) -> None:
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.replace("ROOT", str(tmp_path)).encode())
    kind = KINDS[K3sSettings.kind]
    script = re.sub(
        r"(?<![\w/])/(etc|lib)/(systemd|default|rancher)", rf"{tmp_path}/\1/\2", kind.script([K3sSettings()])
    )
    answer = kind.parse(run(shell, script), [K3sSettings()])[K3sSettings()]
    assert isinstance(answer, SettingPlaces), answer
    found = {(place.file.removeprefix(f"{tmp_path}/"), place.keys, place.lasts) for place in answer.places}
    assert found == places


@pytest.mark.parametrize("shell", SHELLS)
def test_a_token_is_read_in_both_forms(shell: str, tmp_path: Path) -> None:
    (tmp_path / "full").write_text("K10abc::server:hunter2\n")
    (tmp_path / "bare").write_text("hunter2\n")
    queries = [JoinToken(str(tmp_path / name)) for name in ("full", "bare", "none")]
    kind = KINDS[JoinToken.kind]
    answers = kind.parse(run(shell, kind.script(queries)), queries)
    assert [answers[query] for query in queries] == [SecretStr("hunter2"), SecretStr("hunter2"), None]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("active", "lines"), [("active", ()), ("failed", ("x" * 300, "last"))])
def test_the_last_words_of_a_unit_that_is_down_are_read(
    shell: str, active: str, lines: tuple[str, ...], tmp_path: Path
) -> None:
    _tool(tmp_path, "systemctl", f"case $* in *ActiveState*) echo {active};; *) echo 0123;; esac")
    _tool(tmp_path, "journalctl", f"printf '%s\\n' {'x' * 400} last")
    queries = [ServiceLog("k3s.service"), ServiceLog("k3s-agent.service")]
    kind = KINDS[ServiceLog.kind]
    answers = kind.parse(run(shell, kind.script(queries), path=tmp_path), queries)
    for query in queries:
        answer = answers[query]
        assert isinstance(answer, LastWords)
        assert answer.lines == lines


@pytest.mark.parametrize("shell", SHELLS)
def test_a_rotation_gives_no_token_to_a_command_line(shell: str, tmp_path: Path) -> None:
    _tool(tmp_path, "curl", f'printf "%s " "$@" >{tmp_path}/arguments; cat >{tmp_path}/input')
    script = RotateToken(SecretStr("for'mer"), SecretStr("new")).shell()
    script = script.replace("/etc/rancher/k3s/former-tokens", str(tmp_path / "former"))
    frame = run(shell, script, path=tmp_path)
    assert frame.rc == 0, frame.stderr
    arguments, given = (tmp_path / "arguments").read_text(), (tmp_path / "input").read_text()
    assert "mer" not in arguments
    assert "new" not in arguments
    assert given == 'user = "server:for\'mer"\ndata = "{\\"newToken\\":\\"new\\"}"\n'
    assert (tmp_path / "former").read_text().endswith(" for'mer\n")
    assert oct((tmp_path / "former").stat().st_mode & 0o777) == "0o600"


@pytest.mark.parametrize("shell", SHELLS)
def test_a_replaced_token_is_noted_once_for_the_snapshots_that_need_it(shell: str, tmp_path: Path) -> None:
    token, former = tmp_path / "token", tmp_path / "former"
    script = KeepFormerToken(SecretStr("n'ew")).shell()
    script = script.replace("/etc/rancher/k3s/former-tokens", str(former))
    script = script.replace("/etc/rancher/k3s/token", str(token))
    assert run(shell, script).rc == 0, "no token yet"
    for text in ("n'ew\n", "K10ab::server:n'ew\n"):
        token.write_text(text)
        assert run(shell, script).rc == 0
        assert not former.exists(), "the same token in another form"
    token.write_text("K10ab::server:o ld\n")
    assert [run(shell, script).rc for _ in range(2)] == [0, 0]
    (line,) = former.read_text().splitlines()
    assert line.partition(" ")[2] == "o ld"
    assert oct(former.stat().st_mode & 0o777) == "0o600"


@pytest.mark.parametrize("shell", SHELLS)
def test_snapshots_are_listed_and_no_token_leaves_the_host(shell: str, tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    for name, taken in (("old|er", 100), ("newer", 200)):
        (folder / name).write_text("12345")
        os.utime(folder / name, (taken, taken))
    (folder / "link").symlink_to("newer")
    (tmp_path / "former").write_text("1970-01-01T00:02:30Z hunter2\nrubbish\n")
    queries = [EtcdSnapshots(str(folder)), EtcdSnapshots(str(tmp_path / "none"))]
    kind = KINDS[EtcdSnapshots.kind]
    frame = run(
        shell, kind.script(queries).replace("/etc/rancher/k3s/former-tokens", str(tmp_path / "former"))
    )
    assert b"hunter2" not in frame.stdout
    listing, none = (kind.parse(frame, queries)[query] for query in queries)
    assert isinstance(listing, SnapshotListing)
    assert [(file.name, file.size, listing.is_of_former_token(file)) for file in listing.files] == [
        ("old|er", 5, True),
        ("newer", 5, False),
    ]
    assert isinstance(none, SnapshotListing)
    assert none.files == ()


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    "text",
    [RemoveK3s("k3s.service").shell(), LeaveCluster("k3s.service").shell(), RESTART_K3S.script],
    ids=["remove", "leave", "restart"],
)
def test_what_is_run_on_nodes_is_understood_by_the_shell(shell: str, text: str) -> None:
    argv = SHELLS[shell]
    if shutil.which(argv[0]) is None:
        pytest.skip(f"{argv[0]} is not installed")
    result = subprocess.run([*argv, "-n"], input=text, text=True, capture_output=True, check=False)
    assert result.stderr == ""


@pytest.mark.parametrize("shell", SHELLS)
def test_a_server_that_leaves_keeps_what_is_no_membership(shell: str, tmp_path: Path) -> None:
    argv = SHELLS[shell]
    if shutil.which(argv[0]) is None:
        pytest.skip(f"{argv[0]} is not installed")
    kept = [
        "data/agent/containerd/x",
        "data/agent/etc/containerd/config.toml.tmpl",
        "data/agent/images/k3s.tar.zst",
        "data/server/db/snapshots/etcd-snapshot-1",
        "data/server/manifests/own.yaml",
        "data/storage/pvc-1/data",
        "etc/k3s/config.yaml",
        "etc/k3s/token",
    ]
    gone = [
        "data/agent/client-kubelet.key",
        "data/agent/etc/k3s-agent-load-balancer.json",
        "data/agent/kubelet.kubeconfig",
        "data/server/cred/passwd",
        "data/server/db/etcd/member/wal",
        "data/server/tls/etcd/peer-server-client.crt",
        "data/server/token",
        "etc/node/password",
    ]
    for name in (*kept, *gone):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    text = LeaveCluster("k3s.service").shell()
    for line in operations.END_PODS:  # it looks at this machine's own processes and mounts
        text = text.replace(line, ":")
    text = text.replace(paths.DATA, f"{tmp_path}/data").replace("/etc/rancher", f"{tmp_path}/etc")
    for _ in range(2):
        script = f"systemctl() {{ :; }}\n{text}"
        result = subprocess.run([*argv, "-eu"], input=script, text=True, capture_output=True, check=False)
        assert (result.returncode, result.stderr) == (0, "")
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == set(kept)


def _tool(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)

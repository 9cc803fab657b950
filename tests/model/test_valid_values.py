"""What validate accepts, plan can carry: generated values of every kind of name, and tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from provision.api.domains import load_inventory
from provision.inventory import Inventory
from provision.values.errors import ProvisionError, UsageError
from tests.model.model_site import ModelSite
from tests.unit.inventory.conftest import SITE

FEW = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)  # a plan of a whole site takes a moment

# What each place of an inventory holds, and where it stands in the text.
PLACES = {
    "url": ("token_id: a@pve!b", "url: {}, token_id: a@pve!b"),
    "token": ("token_id: a@pve!b", "token_id: {}"),
    "jump": ("access: {", "access: {{ jump: {},"),
    "login": ("user: debian", "user: {}"),
    "storage": ("address: 10.0.0.5", "address: 10.0.0.5\n    storage: {{ disks: {} }}"),
    "bridge": ("address: 10.0.0.5", "address: 10.0.0.5\n    bridge: {}"),
    "pool": ("cores: 2", "cores: 2, pool: {}"),
    "cpu": ("cores: 2", "cores: 2, cpu: {{ type: {} }}"),
    "flag": ("cores: 2", "cores: 2, cpu: {{ flags: [{}] }}"),
    "timezone": ("cores: 2", "cores: 2, timezone: {}"),
    "ntp": ("cores: 2", "cores: 2, ntp: [{}]"),
    "address": ("address: 10.0.0.5", "address: {}"),
    "package": ("cores: 2", "cores: 2, packages: [{}]"),
    "sysctl": ("cores: 2", "cores: 2, sysctl: {{ {}: 1 }}"),
    "sysctl value": ("cores: 2", "cores: 2, sysctl: {{ vm.swappiness: {} }}"),
    "owner": ("cores: 2", "cores: 2, host_resources: [{{ kind: file, path: /a, content: b, owner: {} }}]"),
    "line": ("cores: 2", "cores: 2, host_resources: [{{ kind: file, path: /a, line: {} }}]"),
    "module": ("cores: 2", "cores: 2, host_resources: [{{ kind: kernel_module, name: {} }}]"),
    "options": (
        "cores: 2", "cores: 2, host_resources: [{{ kind: kernel_module, name: a, options: {} }}]",
    ),
    "unit": ("cores: 2", "cores: 2, host_resources: [{{ kind: service, name: {}, running: true }}]"),
    "path": ("cores: 2", "cores: 2, host_resources: [{{ kind: file, path: {}, content: b }}]"),
    "run": ("cores: 2", "cores: 2, host_resources: [{{ kind: command, name: a, run: {}, creates: /a }}]"),
    "unless": ("cores: 2", "cores: 2, host_resources: [{{ kind: command, name: a, run: b, unless: {} }}]"),
    "template": ("cores: 2", "cores: 2, host_resources: [{{ kind: file, path: /a, template: {} }}]"),
    "image file": ("images.example/debian.img", "images.example/debian.img, file: {}"),
    "extends": ("version: 1", "version: 1\nextends: {}"),
    "domain": ("gateway: 10.0.0.1", "gateway: 10.0.0.1\n  domain: {}"),
    "key": ("authorized_keys", "authorized_keys"),
}  # fmt: skip

PIECES = """
a b . .. / // - -- , = : ; @ ! ~ \\ ' \" ` $ $(x) {{ }} {{a}} {% # % & | < > ( ) [ ] * ? 0 1 99999 65536
host https:// http:// [::1] [::1 :abc :99999 ~nouser é
"""
ODD = ("\n", "\0", "\x1b", "\x7f", "\ud800", "\u202e", " ")


def _quoted(value: str) -> str:
    """Return a YAML literal in double quotes; what is no printable ASCII is an escape."""
    letters = []
    for letter in value:
        plain = " " <= letter <= "~" and letter not in '"\\'
        letters.append(letter if plain else f"\\u{ord(letter):04x}")
    return f'"{"".join(letters)}"'


def _load(tmp_path: Path, place: str, value: str) -> Inventory:
    old, new = PLACES[place]
    assert old in SITE
    (tmp_path / "key").write_text("x")
    (tmp_path / "key.pub").write_text("ssh-ed25519 AAAA me")
    (tmp_path / "t.j2").write_text("x")
    text = (
        SITE.replace("~/.ssh/id", f"{tmp_path}/key")
        .replace("env: TOKEN", "file: key")
        .replace(old, new.format(_quoted(value)), 1)
    )
    path = tmp_path / "site.yaml"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    return load_inventory(path, environ={})


def _carry(tmp_path: Path, place: str, value: str) -> bool:
    """Whether validate accepts it; then a plan comes of it, or what the answers say against it."""
    try:
        inventory = _load(tmp_path, place, value)
    except UsageError:
        return False
    try:
        plan = ModelSite(inventory, tmp_path / "state").plan()
    except ProvisionError as error:
        diagnostics = error.diagnostics
    else:
        diagnostics = plan.refusals
    assert not [problem for problem in diagnostics if problem.code in ("INTERNAL", "DEFECT")]
    return True


PLACES.pop("key")


WORDS = st.sampled_from(PIECES.split()) | st.sampled_from(ODD)


@FEW
@given(place=st.sampled_from(sorted(PLACES)), pieces=st.lists(WORDS, min_size=1, max_size=4))
def test_what_validate_accepts_plan_can_carry(tmp_path: Path, place: str, pieces: list[str]) -> None:
    _carry(tmp_path, place, "".join(pieces))


REFUSED = {
    "url": ["https://h:99999", "https://[::1", "https://h:abc", "https://:8006", "https://a..b", "https://u@h"],
    "token": ["a@pve!b\nc", "ä@pve!b", "a@pve", "a b@pve!c", "a@pve!b,c"],
    "jump": ["host:abc", "host:99999", "-oProxyCommand=x", "a@b@c", "h ost"],
    "login": ["--reference=/x", "../x", "a:b", "a b", ""],
    "storage": ["local,import-from=/etc/shadow", "../x", "a:b", "a=b", "-x"],
    "bridge": ["vmbr0,firewall=0", "../x", "a b", "x" * 16],
    "pool": ["../../x", "a/../b", "/a", "a,b"],
    "cpu": ["host,hidden=1", "host hidden", "host;x"],
    "flag": ["aes", "+aes;-pcid", "+aes,hidden=1"],
    "timezone": ["../../etc/shadow", "Etc/../x", "/etc/passwd", "--help", "Etc/UTC\nx"],
    "ntp": ["a\nserver b", "a b", "-x"],
    "package": ["--purge", "a b", "a;b", "../a.deb", "a-", "a/stable", "a=1", "a*"],
    "address": ["0.0.0" + ".0", "224.0.0.1", "255.255.255.255", "250.1.1.1", "10.0.0.005", "fe80::1"],
    "sysctl": ["net//ipv4", "a..b", "../x.y", "net./../x", "vm.a/", "vm./a", "vm.a\nb"],
    "sysctl value": ["1\nkernel.core_pattern = |/x", "1\0"],
    "owner": ["--reference=/etc/shadow", "../x", "a:b", "a b"],
    "line": ["a\nb", "a\0b"],
    "module": ["a b", "../a", "-r", "a\ninstall b /x"],
    "options": ["a=1\ninstall x /bin/sh", "\0"],
    "unit": ["-x", "../a", "a b"],
    "path": [
        "a", "", "/a\nb", "/a\0b", "/", "/etc/", "//etc/a", "/etc/../a", "/./a", "/etc/a\\b", "/a\tb",
        "/a\x1b[2J",
        "/dev/sda", "/proc/sysrq-trigger", "/sys/a", "/var/lib/provision/pending/a", "/" + "a" * 256,
    ],
    "run": ["a\0b"],
    "unless": ["a\0b"],
    "template": ["a\0b", "x" * 300, "~nouser/x"],
    "image file": ["../x", "a/b", "a,b", "-a"],
    "extends": ["~nouser", "a\0b", "x" * 5000],
    "domain": ["a..b", "a\nb", "-a", "a,b"],
}  # fmt: skip


@pytest.mark.parametrize("place", sorted(REFUSED))
def test_a_name_that_means_more_there_is_refused(tmp_path: Path, place: str) -> None:
    accepted = [value for value in REFUSED[place] if _carry_or_refuse(tmp_path, place, value)]
    assert accepted == []


def _carry_or_refuse(tmp_path: Path, place: str, value: str) -> bool:
    """Whether validate and plan both take it."""
    try:
        inventory = _load(tmp_path, place, value)
        ModelSite(inventory, tmp_path / "state").plan()
    except UsageError:
        return False
    return True


ACCEPTED = {
    "path": [
        "/etc/a.conf",
        "/etc/a b",
        "/opt/ü",
        "/etc/..a",
        "/developer/x",
        "/etc/systemd/system/a@b.service",
    ],
    "package": ["g++", "libstdc++-dev", "jq", "libc6:arm64", "python3.11"],
    "address": ["10.0.0.9"],
    "url": ["https://pve.example:8006", "https://[fe80::1]:8006/", "http://10.0.0.5"],
    "token": ["root@pam!provision", "ann.b@my-realm!t_1"],
    "jump": ["bob@gate:2222", "a@first:1, b@second:2", "[::1]:22", "my_bastion"],
    "storage": ["local-zfs", "local", "ceph.rbd_1"],
    "pool": ["lab", "lab/gpu"],
    "cpu": ["host", "x86-64-v2-AES", "custom-a"],
    "flag": ["+aes", "-pcid"],
    "timezone": ["Etc/UTC", "America/Argentina/Buenos_Aires", "Etc/GMT+5", "UTC"],
    "ntp": ["pool.ntp.org", "10.0.0.1", "fd00::1"],
    "sysctl": ["net.ipv4.conf.eth0/100.rp_filter", "vm.nr_hugepages", "fs.inotify.max_user_watches"],
    "sysctl value": ["4096 87380 6291456", "1"],
    "owner": ["root", "systemd-network", "1000", "_apt"],
    "line": ["a, b = 'c' # ü", "\tx"],
    "unit": ["ssh", "getty@tty1.service", "a.timer"],
    "run": ["a\nb", "case x in (x) ;; esac"],
}


@pytest.mark.parametrize("place", sorted(ACCEPTED))
def test_an_ordinary_name_is_taken(tmp_path: Path, place: str) -> None:
    assert [value for value in ACCEPTED[place] if not _carry(tmp_path, place, value)] == []


@pytest.mark.parametrize("text", ["echo 'a", "if true; then", "a && ", "echo $(", "}"])
@pytest.mark.parametrize("place", ["run", "unless"])
def test_shell_text_that_is_none_is_refused_by_name(tmp_path: Path, place: str, text: str) -> None:
    inventory = _load(tmp_path, place, text)
    with pytest.raises(UsageError, match=f"command 'a': `{place}` is not valid shell text"):
        ModelSite(inventory, tmp_path / "state").plan()

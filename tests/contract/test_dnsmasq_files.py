"""The fragment that follows dnsmasq's files, in real shells and with awk programs that hosts have."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from provision.contracts.query import Frame, Unknown
from provision.dhcp.dnsmasq_files import _SERVERS, DnsmasqFiles, DnsmasqFilesKind, Row
from provision.dhcp.dnsmasq_hosts import parse_leases, parse_reservations

SHELLS = {"dash": ("dash",), "bash": ("bash", "--posix"), "busybox": ("busybox", "sh")}


@pytest.fixture(params=list(SHELLS.values()), ids=list(SHELLS))
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, ...]:
    words: tuple[str, ...] = request.param
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    if words[0] == "busybox":  # its own awk, too
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "awk").symlink_to(str(shutil.which("busybox")))
    return words


class Router:
    """The files of a router below a folder."""

    def __init__(self, root: Path, shell: tuple[str, ...]) -> None:
        self.root = root
        self.shell = shell
        self.folder = f"{root}/etc/dnsmasq.d/hosts"

    def write(self, path: str, *lines: str) -> None:
        file = Path(f"{self.root}{path}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(line.replace("@", str(self.root)) for line in lines) + "\n")

    def answer(self, *arguments: str) -> tuple[Row, ...] | Unknown:
        """Ask; with arguments, a server with them runs."""
        kind, query = DnsmasqFilesKind(), DnsmasqFiles(self.folder)
        script = kind.script([query])
        for place in ("/etc/dnsmasq", "/var/lib/misc", "/var/lib/dnsmasq/", "/etc/ethers", "/etc/hosts"):
            script = script.replace(f'"{place}', f'"{self.root}{place}')
        words = "\\n".join(("server", *arguments)).replace("@", str(self.root)) if arguments else ""
        script = script.replace("servers=$(provision_servers || :)", f"servers=$(printf '{words}')")
        environment = {**os.environ, "PATH": f"{self.root}/bin:{os.environ['PATH']}"}
        result = subprocess.run(
            self.shell,
            input=f"( set -eu\n{script}\n) </dev/null".encode(),
            capture_output=True,
            env=environment,
            check=False,
        )
        assert result.returncode == 0, result.stderr.decode()
        return kind.parse(Frame(result.stdout, result.stderr, 0), [query])[query]

    def addresses(self, *arguments: str) -> list[str]:
        answer = self.answer(*arguments)
        assert not isinstance(answer, Unknown), answer.reason
        return sorted(reservation.address for reservation in parse_reservations(answer))

    def leases(self, *arguments: str) -> list[str]:
        answer = self.answer(*arguments)
        assert not isinstance(answer, Unknown), answer.reason
        return sorted(lease.address for lease in parse_leases(answer))


@pytest.fixture
def router(tmp_path: Path, shell: tuple[str, ...]) -> Router:
    return Router(tmp_path, shell)


@pytest.mark.parametrize(
    ("files", "address"),
    [
        (("/etc/pihole/dnsmasq.conf", "/etc/dnsmasq.conf"), "10.0.0.1"),  # since version 6
        (("/etc/dnsmasq.conf",), "10.0.0.2"),
    ],
    ids=["6", "5"],
)
def test_pi_hole_is_dnsmasq_under_another_name(router: Router, files: tuple[str, ...], address: str) -> None:
    """pihole-FTL reads a configuration of its own, which `/etc/dnsmasq.d` is no part of by default."""
    router.write("/proc/12/comm", "pihole-FTL")
    router.write("/proc/12/cmdline", "/usr/bin/pihole-FTL\0-f\0")
    for file in files:
        number = 1 if "pihole" in file else 2
        router.write(file, host(number), f"dhcp-leasefile=@/leases{number}")
        router.write(f"/leases{number}", f"0 52:54:00:aa:bb:cc 10.0.1.{number} * *")
    script = _SERVERS.replace("/proc/", f"{router.root}/proc/").replace("/etc/", f"{router.root}/etc/")
    command = [*router.shell, "-c", f"set -eu\n{script}\nprovision_servers"]
    arguments = subprocess.check_output(command, text=True).splitlines()
    assert router.addresses(*arguments[1:]) == [address]
    assert router.leases(*arguments[1:]) == [address.replace("10.0.0", "10.0.1")]


def host(number: int) -> str:
    return f"dhcp-host=52:54:00:aa:bb:{number:02x},10.0.0.{number}"


def test_every_included_file_counts_once(router: Router) -> None:
    router.write(
        "/etc/dnsmasq.conf",
        "domain-needed",
        "  " + host(11).replace("=", " = "),
        "conf-file=@/srv/more.conf  # more",
        'conf-dir = "@/srv/with blank"',
        "conf-dir=@/srv/only,*.conf",
        "dhcp-hostsfile=@/srv/list",
        "dhcp-hostsdir=@/srv/dir",
        "read-ethers",
        "#conf-file=@/srv/no.conf",
    )
    router.write("/srv/more.conf", host(12), "conf-file=@/etc/dnsmasq.conf", "conf-file=@/srv/deep.conf")
    router.write("/srv/deep.conf", host(13))
    router.write("/srv/with blank/it's here", host(14))
    router.write("/srv/only/a.conf", host(15))
    for name in ("a.conf~", "b.txt", ".hidden.conf", "#auto.conf#"):
        router.write(f"/srv/only/{name}", host(90))
    router.write("/srv/only/sub/c.conf", host(91))
    router.write("/srv/list", "52:54:00:aa:bb:10,10.0.0.16", "# 52:54:00:aa:bb:11,10.0.0.92")
    router.write("/srv/dir/x", "52:54:00:aa:bb:11,10.0.0.17,x")
    router.write("/etc/ethers", "52:54:00:aa:bb:12 10.0.0.18")
    router.write("/srv/no.conf", host(93))
    router.write("/etc/dnsmasq.d/lab.conf", host(19))
    router.write("/etc/dnsmasq.d/lab.conf.dpkg-old", host(94))
    router.write("/etc/dnsmasq.d/hosts/provision-x", "52:54:00:aa:bb:14,10.0.0.20,x")
    assert router.addresses() == [f"10.0.0.{number}" for number in range(11, 21)]


def test_nothing_there_is_no_reservation(router: Router) -> None:
    assert router.answer() == ()


LEASE = "1795960000 52:54:00:aa:bb:01 10.0.0.{} printer *"


def test_leases_are_where_the_configuration_puts_them(router: Router) -> None:
    router.write("/var/lib/misc/dnsmasq.leases", LEASE.format(99))
    router.write("/etc/dnsmasq.conf", "dhcp-leasefile = @/srv/leases")
    router.write("/srv/leases", LEASE.format(11), "0 52:54:00:aa:bb:02 10.0.0.12 * *", "duid 00:01:00:01:2a")
    assert router.leases() == ["10.0.0.11", "10.0.0.12"]


LEASE_FILES = (
    # lines of the configuration, arguments of a running server
    (("dhcp-leasefile=@/srv/leases",), ()),
    (("\t dhcp-leasefile =  @/srv/leases  # where they are",), ()),
    (('dhcp-leasefile="@/srv/leases"',), ()),
    (("dhcp-leasefile=@/srv/with blank",), ()),
    (("leasefile-ro=0", "dhcp-leasefile=@/srv/leases"), ()),
    (("conf-file=@/srv/more.conf",), ()),
    (("conf-dir=@/srv/more",), ()),
    (("conf-dir=@/srv/more/,*.conf", "#dhcp-leasefile=@/srv/no"), ()),
    ((), ("dnsmasq", "-l", "@/srv/leases")),
    ((), ("dnsmasq", "-l@/srv/leases", "-k")),
    ((), ("dnsmasq", "--dhcp-leasefile=@/srv/leases")),
    ((), ("dnsmasq", "--keep-in-foreground", "--dhcp-leasefile", "@/srv/leases")),
)


@pytest.mark.parametrize(("lines", "arguments"), LEASE_FILES)
def test_a_lease_file_is_found_however_it_is_named(
    router: Router, lines: tuple[str, ...], arguments: tuple[str, ...]
) -> None:
    router.write("/var/lib/misc/dnsmasq.leases", LEASE.format(99))
    router.write("/etc/dnsmasq.conf", *lines)
    for path in ("/srv/more.conf", "/srv/more/a.conf"):
        router.write(path, "dhcp-leasefile=@/srv/leases")
    for path in ("/srv/leases", "/srv/with blank"):
        router.write(path, LEASE.format(11))
    assert router.leases(*arguments) == ["10.0.0.11"]


@pytest.mark.parametrize("default", ["/var/lib/misc/dnsmasq.leases", "/var/lib/dnsmasq/dnsmasq.leases"])
def test_leases_are_found_at_the_defaults(router: Router, default: str) -> None:
    router.write(default, LEASE.format(11))
    assert router.leases() == ["10.0.0.11"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("dnsmasq", "-C", "@/srv/own.conf"),
        ("dnsmasq", "-C@/srv/own.conf", "-u", "nobody"),
        ("dnsmasq", "--conf-file=@/srv/own.conf"),
        ("dnsmasq", "-7", "@/srv/conf.d,.bak", "-C", "/dev/null"),
        ("dnsmasq", "--conf-dir", "@/srv/conf.d,.bak", "--conf-file=/dev/null"),
        ("dnsmasq", "-C", "/dev/null", "-G", "52:54:00:aa:bb:0b,10.0.0.11"),
        ("dnsmasq", "--conf-file=/dev/null", "--dhcp-hostsfile=@/srv/list"),
        ("dnsmasq", "-C", "/dev/null", "server", "dnsmasq", "-C", "@/srv/own.conf"),
    ],
)
def test_the_arguments_of_a_running_server_decide(router: Router, arguments: tuple[str, ...]) -> None:
    router.write("/etc/dnsmasq.conf", host(99))
    router.write("/srv/own.conf", host(11))
    router.write("/srv/conf.d/a", host(11))
    router.write("/srv/conf.d/a.bak", host(98))
    router.write("/srv/list", "52:54:00:aa:bb:0b,10.0.0.11")
    assert router.addresses(*arguments) == ["10.0.0.11"]


def test_a_server_without_a_file_of_its_own_reads_the_default(router: Router) -> None:
    router.write("/etc/dnsmasq.conf", host(11))
    router.write("/etc/dnsmasq.d/a", host(12))
    router.write("/etc/dnsmasq.d/a.dpkg-dist", host(99))
    debian = ("dnsmasq", "-x", "/run/dnsmasq.pid", "-7", "@/etc/dnsmasq.d,.dpkg-dist,.dpkg-old,.dpkg-new")
    assert router.addresses(*debian) == ["10.0.0.11", "10.0.0.12"]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("conf-script=/usr/local/bin/hosts", "conf-script"),
        ("conf-file=-", "conf-file=-"),
        ("conf-file=@/srv", "/srv"),
        ("dhcp-leasefile=@/srv/none.leases", "none.leases"),
    ],
)
def test_what_cannot_be_read_is_unknown_not_absent(router: Router, line: str, named: str) -> None:
    router.write("/srv/x", "")
    router.write("/etc/dnsmasq.conf", host(11), line)
    answer = router.answer()
    assert isinstance(answer, Unknown)
    assert named in answer.reason


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("path", ["/srv/conf/a", "/srv/hosts/a", "/srv/hosts", "/srv/leases"])
def test_a_file_without_permission_is_unknown(router: Router, path: str, tmp_path: Path) -> None:
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed")
    router.write(
        "/etc/dnsmasq.conf", "conf-dir=@/srv/conf", "dhcp-hostsdir=@/srv/hosts", "dhcp-leasefile=@/srv/leases"
    )
    for file in ("/srv/conf/a", "/srv/hosts/a", "/srv/leases"):
        router.write(file, "")
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == "root" and len(folder.parts) > 2:
            folder.chmod(0o755)
    Path(f"{tmp_path}{path}").chmod(0)
    router.shell = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *router.shell)
    answer = router.answer()
    assert isinstance(answer, Unknown)
    assert path in answer.reason


def test_a_name_without_an_address_has_that_of_the_hosts_file(router: Router) -> None:
    router.write(
        "/etc/hosts", "127.0.0.1 localhost", "10.0.0.31 Printer.lan  # prn", "fd00::1 nas", "10.0.0.32 nas x"
    )
    router.write("/etc/extra", "10.0.0.33 cam", "10.0.0.34 unrelated")
    router.write(
        "/etc/dnsmasq.conf",
        "addn-hosts=@/etc/extra",
        "dhcp-host=52:54:00:aa:bb:01,printer",
        "dhcp-host=52:54:00:aa:bb:02,set:a,NAS,12h",
        "dhcp-host=id:cam,cam",
        "dhcp-host=52:54:00:aa:bb:04,nobody",
        "dhcp-host=52:54:00:aa:bb:05,x,10.0.0.35",
        "dhcp-host=52:54:00:aa:bb:06",
    )
    assert router.addresses() == ["10.0.0.31", "10.0.0.32", "10.0.0.33", "10.0.0.35"]
    rows = router.answer()
    assert not isinstance(rows, Unknown)
    assert not any("unrelated" in row.text or "localhost" in row.text for row in rows)
    router.write("/etc/dnsmasq.d/local.conf", "no-hosts")
    router.write("/etc/dnsmasq.conf", "conf-dir=@/etc/dnsmasq.d", "dhcp-host=52:54:00:aa:bb:01,printer")
    assert router.addresses() == []

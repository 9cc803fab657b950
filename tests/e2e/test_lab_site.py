"""The lab's machines, container driver: real systemd, dnsmasq, sshd and network; no kernel of their own."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from provision.lab import keys, netns, processes, record, site
from provision.lab.contracts import CloudInit, GuestSpec, Nic
from provision.lab.daemon import make_guests
from provision.lab.hypervisor import ssh_command
from provision.lab.settings import LabError, LabSettings, namespace
from tests.e2e.evidence import watch
from tests.e2e.site import eventually

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and containers"),
]
MAC = "bc:24:11:00:00:65"


def settings(name: str) -> LabSettings:
    return LabSettings(name, "container", {"pve": "198.18.0.5"})


def quiet(_: str) -> None:
    pass


def told(*argv: str) -> frozenset[str]:
    """Return what a command says, by lines, without the times that count down."""
    text = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    return frozenset(re.sub(r"(valid_lft|preferred_lft|expires) \S+", "", line) for line in text.splitlines())


def network() -> dict[str, frozenset[str]]:
    """Return the machine's own network: a lab must leave it as it is, also while it is up."""
    switches = [*Path("/proc/sys/net").glob("ipv?/conf/*/*forwarding"), Path("/proc/sys/net/ipv4/ip_forward")]
    return {
        "links": told("ip", "-o", "link"),
        "addresses": told("ip", "-o", "address"),
        "routes": told("ip", "-o", "-4", "route", "show", "table", "all"),
        "routes 6": told("ip", "-o", "-6", "route", "show", "table", "all"),
        "rules": told("ip", "-o", "-4", "rule") | told("ip", "-o", "-6", "rule"),
        "forwarding": frozenset(f"{each} {each.read_text().strip()}" for each in switches),
    }


def listeners(lab: LabSettings) -> list[str]:
    """Return the sockets of a lab's processes that listen in the machine's own network."""
    pids = processes.of_lab(lab.folder, netns.names(lab.folder))
    assert pids
    rows = told("ss", "-Hlntup")
    return [row for row in rows if any(int(pid) in pids for pid in re.findall(r"pid=(\d+)", row))]


@pytest.fixture(scope="module", autouse=True)
def labs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("labs")
    before = os.environ.get("PROVISION_LAB_DIR")
    os.environ["PROVISION_LAB_DIR"] = str(folder)
    watch(folder)
    yield folder
    for name in ("e2e-one", "e2e-two"):
        site.down(name)
    if before is None:
        del os.environ["PROVISION_LAB_DIR"]
    else:
        os.environ["PROVISION_LAB_DIR"] = before


@pytest.fixture(scope="module")
def lab(labs: Path) -> LabSettings:
    assert list(labs.iterdir()) == []
    made = settings("e2e-one")
    before = network()
    site.up(made, quiet)
    assert network() == before, "nothing of the lab may show in the machine's own network"
    assert listeners(made) == []
    return made


def test_a_socket_of_the_lab_in_the_machines_own_network_would_be_seen(lab: LabSettings) -> None:
    listen = "import socket; each = socket.create_server(('127.0.0.1', 0)); print(1, flush=True); input()"
    leak = subprocess.Popen(
        [sys.executable, "-c", listen],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, processes.MARK: str(lab.folder)},
    )
    assert leak.stdout is not None
    assert leak.stdout.readline() == b"1\n"
    seen = listeners(lab)
    leak.communicate(b"\n")
    assert len(seen) == 1
    assert f"pid={leak.pid}," in seen[0]


def say(lab: LabSettings, address: str, script: str, user: str = "root") -> str:
    argv = ssh_command(lab.folder, address, user)
    if user != "root":
        argv[argv.index("-i") + 1] = str(lab.folder / "keys/guest")
        argv[argv.index(f"UserKnownHostsFile={lab.folder / 'keys/known_hosts'}")] = (
            f"UserKnownHostsFile={lab.folder / 'guest_hosts'}"
        )
    result = subprocess.run(
        netns.inside(namespace(lab.folder), argv), input=script, capture_output=True, text=True, check=False
    )
    return result.stdout


def guest(lab: LabSettings, vmid: int, mac: str) -> GuestSpec:
    host_key = lab.folder / f"first-{vmid}"
    public = keys.ensure_ssh_key(host_key, "first")
    private = "".join(f"    {line}\n" for line in host_key.read_text().splitlines())
    vendor = f"#cloud-config\nssh_keys:\n  ed25519_private: |\n{private}  ed25519_public: {public}\n"
    disk = lab.folder / f"{vmid}.raw"
    seed = CloudInit(f"vm-{vmid}", "debian", (lab.folder / "keys/guest.pub").read_text(), "iid-1", vendor)
    nics = (Nic(mac, "vmbr0"),)
    return GuestSpec(vmid, f"vm-{vmid}", 1, 512, "pc", "seabios", (disk,), None, nics, seed)


def lease(lab: LabSettings, mac: str) -> str | None:
    rows = [line.split() for line in say(lab, lab.gateway, "cat /var/lib/misc/dnsmasq.leases").splitlines()]
    return next((row[2] for row in rows if row[1] == mac), None)


def pin(lab: LabSettings, vmid: int, address: str) -> None:
    public = (lab.folder / f"first-{vmid}.pub").read_text().split()
    (lab.folder / "guest_hosts").write_text(f"{address} {public[0]} {public[1]}\n")


def test_router_and_hypervisor_answer_with_the_pinned_keys(lab: LabSettings) -> None:
    assert say(lab, lab.gateway, "hostname").strip() == "router"
    assert say(lab, "198.18.0.5", "hostname").strip() == "pve"
    seen = site.status(lab.name)
    assert seen.up
    assert {part.kind for part in seen.parts} == {"daemon", "router", "hypervisor"}


def test_a_second_up_changes_nothing(lab: LabSettings) -> None:
    before = site.status(lab.name)
    said: list[str] = []
    site.up(lab, said.append)
    assert site.status(lab.name) == before
    assert said == []


def test_the_api_answers_at_the_hypervisor_with_the_pinned_certificate(lab: LabSettings) -> None:
    overlay = (lab.folder / "site.yaml").read_text()
    with netns.connect(namespace(lab.folder), "198.18.0.5", 8006, 10) as plain:
        context = ssl.create_default_context(cafile=str(lab.folder / "keys/api.pem"))
        with context.wrap_socket(plain, server_hostname="198.18.0.5") as tls:
            der = tls.getpeercert(binary_form=True)
            tls.sendall(b"GET /api2/json/version HTTP/1.0\r\nHost: pve\r\n\r\n")
            answer = tls.recv(64)
    assert der is not None
    assert hashlib.sha256(der).digest().hex(":").upper() in overlay
    assert b"401" in answer.split(b"\r\n")[0]


def test_the_image_is_served_with_its_digest(lab: LabSettings) -> None:
    image = record.load(lab.folder).images.served[0]
    with netns.connect(namespace(lab.folder), lab.host_address, 8080, 10) as sock:
        sock.sendall(b"GET /images/debian-12.qcow2 HTTP/1.0\r\n\r\n")
        data = b"".join(iter(lambda: sock.recv(65536), b""))
    assert hashlib.sha256(data.split(b"\r\n\r\n", 1)[1]).hexdigest() == image.sha256


def test_the_routers_dnsmasq_may_start_before_its_network(lab: LabSettings) -> None:
    """On a busy machine it does; the next test's lease comes from it."""
    restart = "ip address flush dev eth0; systemctl restart dnsmasq"
    back = f"ip address add {lab.gateway}/{lab.network.prefixlen} dev eth0"
    assert say(lab, lab.gateway, f"{restart}; {back}; systemctl is-active dnsmasq") == "active\n"


def test_what_does_not_come_up_is_named_with_the_end_of_its_console(
    lab: LabSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "_CONTAINER_DEADLINE", 1.0)
    monkeypatch.setattr(site, "_ANNOUNCE_AFTER", 0.1)
    told: list[str] = []
    say(lab, lab.gateway, "systemctl stop chrony")
    with pytest.raises(LabError, match=r"chrony of the router: no answer in 1 s(?s:.*)router login:"):
        site.up(lab, told.append)
    assert told == ["waiting for chrony of the router"]
    say(lab, lab.gateway, "systemctl start chrony")
    site.up(lab, quiet)


def test_a_guest_gets_a_lease_its_known_host_key_and_true_reboots(lab: LabSettings) -> None:
    guests = make_guests(record.load(lab.folder))
    spec = guest(lab, 101, MAC)
    guests.create_disk(spec.disks[0], 4)
    guests.start(spec)
    address = str(eventually(lambda: lease(lab, MAC)))
    pin(lab, 101, address)
    eventually(lambda: netns.ssh_banner(namespace(lab.folder), address))
    script = "sudo -n cloud-init status --wait; cat /proc/sys/kernel/random/boot_id"
    first = say(lab, address, script, "debian")
    assert first.startswith("status: done\n")
    say(lab, address, "sudo -n systemctl reboot", "debian")
    second = str(
        eventually(lambda: (again := say(lab, address, script, "debian")) not in {"", first} and again)
    )
    assert second.startswith("status: done\n")


def test_the_daemon_may_die_and_guests_live_on(lab: LabSettings) -> None:
    guests = make_guests(record.load(lab.folder))
    before = guests.pid(101)
    assert before is not None
    daemon = processes.read_pid(lab.folder / "daemon.pid")
    assert daemon is not None
    os.kill(daemon, signal.SIGKILL)
    eventually(lambda: not site.status(lab.name).up)
    site.up(lab, quiet)
    assert site.status(lab.name).up
    assert guests.pid(101) == before


def test_a_guest_killed_from_outside_is_off_and_starts_again(lab: LabSettings) -> None:
    guests = make_guests(record.load(lab.folder))
    pid = guests.pid(101)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: guests.pid(101) is None)
    guests.stop(101)
    guests.start(guest(lab, 101, MAC))
    address = str(eventually(lambda: lease(lab, MAC)))
    eventually(lambda: say(lab, address, "hostname", "debian").strip() == "vm-101")
    assert guests.shutdown(101, 60)
    assert guests.pid(101) is None


def test_two_labs_stand_side_by_side_and_one_goes_without_the_other(lab: LabSettings) -> None:
    other = settings("e2e-two")
    site.up(other, quiet)
    assert site.status(lab.name).up
    assert site.status(other.name).up
    site.down(other.name)
    assert site.leftovers(other.name) == ()
    assert site.status(lab.name).up


def test_a_lab_of_one_name_in_another_folder_is_another_lab(
    lab: LabSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, used = site.status(lab.name), record.load(lab.folder).images.folders
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("PROVISION_LAB_DIR", str(tmp_path))
        assert not site.status(lab.name).up
        assert used <= site.images_in_use(), "what runs elsewhere is known, too"
        site.up(lab, quiet)
        assert site.status(lab.name).up
        site.down(lab.name)
        assert site.leftovers(lab.name) == ()
    assert site.status(lab.name) == before
    assert before.up


@pytest.mark.parametrize("victims", ["daemon", "holders", "everything"])
def test_down_leaves_nothing_also_after_kills(labs: Path, victims: str) -> None:
    other = settings("e2e-two")
    before = network()
    site.up(other, quiet)
    guests = make_guests(record.load(other.folder))
    spec = guest(other, 102, "bc:24:11:00:00:66")
    guests.create_disk(spec.disks[0], 4)
    guests.start(spec)
    assert network() == before
    assert listeners(other) == []
    pids = processes.of_lab(other.folder, netns.names(other.folder))
    held = {guests.pid(102)}
    daemon = processes.read_pid(other.folder / "daemon.pid")
    sets: dict[str, set[int | None]] = {"daemon": {daemon}, "holders": held, "everything": {*pids}}
    chosen = sets[victims]
    assert chosen
    for pid in chosen:
        assert pid is not None
        with suppress(ProcessLookupError):  # some go with the one that was killed before
            os.kill(pid, signal.SIGKILL)
    site.down(other.name)
    assert site.leftovers(other.name) == ()
    assert not any(other.name in path.name for path in labs.iterdir())
    assert str(other.folder) not in Path("/proc/self/mounts").read_text()
    assert not list(Path("/sys/fs/cgroup").glob(f"**/{namespace(other.folder)}"))
    assert network() == before


def test_down_of_a_lab_that_never_was_is_quiet() -> None:
    site.down("e2e-two")
    assert site.status("e2e-two").parts == ()


def test_down_clears_a_lab_that_was_cut_off_half_way() -> None:
    other = settings("e2e-two")
    other.folder.mkdir()
    netns.ensure(other)
    netns.add_veth(other.folder, "103", 0, MAC)
    site.down(other.name)
    assert site.leftovers(other.name) == ()
    assert not other.folder.exists()

"""The core story on real kernels: nothing, apply, proof, second apply, other controller, destroy, nothing.

One ordered story of named stages; what follows a lab or an apply that broke fails at once and says so.
Real here: kernels, IOMMU groups, drivers, initramfs, boot loader, reboots, DHCP, SSH.
Stand-ins: the API is the lab's own, and the guest runs beside the hypervisor with another emulated card.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.evidence import USUAL, namespace, watch
from tests.e2e.sweep import Parts, sweep
from tests.e2e.vandals import COSTLY
from tests.traces import scan

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and virtual machines"),
]

ROOT = Path(__file__).parents[2]
INVENTORY = "inventories/lab.yaml"
CARD = "0000:01:00.0"
DEADLINE = 1200
HYPERVISOR = "198.18.0.5"
ROUTER = "198.18.0.1"
GUESTS = {"vm-1": (201, "198.18.0.11"), "vm-2": (202, "198.18.0.12"), "vm-gpu": (203, "198.18.0.13")}
WATCH = r"""set -eu
cat >/usr/local/sbin/story-watch <<'EOF'
#!/bin/sh
# Says which driver holds the card, by seconds since the boot; forks only for its sleep.
while :; do
  read -r now rest </proc/uptime
  held=none
  if cd -P CARD/driver 2>/dev/null; then held=${PWD##*/}; cd /; fi
  echo "$now $held"
  sleep 1
done >/run/story-watch
EOF
sed -i 's|CARD|/sys/bus/pci/devices/CARD_ADDRESS|' /usr/local/sbin/story-watch
chmod 755 /usr/local/sbin/story-watch
cat >/etc/systemd/system/story-watch.service <<'EOF'
[Unit]
DefaultDependencies=no
[Service]
ExecStart=/usr/local/sbin/story-watch
[Install]
WantedBy=sysinit.target
EOF
systemctl -q enable --now story-watch
"""
"""Somebody who watches the card on the hypervisor, from early in each boot on."""
SECOND_DROP_IN = "/etc/default/grub.d/99-site.cfg"
"""Read after ours."""
GROUND = ("test_01_the_lab_comes_up_with_nothing_in_it", "test_04_apply_reaches_a_verified_site")
"""Stages without which no later one says anything."""


@dataclass
class Story:
    """What stages hand on to each other."""

    state: Path
    lab: Path
    broken: str = ""
    events: list[dict[str, object]] = field(default_factory=list)

    @property
    def namespace(self) -> str:
        return namespace(self.lab)

    def provision(self, *args: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"PROVISION_STATE": str(self.state)}
        command = [str(Path(sys.prefix) / "bin/provision"), *args]
        try:
            return subprocess.run(
                command,
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                stdin=subprocess.DEVNULL,
                timeout=DEADLINE,
            )
        except subprocess.TimeoutExpired as late:
            said = [(each or b"").decode(errors="replace")[-3000:] for each in (late.stdout, late.stderr)]
            pytest.fail("\n".join((f"no end in {DEADLINE} s: provision {' '.join(args)}", *said)))

    def inside(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["ip", "netns", "exec", self.namespace, *argv],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def ssh(self, address: str, script: str) -> str:
        guest = address not in (HYPERVISOR, ROUTER)
        key = self.lab / "keys" / ("guest" if guest else "site")
        login = f"debian@{address}" if guest else f"root@{address}"
        options = [
            "-F", "none", "-i", str(key), "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes",
            "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR",
            "-o", "ConnectTimeout=60",
        ]  # fmt: skip
        result = self.inside("ssh", *options, login, script)
        assert result.returncode == 0, f"{login}: {result.stderr}"
        return result.stdout

    def dump(self) -> tuple[object, ...]:
        """Return what can be seen of the site: its objects, tasks and the files of its hosts."""
        paths = ("/nodes/pve/tasks", "/nodes/pve/qemu/203/config", "/cluster/mapping/pci")
        files = "find /etc /var/lib/provision -type f -printf '%p %m %s %T@\\n' 2>/dev/null | sort"
        hosts = [self.ssh(each, files) for each in (HYPERVISOR, ROUTER)]
        return (*(self.api(each) for each in paths), *hosts)

    def api(self, path: str) -> object:
        token = (self.lab / "keys/token").read_text().strip()
        header = f"Authorization: PVEAPIToken=provision@pve!lab={token}"
        url = f"https://{HYPERVISOR}:8006/api2/json{path}"
        result = self.inside("curl", "-sS", "--noproxy", "*", "--insecure", "--header", header, url)
        return json.loads(result.stdout)["data"]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    labs = Path(os.environ.get("PROVISION_LAB_DIR", USUAL))
    watch(labs)
    made = Story(tmp_path_factory.mktemp("state"), labs / "lab")
    yield made
    made.provision("lab", "down", INVENTORY)


@pytest.fixture(autouse=True)
def stage(story: Story, request: pytest.FixtureRequest) -> Iterator[None]:
    if story.broken:
        pytest.fail(f"not reached: {story.broken} failed")
    failed = request.session.testsfailed
    yield
    if request.session.testsfailed > failed and request.node.name in GROUND:
        story.broken = request.node.name


def ended(result: subprocess.CompletedProcess[str]) -> str:
    return f"exit {result.returncode}\n{result.stdout[-6000:]}\n{result.stderr[-3000:]}"


def test_01_the_lab_comes_up_with_nothing_in_it(story: Story) -> None:
    result = story.provision("lab", "up", INVENTORY)
    assert result.returncode == 0, ended(result)
    assert story.api("/nodes/pve/qemu") == []
    assert story.api("/cluster/mapping/pci") == []
    assert not story.ssh(ROUTER, "ls /etc/dnsmasq.d/hosts").strip()


def test_02_a_host_driver_holds_the_card(story: Story) -> None:
    driver = story.ssh(HYPERVISOR, f"readlink -f /sys/bus/pci/devices/{CARD}/driver")
    assert driver.strip().endswith(("/bochs-drm", "/bochs")), driver
    story.ssh(HYPERVISOR, WATCH.replace("CARD_ADDRESS", CARD))
    assert story.ssh(HYPERVISOR, "sleep 2; cat /run/story-watch").split()[1].startswith("bochs")


def test_03_the_end_state_does_not_hold_yet(story: Story) -> None:
    result = story.inside(str(ROOT / "tests/e2e/end_state.sh"), str(story.lab))
    assert result.returncode == 1, ended(result)
    assert "FAILS  VM 201 runs" in result.stdout


def test_04_apply_reaches_a_verified_site(story: Story) -> None:
    result = story.provision("apply", INVENTORY, "--yes", "--json")
    story.events = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    assert result.returncode == 0, ended(result)
    verified = [each for each in story.events if each["type"] == "step_ended" and each["role"] == "verify"]
    assert [each["outcome"] for each in verified] == ["unchanged"], verified


def test_05_the_hypervisor_booted_once_for_all_of_its_changes(story: Story) -> None:
    console = (story.lab / "console/pve.log").read_bytes()
    assert console.count(b"pve login:") == 2, "one first boot, one for the changes"


def test_06_nothing_claimed_the_card_before_its_vm_started(story: Story) -> None:
    """From the boot to the VM's start: no driver link, and VFIO not even loaded; then it has the card."""
    tasks = story.api("/nodes/pve/tasks?typefilter=qmstart")
    assert isinstance(tasks, list)
    uptime, now = story.ssh(HYPERVISOR, "cut -d. -f1 /proc/uptime; date +%s").split()
    booted = float(now) - float(uptime)
    started = min(float(each["starttime"]) for each in tasks if str(each["id"]) == "203") - booted
    seen = [line.split() for line in story.ssh(HYPERVISOR, "cat /run/story-watch").splitlines()]
    before = {held for when, held in seen if float(when) < started - 1}
    assert before == {"none"}, before
    assert {held for when, held in seen if float(when) > started + 30} == {"vfio-pci"}
    log = story.ssh(HYPERVISOR, "dmesg").splitlines()
    vfio = [line for line in log if re.search(r"vfio", line, re.IGNORECASE)]
    assert any("VFIO - User Level meta-driver" in line for line in vfio), "the log would tell"
    early = [line for line in vfio if float(line[1:].split("]")[0]) < started - 1]
    assert not early, early
    spoke = [line for line in log if re.search(r"\bbochs", line) and "blacklist" not in line]
    assert not spoke, spoke


def test_07_vfio_holds_every_function_of_the_card(story: Story) -> None:
    rows = story.ssh(
        HYPERVISOR, f"for f in /sys/bus/pci/devices/{CARD[:-2]}.*; do readlink -f $f/driver; done"
    ).split()
    assert rows
    assert all(row.endswith("/vfio-pci") for row in rows), rows


def test_08_the_independent_end_state_holds(story: Story) -> None:
    result = story.inside(str(ROOT / "tests/e2e/end_state.sh"), str(story.lab))
    assert result.returncode == 0, result.stdout


def test_09_the_keys_of_the_snippets_are_dead(story: Story) -> None:
    for vmid, address in GUESTS.values():
        offered = story.inside("ssh-keyscan", "-T", "60", address).stdout
        assert len([line for line in offered.splitlines() if not line.startswith("#")]) == 1, offered
        printed = subprocess.run(
            ["ssh-keygen", "-lf", "-"], input=offered, capture_output=True, text=True, check=True
        )
        config = story.api(f"/nodes/pve/qemu/{vmid}/config")
        assert isinstance(config, dict)
        assert f"host-key={printed.stdout.split()[1]}" in config["description"]
        assert "first-key" not in config["description"]


def test_10_verify_is_green_and_writes_junit(story: Story, tmp_path: Path) -> None:
    result = story.provision("verify", INVENTORY, "--strict", "--junit", str(tmp_path / "junit.xml"))
    assert result.returncode == 0, ended(result)
    report = (tmp_path / "junit.xml").read_text()
    assert 'failures="0"' in report
    assert 'errors="0"' in report


def test_11_a_second_apply_changes_nothing_at_one_execution_a_host(story: Story) -> None:
    result = story.provision("--debug", "apply", INVENTORY, "--yes")
    assert result.returncode == 0, ended(result)
    assert "(0 changed)" in result.stdout, ended(result)
    line = next(line for line in result.stdout.splitlines() if line.startswith("Round trips:"))
    trips = {name: int(count) for name, count in re.findall(r"(\S+/\S+|router) (\d+)", line)}
    hosts = {name: count for name, count in trips.items() if name != "pve/api"}
    assert hosts == {"pve/ssh": 1, "router": 1, "vm-1/ssh": 1, "vm-2/ssh": 1, "vm-gpu/ssh": 1}, line
    assert trips["pve/api"] <= 4 + len(GUESTS), line


def test_12_another_controller_with_another_key_has_an_empty_plan(story: Story) -> None:
    """Nothing needed lives on the controller: an empty state folder and another accepted key are enough."""
    keys = {name: story.lab / "keys" / name for name in ("guest", "site")}
    for address in (HYPERVISOR, ROUTER, *(address for _, address in GUESTS.values())):
        key = keys["guest" if address not in (HYPERVISOR, ROUTER) else "site"]
        fresh = key.with_name(key.name + "-fresh")
        if not fresh.exists():
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", fresh], check=True)
        public = fresh.with_name(fresh.name + ".pub").read_text().strip()
        story.ssh(address, f"echo '{public}' >> ~/.ssh/authorized_keys")
    shutil.rmtree(story.state)
    kept = {name: (key.read_bytes(), key.with_name(f"{name}.pub").read_bytes()) for name, key in keys.items()}
    try:
        for key in keys.values():
            for suffix in ("", ".pub"):
                fresh = key.with_name(f"{key.name}-fresh{suffix}")
                key.with_name(key.name + suffix).write_bytes(fresh.read_bytes())
        result = story.provision("plan", INVENTORY, "--detailed-exitcode")
    finally:
        for name, (private, public_key) in kept.items():
            keys[name].write_bytes(private)
            keys[name].with_name(f"{name}.pub").write_bytes(public_key)
    assert result.returncode == 0, ended(result)


def test_13_what_would_take_more_than_its_own_card_is_refused(story: Story, tmp_path: Path) -> None:
    before = story.dump()
    shared = story.ssh(HYPERVISOR, "lspci -Dn -d 1234:1111").splitlines()[-1].split(".")[0]
    assert not shared.startswith(CARD[:-2])
    refusals: dict[str, dict[str, object]] = {
        "IOMMU_GROUP_SHARED": {
            "hypervisors": {"pve": {"cards": {"display": {"address": shared, "drives_console": False}}}}
        },
        "ONBOOT_FORBIDDEN": {"nodes": {"vm-gpu": {"start_at_boot": True}}},
        "CORES_EXCEED_HOST": {"nodes": {"vm-1": {"cores": 64}}},
    }
    for code, changed in refusals.items():
        variant = tmp_path / f"{code}.yaml"
        variant.write_text(json.dumps({"extends": str(ROOT / INVENTORY), **changed}))
        result = story.provision("apply", str(variant), "--yes")
        assert result.returncode == 4, ended(result)
        assert code in result.stdout + result.stderr, ended(result)
    assert story.dump() == before


@pytest.mark.full
def test_14_every_damage_appears_in_the_next_plan_by_name_and_is_repaired(story: Story) -> None:
    report = sweep(ROOT / INVENTORY, story.lab, story.namespace, story.state, width=12, parts=Parts.CHEAP)
    print(report)  # noqa: T201 - pytest -s shows the sweep kind by kind
    assert not report.failures, report


@pytest.mark.full
def test_15_what_costs_an_initramfs_or_a_boot_is_repaired_too(story: Story) -> None:
    report = sweep(ROOT / INVENTORY, story.lab, story.namespace, story.state, parts=Parts.COSTLY)
    print(report)  # noqa: T201 - pytest -s shows the sweep kind by kind
    assert not report.failures, report
    assert set(report.repaired) == {*COSTLY, "vm-power"}


@pytest.mark.full
def test_16_a_grub_file_that_overrides_ours_is_named_and_costs_no_boot(story: Story) -> None:
    def booted() -> str:
        return story.ssh(HYPERVISOR, "cat /proc/sys/kernel/random/boot_id")

    def generated() -> str:
        return story.ssh(HYPERVISOR, "grep -h '^[[:blank:]]*linux' /boot/grub/grub.cfg")

    boot, line = booted(), generated()
    story.ssh(HYPERVISOR, f"echo 'GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"' >{SECOND_DROP_IN}; update-grub")
    assert generated() != line, "the second drop-in is what the next boot would get"
    result = story.provision("apply", INVENTORY, "--yes", "--allow", "reboot-hypervisor")
    assert result.returncode == 1, ended(result)
    for word in ("KERNEL_LINE_OVERRIDDEN", SECOND_DROP_IN):
        assert word in result.stdout + result.stderr, ended(result)
    assert booted() == boot, "a reboot would not help"
    result = story.provision("verify", INVENTORY, "--strict")
    assert result.returncode != 0, ended(result)
    story.ssh(HYPERVISOR, f"rm {SECOND_DROP_IN}")
    result = story.provision("apply", INVENTORY, "--yes", "--allow", "reboot-hypervisor")
    assert result.returncode == 0, ended(result)
    assert generated() == line
    assert booted() == boot, "the running kernel has the arguments: the menu alone was wrong"
    assert story.provision("plan", INVENTORY, "--detailed-exitcode").returncode == 0


def test_90_destroy_leaves_nothing_of_ours(story: Story) -> None:
    result = story.provision("destroy", INVENTORY, "--yes")
    assert result.returncode == 0, ended(result)
    assert story.api("/nodes/pve/qemu") == []
    assert story.api("/cluster/mapping/pci") == []
    assert story.api("/nodes/pve/storage/local-disks/content") == []
    assert not story.ssh(ROUTER, "grep -rhi 198.18.0.1[123] /etc/dnsmasq.d || true").strip()
    assert not story.ssh(HYPERVISOR, "ls /var/lib/vz/snippets").strip()
    # With its hosts, no place that the code names is left: files of cards and boot, notes, private keys.
    assert story.ssh(HYPERVISOR, scan()).strip() != ""
    result = story.provision("destroy", INVENTORY, "--yes", "--host")
    assert result.returncode == 0, ended(result)
    for machine in (HYPERVISOR, ROUTER):
        assert story.ssh(machine, scan()).strip() == ""


def test_91_the_lab_goes_and_leaves_nothing(story: Story) -> None:
    result = story.provision("lab", "down", INVENTORY)
    assert result.returncode == 0, ended(result)
    assert not story.lab.exists()
    assert (
        story.namespace
        not in subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    )
    assert str(story.lab) not in Path("/proc/mounts").read_text()
    running = subprocess.run(["pgrep", "-fa", str(story.lab)], capture_output=True, text=True, check=False)
    assert not [line for line in running.stdout.splitlines() if "pytest" not in line], running.stdout

"""GPUs of nodes: drivers, cards, and what the kernel said of them since boot."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from testinfra.host import Host

from provision.contracts.check import NotDeclared, Site, Trivial
from provision.gpu.words import APPLICATION_XIDS, HARDWARE_XIDS, NVIDIA, Meaning, is_hardware_fault, meaning
from provision.hosts.commands import LOADED_MODULES
from provision.hosts.systemd_units import unit
from provision.inventory.models.node import Driver, GpuCards, Node

FUNCTIONS = (
    'for f in /sys/bus/pci/devices/*; do [ -r "$f/vendor" ] || continue; read -r v <"$f/vendor";'
    ' read -r c <"$f/class"; d=none; if [ -e "$f/driver" ]; then d=$(readlink "$f/driver"); fi;'
    ' echo "${f##*/} ${v#0x} ${c#0x} ${d##*/}"; done'
)
"""Address, vendor, class and driver of every PCI function, without lspci."""
LIST = "nvidia-smi --query-gpu={} --format=csv,noheader,nounits"
IDENTITY = LIST.format("pci.bus_id,uuid,name,memory.total,driver_version")
MODES = LIST.format("pci.bus_id,ecc.mode.current,mig.mode.current,power.limit")
COMPUTE_MODE = LIST.format("pci.bus_id,compute_mode")
SLOWED = LIST.format(
    "pci.bus_id,clocks_throttle_reasons.hw_thermal_slowdown,clocks_throttle_reasons.hw_power_brake_slowdown"
)
"""By the names that drivers before 535 have, too."""
REASONS = ("its heat", "the power supply")
FABRIC = LIST.format("pci.bus_id,fabric.state,fabric.status")
LIBRARY = (
    "for f in /usr/lib/*/libnvidia-ml.so.*.* /usr/lib/*/nvidia/current/libnvidia-ml.so.*.*"
    ' /usr/lib64/libnvidia-ml.so.*.*; do [ ! -e "$f" ] || echo "${f##*/libnvidia-ml.so.}"; done | sort -u'
)
"""Versions of the driver's user-space library."""
KERNEL_LOG = (
    'l=$(journalctl -k -b -q --no-pager -o cat 2>/dev/null); [ -n "$l" ] || l=$(dmesg 2>/dev/null);'
    " printf '%s\\n' \"$l\" | grep -c 'Linux version'; printf '%s\\n' \"$l\" | grep 'NVRM: Xid'; true"
)
"""Whether the log reaches back to the boot, then the lines about Xids."""
FABRIC_LOG = (
    "k=$(journalctl -k -b -q --no-pager -o short-monotonic 2>/dev/null);"
    ' [ -n "$k" ] || k=$(dmesg 2>/dev/null); [ -z "$k" ] || echo "log yes";'
    " sed 's/^/reset /' /run/provision-fabric-reset 2>/dev/null;"
    " printf '%s\\n' \"$k\" | grep NV_ERR_FABRIC; true"
)
"""Whether the log is readable, when the fabric was reset (seconds since boot), and errors of the fabric."""
MPS_LEFT = (
    'for d in /run/nvidia/mps/*/*/; do if [ -d "$d"pipe ] || [ -e "$d.started" ]; then echo "$d"; fi; done'
)
"""Folders of MPS servers of NVIDIA's device plugin."""
XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): ([0-9]+)")
NEXT = (
    "n=$(ls /boot/vmlinuz-* 2>/dev/null | sed 's,.*/vmlinuz-,,' | sort -V | tail -n 1); n=${n:-$(uname -r)};"
    ' echo "$n"; for m in nvidia nvidia-current nvidia-current-open; do'
    ' modinfo -k "$n" -F version "$m" 2>/dev/null && break; done'
)
"""Kernel of the next boot and the version of its module, also by Debian's names."""


@pytest.fixture
def declared(site: Site, node: str) -> Node:
    """What the inventory says of the node; nodes that declare no GPU have no claims."""
    found = site.inventory.nodes[node]
    expected = any(alias in site.inventory.expect.gpu_cards for alias in found.gpus)
    if found.driver is None and found.gpu_cards is None and not expected:
        raise NotDeclared("no GPU")
    return found


@pytest.fixture
def driver(declared: Node) -> Driver:
    """What it says of the driver."""
    if declared.driver is None:
        raise NotDeclared("the driver is unmanaged")
    return declared.driver


@pytest.fixture
def host(site: Site, node: str, declared: Node) -> Host:
    """The node."""
    del declared
    return site.host(f"{node}/ssh")


def _rows(host: Host, command: str, *, needed: bool = True) -> list[list[str]]:
    """Return the fields of every card that the driver lists; messages are no cards."""
    result = host.run(command)
    lines = [[field.strip() for field in line.split(",")] for line in result.stdout.splitlines()]
    cards = [line for line in lines if re.match(r"[0-9A-Fa-f]+:[0-9A-Fa-f]{2}:", line[0]) and len(line) > 1]
    if not cards and needed:
        pytest.fail(f"nvidia-smi lists no card: {(result.stdout or result.stderr).strip()[:200]}")
    return cards


def _functions(host: Host) -> list[list[str]]:
    """Return NVIDIA's display and 3D controllers: address, vendor, class, driver."""
    rows = [line.split() for line in host.check_output(FUNCTIONS).splitlines()]
    return [row for row in rows if row[1] == NVIDIA and row[2][:2] in ("03", "12")]


@pytest.fixture
def no_card(host: Host, declared: Node) -> bool:
    """Whether a driver alone is declared, and the kernel sees no GPU: nothing can load the driver."""
    return not declared.gpus and declared.gpu_cards is None and not _functions(host)


NO_CARD = "no GPU is declared, and the kernel sees none"


def test_gpu_toolkit(site: Site, host: Host, declared: Node) -> None:
    """The container toolkit is on the host where the inventory says so."""
    gpu = site.inventory.gpu
    if gpu is None or gpu.toolkit != "host" or declared.driver is None:
        raise NotDeclared("no container toolkit on the host")
    result = host.run("command -v nvidia-container-runtime")
    assert result.rc == 0, "nvidia-container-runtime is not installed"


def test_gpu_driver_is_bound(host: Host, *, no_card: bool) -> None:
    """Every GPU that the kernel sees has the driver nvidia."""
    if no_card:
        pytest.skip(f"unknown: {NO_CARD}; declare gpu_cards where one must be")
    functions = _functions(host)
    assert functions, "the kernel sees no GPU"
    others = [f"{row[0]} has {row[3]}" for row in functions if row[3] != "nvidia"]
    assert not others, "; ".join(others)


def test_gpu_count(host: Host, declared: Node) -> None:
    """As many GPUs answer as are declared, each with its own UUID."""
    expected = declared.gpu_cards.count if declared.gpu_cards is not None else None
    expected = expected or len(declared.gpus) or None
    if expected is None:
        raise NotDeclared("no number of GPUs")
    rows = _rows(host, IDENTITY)
    dead = [row[0] for row in rows if not row[1].startswith("GPU-")]
    uuids = {row[1] for row in rows} - set(dead)
    assert not dead, f"no UUID: {', '.join(dead)}"
    assert len(uuids) == expected, f"{len(uuids)} GPUs answer, not {expected}"


def test_gpu_model(site: Site, host: Host, declared: Node) -> None:
    """Every GPU has the declared name and memory."""
    expected = [
        site.inventory.expect.gpu_cards[one]
        for one in declared.gpus
        if one in site.inventory.expect.gpu_cards
    ]
    if declared.gpu_cards is not None and not expected:
        expected = [declared.gpu_cards] * len(_rows(host, IDENTITY))
    expected = [card for card in expected if card.name is not None or card.memory is not None]
    if not expected:
        raise NotDeclared("no name and no memory of a GPU")
    left = _rows(host, IDENTITY)
    for card in expected:
        match = next((row for row in left if _is(row, card)), None)
        shown = "; ".join(f"{row[0]}: {row[2]}, {row[3]} MiB" for row in left)
        assert match is not None, f"no {card.name or 'GPU'} with {card.memory or 'any'} MiB among {shown}"
        left.remove(match)


def _is(row: list[str], card: GpuCards) -> bool:
    if card.name is not None and row[2] != card.name:
        return False
    # Memory that is shared with the host has no size of its own (`[N/A]`).
    shared = meaning(row[3]) is Meaning.NOT_APPLICABLE
    return card.memory is None or shared or row[3] == str(card.memory)


def test_gpu_driver_version(host: Host, driver: Driver, *, no_card: bool) -> None:
    """The loaded driver is of the declared version, and the libraries are of the same."""
    if no_card:
        raise Trivial(NO_CARD)
    loaded = host.run("cat /sys/module/nvidia/version").stdout.strip()
    assert loaded, "no NVIDIA driver is loaded"
    libraries = {row[4] for row in _rows(host, IDENTITY)} - {loaded}
    assert not libraries, f"the kernel has {loaded}, the libraries are {', '.join(sorted(libraries))}"
    if not driver.manage:
        minimum = driver.minimum or "0"
        assert _number(loaded) >= _number(minimum), f"{loaded} is older than {minimum}"
        return
    if driver.version not in (None, "newest-in-branch"):
        assert loaded == driver.version, f"{loaded} is loaded, not {driver.version}"
    if driver.branch is not None:
        branch = re.sub(r"[^0-9].*", "", driver.branch)
        assert loaded.split(".")[0] == branch, f"{loaded} is not of branch {driver.branch}"


def _number(version: str) -> list[int]:
    return [int(part) for part in re.findall("[0-9]+", version)]


def test_gpu_driver_at_next_boot(host: Host, driver: Driver, *, no_card: bool) -> None:
    """The kernel that boots next has a module of the loaded version; without a GPU, of the library's."""
    if not driver.manage:
        raise NotDeclared("the driver is unmanaged")
    kernel, *version = host.run(NEXT).stdout.split()
    own = " ".join(version) or "no module"
    if no_card:
        library = host.run(LIBRARY).stdout.strip()
        assert own == library, f"{kernel} has {own}, and the library is {library or 'missing'}"
        return
    loaded = host.run("cat /sys/module/nvidia/version").stdout.strip()
    assert own == loaded, f"{kernel} has {own}, and {loaded} is loaded"


def test_gpu_ecc(host: Host, declared: Node) -> None:
    """ECC is on or off as declared, on every GPU."""
    wanted = declared.gpu_cards.ecc if declared.gpu_cards is not None else None
    if wanted is None:
        raise NotDeclared("ECC")
    word = "Enabled" if wanted else "Disabled"
    others = [f"{row[0]}: {row[1]}" for row in _rows(host, MODES) if row[1] != word]
    assert not others, "; ".join(others)


def test_gpu_mig(host: Host, declared: Node) -> None:
    """MIG is on or off as declared, on every GPU."""
    wanted = declared.gpu_cards.mig if declared.gpu_cards is not None else None
    if wanted is None:
        raise NotDeclared("MIG")
    # A card that knows no MIG says so, and has it off.
    rows = _rows(host, MODES)
    others = [f"{row[0]}: {row[2]}" for row in rows if (row[2] == "Enabled") != wanted]
    assert not others, "; ".join(others)


def test_gpu_compute_mode(site: Site, host: Host, declared: Node) -> None:
    """Several programs may use a GPU: a server of MPS that was killed has left it to nobody but itself.

    A server that ends in order gives the card back (NVIDIA/k8s-device-plugin#658), a killed one does not.
    """
    sharing = site.inventory.sharing
    if not declared.wants_gpu or (sharing is not None and sharing.mode in {"mps", "kai_fractions"}):
        raise NotDeclared("a server of MPS chooses the mode")
    others = [f"{row[0]}: {row[1]}" for row in _rows(host, COMPUTE_MODE) if row[1] != "Default"]
    assert not others, f"{'; '.join(others)}: `nvidia-smi -c DEFAULT` gives it back"


def test_gpu_no_mps_left(site: Site, host: Host, declared: Node) -> None:
    """No MPS server of the device plugin has left pipes: CUDA programs that find them hang."""
    sharing, gpu = site.inventory.sharing, site.inventory.gpu
    if not declared.wants_gpu or gpu is None or gpu.operator is None:
        raise NotDeclared("no device plugin")
    if sharing is not None and sharing.mode == "mps":
        raise NotDeclared("MPS serves")
    left = host.run(MPS_LEFT).stdout.split()
    assert not left, f"{', '.join(left)}: `provision apply --step gpu_operator` removes it"


def test_gpu_is_not_slowed_down(host: Host, declared: Node) -> None:
    """No GPU is slowed down by its own hardware, for heat or for power: one of them slows all of a job."""
    del declared
    rows = _rows(host, SLOWED)
    pairs = ((row[0], reason, word) for row in rows for reason, word in zip(REASONS, row[1:], strict=False))
    slowed = [f"{card}: {reason}" for card, reason, word in pairs if word == "Active"]
    assert not slowed, "; ".join(slowed)


def test_gpu_power_limit(host: Host, driver: Driver) -> None:
    """Every GPU has the declared power limit."""
    if driver.power_limit is None:
        raise NotDeclared("power limit")
    others = [
        f"{row[0]}: {row[3]}" for row in _rows(host, MODES) if row[3].split(".")[0] != str(driver.power_limit)
    ]
    assert not others, "; ".join(others)


def test_gpu_fabric(host: Host, declared: Node) -> None:
    """The NVLink fabric of every GPU is initialised."""
    if declared.gpu_cards is None or not declared.gpu_cards.nvswitch:
        raise NotDeclared("no NVSwitch")
    rows = _rows(host, FABRIC, needed=False)
    if not rows:
        pytest.skip("unknown: the driver does not know the state of the fabric")
    others = [f"{row[0]}: {row[1]}" for row in rows if row[1] != "Completed"]
    assert not others, "; ".join(others)


def test_gpu_fabric_no_fault(host: Host, declared: Node) -> None:
    """The kernel reported no error of the NVLink fabric since boot, or since its last reset."""
    if declared.gpu_cards is None or not declared.gpu_cards.nvswitch:
        raise NotDeclared("no NVSwitch")
    lines = host.run(FABRIC_LOG).stdout.splitlines()
    if "log yes" not in lines:
        pytest.skip("unknown: the kernel log is not readable")
    reset = next((float(match[1]) for line in lines if (match := re.match(r"reset ([0-9.]+)$", line))), 0.0)
    times = {line: re.search(r"\[ *([0-9]+\.[0-9]+)\]", line) for line in lines if "NV_ERR_FABRIC" in line}
    errors = [line for line, time in times.items() if time is None or float(time[1]) > reset]
    # The cards' own state goes on to say Completed: it alone proves nothing.
    assert not errors, f"{errors[-1].strip()[:160]}; see the playbook nvls-recovery"


def test_gpu_no_hardware_fault(host: Host, declared: Node, note: Callable[[str], None]) -> None:
    """The kernel reported no fault of a GPU since boot; faults of programs are named and fail nothing."""
    del declared
    first, *lines = host.run(KERNEL_LOG).stdout.splitlines() or ["0"]
    xids = [(match[1], int(match[2]), line) for line in lines if (match := XID.search(line))]
    hardware = [line for _, number, line in xids if is_hardware_fault(number, line)]
    assert not hardware, "; ".join(line.strip()[:160] for line in hardware[:5])
    other = sorted({number for _, number, _ in xids} - APPLICATION_XIDS - HARDWARE_XIDS)
    if other:
        pytest.skip(f"unknown: Xid {', '.join(map(str, other))} since boot")
    if first.strip() in ("", "0"):
        pytest.skip("unknown: the kernel log is not readable, or no longer reaches back to the boot")
    if xids:
        note(f"Xids of programs: {', '.join(str(number) for _, number, _ in xids)}")


def test_gpu_daemons(host: Host, driver: Driver, declared: Node, *, no_card: bool) -> None:
    """The persistence daemon, and on NVSwitch machines the fabric manager, run and start at boot."""
    if no_card:
        raise Trivial(NO_CARD)
    names = ["nvidia-persistenced.service"] if driver.manage and driver.persistence is not False else []
    switch = declared.gpu_cards is not None and bool(declared.gpu_cards.nvswitch)
    if switch and driver.fabric_manager not in (None, "unmanaged"):
        names.append("nvidia-fabricmanager.service")
    if not names:
        raise NotDeclared("no daemon")
    states = {name: unit(host, name) for name in names}
    bad = [
        f"{name} is {state.active}, {state.file}"
        for name, state in states.items()
        if not (state.runs and state.starts_at_boot)
    ]
    assert not bad, "; ".join(bad)


def test_gpu_other_drivers_are_off(host: Host, driver: Driver) -> None:
    """Neither nouveau nor nova is loaded, or comes at the next boot."""
    if not driver.manage:
        raise NotDeclared("the driver is unmanaged")
    loaded = {line.split()[0] for line in host.check_output(LOADED_MODULES).splitlines() if line.split()}
    present = sorted(loaded & {"nouveau", "nova_core", "nova_drm"})
    assert not present, f"loaded: {', '.join(present)}"
    rows = host.check_output("modprobe -c | grep -E '^(options|blacklist) ' || true").splitlines()
    kept = {row.split()[1].replace("-", "_") for row in rows if row.startswith("blacklist ")}
    absent = sorted({"nouveau", "nova_core", "nova_drm"} - kept)
    assert not absent, f"not kept off: {', '.join(absent)}"


def test_gpu_packages_are_held(host: Host, driver: Driver) -> None:
    """The driver's packages are kept from upgrades, by hold and by unattended-upgrades."""
    if not driver.manage or not driver.hold:
        raise NotDeclared("no hold")
    held = host.check_output("apt-mark showhold").split()
    assert any(re.match(r"(lib)?nvidia-|cuda-drivers|libcuda1", name) for name in held), "no package is held"
    upgrades = host.run("cat /etc/apt/apt.conf.d/52provision-gpu").stdout
    assert '"nvidia-";' in upgrades, "unattended-upgrades may replace the driver"

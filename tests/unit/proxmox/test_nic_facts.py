"""What a host uses its network cards for is read from links, addresses, routes and corosync."""

from __future__ import annotations

import pytest

from provision.proxmox.nic_facts import HostNics, host_nics

TEXT = """\
nic eno1 /sys/devices/pci0000:00/0000:00:1f.6
nic ens1f0np0 /sys/devices/pci0000:00/0000:00:01.0/0000:81:00.0
nic ens1f0v0 /sys/devices/pci0000:00/0000:00:01.0/0000:81:00.2
nic ens1f1np1 /sys/devices/pci0000:00/0000:00:01.0/0000:81:00.1
nic ens18 /sys/devices/pci0000:00/0000:00:1e.0/0000:06:12.0/virtio3
nic usb0 /sys/devices/platform/usb
upper eno1 bond0
upper bond0 vmbr0
upper ens1f1np1 ens1f1np1.7
virtual 0000:81:00.2 0000:81:00.0
address vmbr0    inet 10.0.0.5/24 brd 10.0.0.255 scope global vmbr0\\       valid_lft forever
address ens1f1np1.7    inet 10.7.0.5/24 scope global ens1f1np1.7
default vmbr0
controller vmbr0
corosync 10.7.0.5
end
"""


def facts(text: str = TEXT) -> HostNics:
    nics = host_nics(text)
    assert nics is not None
    return nics


@pytest.mark.parametrize(
    ("functions", "expected"),
    [
        (
            {"0000:00:1f.6"},
            (
                "eno1 is a part of bond0",
                "bond0 is a part of vmbr0",
                "vmbr0 has 10.0.0.5/24",
                "vmbr0 has the default route",
                "vmbr0 has the way to this controller",
            ),
        ),
        (
            {"0000:81:00.1"},
            (
                "ens1f1np1 is a part of ens1f1np1.7",
                "ens1f1np1.7 has 10.7.0.5/24, a link of corosync",
            ),
        ),
        ({"0000:81:00.0"}, ("virtual function 0000:81:00.2 is passed with it",)),
        ({"0000:81:00.2"}, ()),
        ({"0000:06:12.0"}, ()),
        ({"0000:02:00.0"}, ()),
    ],
)
def test_a_card_is_the_hosts_by_what_is_made_of_its_interface(
    functions: set[str], expected: tuple[str, ...]
) -> None:
    assert facts().uses(functions, {}) == expected


def test_a_port_that_only_the_next_boot_has_is_a_use() -> None:
    ports = {"vmbr1": ("ens1f0np0.5",), "bond0": ("eno1",)}
    (port, _) = facts().uses({"0000:81:00.0"}, ports)
    assert port == "ens1f0np0.5 is a port of vmbr1 in /etc/network/interfaces"


@pytest.mark.parametrize("cut", range(0, len(TEXT) - 1, 7))
def test_an_answer_that_is_cut_off_is_unknown(cut: int) -> None:
    assert host_nics(TEXT[:cut]) is None


def test_links_in_a_circle_and_odd_lines_are_read() -> None:
    text = "nic a /x/0000:01:00.0\nupper a b\nupper b a\nnic\nupper x\naddress y\ndefault\n\nend\n"
    assert facts(text).uses({"0000:01:00.0"}, {}) == ("a is a part of b", "b is a part of a")


def test_interfaces_that_are_all_made_of_each_other_are_looked_at_once() -> None:
    names = [f"n{number}" for number in range(60)]
    uppers = {name: tuple(other for other in names if other != name) for name in names}
    nics = HostNics({"n0": "0000:01:00.0"}, uppers, addresses={"n59": ("198.51.100.1/24",)})
    rows = nics.uses(["0000:01:00.0"], {})
    assert "n59 has 198.51.100.1/24" in rows
    assert len(rows) == 60 * 59 + 1

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.lab.api.errors import ApiError
from provision.lab.api.schema import UNKNOWN, Field, Params, parse_parts, print_parts, validate
from provision.lab.api.vmschema import CREATE, DISKS, NET

REQUIRED = {"node": ["pve"], "vmid": ["100"]}


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("onboot", "True", "type check ('boolean') failed - got 'True'"),
        ("onboot", "yes", "type check ('boolean') failed - got 'yes'"),
        ("tablet", "off", "type check ('boolean') failed - got 'off'"),
        ("cores", "many", "type check ('integer') failed - got 'many'"),
        ("cores", "0", "value must have a minimum value of 1"),
        ("bios", "uefi", "value 'uefi' does not have a value in the enumeration 'seabios, ovmf'"),
        (
            "memory",
            "-3",
            "invalid format - format error\nmemory.current: value must have a minimum value of 16\n",
        ),
        ("name", "bad_name", "invalid format - value does not look like a valid DNS name\n"),
        ("vmid", "99", "invalid format - value does not look like a valid VM ID\n"),
        (
            "machine",
            "q36",
            "invalid format - format error\nmachine.type: value does not match the regex pattern\n",
        ),
        (
            "net0",
            "virtio=01:00:5e:00:00:01,bridge=vmbr0",
            (
                "invalid format - format error\n"
                "net0.macaddr: invalid format - value does not look like a valid unicast MAC address\n\n"
            ),
        ),
        ("foo", "1", UNKNOWN),
        ("hostpci16", "0000:01:00", UNKNOWN),
        ("net00", "virtio", UNKNOWN),
    ],
)
def test_a_wrong_value_is_answered_with_the_real_text(name: str, value: str, text: str) -> None:
    with pytest.raises(ApiError) as caught:
        validate(CREATE, REQUIRED | {name: [value]})
    assert caught.value.status == 400
    assert caught.value.errors == {name: text}


def test_all_problems_come_at_once() -> None:
    with pytest.raises(ApiError) as caught:
        validate(CREATE, {"node": ["pve"], "cores": ["x"], "foo": ["1"]})
    assert set(caught.value.errors) == {"vmid", "cores", "foo"}


def test_a_parameter_that_needs_another_names_the_missing_one() -> None:
    params = Params({"checksum": Field(requires="algorithm"), "algorithm": Field()})
    with pytest.raises(ApiError) as caught:
        validate(params, {"checksum": ["0"]})
    assert caught.value.errors == {"algorithm": "missing property required by 'checksum'"}


@given(st.text())
def test_no_text_makes_the_property_parser_crash(text: str) -> None:
    for name in ("net0", "scsi0", "hostpci0", "boot", "tags", "sshkeys", "cpu"):
        try:
            validate(CREATE, REQUIRED | {name: [text]})
        except ApiError as error:
            assert error.errors[name]  # noqa: PT017 - many values are fine, so raising is no must


def test_a_network_device_may_name_its_model_as_key_or_value() -> None:
    mac = "BC:24:11:00:00:01"
    assert parse_parts(NET, f"virtio={mac},bridge=b") == {"model": "virtio", "macaddr": mac, "bridge": "b"}
    assert parse_parts(NET, f"model=virtio,macaddr={mac}") == {"model": "virtio", "macaddr": mac}
    assert parse_parts(NET, "virtio") == {"model": "virtio"}


def test_a_drive_is_printed_file_first_and_the_rest_by_name() -> None:
    parts = parse_parts(DISKS["scsi"], "size=1G,ssd=1,file=a:b,discard=on")
    assert print_parts(parts, "file") == "a:b,discard=on,size=1G,ssd=1"

"""What drivers said in public reports, and what is made of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provision.contracts.query import Frame, Unknown
from provision.contracts.snapshot import Snapshot
from provision.gpu.facts import GpuFacts, kernel_modules, unfit_modules
from provision.gpu.queries import GPU_STATE_KIND, GpuState, GpuStatus, pci_address, upstream
from provision.gpu.words import Meaning
from provision.hosts.resources.pci import PciFunction, PciFunctions

H200 = (
    "smi|0, NVIDIA H200, GPU-00000001-0000-4000-8000-000000000001, 00000000:00:06.0, 143771, 580.159.04, 9.0,"
    " Enabled, Disabled, Enabled, 700.00\n"
    "smi|1, NVIDIA H200, GPU-00000002-0000-4000-8000-000000000002, 00000000:00:07.0, 143771, 580.159.04, 9.0,"
    " Enabled, Disabled, Enabled, 700.00\n"
)
GUEST = (
    "tool|yes\n"
    + H200
    + "fabric|00000000:00:06.0, Completed, Success\n"
    + "nvrm|NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (nixbld@)\n"
    + "nvlink|0\nloaded|580.159.04\nnext|6.18.44\nmodinfo|yes\ndisk|580.159.04|\nsecure|0\n"
)


def asked(text: str) -> Any:
    frame = Frame(f"{text}done|\n".encode(), b"", 0)
    return GPU_STATE_KIND.parse(frame, [GpuState()])[GpuState()]


def row(**fields: str) -> str:
    values = {
        "index": "0",
        "name": "NVIDIA Card",
        "uuid": "GPU-1",
        "bus": "00000000:01:00.0",
        "memory": "24576",
        "driver": "580.1.2",
        "compute": "8.6",
        "ecc": "[N/A]",
        "mig": "[N/A]",
        "persistence": "Enabled",
        "power": "350.00",
    }
    return f"smi|{', '.join((values | fields).values())}\n"


def test_a_guest_with_two_cards_is_read_as_it_is() -> None:
    status = asked(GUEST)
    assert (status.loaded, status.on_disk, status.is_open) == ("580.159.04", "580.159.04", True)
    assert status.secure_boot is False
    first, second = status.cards
    assert (first.address, first.name, first.memory) == ("0000:00:06.0", "NVIDIA H200", 143771)
    assert (first.ecc, first.mig, first.power_limit) == ("Enabled", "Disabled", 700.0)
    assert (first.fabric, second.fabric) == (("Completed", "Success"), ())
    assert first.answers
    assert second.answers


@pytest.mark.parametrize(
    ("fields", "name", "value", "answers"),
    [
        ({"memory": "[N/A]"}, "memory", Meaning.NOT_APPLICABLE, True),
        ({"memory": "Not Supported"}, "memory", Meaning.NOT_APPLICABLE, True),
        ({"power": "[Unknown Error]"}, "power_limit", Meaning.BROKEN, True),
        ({"power": "ERR!"}, "power_limit", Meaning.BROKEN, True),
        ({"uuid": "[Unknown Error]"}, "uuid", Meaning.BROKEN, False),
        ({"uuid": "[GPU is lost]"}, "uuid", Meaning.BROKEN, False),
        ({"uuid": "[GPU requires reset]"}, "uuid", Meaning.BROKEN, False),
        ({"memory": "a new word"}, "memory", Meaning.UNKNOWN, True),
        ({"ecc": "[Not Supported]"}, "ecc", Meaning.NOT_APPLICABLE, True),
        ({"ecc": "[Function Not Found]"}, "ecc", Meaning.UNKNOWN, True),
        ({"mig": "[Unknown Error]"}, "mig", Meaning.BROKEN, True),
        ({"name": "[Unknown Error]"}, "name", Meaning.BROKEN, False),
        ({"power": "[Timeout]"}, "power_limit", Meaning.UNKNOWN, True),
        ({"power": "N/A"}, "power_limit", Meaning.NOT_APPLICABLE, True),
        ({"memory": "24564.00"}, "memory", Meaning.UNKNOWN, True),
        ({"uuid": "[N/A]"}, "uuid", Meaning.NOT_APPLICABLE, False),
        ({"persistence": "[Insufficient Permissions]"}, "persistence", Meaning.UNKNOWN, True),
    ],
)
def test_a_word_in_the_place_of_a_number_is_no_number(
    fields: dict[str, str], name: str, value: object, answers: bool
) -> None:
    (card,) = asked(row(**fields)).cards
    assert getattr(card, name) is value
    assert card.answers is answers
    assert card.problem == (fields["uuid"].strip("[]") if name == "uuid" and value is Meaning.BROKEN else "")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0000000F:01:00.0", "000f:01:00.0"),
        ("00008ED0:00:00.0", "8ed0:00:00.0"),
        ("0000:65:00.0", "0000:65:00.0"),
        ("000:BA:80.0", "0000:ba:80.0"),
        ("10000:01:00.0", "10000:01:00.0"),
        ("garbage", ""),
    ],
)
def test_addresses_are_those_of_sysfs(text: str, address: str) -> None:
    assert pci_address(text) == address


@pytest.mark.parametrize(
    ("line", "address"),
    [
        ("Unable to determine the device handle for GPU0000:65:00.0: Unknown Error", "0000:65:00.0"),
        ("Unable to determine the device handle for GPU 0000:0B:00.0: GPU is lost.  Reboot", "0000:0b:00.0"),
        ("Unable to determine the device handle for GPU 000:BA:80.0: Unknown Error", "0000:ba:80.0"),
        ("Unable to determine the device handle for GPU1: 0000:C1:00.0: Unknown Error", "0000:c1:00.0"),
        ("Unable to determine the device handle for gpu 0000:0A:00.0: it is not powered", "0000:0a:00.0"),
        (
            "Unable to determine the device handle for GPU0: 00000008:01:00.0: GPU requires reset",
            "0008:01:00.0",
        ),
    ],
)
def test_one_dead_card_hides_no_other(line: str, address: str) -> None:
    text = f"smi|{line}\none|0000:01:00.0|0|{row().removeprefix('smi|')}one|{address}|255|{line}\n"
    cards = {card.address: card for card in asked(text).cards}
    assert set(cards) == {"0000:01:00.0", address}
    assert cards["0000:01:00.0"].answers
    assert line[:30] in cards[address].problem


@pytest.mark.parametrize(
    "words",
    [
        "Failed to initialize NVML: Driver/library version mismatch",
        "Failed to initialize NVML: GPU access blocked by the operating system",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
        "No devices were found",
    ],
)
def test_a_driver_that_lists_no_card_says_why(words: str) -> None:
    status = asked(f"tool|yes\nsmi|{words}\n")
    assert status.cards == ()
    assert status.failure == words


def test_a_warning_about_a_card_is_no_dead_card() -> None:
    (card,) = asked(f"smi|WARNING: infoROM is corrupted at gpu 0000:01:00.0\n{row()}").cards
    assert card.answers


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("580.126.16-1ubuntu1", "580.126.16"),
        ("570.211.01-0ubuntu1.24.04.1", "570.211.01"),
        ("535.247.01-1~deb12u1", "535.247.01"),
        ("6.8.0-79.79+1", ""),
        ("", ""),
    ],
)
def test_the_drivers_version_in_a_package_version(version: str, expected: str) -> None:
    assert upstream(version) == expected


@given(st.binary(max_size=300))
@settings(max_examples=60)
def test_garbage_is_read_without_an_error(data: bytes) -> None:
    text = "".join(
        f"{tag}|{data.decode('latin-1')}\n"
        for tag in ("smi", "one", "fabric", "disk", "nvrm", "library", "secure")
    )
    answer = asked(text.replace("\r", ""))
    assert isinstance(answer, GpuStatus | Unknown)


def facts(status: GpuStatus, *functions: PciFunction) -> GpuFacts:
    return GpuFacts(Snapshot("n/ssh", answers={GpuState(): status, PciFunctions(): functions}))


def card(address: str = "0000:00:06.0", device: str = "2335", driver: str = "nvidia") -> PciFunction:
    return PciFunction(address, "10de", device, "030200", driver)


def test_cards_are_joined_by_address_and_the_missing_one_is_named() -> None:
    host = facts(
        asked(GUEST), card(), card("0000:00:07.0"), card("0000:00:08.0"), card("0000:00:09.0", driver="")
    )
    cards = host.cards
    assert not isinstance(cards, Unknown)
    assert [one.problem for one in cards] == [
        "",
        "",
        "the driver does not list 0000:00:08.0",
        "0000:00:09.0 has no driver",
    ]
    assert cards[0].uuid == "GPU-00000001-0000-4000-8000-000000000001"
    assert cards[2].uuid == ""


def test_unanswered_questions_are_unknown_cards() -> None:
    host = GpuFacts(Snapshot("n/ssh", answers={PciFunctions(): (card(),), GpuState(): Unknown("cut")}))
    assert host.cards == Unknown("cut")
    assert isinstance(GpuFacts(Unknown("away")).has_nvswitch, Unknown)


@pytest.mark.parametrize(
    ("device", "declared", "kind", "unfit"),
    [
        ("1b06", None, "proprietary", 0),  # GTX 1080 Ti, Pascal
        ("1db4", None, "proprietary", 0),  # V100, Volta
        ("1e04", None, "open", 0),  # RTX 2080 Ti, Turing
        ("2330", None, "open", 0),  # H100
        ("2330", "proprietary", "proprietary", 0),
        ("2901", "proprietary", "proprietary", 1),  # B200, Blackwell
        ("1b06", "open", "open", 1),
    ],
)
def test_kernel_modules_follow_the_generation(
    device: str, declared: str | None, kind: str, unfit: int
) -> None:
    functions = (card(device=device),)
    assert kernel_modules(functions, declared) == kind
    assert len(unfit_modules(functions, kind)) == unfit


def test_an_nvswitch_is_a_bridge_and_no_card() -> None:
    switch = PciFunction("0000:05:00.0", "10de", "22a3", "068000", "nvidia")
    host = facts(asked(GUEST), card(), switch)
    assert host.has_nvswitch is True
    assert host.gpu_functions == (card(),)
    assert facts(asked(GUEST), card()).has_nvswitch is False

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.proxmox import formats
from provision.proxmox.formats import Format, explicit, join, normal, parse, size_gib

WORDS = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=12)
VALUES = st.text("abcdefgh0123456789:/.;+-_", min_size=1, max_size=20)


@given(st.dictionaries(WORDS, VALUES, min_size=1, max_size=8))
def test_a_property_string_is_read_as_it_was_written(parts: dict[str, str]) -> None:
    assert parse(join(parts)) == parts


@given(st.dictionaries(WORDS, VALUES, max_size=6), VALUES)
def test_the_part_without_a_name_comes_first(parts: dict[str, str], first: str) -> None:
    text = join({**parts, "": first})
    assert text.split(",")[0] == first
    assert parse(text)[""] == first


@given(st.text(max_size=80))
def test_reading_any_text_never_raises(text: str) -> None:
    for form in (formats.DRIVE, formats.NET, formats.HOSTPCI, formats.CPU, formats.AGENT, formats.MACHINE):
        parts = normal(text, form)
        assert set(form.defaults) <= set(parts)


SAME = [
    (formats.AGENT, "1", "enabled=1"),
    (formats.AGENT, "enabled=1", "enabled=1,freeze-fs=1,type=virtio"),
    (formats.AGENT, "1,guest-fsfreeze=0", "enabled=1,freeze-fs=0"),
    (formats.MEMORY, "2048", "current=2048"),
    (formats.CPU, "host", "cputype=host,hidden=0"),
    (formats.HOSTPCI, "0000:02:00,pcie=1", "host=0000:02:00,pcie=on,rombar=1"),
    (
        formats.NET,
        "virtio=bc:24:11:7e:fc:1c,bridge=vmbr0",
        "model=virtio,macaddr=BC:24:11:7E:FC:1C,bridge=vmbr0",
    ),
    (formats.NET, "virtio=BC:24:11:7E:FC:1C,bridge=b,firewall=0", "virtio=BC:24:11:7E:FC:1C,bridge=b"),
    (formats.EFIDISK, "local:vm-1,efitype=4m,size=1M", "local:vm-1,efitype=4m,pre-enrolled-keys=0,size=528K"),
    (formats.DRIVE, "file=local:a,iothread=1,size=4G", "local:a,iothread=on,size=4G,media=disk"),
]


@pytest.mark.parametrize(("form", "one", "other"), SAME)
def test_two_ways_to_write_it_mean_the_same(form: Format, one: str, other: str) -> None:
    assert normal(one, form) == normal(other, form)


@pytest.mark.parametrize(
    ("form", "one", "other"),
    [
        (formats.AGENT, "0", "1"),
        (formats.HOSTPCI, "0000:02:00", "0000:02:00,pcie=1"),
        (formats.NET, "e1000=BC:24:11:7E:FC:1C,bridge=b", "virtio=BC:24:11:7E:FC:1C,bridge=b"),
        (formats.EFIDISK, "local:vm-1,efitype=4m", "local:vm-1"),
    ],
)
def test_strings_with_other_meanings_differ(form: Format, one: str, other: str) -> None:
    assert normal(one, form) != normal(other, form)


FORMS = {
    "agent": formats.AGENT,
    "cpu": formats.CPU,
    "drive": formats.DRIVE,
    "efidisk": formats.EFIDISK,
    "hostpci": formats.HOSTPCI,
    "machine": formats.MACHINE,
    "mapping": formats.MAPPING_ENTRY,
    "memory": formats.MEMORY,
    "net": formats.NET,
    "startup": formats.STARTUP,
    "tpmstate": formats.TPMSTATE,
}
SPELLINGS = {"1": ("1", "on", "yes", "true", "On"), "0": ("0", "off", "no", "false", "OFF")}


@given(st.data())
def test_order_spelling_and_defaults_do_not_change_a_meaning(data: st.DataObject) -> None:
    form = data.draw(st.sampled_from(list(FORMS.values())))
    free = st.dictionaries(WORDS.filter(lambda word: word not in formats.NIC_MODELS), VALUES, max_size=3)
    parts = {**form.defaults, **data.draw(free)}
    parts |= {flag: data.draw(st.sampled_from("01")) for flag in form.flags}
    parts = {key: value for key, value in parts.items() if value}
    meaning = normal(join(parts), form)
    other = {
        key: data.draw(st.sampled_from(SPELLINGS[value])) if key in form.flags else value
        for key, value in parts.items()
        if form.defaults.get(key) != value or data.draw(st.booleans())
    }
    shuffled = dict(data.draw(st.permutations(list(other.items()))))
    assert normal(join(shuffled), form) == meaning
    assert normal(join(meaning), form) == meaning, "what is written is read back as it was meant"


@given(st.lists(st.sampled_from(["+aes", "-pcid", "+pdpe1gb", "+virt-ssbd"]), max_size=5), st.randoms())
def test_flags_of_a_cpu_mean_the_same_in_any_order(flags: list[str], random: Random) -> None:
    shuffled = [*flags, *flags[:1]]
    random.shuffle(shuffled)
    one, other = (f"host,flags={';'.join(words)}" for words in (flags, shuffled))
    assert normal(one, formats.CPU) == normal(other, formats.CPU)


def test_defaults_are_not_explicit_values() -> None:
    assert explicit("virtio=BC:24:11:7e:fc:1c", formats.NET) == {
        "model": "virtio",
        "macaddr": "BC:24:11:7E:FC:1C",
    }


@pytest.mark.parametrize(
    ("text", "gib"),
    [("60G", 60), ("2252M", 2252 / 1024), ("528K", 528 / 1024 / 1024), ("1T", 1024), ("x", 0)],
)
def test_sizes_are_read_as_pve_writes_them(text: str, gib: float) -> None:
    assert size_gib(text) == pytest.approx(gib)

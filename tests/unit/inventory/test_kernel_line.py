"""The kernel line: words, keys, quotes, lists, pairs; what is refused as an argument."""

from __future__ import annotations

import re
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.inventory.kernel_line import (
    argument_problem,
    grub_word,
    missing_arguments,
    parse,
    split_entries,
    united_arguments,
    without_arguments,
)

WRITTEN = (
    "memmap=4G$4G",
    'acpi_osi="!Windows 2015"',
    "pci=resource_alignment=20@pci:8086:9c22;20@pci:1002:1478",
    "video=HDMI-A-1:1024x768@60e",
    "acpi_osi=!",
    "isolcpus=managed_irq,domain,2-15",
    "rcupdate.x=50%",
    '"dyndbg=file x +p"',
    "efi=disable_early_pci_dma",
    "foo=[bar]",
    "rcu_nocbs=1-7%",
    "a=`x`",
    "a=$(x)",
    "a=b|c&d<e>f",
    "ide_core.nodma=0.*",
    "a={b}~#c",
    "a==",
    'a=""',
)
"""Arguments as boards need them; each can be written for GRUB and for systemd-boot."""

REFUSED = (
    ("panic=10 quiet", "contains a space"),
    ("", "printable"),
    ("gr\xfcn", "printable"),
    ("a\tb", "printable"),
    ("a='b'", "single quote"),
    ("a=b\\\\", "backslash"),
    ('a="b', "without its end"),
    ('a=b"c d"', "around the whole value"),
    ("--", "belongs to init"),
    ("=x", "no key"),
    ("a={{ b }}", "templates"),
    (" quiet", "contains a space"),
    ('acpi_osi="a b" quiet', "contains a space"),
)


@pytest.mark.parametrize(
    ("line", "desired", "united"),
    [
        ("root=x", ("nomodeset",), "root=x nomodeset"),
        ("root=x nomodeset", ("nomodeset",), "root=x nomodeset"),
        ("modprobe.blacklist=a root=x", ("modprobe.blacklist=a,b",), "modprobe.blacklist=a,b root=x"),
        ("modprobe.blacklist=b,a", ("modprobe.blacklist=a,b",), "modprobe.blacklist=b,a"),
        ("modprobe.blacklist=a modprobe.blacklist=b", ("modprobe.blacklist=b,a",), None),
        ("modprobe.blacklist=bochs-drm", ("modprobe.blacklist=bochs_drm",), None),
        ("module_blacklist=a", ("modprobe.blacklist=a",), "module_blacklist=a modprobe.blacklist=a"),
        ("nomodeset2 xnomodeset", ("nomodeset",), "nomodeset2 xnomodeset nomodeset"),
        ("kvm_intel.nested=1", ("kvm-intel.nested=1",), None),
        ("vfio-pci.ids=1:2", ("vfio_pci.ids=1:2",), None),
        ("vfio-pci.ids=1:2,3:4", ("vfio_pci.ids=3:4",), None),
        ("intel_iommu=on,igfx_off", ("intel_iommu=on",), None),
        ("intel_iommu=igfx_off", ("intel-iommu=on",), "intel_iommu=igfx_off intel-iommu=on"),
        ("pci=nommconf,noaer", ("pci=noaer",), None),
        ("acpi_osi=! 'a", ("acpi_osi=!",), None),
        (
            'acpi_osi="!Windows 2015"',
            ("acpi_osi=!", '"acpi_osi=!Windows 2015"'),
            'acpi_osi="!Windows 2015" acpi_osi=!',
        ),
        ('"dyndbg=file a +p"', ('dyndbg="file a +p"',), None),
        ('"a b" c', ("b", "c"), '"a b" c b'),
        (
            "hugepagesz=1G hugepages=4",
            ("hugepagesz=2M", "hugepages=4"),
            "hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=4",
        ),
        (
            "hugepages=4 hugepagesz=1G x",
            ("hugepagesz=1G", "hugepages=4"),
            "hugepages=4 hugepagesz=1G x hugepagesz=1G hugepages=4",
        ),
        ("hugepagesz=2M hugepages=4", ("hugepagesz=2M", "hugepages=4"), None),
        ("root=x -- single", ("quiet",), "root=x quiet -- single"),
        ("root=x -- quiet", ("quiet",), "root=x quiet -- quiet"),
        ("a=1 a=2", ("a=1",), None),
        ("module-blacklist=a", ("module_blacklist=a,b",), "module-blacklist=a,b"),
        ("a-b=x-y", ("a_b=x_y",), "a-b=x-y a_b=x_y"),
        ("console=tty0", ("console=ttyS0",), "console=tty0 console=ttyS0"),
        ("", ("a", "b=c"), "a b=c"),
    ],
)
def test_arguments_are_united(line: str, desired: tuple[str, ...], united: str | None) -> None:
    result = united_arguments(line, desired)
    assert result == (line if united is None else united)
    assert united_arguments(result, desired) == result
    assert missing_arguments(result, desired) == ()


@pytest.mark.parametrize(
    ("line", "unwanted", "left"),
    [
        ("root=x nomodeset", ("nomodeset",), "root=x"),
        ("modprobe.blacklist=a,b,c root=x", ("modprobe.blacklist=a,c",), "modprobe.blacklist=b root=x"),
        ("modprobe.blacklist=a root=x", ("modprobe.blacklist=a",), "root=x"),
        ("root=x", ("nomodeset",), "root=x"),
        ("kvm_intel.nested=1 x", ("kvm-intel.nested=1",), "x"),
        ('"dyndbg=file a +p" x', ('dyndbg="file a +p"',), "x"),
        (
            "hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=4",
            ("hugepagesz=1G", "hugepages=4"),
            "hugepagesz=2M hugepages=4",
        ),
        ("hugepages=4 x", ("hugepagesz=1G", "hugepages=4"), "hugepages=4 x"),
        ("quiet -- quiet", ("quiet",), "-- quiet"),
        ('a="b c" d', ("c",), 'a="b c" d'),
    ],
)
def test_arguments_are_removed(line: str, unwanted: tuple[str, ...], left: str) -> None:
    assert without_arguments(line, unwanted) == left


@pytest.mark.parametrize("argument", WRITTEN)
def test_an_argument_of_any_shape_is_accepted(argument: str) -> None:
    assert argument_problem(argument) is None
    assert len(parse(argument)) == 1


@pytest.mark.parametrize(("argument", "reason"), REFUSED)
def test_what_is_no_single_argument_is_refused_with_its_reason(argument: str, reason: str) -> None:
    assert reason in (argument_problem(argument) or "")


@pytest.mark.parametrize("argument", WRITTEN)
def test_grub_takes_each_argument_as_one_word(argument: str) -> None:
    (argument_,) = parse(argument)
    (word,) = shlex.split(grub_word(argument))  # GRUB's quotes are those of a shell
    assert word == argument_.plain
    unquoted = re.sub("'[^']*'", "", grub_word(argument))
    assert not set(unquoted) & set(' $;`|&<>{}*#"\\\\')


_ARGUMENTS = st.lists(
    st.sampled_from(["a=1", "a-b=1", "a_b=1", "quiet", "hugepagesz=1G", "hugepages=4", "pci=x", "pci=x,y"])
    | st.sampled_from(["modprobe.blacklist=a,b", "modprobe.blacklist=b-c", 'd="e f"', '"d=e f"', *WRITTEN]),
    max_size=6,
)


ALONE = [
    ("hugepagesz=1G", ["hugepages=4"], "hugepages=4 hugepagesz=1G"),
    ("a=1", ["hugepagesz=1G", "a=1", "hugepages=4"], "a=1 hugepagesz=1G hugepages=4"),
    ("hugepagesz=1G a=1 hugepages=4", ["hugepagesz=1G", "hugepages=4"], "hugepagesz=1G a=1 hugepages=4"),
    ("hugepagesz=1G hugepages=2", ["hugepages=4"], "hugepages=4 hugepagesz=1G hugepages=2"),
    ("a=1", ["hugepagesz=1G", "hugepages=4"], "a=1 hugepagesz=1G hugepages=4"),
]


@pytest.mark.parametrize(("line", "desired", "wanted"), ALONE)
def test_a_number_of_pages_alone_joins_no_size(line: str, desired: list[str], wanted: str) -> None:
    assert united_arguments(line, desired) == wanted
    assert missing_arguments(wanted, desired) == ()


@given(line=_ARGUMENTS, desired=_ARGUMENTS, tail=st.sampled_from(["", "-- quiet", "-- a=1"]))
def test_a_line_lacks_nothing_after_it_was_united(line: list[str], desired: list[str], tail: str) -> None:
    before = " ".join((*line, *tail.split(" ")))
    after = united_arguments(before, desired)
    assert united_arguments(after, desired) == after
    assert after.endswith(tail)
    left = without_arguments(after, desired)
    assert set(split_entries(left)) <= set(split_entries(before)) | set(split_entries(after))
    assert missing_arguments(left, split_entries(left)) == ()


@given(st.text(st.sampled_from('ab=-_", '), max_size=20))
def test_any_text_is_read_as_a_line(text: str) -> None:
    words = [argument.text for argument in parse(text)]
    assert "".join(words).replace(" ", "") in text.replace(" ", "")


@pytest.mark.parametrize(
    ("line", "argument", "counts"),
    [
        ("intel_iommu=on intel_iommu=off", "intel_iommu=on", False),
        ("intel_iommu=off intel_iommu=on", "intel_iommu=on", True),
        ("intel_iommu=off intel_iommu=igfx_off", "intel_iommu=on", False),
        ("intel_iommu=on intel_iommu=igfx_off", "intel_iommu=on", True),
        ("intel_iommu=on,off", "intel_iommu=on", False),
        ("intel_iommu=off,on", "intel_iommu=on,igfx_off", False),
        ("iommu=pt iommu=nopt", "iommu=pt", False),
        ("iommu=pt iommu=off", "iommu=pt", True),
        ("amd_iommu=on amd_iommu=off", "amd_iommu=on", False),
        ("vfio-pci.ids=10de:1 vfio_pci.ids=8086:3", "vfio-pci.ids=10de:1", False),
        ("kvm.ignore_msrs=1 kvm.ignore-msrs=0", "kvm.ignore_msrs=1", False),
        ("kvm.ignore_msrs=0 kvm.ignore-msrs=1", "kvm.ignore_msrs=1", True),
        ("mitigations=off quiet mitigations=auto", "mitigations=off", False),
        ("console=tty0 console=ttyS0", "console=tty0", True),
        ("systemd.mask=a systemd.mask=b", "systemd.mask=a", True),
        ("modprobe.blacklist=a modprobe.blacklist=b", "modprobe.blacklist=a", True),
        ("nvme_core.default_ps_max_latency_us=0 -- nvme_core.default_ps_max_latency_us=5", "a.b=c", False),
    ],
)
def test_of_keys_with_one_value_the_last_one_counts(line: str, argument: str, counts: bool) -> None:
    assert (missing_arguments(line, [argument]) == ()) is counts
    united = united_arguments(line, [argument])
    assert missing_arguments(united, [argument]) == ()
    assert united_arguments(united, [argument]) == united

"""The grammar of the kernel's command line: one for what is declared, written, and read from a host.

Sources: `next_arg` in the kernel's lib/cmdline.c (blanks and quotes), `parameq` in kernel/params.c
(`-` and `_`), admin-guide/kernel-parameters.rst (`--`, comma lists), mm/hugetlb.c (pairs).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

MODULE_LISTS = frozenset({"modprobe.blacklist", "module_blacklist"})
"""Keys whose values are lists of modules. All occurrences count, so members are compared and united."""
OPTION_LISTS = frozenset({"intel_iommu", "amd_iommu", "iommu", "pci", "initcall_blacklist", "vfio_pci.ids"})
"""Keys whose values are lists of options: an argument counts as present if all its members are."""
OPPOSITES = (("on", "off"), ("pt", "nopt"), ("force", "noforce"), ("merge", "nomerge"))
"""Options of a list of which the last one counts (`iommu_setup`, `intel_iommu_setup`)."""
SINGLE_VALUES = frozenset(
    {
        "apparmor", "audit", "default_hugepagesz", "init", "mitigations", "numa_balancing", "panic",
        "pcie_aspm", "preempt", "root", "rootfstype", "security", "selinux", "spectre_v2",
        "transparent_hugepage",
    }
)  # fmt: skip
"""Keys of which the last value counts, beside the parameters of modules (`kvm.ignore_msrs`)."""
_COLLECTED = ("modprobe.", "systemd.", "rd.", "udev.", "luks.", "fsck.", "quota.", "usbcore.quirks")
"""Names with a dot whose values add up, or that are no parameters of a module."""
PAIRS = {"hugepagesz": "hugepages"}
"""Keys that rule the argument behind them: both keep their places, and are compared together."""
END = "--"
"""What follows belongs to init."""

_WORD = re.compile(r'[^\s"]*(?:"[^"]*(?:"|$)[^\s"]*)*')


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument.

    Args:
        name: its key, with `_` for each `-`.
        value: without the quotes that protect blanks; None for a flag.
        text: as it was written.
    """

    name: str
    value: str | None
    text: str = field(compare=False)

    @property
    def members(self) -> tuple[str, ...]:
        """The parts of a comma list; modules in the kernel's own spelling."""
        parts = tuple(filter(None, (self.value or "").split(",")))
        return tuple(map(folded, parts)) if self.name in MODULE_LISTS else parts

    @property
    def plain(self) -> str:
        """Key and value without quotes; the key as it was written."""
        key = self.text.removeprefix('"').partition("=")[0].removesuffix('"')
        return key if self.value is None else f"{key}={self.value}"


Entry = tuple[Argument, ...]
"""Arguments that belong together: one, or a pair like `hugepagesz=1G hugepages=16`."""


def folded(name: str) -> str:
    """Return a key or module as the kernel compares it."""
    return name.replace("-", "_")


def parse(line: str) -> tuple[Argument, ...]:
    """Return the kernel's arguments of a line, in order; what init gets is left out."""
    return tuple(_argument(word) for word in _split(line)[0])


def _split(line: str) -> tuple[list[str], list[str]]:
    """Return the kernel's words, and those from `--` on."""
    words = [match[0] for match in _WORD.finditer(line) if match[0]]
    index = words.index(END) if END in words else len(words)
    return words[:index], words[index:]


def _argument(text: str) -> Argument:
    whole = text.startswith('"')
    inner = text[1:] if whole else text
    key, equals, value = inner.partition("=")
    if value.startswith('"'):
        value = value[1:].removesuffix('"')
    elif whole and equals:
        value = value.removesuffix('"')
    elif whole:
        key = key.removesuffix('"')
    return Argument(folded(key), value if equals else None, text)


def entries(arguments: Sequence[Argument]) -> Iterator[Entry]:
    """Yield what belongs together, in order.

    The second half of a pair belongs to the last first half before it, whatever stands between them
    (hugepages_setup in mm/hugetlb.c).
    """
    collected: list[list[Argument]] = []
    waiting: dict[str, list[Argument]] = {}
    for argument in arguments:
        pair = waiting.pop(argument.name, None)
        if pair is not None:
            pair.append(argument)
            continue
        collected.append([argument])
        if argument.name in PAIRS:
            waiting[PAIRS[argument.name]] = collected[-1]
    return map(tuple, collected)


def is_single(name: str) -> bool:
    """Whether only the last value of a key counts, as for parameters of modules (kernel/params.c)."""
    return name in SINGLE_VALUES or ("." in name and not name.startswith(_COLLECTED))


def _effective(arguments: Sequence[Argument]) -> tuple[Argument, ...]:
    """Return the arguments that no later one of the same key overrides."""
    last = {argument.name: index for index, argument in enumerate(arguments)}
    return tuple(
        argument
        for index, argument in enumerate(arguments)
        if not is_single(argument.name) or last[argument.name] == index
    )


def _options(arguments: Sequence[Argument]) -> dict[str, set[str]]:
    """Return the members of comma lists that are in force, by key."""
    members: dict[str, set[str]] = {}
    for argument in arguments:
        present = members.setdefault(argument.name, set())
        for member in argument.members:
            present.difference_update(*(pair for pair in OPPOSITES if member in pair))
            present.add(member)
    return members


def values_of(line: str, key: str) -> tuple[str, ...]:
    """Return the members of the comma lists of all occurrences of a key, in order."""
    name = folded(key)
    return tuple(member for argument in parse(line) if argument.name == name for member in argument.members)


def missing_arguments(line: str, desired: Sequence[str]) -> tuple[str, ...]:
    """Return what a kernel command line lacks; of module lists only the missing members."""
    return tuple(text for texts in _missing_entries(line, desired) for text in texts)


def _missing_entries(line: str, desired: Sequence[str]) -> list[list[str]]:
    """Return the texts of each entry that a line lacks."""
    arguments = _effective(parse(line))
    present, members = set(entries(arguments)), _options(arguments)
    lacking: list[list[str]] = []
    for entry in entries(parse(" ".join(desired))):
        argument = entry[0]
        if argument.name in MODULE_LISTS:
            lacking += [[text] for text in _without_members(argument, members.get(argument.name, set()))]
        elif entry in present and argument.name not in OPTION_LISTS:
            continue
        elif argument.name not in OPTION_LISTS or not members.get(argument.name, set()).issuperset(
            argument.members
        ):
            lacking.append([part.text for part in entry])
    return lacking


def _without_members(argument: Argument, members: set[str]) -> list[str]:
    """Return a module list without some members; nothing when none is left."""
    key, _, value = argument.text.partition("=")
    rest = [name for name in value.strip('"').split(",") if name and folded(name) not in members]
    return [f"{key}={','.join(rest)}"] if rest else []


def united_arguments(line: str, desired: Sequence[str]) -> str:
    """Return a command line with what it lacked: module lists are united in place, nothing comes twice."""
    words, tail = _split(line)
    for texts in _missing_entries(line, desired):
        argument = _argument(texts[0])
        lists = [index for index, word in enumerate(words) if _argument(word).name == argument.name]
        if argument.name in MODULE_LISTS and lists:
            words[lists[-1]] += f",{argument.value}"
        elif any(PAIRS.get(_argument(word).name) == argument.name for word in words):
            words[:0] = texts  # behind a first half it would belong to that one
        else:
            words += texts
    return " ".join((*words, *tail))


def without_arguments(line: str, unwanted: Sequence[str]) -> str:
    """Return a command line without some arguments; of module lists only the members go."""
    words, tail = _split(line)
    unwanted_arguments = parse(" ".join(unwanted))
    gone = set(entries(unwanted_arguments))
    members: dict[str, set[str]] = {}
    for argument in unwanted_arguments:
        members.setdefault(argument.name, set()).update(argument.members)
    kept: list[str] = []
    for entry in entries([_argument(word) for word in words]):
        if entry[0].name in MODULE_LISTS:
            kept += _without_members(entry[0], members.get(entry[0].name, set()))
        elif entry not in gone:
            kept += [argument.text for argument in entry]
    return " ".join((*kept, *tail))


def split_entries(line: str) -> list[str]:
    """Return the texts of all entries; each member of a module list is one of its own."""
    texts: list[str] = []
    for entry in entries(parse(line)):
        if entry[0].name in MODULE_LISTS:
            texts += [f"{entry[0].name}={member}" for member in entry[0].members]
        else:
            texts.append(" ".join(argument.text for argument in entry))
    return texts


def argument_problem(text: str) -> str | None:
    """Return why a declared text is no single argument that every boot loader can pass on; else None.

    GRUB puts a backslash before `'` and a backslash, so that no such character reaches the kernel
    (grub_create_loader_cmdline in grub-core/lib/cmdline.c). The kernel knows no escape for a quote.
    """
    if not text or not all(" " <= char <= "~" for char in text):
        return "it must be printable ASCII"
    words, tail = _split(text)
    argument = _argument(text)
    problems = (
        ("'" in text or "\\" in text, "GRUB does not pass single quotes and backslashes to the kernel"),
        ("{{" in text, "templates are not filled in here"),
        (text.count('"') % 2 == 1, "it has a quote without its end"),
        (bool(tail), "what follows -- belongs to init"),
        (
            words != [text],
            'it contains a space: write each argument as one word, or quote the value (key="a b")',
        ),
        ('"' in argument.plain, 'quotes belong around the whole value: key="a b"'),
        (not argument.name, "it has no key"),
    )
    return next((reason for wrong, reason in problems if wrong), None)


def grub_word(text: str) -> str:
    """Return an argument as GRUB's own script language takes it; GRUB quotes it again for the kernel."""
    plain = _argument(text).plain
    return plain if re.fullmatch(r"[A-Za-z0-9_.,:=+@/%!-]+", plain) else f"'{plain}'"


def line_of_grub(text: str) -> str:
    """Return what GRUB hands to the kernel for words of its script language, whose quotes are a shell's."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    return " ".join(f'"{word}"' if " " in word else word for word in words)

"""Which checks of `provision verify` must turn red for a damaged resource of a lab."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from provision.verify.model import CheckOutcome, VerifyReport

if TYPE_CHECKING:
    from tests.e2e.sweep import Target

CHECKS: Mapping[str, frozenset[str]] = {
    "command": frozenset({"test_commands"}),
    "dhcp-reservation": frozenset({"test_address_is_reserved"}),
    "directory": frozenset({"test_authorized_keys"}),
    "file": frozenset(
        {
            "test_files",
            "test_absent_files",
            "test_authorized_keys",
            "test_k3s_files_are_private",
            "test_k3s_runs",  # the file is the unit
        }
    ),
    "file-line": frozenset({"test_lines", "test_hosts_entries", "test_authorized_keys"}),
    "hostname": frozenset({"test_hostname"}),
    "image": frozenset({"test_images"}),
    "k3s-unit": frozenset({"test_k3s_runs"}),
    "kernel-arguments": frozenset(
        {"test_kernel_command_line_is_active", "test_kernel_command_line_at_next_boot"}
    ),
    "kernel-module": frozenset(
        {"test_modules_are_loaded", "test_modules_at_next_boot", "test_module_options"}
    ),
    "kube-cordon": frozenset({"test_node_is_schedulable"}),
    "kube-node": frozenset({"test_node_labels"}),
    "modprobe-blacklist": frozenset({"test_blacklisted_modules", "test_blacklist_at_next_boot"}),
    "package": frozenset({"test_packages", "test_absent_packages", "test_held_packages"}),
    "pci-mapping": frozenset({"test_mappings"}),
    "service": frozenset({"test_services"}),
    "snippet-gone": frozenset({"test_no_snippet_lies_there", "test_no_snippet_is_left"}),
    "swap": frozenset({"test_swap_is_off", "test_no_swap_at_next_boot"}),
    "sysctl": frozenset({"test_kernel_parameters", "test_kernel_parameters_at_next_boot"}),
    "time-sync": frozenset({"test_time_servers", "test_time_daemon", "test_time_is_synchronised"}),
    "timezone": frozenset({"test_timezone"}),
    "upload": frozenset({"test_k3s_version"}),
    "vm": frozenset(
        {"test_it_is_marked", "test_tags", "test_start_at_boot", "test_switches", "test_startup"}
    ),
    "vm-marker": frozenset({"test_it_is_marked", "test_no_snippet_is_left"}),
    "vm-power": frozenset({"test_power"}),
}  # fmt: skip
"""Checks that look at a kind of resources."""
SINGLE = frozenset(
    {
        "dhcp-reservation",
        "hostname",
        "image",
        "kernel-arguments",
        "kube-cordon",
        "kube-node",
        "pci-mapping",
        "swap",
        "time-sync",
        "timezone",
        "vm",
        "vm-marker",
        "vm-power",
    }
)
"""Kinds of which a subject has one resource: a red check needs no word that tells it from others."""

_CARDS = "/etc/initramfs-tools/scripts/init-top/provision-cards"
EXCUSED: Mapping[tuple[str, str, str], str] = {
    ("file", _CARDS, "content"): "with a comment more, it gives the card the same driver, which is looked at",
}
"""Damages that turn no check red, by kind, name and damage, with the reason; no others are excused."""


def overlooked(damaged: Iterable[Target], report: VerifyReport) -> list[str]:
    """Return the damages that no check of their kind and subject named.

    Args:
        damaged: what is damaged now.
        report: a verification of the site meanwhile.
    """
    red = [check for check in report.checks if check.outcome is CheckOutcome.FAILED]
    said = "; ".join(f"{check.check} {check.subject}: {check.message}" for check in red)
    return [
        f"{target}: none of {', '.join(sorted(CHECKS.get(target.kind, ())))} is red for it, but {said}"
        for target in damaged
        if (target.kind, target.resource.key.name, target.mutation.name) not in EXCUSED
        and not any(
            check.check in CHECKS.get(target.kind, ())
            and check.subject in target.subjects
            and (target.kind in SINGLE or any(word in check.message for word in target.words))
            for check in red
        )
    ]

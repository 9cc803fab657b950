"""What `provision doctor` looks for on any host: rules that need no inventory, one read-only command each.

A command prints the evidence of a problem, and nothing where all is well or the question makes no sense.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from provision.contracts.snapshot import Snapshot
from provision.hosts.queries.shell import Shell, ShellResult
from provision.values.diagnostics import Diagnostic, Severity

LINES = 12
"""Lines of evidence that are shown."""


@dataclass(frozen=True, slots=True)
class HostRule:
    """One thing that may be wrong on a host.

    Args:
        code: of its diagnostic.
        when: what is wrong, as a sentence about the host without its subject.
        remedy: what helps.
        command: POSIX shell text that prints the evidence; it changes nothing.
        severity: error where runs fail because of it.
    """

    code: str
    when: str
    remedy: str
    command: str
    severity: Severity = Severity.WARNING

    @property
    def query(self) -> Shell:
        """The question to a host."""
        return Shell(self.command)


def problems(rules: Sequence[HostRule], snapshot: Snapshot, subject: str) -> Iterator[Diagnostic]:
    """Yield what is wrong with a host that was asked the queries of the rules."""
    for rule in rules:
        answer = snapshot.answers.get(rule.query)
        text = answer.stdout.decode("utf-8", "replace") if isinstance(answer, ShellResult) else ""
        lines = tuple(line for line in text.splitlines() if line.strip())
        if lines:
            yield Diagnostic(
                rule.code,
                f"{subject}: {rule.when}",
                subject,
                rule.severity,
                evidence=lines[:LINES],
                remedy=rule.remedy,
            )


_ERRORS = "Hardware Error|I/O error, dev|NVRM: Xid|PCIe Bus Error: severity=Uncorrect"
RULES = (
    HostRule(
        "FILESYSTEM_FULL",
        "a filesystem is full",
        "free space: `apt-get clean`, `journalctl --vacuum-size=200M`",
        "{ df -P / /boot /var /tmp; df -Pi / /var; } 2>/dev/null |"
        ' awk \'$5 ~ /^[0-9]+%$/ && $5+0 >= 97 && !seen[$6]++ { print $6 " is " $5 " full (" $1 ")" }\'',
        Severity.ERROR,
    ),
    HostRule(
        "FILESYSTEM_READ_ONLY",
        "the root filesystem is mounted read-only",
        "find the disk error in the kernel's log (`dmesg`), then check the filesystem and reboot",
        'awk \'$2 == "/" { line = $0; type = $3; options = $4 }'
        " END { if (type ~ /^(ext[234]|xfs|btrfs|zfs)$/ && options ~ /(^|,)ro(,|$)/) print line }'"
        " /proc/mounts",
        Severity.ERROR,
    ),
    HostRule(
        "PACKAGES_BROKEN",
        "packages are installed in part",
        "finish them: `dpkg --configure -a`, then `apt-get install -f`",
        "dpkg --audit 2>/dev/null",
        Severity.ERROR,
    ),
    HostRule(
        "UNIT_FAILED",
        "a systemd unit has failed",
        "read its log: `journalctl -b -u UNIT`; when the cause is gone: `systemctl reset-failed UNIT`",
        "systemctl --failed --no-legend --plain 2>/dev/null",
    ),
    HostRule(
        "CLOCK_UNSYNCHRONIZED",
        "the clock is not synchronized",
        "declare `ntp:` of the node, or switch synchronization on: `timedatectl set-ntp true`",
        "timedatectl show -p NTPSynchronized 2>/dev/null | grep -x NTPSynchronized=no",
    ),
    HostRule(
        "REBOOT_REQUIRED",
        "updates wait for a reboot",
        "reboot it when nothing runs there that you need: `systemctl reboot`",
        "cat /run/reboot-required /run/reboot-required.pkgs 2>/dev/null",
    ),
    HostRule(
        "OUT_OF_MEMORY",
        "the kernel has killed processes because memory ran out",
        "give the machine more memory, or run less on it",
        "dmesg 2>/dev/null | grep -E 'Out of memory: Killed process' | tail -n 5",
    ),
    HostRule(
        "HARDWARE_ERRORS",
        "the kernel reports errors of hardware",
        "look the errors up, and replace or reseat what they name",
        f"dmesg 2>/dev/null | grep -E '{_ERRORS}' | tail -n 5",
    ),
)

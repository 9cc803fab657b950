"""Writes docs/preflight.md from the rules: `python -m docs.generators.preflight_reference [FILE]`."""

from __future__ import annotations

from provision.api.doctor import host_rules
from provision.api.preflight import rules

HEAD = """# Preflight codes

<!-- run: overcommitted fresh 10 -->
```console
$ provision plan overcommitted.yaml
```

Preflight rules look at the inventory and at what the systems answered, before anything is changed. An error
refuses the run (exit code 4); a warning is shown. A rule that lacks an answer, because a host is not up
yet, is checked again when its step is reached. `destroy` checks only the rules of the last column.

| code | severity | when | what to do | also in destroy |
| --- | --- | --- | --- | --- |
"""
DOCTOR = """

## What `provision doctor` finds besides

`provision doctor INVENTORY` runs all rules above and examines each host. `provision doctor root@HOST`
examines a host, and needs no inventory. Both change nothing. An error makes the exit code 4.

| code | severity | what is wrong | what to do |
| --- | --- | --- | --- |
"""


def reference() -> str:
    """Return the page as Markdown."""
    rows = [
        f"| {', '.join(f'`{code}`' for code in rule.codes)} | {rule.severity} | {rule.when} | {rule.remedy} |"
        f" {'yes' if rule.removal else 'no'} |"
        for rule in rules()
    ]
    found = [f"| `{rule.code}` | {rule.severity} | {rule.when} | {rule.remedy} |" for rule in host_rules()]
    return HEAD + "\n".join(rows) + DOCTOR + "\n".join(found) + "\n"

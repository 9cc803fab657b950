"""Writes docs/verify.md from the checks: `python -m provision.verify.reference`."""

from __future__ import annotations

import ast

from provision.api.domains import check_folders
from provision.verify.claims import check_files, claims, pod_checks

HEAD = """# Checks of verify

```console
$ provision verify starter.yaml --strict --junit verify.xml
```

This checks the site on fresh answers, and writes the results for your CI as well. `apply` ends with the
same checks.

- Each check claims one thing about one subject. What the inventory does not declare is not checked.
- A check ends in one of five ways; the table, the JUnit file, the events and the page count all five:

  | outcome | meaning |
  |---|---|
  | *proven* | something was compared, and is as declared |
  | *failed* | something is not as declared; the [exit code](exit-codes.md) is 3 |
  | *trivial* | there was nothing to compare, or a stand-in of the [lab](lab.md) answered for hardware |
  | *unknown* | there is no evidence, for example no answer or no systemd; the reason is shown |
  | *not run* | `verify.skip`, `--target` or `--no-pods` leaves it out, or its needs are missing or in use |

- Only what is proven counts. With `--strict` the exit code is 7 if a check is unknown, or if nothing is
  proven of a machine. A machine that its owner may switch off (`power: unmanaged`) is excused.
- The total is green only if every check was run, nothing is unknown or failed, and every machine has a
  check that is proven.
- Nothing is checked on a node with `manage: false`.
- A failed unit that the inventory does not declare fails no check; it is named beside the check that
  is proven.
- Nothing is installed on the machines, and nothing is changed.
- Checks marked *runs pods* make pods in a cluster, as Jobs in a namespace of their own
  (`provision-verify-RUN`) with a priority below all others. They are bounded in number and seconds, evict
  nobody, and are removed at the end, also after Ctrl-C; what a killed run left is removed by the next one.
  What others hold is *not run*. `--no-pods` or `verify.pods: false` leaves all of them out. Their images are
  named in `verify.images`, with digest; a check without its image is *not run*. Write
  `IMAGE:TAG@sha256:<64 hex digits>` as it is here, and `provision pin` finds the digest and keeps it in the
  lock file; `validate` names images whose digest is not known, and what is *not run* because no image
  is named. [Images](playbooks/fabric-check.md#images) says what each needs. The journal has each request
  that makes or removes something.

To see that a check can fail, break something in a [lab](lab.md). This damages one thing that the check looks
at, verifies again, and ends with 0 if the check failed. `provision apply` repairs it, a removed package only
where the lab can reach a package source:

```console
$ provision verify lab.yaml --break test_files
```

Leave checks out with `verify.skip`, by the name in the last column; they stay in the results as *not run*.
`verify.timeout` limits the seconds of each command of a check.
"""


def reference() -> str:
    """Return the page as Markdown."""
    parts = [HEAD]
    for path in check_files(check_folders()):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        title = (ast.get_docstring(tree) or path.stem).splitlines()[0].rstrip(".")
        makers = pod_checks(tree)
        rows = [
            f"| {claim}{' (runs pods)' if name in makers else ''} | {subject} | `{name}` |"
            for name, claim, subject in claims(tree)
        ]
        parts.append(f"\n## {title}\n\n| claim | about | check |\n|---|---|---|\n" + "\n".join(rows) + "\n")
    return "".join(parts)

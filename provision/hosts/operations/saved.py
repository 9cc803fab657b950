"""The operation that puts back what a path held before provision first changed it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from provision.hosts.operations.basic import temporary_prefix
from provision.hosts.operations.placement import ANY, FUNCTIONS, placed, saved_name

# "$1" is the type that stat(1) says in hex, then come mode, user and group.
_TASK = """set -- $provision_before
[ ! -L "$b" ] && [ ! -d "$b" ] || provision_no "$p is not a file any more"
provision_stage @PREFIX@
cat <&3 >"$n"
chown -h -- "$3:$4" "$n"
chmod -- "$2" "$n"
sync -- "$n" 2>/dev/null || sync
provision_place"""


@dataclass(frozen=True, slots=True)
class RestoreFile:
    """Put back a saved file with its mode and owner; its copy goes, and a record of it stays."""

    path: str

    def shell(self) -> str:
        """Return it as a POSIX fragment."""
        task = _TASK.replace("@PREFIX@", temporary_prefix(self.path))
        given = "\"provision_before='$provision_before'\n\""
        restore = placed(self.path, task, owner=ANY, content='"$provision_kept"', given=given)
        return "\n".join(
            (
                FUNCTIONS,
                f"provision_kept=${{PROVISION_BLOBS%/blobs}}/saved/{saved_name(self.path)} provision_before=",
                '{ IFS= read -r provision_before; IFS= read -r provision_before; } <"$provision_kept.entry"',
                "case $provision_before in",
                "restored) ;;",
                f"8*) {restore}",
                f"printf '%s\\n%s\\n' {shlex.quote(self.path)} restored >\"$provision_kept.part\"",
                'mv -fT -- "$provision_kept.part" "$provision_kept.entry"',
                'rm -f -- "$provision_kept" ;;',
                f"*) provision_no {shlex.quote(self.path + ': nothing is saved')} ;;",
                "esac",
            )
        )

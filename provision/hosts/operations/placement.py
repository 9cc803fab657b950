"""Shell text that changes what is at a path without following a name that another user could swap.

Before anything is written, every folder from the root down to the file's is looked at. Where only root can
change them, the work is done there by root. Where a folder belongs to another user, the work is done with
that user's rights, and only if the file is to be that user's; a swapped name then reaches nothing that they
could not change themselves. Any other way is refused.
"""

from __future__ import annotations

import hashlib
import shlex

from provision.connections.folders import ENTER

_FUNCTIONS = (
    ENTER
    + r"""provision_become() {
[ "$provision_u" = 0 ] || provision_no "$p: $provision_q can be changed by $provision_w"
case $provision_owner in
any) provision_o=$provision_w ;;
keep) provision_o=$(stat -c %u -- "$p" 2>/dev/null) || provision_o=0 ;;
*[!0-9]*) provision_o=$(id -u -- "$provision_owner") ;;
*) provision_o=$provision_owner ;;
esac
case $provision_w in
*[!0-9]*) provision_no "$p: $provision_q can be changed by $provision_w" ;;
"$provision_o") ;;
*) provision_no "$p: $provision_q can be changed by user $(id -un "$provision_w" 2>/dev/null ||
printf %s "$provision_w"), to whom the file would not belong" ;;
esac
if provision_g=$(id -g "$provision_w" 2>/dev/null)
then set -- --init-groups
else set -- --clear-groups
provision_g=$provision_w
fi
set -- --reuid "$provision_w" --regid "$provision_g" "$@" --inh-caps=-all --no-new-privs --
provision_saved setpriv "$@"
printf '%s\n' 'set -eu' "$provision_functions" provision_child=1 "$provision_task" |
setpriv "$@" /bin/sh -s 3<"$provision_content" 9>&-
}
provision_saved() {
[ -n "$provision_save" ] && [ -n "${PROVISION_BLOBS:-}" ] || return 0
provision_v=${PROVISION_BLOBS%/blobs}/saved/$provision_save provision_o=
[ ! -f "$provision_v.entry" ] || { IFS= read -r provision_o; IFS= read -r provision_o; } <"$provision_v.entry"
case $provision_o in ''|restored) ;; *) return 0 ;; esac
provision_o=$("$@" stat -c '%f %a %u %g' -- "$p" 2>/dev/null) || provision_o=absent
case $provision_o in 8*|absent) ;; *) return 0 ;; esac
mkdir -p -- "${provision_v%/*}"
if [ "$provision_o" != absent ]; then
"$@" cat -- "$p" >"$provision_v.part"
sync -- "$provision_v.part" 2>/dev/null || sync
mv -fT -- "$provision_v.part" "$provision_v"
fi
printf '%s\n%s\n' "$p" "$provision_o" >"$provision_v.part"
mv -fT -- "$provision_v.part" "$provision_v.entry"
}
provision_forget() {
[ -n "${PROVISION_BLOBS:-}" ] || return 0
provision_v=${PROVISION_BLOBS%/blobs}/saved/$1 provision_o=
[ -f "$provision_v.entry" ] || return 0
{ IFS= read -r provision_o; IFS= read -r provision_o; } <"$provision_v.entry"
[ "$provision_o" != absent ] || rm -f -- "$provision_v.entry"
}
provision_at() {
provision_u=$(id -u)
provision_d=${p%/*}
b=./${p##*/}
cd /
provision_way
if [ -n "$provision_w" ]; then provision_become; return; fi
[ -z "$provision_gone" ] || return 0
if [ -n "$provision_k" ] && { [ -e "$b" ] || [ -L "$b" ]; }; then
case $(stat -c %u -- "$b") in
0|"$provision_u") ;;
*) provision_no "$p belongs to another user, who may change $provision_d" ;;
esac
fi
if [ -n "${provision_child:-}" ]
then provision_do
else
provision_saved
provision_do 3<"$provision_content"
fi
cd /
}
provision_stage() {
[ -n "$provision_k" ] || rm -rf -- "./$1"??????
provision_t=$(mktemp -d "./$1XXXXXX")
trap 'rm -rf -- "$provision_t"' EXIT
n=$provision_t/new
}
provision_place() {
mv -fT -- "$n" "$b"
rmdir -- "$provision_t"
trap - EXIT
}
"""
)

FUNCTIONS = f'provision_functions={shlex.quote(_FUNCTIONS)}\neval "$provision_functions"\n'
"""What every text of `placed` begins with; once is enough for several in a row."""

KEEP = "keep"
"""The file stays its present owner's, a new one is root's."""

ANY = "any"
"""Nothing is written that could be read: whoever owns the folder may own the file."""


STATE = "/var/lib/provision/"
"""What provision itself keeps on a host; nothing of it is saved."""


def saved_name(path: str) -> str:
    """Return the name below `saved/` of what a path held before."""
    return hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def placed(
    path: str,
    task: str,
    *,
    owner: str = KEEP,
    make: bool = True,
    content: str = "/dev/null",
    save: bool = False,
    given: str = "",
) -> str:
    """Return a fragment that does a task in the folder of a path.

    Args:
        path: absolute path, "$p" in the task.
        task: shell text; its working directory is the folder, and the path's last part is "$b" (`./NAME`).
        owner: to whom the file belongs afterwards, a name or number, `KEEP` or `ANY`.
        make: whether a missing folder is made (0755); otherwise nothing is done where it is missing.
        content: shell word of a file that the task reads from descriptor 3; it is opened by root.
        save: keep what the path holds at first touch, with its mode and owner, below `saved/`.
        given: shell word that goes before the task: assignments that root makes.
    """
    saved = saved_name(path) if save and not path.startswith(STATE) else ""
    lines = (
        f"p={shlex.quote(path)} provision_owner={shlex.quote(owner)} provision_make={int(make)}",
        f"provision_save={saved}",
        f"provision_do() {{\n{task}\n}}",
        "provision_at </dev/null",
    )
    text = shlex.quote("\n".join(lines))
    return f'{FUNCTIONS}provision_content={content}\nprovision_task={given}{text}\neval "$provision_task"'


def deduplicated(script: str, *shared: str) -> str:
    """Return a script of several fragments in which each of the shared texts stands once, first."""
    for text in (FUNCTIONS, *shared):
        if text in script:
            script = text + script.replace(text, "")
    return script

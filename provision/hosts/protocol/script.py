"""Writes the scripts that hosts run: function definitions and one last line `main`; half of it does nothing.

Every fragment runs in a frame of its own as `( set -eu; FRAGMENT ) </dev/null`, never under `if` or `||`,
which switch `set -e` off (POSIX.1-2017, Shell Command Language, 2.14 `set`); without `</dev/null` a child
would read the rest of the script. Measured basis: dash, bash --posix, busybox sh.

`PATH`: absolute folders that the login brought come first, standard ones follow; relative and empty entries
go, and so do those in the user's own home (a shell's start-up file may put pyenv or conda in front). What is
left is sshd's (`SetEnv PATH=`, PAM's environment) or sudo's `secure_path`: an administrator's word about
where tools are, which a fixed list alone would overrule.

While acting, file descriptor 9 holds the lock; names that begin with `provision_` are taken.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from provision.contracts.effect import Effect, EffectClass
from provision.hosts import host_effects
from provision.hosts.operations.placement import FUNCTIONS

PROTOCOL = 1
STATE = "/var/lib/provision"
APT_FOLDER = "/var/lib/apt/provision"
"""Package sources of our own, where there are any; apt makes folders of lists below its own folder alone."""
HOST_LOCK = "lock"
API_LOCK = "lock-api"
HELD_TICK = 1
"""Seconds between two looks of a held lock at its connection."""
HELLO = 0
LOCK = 1
FIRST_STEP = 2
RC_STATE = 74
RC_LOCKED = 75
RC_NO_FLOCK = 76

_SHA256 = re.compile(r"[0-9a-f]{64}")

_COMMON = r"""provision_b() {
printf '\n%s b %s\n' @NONCE@ "$1"
printf '\n%s b %s\n' @NONCE@ "$1" >&2
}
provision_e() {
printf '\n%s e %s %s\n' @NONCE@ "$1" "$2"
printf '\n%s e %s %s\n' @NONCE@ "$1" "$2" >&2
}
provision_environment() {
unset CDPATH ENV BASH_ENV LANGUAGE IFS
set -f
provision_found=
IFS=:
for provision_f in ${PATH:-}; do
case $provision_f in
"${HOME:-/}"/*) ;;
/*) provision_found=$provision_found$provision_f: ;;
esac
done
unset IFS
set +f
PATH=$provision_found/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
TERM=dumb
DEBIAN_FRONTEND=noninteractive
NEEDRESTART_MODE=l
PROVISION_BLOBS=@STATE@/blobs
export PATH LC_ALL TERM DEBIAN_FRONTEND NEEDRESTART_MODE PROVISION_BLOBS
if [ -f @APT@/apt.conf ]; then APT_CONFIG=@APT@/apt.conf; export APT_CONFIG; fi
umask 077
cd /
}
provision_uid() {
while read -r provision_k provision_v provision_r; do
if [ "$provision_k" = Uid: ]; then return; fi
done </proc/$$/status
provision_v=$(id -u)
}
provision_uname() {
if [ -r /proc/sys/kernel/arch ] && read -r provision_a </proc/sys/kernel/ostype &&
read -r provision_s </proc/sys/kernel/osrelease && read -r provision_r </proc/sys/kernel/arch
then provision_a="$provision_a $provision_s $provision_r"
else provision_a=$(uname -srm)
fi
}
provision_hello() {
provision_boot= provision_pgid=0 provision_owed=
[ ! -r /proc/sys/kernel/random/boot_id ] || read -r provision_boot </proc/sys/kernel/random/boot_id
if [ -r /proc/$$/stat ] && read -r provision_s </proc/$$/stat; then
set -- ${provision_s##*') '}
provision_parent=$2 provision_pgid=$3
fi
provision_epoch=$(date +%s)
provision_uid
provision_uname
for provision_f in @STATE@/pending/*; do
if [ -f "$provision_f" ] && IFS= read -r provision_s <"$provision_f"
then provision_owed="${provision_owed}pending $provision_s
"
fi
done
printf '\n%s b 0\nprotocol %s\nuid %s\npgid %s\nboot %s\nepoch %s\nuname %s\n%s\n%s e 0 0\n' @NONCE@ \
@PROTOCOL@ "$provision_v" "$provision_pgid" "$provision_boot" "$provision_epoch" "$provision_a" \
"$provision_owed" @NONCE@
printf '\n%s b 0\n\n%s e 0 0\n' @NONCE@ @NONCE@ >&2
}
"""

_ACTING = r"""provision_prepare() {
mkdir -p @STATE@/pending @STATE@/blobs && [ -O @STATE@ ] && [ ! -L @STATE@/@LOCK@ ] && : >>@STATE@/@LOCK@
}
provision_lock() {
command -v flock >/dev/null || return 76
( provision_prepare ) || return 74
exec 9<>@STATE@/@LOCK@
if flock -n 9@AGAIN@
then @TAKEN@printf '%s\t%s\t%s\t%s\n' @RUN@ @WHO@ "$provision_epoch" "$provision_pgid" >@STATE@/@LOCK@
else cat @STATE@/@LOCK@
return 75
fi
for provision_f in @STATE@/blobs/*; do
[ ! -f "$provision_f" ] || { find @STATE@/blobs -type f -mmin +60 -exec rm -f -- {} +; break; }
done
provision_rebuild=
for provision_f in @STATE@/pending/*; do
case ${provision_f##*/} in @REBUILDS@) [ ! -f "$provision_f" ] || provision_rebuild=1 ;; esac
done
for provision_f in @STATE@/pending/*; do
if [ -f "$provision_f" ]
then provision_r=
IFS='	' read -r provision_s provision_a provision_v provision_r <"$provision_f"
[ -n "$provision_r" ] || { provision_v=$provision_a; }
case $provision_s in
reboot-*) [ -n "$provision_rebuild" ] || [ "$provision_v" = "$provision_boot" ] || rm -f "$provision_f" ;;
@SATISFIED@) [ "$provision_v" = "$provision_boot" ] || rm -f "$provision_f" ;;
esac
fi
done
return 0
}
provision_pump() {
if command -v setsid >/dev/null
then setsid sh -c 'cat || cat >/dev/null'
else cat || cat >/dev/null
fi
}
provision_linked() {
provision_watch=$$
if read -r provision_s 2>/dev/null </proc/$provision_parent/stat; then
case $provision_s in *' (sudo) '*)
provision_watch=$provision_parent
set -- ${provision_s##*') '}
provision_parent=$2 ;;
esac
fi
}
provision_cut() {
[ -r /proc/self/stat ] || return 1
read -r provision_s 2>/dev/null </proc/$provision_watch/stat || return 0
set -- ${provision_s##*') '}
[ "$2" != "$provision_parent" ]
}
provision_mark() {
printf '%s\t%s\t%s\t%s\n' "$2" "$3" "$provision_boot" @RUN@ >@STATE@/pending/."$1"
}
provision_sync() {
sync "$@" 2>/dev/null || sync
}
provision_commit() {
cd @STATE@/pending
for provision_f in "$@"; do provision_sync "./.$provision_f"; mv -f "./.$provision_f" "./$provision_f"; done
provision_sync .
cd /
}
provision_rebuilt() {
for provision_f in @STATE@/pending/reboot-*; do
if [ -f "$provision_f" ]
then IFS='	' read -r provision_s provision_a provision_v provision_r <"$provision_f"
[ -n "$provision_r" ] || provision_a=
provision_mark "${provision_f##*/}" "$provision_s" "$provision_a"
provision_commit "${provision_f##*/}"
fi
done
}
provision_blob() {
provision_s=$(sha256sum <@STATE@/blobs/"$1")
case $provision_s in
"$1 "*) ;;
*) rm -f @STATE@/blobs/"$1"
printf '%s\n' "large content $1 arrived damaged and was removed; the next run sends it again" >&2
return 1 ;;
esac
}
"""

# Output of fixes goes through cat, and once the connection is gone, to /dev/null: a fix whose
# connection is cut ends in its own way, where SIGPIPE would end apt or update-initramfs half-way.
# The cat has a session of its own where setsid(1) is: who kills the group of the fix loses nothing that
# it had said, so a fix that had ended is known to have ended. It ends with the last writer.
_PUMPED = """{
{ provision_work 2>&3 3>&- 4>&- | provision_pump >&4 3>&- 4>&-; } 3>&1 | provision_pump >&2 4>&-
} 4>&1
"""


@dataclass(frozen=True, slots=True)
class Step:
    """What one frame of an act script does.

    Args:
        fragment: POSIX text.
        marks: effects whose markers are written and synced before the fragment begins.
        clears: effects whose markers go when the fragment has succeeded.
        blobs: SHA-256 of large content that must be on the host, checked before and removed after.
    """

    fragment: str
    marks: tuple[Effect, ...] = ()
    clears: tuple[Effect, ...] = ()
    blobs: tuple[str, ...] = ()


def new_nonce() -> str:
    """Return a nonce of 96 random bits for one execution."""
    return "p" + secrets.token_hex(12)


def marker_name(effect: Effect) -> str:
    """Return the file name of an effect's marker."""
    if not effect.target:
        return str(effect.cls)
    return f"{effect.cls}.{hashlib.sha256(effect.target.encode()).hexdigest()[:16]}"


def fragment_frame(index: int, fragment: str, before: str = "", after: str = "") -> str:
    """Return the function `provision_<index>` that runs a fragment in its frame."""
    return (
        f"provision_{index}() {{\nprovision_b {index}\n( set -eu\n{before}{fragment}\n) </dev/null\n"
        f'rc=$?\n{after}provision_e {index} "$rc"\n}}\n'
    )


def observe_script(nonce: str, fragments: Sequence[str], *, state: str = STATE) -> bytes:
    """Return a script that runs all fragments, each in a frame of its own, and writes nothing.

    Args:
        nonce: from `new_nonce`.
        fragments: POSIX text; the first one's frame is 1. The frame after the last one is the farewell.
        state: folder of markers and blobs on the host.

    Raises:
        ValueError: a fragment holds a NUL byte, which shells drop.
    """
    frames = "".join(fragment_frame(index, fragment) for index, fragment in enumerate(fragments, 1))
    calls = "".join(f"provision_{index}\n" for index in range(1, len(fragments) + 1))
    values = {"NONCE": nonce, "STATE": shlex.quote(state), "PROTOCOL": str(PROTOCOL), "APT": APT_FOLDER}
    main = f"main() {{\n{_body(calls, len(fragments) + 1)}exit 0\n}}\nmain\n"
    return _encoded(_filled(_COMMON, values) + frames + main)


def hold_script(nonce: str, run: str, who: str, *, state: str = STATE) -> bytes:
    """Return a script that holds the lock of the host's API for as long as its connection lasts.

    Its frames are those of `act_script`, with one step. When the controller is killed, the host frees the
    lock within `HELD_TICK` seconds of the connection's end, so the lock is tried twice over a longer time.

    Raises:
        ValueError: a name holds a tab or newline.
    """
    file = f"{shlex.quote(state)}/{API_LOCK}"
    # The shell that holds the lock notes its own end, whatever ends it, once the file names it:
    # a step's own traps would be set only after the controller knows that the lock is taken.
    step = Step(f"while ! provision_cut; do sleep {HELD_TICK}; done")
    note = (
        f"provision_free() {{\nIFS= read -r provision_s <{file} || :\n"
        f"case $provision_s in {shlex.quote(run)}'\t'*)\n"
        f'printf \'%s\\t%s\\n\' "$provision_s" "$(date +%s)" >{file} ;;\nesac\n}}\n'
        "trap provision_free EXIT\ntrap 'exit 0' HUP INT TERM\n"
    )
    again = f" || {{ sleep {HELD_TICK + 2}; flock -n 9; }}"
    taken = (
        f"{note}provision_s=\nIFS= read -r provision_s <{file} || :\n"
        'printf \'%s\\n%s\\n\' "$provision_s" "$(date +%s)"\n'
    )
    return act_script(nonce, run, who, [step], state=state, lock=API_LOCK, again=again, taken=taken)


def act_script(
    nonce: str,
    run: str,
    who: str,
    steps: Sequence[Step],
    *,
    state: str = STATE,
    lock: str = HOST_LOCK,
    again: str = "",
    taken: str = "",
    effects: Collection[EffectClass] = host_effects.EFFECTS,
) -> bytes:
    """Return a script that takes the host's lock and does the steps in order until one fails.

    Frame 1 takes the lock (exit status 75: someone else holds it, and the frame says who; 74: the state
    folder cannot be written; 76: no flock(1)). Frame 2 is the first step's; the frame after the last one is
    the farewell. When the connection is cut, the step that runs goes on and no further one begins: the shell
    sees that its parent (or sudo's) is another one than before.

    Args:
        nonce: from `new_nonce`.
        run: id of the run, written into lock and markers.
        who: user and machine on whose behalf it runs, written into the lock.
        steps: what to do.
        state: folder of lock, markers and blobs on the host.
        lock: name of the lock file there.
        again: shell text after the first try to take it.
        taken: shell text once it is taken, while the file still names the holder before.
        effects: all classes whose markers may be on the host.

    Raises:
        ValueError: a fragment holds a NUL byte, a name or target a tab or newline, or a blob has no hash.
    """
    _one_line(run)
    _one_line(who)
    values = {
        "NONCE": nonce,
        "STATE": shlex.quote(state),
        "APT": APT_FOLDER,
        "PROTOCOL": str(PROTOCOL),
        "RUN": shlex.quote(run),
        "WHO": shlex.quote(who),
        "LOCK": lock,
        "AGAIN": again,
        "TAKEN": taken,
        "SATISFIED": "|".join(sorted(str(cls) for cls in effects if cls.done_by_boot and not cls.reboots)),
        "REBUILDS": "|".join(sorted(str(cls) for cls in effects if cls.needs_boot)),
    }
    text = _filled(_COMMON + _ACTING, values)
    calls = f'provision_linked\nprovision_b {LOCK}\nprovision_lock\nrc=$?\nprovision_e {LOCK} "$rc"\n'
    if any(FUNCTIONS in step.fragment for step in steps):
        calls = FUNCTIONS + calls
    for index, step in enumerate(steps, FIRST_STEP):
        fragment = step.fragment.replace(FUNCTIONS, "")
        text += fragment_frame(index, fragment, _before(step), _filled(_after(step), values))
        # inside of `then`, set -e stays in force
        calls += f'if [ "$rc" -eq 0 ] && ! provision_cut; then provision_{index}; fi\n'
    work = f"provision_work() {{\n{_body(calls, len(steps) + FIRST_STEP)}}}\n"
    return _encoded(f"{text}{work}main() {{\n{_PUMPED}exit 0\n}}\nmain\n")


def _body(calls: str, bye: int) -> str:
    return f"provision_environment\nprovision_hello\n{calls}provision_b {bye}\nprovision_e {bye} 0\n"


def _before(step: Step) -> str:
    lines = ""
    for effect in step.marks:
        _one_line(effect.target)
        lines += f"provision_mark {marker_name(effect)} {effect.cls} {shlex.quote(effect.target)}\n"
    if step.marks:
        lines += f"provision_commit {' '.join(marker_name(effect) for effect in step.marks)}\n"
    for sha256 in step.blobs:
        if not _SHA256.fullmatch(sha256):
            raise ValueError(f"{sha256!r} is not a SHA-256 digest")
        lines += f"provision_blob {sha256}\n"
    return lines


def _after(step: Step) -> str:
    lines = ""
    if any(effect.cls.needs_boot for effect in step.clears):
        # a boot before the rebuild proves nothing about what the rebuild brings
        lines += "provision_rebuilt\n"
    files = [f"@STATE@/pending/{marker_name(effect)}" for effect in step.clears]
    files += [f"@STATE@/blobs/{sha256}" for sha256 in step.blobs]
    if files:
        lines += f"rm -f {' '.join(files)}\n"
    return f'if [ "$rc" -eq 0 ]; then\n{lines}fi\n' if lines else ""


def _one_line(text: str) -> None:
    if any(character in text for character in "\t\n\r\0"):
        raise ValueError(f"{text!r} contains a tab or a line break, which a marker cannot hold")


def _filled(template: str, values: Mapping[str, str]) -> str:
    parts = re.split(r"@([A-Z]+)@", template)
    parts[1::2] = [values[name] for name in parts[1::2]]
    return "".join(parts)


def _encoded(text: str) -> bytes:
    if "\0" in text:
        raise ValueError("a fragment holds a NUL byte: send such content in base64")
    return text.encode("utf-8", "surrogateescape")


def is_satisfied(cls: EffectClass, boot: str, now: str, *, rebuild_owed: bool) -> bool:
    """Return whether another boot than the one of the fix proves the effect.

    Args:
        cls: the effect class.
        boot: boot id at the time of the fix.
        now: boot id now.
        rebuild_owed: initramfs or boot loader are still to be rebuilt, so the last boot did not see the fix.
    """
    if not cls.done_by_boot or boot == now:
        return False
    return not (cls.reboots and rebuild_owed)


def effect_fragment(effect: Effect) -> str | None:
    """Return the shell fragment that performs an effect, None if a host cannot by itself."""
    if not effect.cls.script or ("{target}" in effect.cls.script and not effect.target):
        return None
    return effect.cls.script.replace("{target}", shlex.quote(effect.target))

"""Operations of apt that choose versions."""

from __future__ import annotations

from dataclasses import dataclass

from provision.hosts.operations import apt_locks
from provision.hosts.operations.basic import quote, words

_APT = f"apt-get {apt_locks.OPTIONS} --no-install-recommends --allow-change-held-packages --allow-downgrades"
_MORE = """BEGIN { n = split(ENVIRON["PROVISION_NAMES"], a, " "); for (i = 1; i <= n; i++) named[a[i]] = 1 }
($1 == "Remv" || $1 == "Purg") && !($2 in named) { printf "%s%s", sep, $2; sep = ", " }"""


@dataclass(frozen=True, slots=True)
class InstallVersions:
    """Install packages, some with a version; held ones may move, and only some packages may go.

    Args:
        requests: `NAME` or `NAME=VERSION`.
        removable: packages that may be removed for them.
    """

    requests: tuple[str, ...]
    removable: tuple[str, ...] = ()

    @property
    def refusal(self) -> str:
        """The message before the names of packages that must not be removed."""
        return f"refused: installing {', '.join(self.requests)} would also remove "

    def shell(self) -> str:
        """Return it as a POSIX fragment; lists are fetched when the first simulation fails."""
        names = words(self.requests)
        more = f"PROVISION_NAMES={quote(' '.join(self.removable))} awk {quote(_MORE)}"
        simulate = f"{_APT} -s install -- {names}"
        return (
            f"{apt_locks.SHELL}provision_configure\n"
            f"if ! plan=$({simulate}); then\n"
            "  provision_lists\n"
            f"  plan=$({simulate})\n"
            "fi\n"
            f"more=$(printf '%s\\n' \"$plan\" | {more})\n"
            f'if [ -n "$more" ]; then printf \'%s%s\\n\' {quote(self.refusal)} "$more" >&2; exit 1; fi\n'
            f"provision_apt {_APT} install -- {names}"
        )

"""Operations of apt that choose versions, and those of our own package sources."""

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


@dataclass(frozen=True, slots=True)
class FetchLists:
    """Fetch the package lists of our own sources; each of them must come.

    Args:
        config: of apt; it may be new, so that the script's environment does not name it yet.
        needed: the file with the keys that sign the lists.
        readable: what apt must be able to read as its own user.
    """

    config: str
    needed: str
    readable: tuple[str, ...]

    def shell(self) -> str:
        """Return it as a POSIX fragment."""
        options = "-q -o DPkg::Lock::Timeout=300 -o APT::Update::Error-Mode=any"
        folder = quote(self.config.rpartition("/")[0])
        missing = quote(f"{self.needed} is missing: it has the keys of the package archive")
        return (
            f"{apt_locks.SHELL}"
            f"if [ ! -f {quote(self.needed)} ]; then\n"
            f"  printf '%s\\n' {missing} >&2\n"
            "  exit 1\n"
            "fi\n"
            f"APT_CONFIG={quote(self.config)}\nexport APT_CONFIG\n"
            # apt reads them as its own user _apt
            f"chmod a+rx -- {folder}\nchmod -R a+rX -- {words(self.readable)}\n"
            "provision_apt_idle\n"
            f"provision_apt apt-get {options} update"
        )


@dataclass(frozen=True, slots=True)
class RemoveFolder:
    """Remove a folder that holds nothing but what is ours."""

    path: str

    def shell(self) -> str:
        """Return it as a POSIX fragment."""
        return f"rm -rf -- {quote(self.path)}"

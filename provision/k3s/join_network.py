"""What a node needs of its network before it joins: the API of a server, names, and the folders of CNI.

Sources: pkg/agent/config of k3s (which resolv.conf the kubelet gets: the first file of two whose name servers
are all global unicast addresses), the kubelet's limits on resolv.conf (three name servers, 32 search domains,
2048 characters), udp(7) (a port that a firewall prohibits is told from a silent one).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import ClassVar

from provision.contracts.query import Frame, Unknown
from provision.hosts.operations.basic import quote
from provision.hosts.resources.base import Rows, no_answer, rows_of
from provision.k3s import cni_folders, runtimes
from provision.k3s.configuration import PORT

VXLAN = 8472
"""Flannel's UDP port on Linux."""
RESOLVERS = ("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf")
"""Files that k3s tries in this order, where no other one is declared."""
MOST_SERVERS = 3
MOST_DOMAINS = 32
MOST_CHARACTERS = 2048

OPEN, REFUSED, PROHIBITED, SILENT, UNRESOLVED = "open", "refused", "prohibited", "silent", "unresolved"
"""What became of a connection: a host that refuses is reached, and one that is silent may be."""
BLOCKED = frozenset({PROHIBITED, SILENT, UNRESOLVED})

# bash(1) has sockets and is essential on Debian and Ubuntu; without it nothing is said of a port.
PROBES = r"""said() {
  case $1 in
  0) echo open;; 124*) echo silent;;
  *refused*) echo refused;; *'o route'*|*rohibited*|*nreachable*) echo prohibited;;
  *'not known'*|*resolution*|*'No address'*) echo unresolved;; *) echo unknown;;
  esac
}
tcp() {
  if ! command -v bash >/dev/null 2>&1; then echo unknown; return 0; fi
  if e=$(LC_ALL=C timeout 3 bash -c 'exec 3<>"/dev/tcp/$1/$2"' bash "$1" "$2" 2>&1); then said 0
  else said "$? $e"; fi
}
udp() {
  if ! command -v bash >/dev/null 2>&1; then echo unknown; return 0; fi
  if e=$(LC_ALL=C timeout 3 bash -c '
    exec 3<>"/dev/udp/$1/$2" || exit 1
    for n in 1 2 3; do printf x >&3 || exit 1; sleep 0.3; done' bash "$1" "$2" 2>&1); then echo silent
  else said "$? $e"; fi
}
names() {
  if ! command -v bash >/dev/null 2>&1; then echo unknown; return 0; fi
  # The root's name servers, then an address: some routers do not answer the first.
  for q in '\x00\x00\x02\x00\x01' '\x09localhost\x00\x00\x01\x00\x01'; do
    if e=$(LC_ALL=C timeout 3 bash -c '
      exec 3<>"/dev/udp/$1/53" || exit 1
      printf "\x13\x37\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00$2" >&3 || exit 1
      dd bs=512 count=1 status=none <&3 | od -An -N2 -tx1' bash "$1" "$q" 2>&1); then
      case $e in *' 13 37'*) echo open; return 0;; esac
      e="1 $e"
    else e="$? $e"
    fi
  done
  said "$e"
}
"""
"""Functions of a POSIX shell: `tcp HOST PORT`, `udp HOST PORT` and `names HOST` print one word."""


@dataclass(frozen=True, slots=True)
class JoinNetwork:
    """The network of a node, as k3s will meet it.

    Args:
        servers: addresses of the servers of the cluster, without its own.
        resolv_conf: the file that the kubelet is declared to get; empty for the one that k3s chooses.
    """

    kind: ClassVar[str] = "k3s-join-network"

    servers: tuple[str, ...] = ()
    resolv_conf: str = ""


@dataclass(frozen=True, slots=True)
class ResolverFile:
    """One resolv.conf.

    Args:
        path: of the file.
        readable: whether it is there.
        servers: its name servers, as text.
        domains: how many search domains it has.
        characters: how long they are together, with the spaces between them.
    """

    path: str
    readable: bool = True
    servers: tuple[str, ...] = ()
    domains: int = 0
    characters: int = 0

    @property
    def fits(self) -> bool:
        """Whether k3s gives it to the kubelet: it has name servers, and all are global unicast addresses."""
        return self.readable and bool(self.servers) and all(map(_is_global, self.servers))


@dataclass(frozen=True, slots=True)
class JoinNetworkStatus:
    """What a node meets.

    Args:
        runs: whether k3s runs on it; then nothing is probed.
        files: the files that may become the resolv.conf of pods, in k3s's order.
        names: what each name server says, by address.
        api: what became of a connection to the API of each server, by address.
        programs: folders of CNI programs that containerd's configuration names, by file.
        configuration: folders of CNI configuration that it names, by file.
        networks: files in the folder of CNI configuration, sorted as containerd sorts them.
    """

    runs: bool = False
    files: tuple[ResolverFile, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict, compare=False)
    api: Mapping[str, str] = field(default_factory=dict, compare=False)
    programs: tuple[tuple[str, str], ...] = ()
    configuration: tuple[tuple[str, str], ...] = ()
    networks: tuple[str, ...] = ()

    @property
    def resolver(self) -> ResolverFile | None:
        """The file that pods get; None where k3s writes one with a public name server instead."""
        if len(self.files) == 1:
            return self.files[0]
        return next((file for file in self.files if file.fits), None)


def _is_global(text: str) -> bool:
    """Whether Go's `net.ParseIP(text).IsGlobalUnicast()`, which k3s asks."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    special = address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified
    return not special and "%" not in text and text != "255.255.255.255"


# `read` fails at a last line without its end, and has read it all the same.
_FILES = r"""domains() { for w in $1; do case $w in '#'*|';'*) break;; esac; printf '%s ' "$w"; done; }
resolver() {
  if [ ! -r "$1" ]; then printf 'file|%s|no\n' "$1"; return 0; fi
  printf 'file|%s|yes\n' "$1"
  sed -n 's/^nameserver[[:space:]]\{1,\}\([^[:space:]]*\).*/\1/p' "$1" |
  while IFS= read -r a || [ -n "$a" ]; do printf 'server|%s|%s\n' "$1" "$a"; done
  s=
  while read -r k v || [ -n "$k" ]; do
    case $k in search|domain) s=$(set -f; domains "$v");; esac
  done <"$1"
  printf 'search|%s|%s\n' "$1" "${s% }"
  if [ "$runs" = no ]; then
    sed -n 's/^nameserver[[:space:]]\{1,\}\([^[:space:]]*\).*/\1/p' "$1" | head -n 3 |
    while IFS= read -r a || [ -n "$a" ]; do
      case $a in ''|127.*|::1) ;; *) printf 'name|%s|%s\n' "$a" "$(names "$a")";; esac
    done
  fi
}
"""
_FOLDERS = f"""for c in config-v3.toml.tmpl config.toml.tmpl config.toml; do
  if [ -r {runtimes.CONTAINERD_FOLDER}/$c ]; then
    sed -n "s/^[[:space:]]*\\(bin_dirs\\{{0,1\\}}\\|conf_dir\\)[[:space:]]*=[[:space:]]*\\(.*\\)/\\1|\\2/p" \\
      {runtimes.CONTAINERD_FOLDER}/$c |
    while IFS= read -r l || [ -n "$l" ]; do printf 'cni|%s|%s\\n' "$c" "$l"; done
  fi
done
d={cni_folders.CONFIGURATION}
for c in "$d"/*.conf "$d"/*.conflist "$d"/*.json; do
  if [ -f "$c" ]; then printf 'network|%s\\n' "${{c##*/}}"; fi; done
"""


class JoinNetworkKind:
    """One question for each host; a node that runs k3s costs no probe."""

    query = JoinNetwork

    def script(self, queries: Sequence[JoinNetwork]) -> str:
        """Return the fragment."""
        lines = [PROBES + _FILES, "runs=no; for u in k3s k3s-agent; do"]
        lines += ['  if systemctl --quiet is-active "$u" 2>/dev/null; then runs=yes; fi', "done"]
        for query in queries[:1]:
            lines.append("printf 'runs|%s\\n' \"$runs\"")
            files = (query.resolv_conf,) if query.resolv_conf else RESOLVERS
            lines += [f"resolver {quote(file)}" for file in files]
            lines.append('if [ "$runs" = no ]; then :')
            lines += [f"printf 'api|{server}|%s\\n' \"$(tcp {server} {PORT})\"" for server in query.servers]
            lines += ["fi", _FOLDERS]
        return "\n".join([*lines, "echo 'done|'"])

    def parse(self, frame: Frame, queries: Sequence[JoinNetwork]) -> Mapping[JoinNetwork, object]:
        """Return JoinNetworkStatus."""
        rows = rows_of(frame)
        try:
            answer = no_answer(frame, "the network of a join") if rows is None else _read(rows)
        except (ValueError, IndexError, KeyError):
            answer = Unknown("the answer about the network of a join is not understood")
        return dict.fromkeys(queries[:1], answer)


def _read(rows: Rows) -> object:
    search = {row[0]: row[1].split() for row in rows.get("search", ())}
    files = []
    for path, readable in (row[:2] for row in rows["file"]):
        servers = tuple(row[1] for row in rows.get("server", ()) if row[0] == path)
        domains = search.get(path, [])
        size = len(" ".join(domains))
        files.append(ResolverFile(path, readable == "yes", servers, len(domains), size))
    return JoinNetworkStatus(
        rows["runs"][0][0] == "yes",
        tuple(files),
        {row[0]: row[1] for row in rows.get("name", ())},
        {row[0]: row[1] for row in rows.get("api", ())},
        tuple(_folders(rows, "bin_")),
        tuple(_folders(rows, "conf_")),
        tuple(sorted(row[0] for row in rows.get("network", ()))),
    )


def _folders(rows: Rows, key: str) -> Iterable[tuple[str, str]]:
    """Yield file and folder of each line of a key; what a template computes is k3s's own choice."""
    for row in rows.get("cni", ()):
        if row[1].startswith(key) and "{{" not in row[2]:
            for word in row[2].strip("[] ").split(","):
                folder = word.strip(" \"'")
                if folder:
                    yield row[0], folder


@dataclass(frozen=True, slots=True)
class ProveServer:
    """Wait until the API of a server can be connected to, and say why not where it cannot.

    A connection that is refused is enough: the host is reached, and k3s itself waits for its server.
    Flannel's port has no answer that would prove it, but a firewall's prohibition proves the opposite.

    Args:
        server: name or address of what the node joins.
        vxlan: address of a node to which packets of pods go; empty where flannel uses no VXLAN.
        seconds: how long the server may be silent: it may just reboot.
    """

    server: str
    vxlan: str = ""
    seconds: int = 300

    def shell(self) -> str:
        """Return it as a POSIX fragment."""
        server, words = quote(self.server), f"{self.server}, port {PORT}"
        code = "K3S_API_UNREACHABLE"
        said = {
            UNRESOLVED: f"{code}: {self.server} cannot be resolved by this node",
            PROHIBITED: f"{code}: there is no route to {words}, or a firewall prohibits it",
            SILENT: f"{code}: {words} does not answer this node",
        }
        lines = [
            PROBES,
            f"t=$(date +%s); while :; do w=$(tcp {server} {PORT})",
            f"  case $w in {'|'.join(said)}) ;; *) break;; esac",
            f"  if [ $(($(date +%s) - t)) -ge {self.seconds} ]; then case $w in",
            *(f"    {word}) echo {quote(text)} >&2;;" for word, text in said.items()),
            "    esac",
            f"    echo {quote(f'next: accept TCP {PORT} and UDP {VXLAN} between all nodes')} >&2; exit 1",
            "  fi",
            f"  echo {quote(f'waiting for {words}')}; sleep 5",
            "done",
        ]
        if self.vxlan:
            problem = f"POD_PATH_BLOCKED: a firewall prohibits UDP {VXLAN} to {self.vxlan}"
            lines += [
                f'if [ "$(udp {quote(self.vxlan)} {VXLAN})" = prohibited ]; then',
                f"  echo {quote(f'{problem}, by which pods of other nodes are reached')} >&2",
                f"  echo {quote(f'next: accept UDP {VXLAN} between all nodes')} >&2; exit 1",
                "fi",
            ]
        return "\n".join(lines)

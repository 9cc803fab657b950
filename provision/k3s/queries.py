"""Queries about k3s on a host: its token, its last words, and what k3s needs of the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from pydantic import SecretStr

from provision.contracts.query import Frame, QueryKind, Unknown
from provision.hosts.operations.basic import quote
from provision.hosts.queries.secret import SecretTextKind, secret_of
from provision.hosts.resources.base import HostFactKind, Rows, lines_of, no_answer
from provision.k3s.join_network import JoinNetworkKind
from provision.k3s.runtimes import NVIDIA_RUNTIME_KIND
from provision.k3s.settings_query import SETTINGS_KIND
from provision.k3s.snapshots import EtcdSnapshotsKind
from provision.values.numbers import is_number


@dataclass(frozen=True, slots=True)
class JoinToken:
    """The token in a file, without the `K10...::server:` before it; None when the file is absent."""

    kind: ClassVar[str] = "k3s-token"
    secret: ClassVar[bool] = True
    path: str


class JoinTokenKind(SecretTextKind):
    """As other secret texts."""

    query = JoinToken

    def value(self, path: str, content: object) -> object:
        """Return the password alone."""
        return password_of(secret_of(path, content))


def password_of(answer: object) -> object:
    """Return the password of a token in either form; other answers as they are."""
    if not isinstance(answer, SecretStr):
        return answer
    text = answer.get_secret_value()
    return SecretStr(text.rpartition(":")[2]) if text.startswith("K10") else answer


def authority_of(full: SecretStr) -> str:
    """Return the part of a full token that names the cluster's CA (`K10<hash>`), empty if there is none."""
    head, separator, _ = full.get_secret_value().partition("::")
    return head if separator and head.startswith("K10") else ""


@dataclass(frozen=True, slots=True)
class ServiceLog:
    """The last words of a unit that is not active, of its present start only; empty while it is active."""

    kind: ClassVar[str] = "service-log"
    unit: str


@dataclass(frozen=True, slots=True)
class LastWords:
    """Lines of a log; they always differ, so they take no part in a comparison."""

    lines: tuple[str, ...] = field(default=(), compare=False)


class ServiceLogKind:
    """One fragment for all units; a unit that is active costs one call of systemctl."""

    query = ServiceLog

    def script(self, queries: Sequence[ServiceLog]) -> str:
        """Return the fragment."""
        names = " ".join(quote(query.unit) for query in queries)
        return f"""for u in {names}; do
  printf 'unit|%s\\n' "$u"
  case $(systemctl show -p ActiveState --value -- "$u") in
  active|inactive) ;;
  *) i=$(systemctl show -p InvocationID --value -- "$u")
     if [ -n "$i" ] && command -v journalctl >/dev/null 2>&1; then
       journalctl -q --no-pager -o cat -n 8 "_SYSTEMD_INVOCATION_ID=$i" 2>/dev/null |
       cut -c1-300 | sed 's/^/line|/' || :
     fi;;
  esac
done
echo 'done|'"""

    def parse(self, frame: Frame, queries: Sequence[ServiceLog]) -> Mapping[ServiceLog, object]:
        """Return LastWords for each unit."""
        logs: dict[str, list[str]] = {}
        lines = lines_of(frame)
        current: list[str] = []
        for line in lines:
            tag, _, rest = line.partition("|")
            if tag == "unit":
                current = logs.setdefault(rest, [])
            elif tag == "line":
                current.append(rest)
        if "done|" not in lines:
            return dict.fromkeys(queries, no_answer(frame, "the log of a unit"))
        return {
            query: LastWords(tuple(logs[query.unit]))
            if query.unit in logs
            else Unknown(f"no answer about the log of {query.unit}")
            for query in queries
        }


@dataclass(frozen=True, slots=True)
class Machine:
    """What k3s needs of a host and what may be in its way."""

    kind: ClassVar[str] = "k3s-machine"


@dataclass(frozen=True, slots=True)
class MachineStatus:
    """A host as k3s meets it.

    Args:
        addresses: global IPv4 addresses with prefix, by interface, as pairs.
        dynamic: addresses that came from a DHCP lease.
        routes: IPv4 routes: destination (`default` or a network) and interface, as pairs.
        filters: of each firewall back end: its name, exit status, and lines that drop or reject.
        foreign: what of another Kubernetes or container runtime is there.
        flags: of a k3s unit that is not ours: its `ExecStart`, as words.
        inotify: `max_user_instances` of the kernel, 0 where it is not known.
        cgroup: 1 or 2, 0 where it is not known.
        overlay: whether the kernel knows overlayfs.
        version: release of the k3s that is installed, empty for none.
        controllers: control groups of version 2 that the kernel has; empty where they are not known.
        filesystem: kind of the filesystem for k3s's data, as stat(1) names it; empty where it is not known.
        used: how many percent of it are used.
    """

    addresses: tuple[tuple[str, str], ...] = ()
    dynamic: tuple[str, ...] = ()
    routes: tuple[tuple[str, str], ...] = ()
    filters: tuple[tuple[str, int, tuple[str, ...]], ...] = ()
    foreign: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    inotify: int = 0
    cgroup: int = 0
    overlay: bool = True
    version: str = field(default="", compare=False)
    controllers: tuple[str, ...] = ()
    filesystem: str = ""
    used: int = field(default=0, compare=False)

    def interface_of(self, address: str) -> str:
        """Return the interface that has an address, empty if none has."""
        pairs = ((name, held.partition("/")[0]) for name, held in self.addresses)
        return next((name for name, held in pairs if held == address), "")


_MACHINE = r"""if command -v ip >/dev/null 2>&1; then
  ip -o -4 addr show scope global 2>/dev/null | while read -r _ dev _ cidr rest; do
    case $dev in cni0|flannel*|kube-*|docker0|lxc*|veth*) ;; *) printf 'address|%s|%s\n' "$dev" "$cidr";; esac
    case $rest in *dynamic*) printf 'dynamic|%s\n' "${cidr%/*}";; esac
  done
  ip -4 route show 2>/dev/null | while read -r to rest; do
    dev=${rest##*dev }; dev=${dev%% *}
    case $dev in cni0|flannel*|kube-*|docker0|lxc*|veth*) ;; *) printf 'route|%s|%s\n' "$to" "$dev";; esac
  done
fi
for b in iptables-nft iptables-legacy; do
  if command -v "$b" >/dev/null 2>&1; then
    r=0; o=$("$b" -w 5 -t filter -S 2>&1) || r=$?
    printf 'filter|%s|%s\n' "$b" "$r"
    if [ "$r" = 0 ]; then
      printf '%s\n' "$o" | while read -r a c t; do
        case "$a $c $t" in
        '-P INPUT DROP'*|'-P FORWARD DROP'*|'-P INPUT REJECT'*) printf 'drop|%s|%s\n' "$b" "$a $c $t";;
        '-A INPUT '*-j' DROP'*|'-A INPUT '*-j' REJECT'*|'-A FORWARD '*-j' DROP'*|'-A FORWARD '*-j' REJECT'*)
          case "$t" in *KUBE*|*ctstate*INVALID*|*'-i lo'*|*'!'*) ;;
          *) printf 'drop|%s|%s\n' "$b" "$a $c $t";;
          esac;;
        esac
      done
    else printf 'drop|%s|%s\n' "$b" "$(printf %s "$o" | tr '\n|' '  ' | cut -c1-200)"
    fi
  fi
done
# Rules of nftables itself are not among those of iptables-nft, and both count.
if command -v nft >/dev/null 2>&1; then
  r=0; o=$(nft list chains 2>&1) || r=$?
  printf 'filter|nft|%s\n' "$r"
  if [ "$r" = 0 ]; then
    t=; c=
    printf '%s\n' "$o" | while read -r a b d e; do
      case $a in
      table) t="$b $d"; if [ "$t" = 'inet firewalld' ]; then echo 'drop|nft|table inet firewalld'; fi;;
      chain) c=$b;;
      type)
        case "$t|$b $d $e" in
        'ip filter|'*|'ip6 filter|'*) ;;
        *'|filter hook input '*'policy drop;'*|*'|filter hook forward '*'policy drop;'*)
          printf 'drop|nft|table %s chain %s policy drop\n' "$t" "$c";;
        esac;;
      esac
    done
  fi
fi
for p in /etc/kubernetes/kubelet.conf:kubeadm /etc/rancher/rke2:rke2 /var/snap/microk8s:microk8s \
  /var/lib/k0s:k0s /etc/systemd/system/kubelet.service:kubelet /lib/systemd/system/docker.service:docker; do
  if [ -e "${p%:*}" ]; then printf 'foreign|%s|%s\n' "${p##*:}" "${p%:*}"; fi
done
for u in k3s k3s-agent; do
  for f in /etc/systemd/system/$u.service /lib/systemd/system/$u.service; do
    if [ -r "$f" ]; then
      l=; IFS= read -r l <"$f" || :
      case $l in '# Written by provision;'*) ;; *)
        w=0
        while read -r a || [ -n "$a" ]; do
          case $a in ExecStart=*) w=1; a=${a#ExecStart=};; esac
          if [ "$w" = 1 ]; then
            printf 'flag|%s\n' "${a%\\}"
            case $a in *\\) ;; *) w=0;; esac
          fi
        done <"$f";;
      esac
      break
    fi
  done
done
# By cat: a number below /proc/sys can only be read at once, and dash reads byte by byte.
v=$(cat /proc/sys/fs/inotify/max_user_instances 2>/dev/null) || v=0
printf 'inotify|%s\n' "$v"
c=0; l=
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then c=2; l=$(cat /sys/fs/cgroup/cgroup.controllers) || l=
elif [ -d /sys/fs/cgroup/memory ]; then c=1; fi
printf 'cgroup|%s|%s\n' "$c" "$l"
d=/var/lib/rancher/k3s
while [ ! -e "$d/" ]; do d=${d%/*}; done
f=$(stat -f -c %T "$d/" 2>/dev/null) || f=
u=$(df -P "$d/" 2>/dev/null | sed -n '$s/.* \([0-9]*\)% .*/\1/p') || u=
printf 'data|%s|%s\n' "$f" "$u"
o=no; while read -r a b; do case "$a$b" in *overlay) o=yes;; esac; done </proc/filesystems
if [ "$o" = no ] && [ -e "/lib/modules/$(uname -r)/kernel/fs/overlayfs" ]; then o=yes; fi
printf 'overlay|%s\n' "$o"
if [ -x /usr/local/bin/k3s ]; then
  v=$(/usr/local/bin/k3s --version 2>/dev/null | sed -n 's/^k3s version \([^ ]*\).*/\1/p') || v=
  printf 'version|%s\n' "$v"
fi
echo 'done|'
"""


def _pairs(rows: Rows, tag: str) -> tuple[tuple[str, str], ...]:
    return tuple((row[0], row[1]) for row in rows.get(tag, ()))


def _read_machine(rows: Rows) -> MachineStatus:
    drops: dict[str, list[str]] = {}
    for row in rows.get("drop", ()):
        drops.setdefault(row[0], []).append(row[1])
    words = " ".join(row[0] for row in rows.get("flag", ())).replace("'", " ").replace('"', " ").split()
    inotify, (cgroup, controllers) = rows["inotify"][0][0], rows["cgroup"][0][:2]
    filesystem, used = rows["data"][0][:2]
    return MachineStatus(
        _pairs(rows, "address"),
        tuple(row[0] for row in rows.get("dynamic", ())),
        _pairs(rows, "route"),
        tuple((row[0], int(row[1]), tuple(drops.get(row[0], ()))) for row in rows.get("filter", ())),
        tuple(f"{row[0]} ({row[1]})" for row in rows.get("foreign", ())),
        tuple(words),
        int(inotify) if is_number(inotify) else 0,
        int(cgroup) if is_number(cgroup) else 0,
        rows["overlay"][0][0] == "yes",
        next((row[0] for row in rows.get("version", ())), ""),
        tuple(controllers.split()),
        filesystem,
        int(used) if is_number(used) else 0,
    )


MACHINE_KIND = HostFactKind(Machine, "what k3s needs", _MACHINE, _read_machine)

_KINDS: tuple[QueryKind, ...] = (
    JoinTokenKind(),
    ServiceLogKind(),
    MACHINE_KIND,
    NVIDIA_RUNTIME_KIND,
    EtcdSnapshotsKind(),
    SETTINGS_KIND,
    JoinNetworkKind(),
)
KINDS: Mapping[str, QueryKind] = {kind.query.kind: kind for kind in _KINDS}
"""How each kind of query is asked of a host and its answer read, by `Query.kind`."""

"""What fixes of k3s do on a host, as data: the shell is rendered from them, ModelHost interprets them."""

from __future__ import annotations

import json
from dataclasses import dataclass

from pydantic import SecretStr

from provision.hosts.operations.basic import quote
from provision.k3s import paths


@dataclass(frozen=True, slots=True)
class RotateToken:
    """Give the cluster another token, through the server on this host.

    It is what `k3s token rotate` asks of the server, without a token in the arguments of a process. The
    former token is kept: snapshots that were taken before can only be restored with it.

    Args:
        former: the present token.
        new: the new one.
    """

    former: SecretStr
    new: SecretStr

    def shell(self) -> str:
        """Return it as a POSIX fragment; printf is built in, so no process gets a token as an argument."""
        former, new = self.former.get_secret_value(), self.new.get_secret_value()
        login, data = (
            _curl_text(f"server:{former}"),
            _curl_text(json.dumps({"newToken": new}, separators=(",", ":"))),
        )
        return f"""command -v curl >/dev/null || {{ echo 'install curl: apt-get install curl' >&2; exit 1; }}
( umask 077; printf '%s %s\n' "$(date -u +%FT%TZ)" {quote(former)} >>{quote(paths.FORMER_TOKENS)} )
printf 'user = "%s"\ndata = "%s"\n' {quote(login)} {quote(data)} |
curl --silent --show-error --fail --output /dev/null --noproxy '*' --max-time 60 --config - --request PUT \
  --cacert {paths.DATA}/server/tls/server-ca.crt --header 'Content-Type: application/json' \
  https://127.0.0.1:6443/v1-k3s/token"""


@dataclass(frozen=True, slots=True)
class KeepFormerToken:
    """Note the token of the file before it is replaced: snapshots of its time can be restored only with it.

    Args:
        new: the token that comes; the same one in another form is not noted.
    """

    new: SecretStr

    def shell(self) -> str:
        """Return it as a POSIX fragment of builtins, so that no process gets a token as an argument."""
        new = quote(self.new.get_secret_value())
        return f"""if [ -r {paths.TOKEN} ]; then
  IFS= read -r t <{paths.TOKEN} || :
  case $t in K10*) t=${{t##*:}};; esac
  k=
  if [ -r {paths.FORMER_TOKENS} ]; then while read -r _ o; do k=$o; done <{paths.FORMER_TOKENS}; fi
  if [ -n "$t" ] && [ "$t" != {new} ] && [ "$t" != "$k" ]; then
    ( umask 077; printf '%s %s\n' "$(date -u +%FT%TZ)" "$t" >>{paths.FORMER_TOKENS} )
  fi
fi"""


def _curl_text(text: str) -> str:
    """Return a text as it stands between quotes in a configuration of curl(1)."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


END_PODS = (
    # Containers outlive the unit: KillMode=process.
    f"""for p in /proc/[0-9]*; do case $(readlink "$p/exe" 2>/dev/null || :) in
{paths.DATA}/data/*/bin/containerd-shim*) kill -9 "${{p#/proc/}}" 2>/dev/null || :;; esac; done""",
    """while read -r _ m _; do case $m in /run/k3s*|/var/lib/kubelet/*|/run/netns/cni-*)
umount -l "$m" 2>/dev/null || :;; esac; done </proc/mounts""",
    'for l in cni0 flannel.1 flannel-v6.1 kube-ipvs0; do ip link delete "$l" 2>/dev/null || :; done',
)
"""Fragments that end all pods of a node whose k3s does not run, as k3s's own `k3s-killall.sh` does."""


@dataclass(frozen=True, slots=True)
class LeaveCluster:
    """Stop k3s and remove what makes the machine a member, so that its next start joins as a new one.

    Programs, configuration, images, volumes (`storage`), manifests and snapshots of etcd stay. What goes is
    what k3s makes again when it joins: the node's password and certificates, cached addresses of servers, and
    on a server the datastore with its certificates and tokens (docs.k3s.io, Backup and Restore).

    Args:
        unit: the unit that stops.
    """

    unit: str

    def shell(self) -> str:
        """Return it as a POSIX fragment; the password goes last: while it is there, this is done again."""
        agent, server = f"{paths.DATA}/agent", f"{paths.DATA}/server"
        return "\n".join(
            [
                f"systemctl stop -- {self.unit}",
                *END_PODS,
                f"rm -f -- {agent}/*.crt {agent}/*.key {agent}/*.kubeconfig {agent}/etc/*load-balancer.json",
                f"rm -rf -- {server}/db/etcd {server}/db/etcd-tmp {server}/tls {server}/cred",
                f"rm -f -- {server}/db/state.db* {server}/token {server}/agent-token {server}/node-token",
                f"rm -f -- {paths.PASSWORD.path}",
            ]
        )


@dataclass(frozen=True, slots=True)
class RemoveK3s:
    """Stop k3s and remove all that it made, as its own `k3s-uninstall.sh` does.

    Args:
        unit: the unit that is removed.
    """

    unit: str

    def shell(self) -> str:
        """Return it as a POSIX fragment; each part may be gone already."""
        lines = [
            f"systemctl disable --now -- {self.unit} 2>/dev/null || :",
            *END_PODS,
            "rm -rf -- /etc/rancher /var/lib/rancher /run/k3s /run/flannel /var/lib/kubelet /var/lib/cni",
            f"rm -f -- {paths.BINARY} {paths.environment_file(self.unit)}",
            # The unit goes last: it is what a run that was killed finds again.
            f"rm -f -- {paths.unit_file(self.unit)}",
            "systemctl daemon-reload",
        ]
        return "\n".join(lines)

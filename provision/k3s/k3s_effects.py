"""What changes of k3s cost."""

from __future__ import annotations

from provision.contracts.effect import EffectClass
from provision.k3s import paths

SECONDS, MOST_SECONDS = 600, 7200
"""How long a start may take, and with many images."""
MIB_A_SECOND = 20
"""How fast containerd imports an image from a slow disk: k3s imports all archives before the kubelet starts
(docs.k3s.io, Import Images)."""


def start_seconds(mebibytes: int) -> int:
    """Return how long a start may take, with archives of images of that size."""
    return min(SECONDS + mebibytes // MIB_A_SECOND, MOST_SECONDS)


# The unit says `Type=notify` without a time limit of its own, so a `systemctl restart` that waits may never
# end: the job is queued, and the limit is ours.
_RESTART = f"""failed=0
mib=$(du -sm {paths.IMAGES} 2>/dev/null | cut -f1)
limit=$(({SECONDS} + ${{mib:-0}} / {MIB_A_SECOND}))
[ "$limit" -le {MOST_SECONDS} ] || limit={MOST_SECONDS}
for unit in k3s k3s-agent; do
  if systemctl --quiet is-enabled "$unit.service" 2>/dev/null; then
    was=$(systemctl show -p InvocationID --value "$unit.service")
    systemctl --no-block restart "$unit.service"
    n=0
    while :; do
      n=$((n + 1))
      if [ "$(systemctl show -p InvocationID --value "$unit.service")" != "$was" ] &&
        systemctl --quiet is-active "$unit.service"; then break; fi
      if [ "$n" -ge "$limit" ]; then
        echo "$unit did not come up within $((limit / 60)) minutes" >&2
        journalctl -q --no-pager -o cat -n 10 -u "$unit.service" >&2 2>/dev/null || :
        failed=1; break
      fi
      sleep 1
    done
  fi
done
[ "$failed" = 0 ]"""

RESTART_K3S = EffectClass(
    50,
    "restart-k3s",
    "k3s restarts on the node",
    script=_RESTART,
    timeout=2 * MOST_SECONDS + 100.0,
    done_by_boot=True,
)

REJOIN_K3S = EffectClass(
    70,
    "rejoin-k3s",
    "the node leaves the cluster and joins it again; a server loses its copy of the datastore",
)
"""A consent: what is done is a change of its own, and the restart that follows it is an effect."""

EFFECTS = (RESTART_K3S, REJOIN_K3S)

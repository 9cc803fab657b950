"""What changes of k3s cost."""

from __future__ import annotations

from provision.contracts.effect import EffectClass

# The unit says `Type=notify` without a time limit of its own, so a `systemctl restart` that waits may never
# end: the job is queued, and the limit is ours.
_RESTART = """failed=0
for unit in k3s k3s-agent; do
  if systemctl --quiet is-enabled "$unit.service" 2>/dev/null; then
    was=$(systemctl show -p InvocationID --value "$unit.service")
    systemctl --no-block restart "$unit.service"
    n=0
    while :; do
      n=$((n + 1))
      if [ "$(systemctl show -p InvocationID --value "$unit.service")" != "$was" ] &&
        systemctl --quiet is-active "$unit.service"; then break; fi
      if [ "$n" -ge 600 ]; then
        echo "$unit did not come up within 10 minutes" >&2
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
    timeout=1300.0,
    done_by_boot=True,
)

EFFECTS = (RESTART_K3S,)

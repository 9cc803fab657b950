"""Where a k3s on a host gets its settings from, besides our own file: names only, for values may be secrets.

Sources: docs.k3s.io (configuration): flags beat the environment, which beats the file that `-c`, `--config`
or K3S_CONFIG_FILE names and `FILE.d/*.yaml` after it; a later file replaces a key, unless it ends with `+`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from provision.hosts.resources.base import HEADER, HostFactKind, Rows
from provision.k3s import paths

OURS = HEADER.partition(";")[0]
"""How files of ours begin."""


@dataclass(frozen=True, slots=True)
class K3sSettings:
    """The places of k3s's settings on this host."""

    kind: ClassVar[str] = "k3s-settings"


@dataclass(frozen=True, slots=True)
class Place:
    """One place of settings.

    Args:
        file: its path.
        keys: names of settings, as k3s's configuration file has them; `+` at the end is kept.
        lasts: it still counts once the unit and `config.yaml` are ours.
    """

    file: str
    keys: tuple[str, ...]
    lasts: bool


@dataclass(frozen=True, slots=True)
class SettingPlaces:
    """All places but our own files."""

    places: tuple[Place, ...] = ()


_SCRIPT = f"""keys() {{
  l=; IFS= read -r l <"$1" || :
  case $l in '{OURS};'*) return 0;; esac
  # A mapping in braces is not taken apart: that it is there is enough to refuse.
  if sed '/^[[:space:]]*$/d;/^[[:space:]]*#/d;/^---/d' "$1" | head -n 1 | grep -q '^[[:space:]]*{{'; then
    printf 'key|%s|%s|{{...}}\\n' "$2" "$1"; fi
  sed -nE "s/^[\\"']?([A-Za-z][A-Za-z0-9_-]*\\+?)[\\"']?[[:space:]]*:.*/\\1/p" "$1" |
  while IFS= read -r k || [ -n "$k" ]; do printf 'key|%s|%s|%s\\n' "$2" "$1" "$k"; done
}}
drops() {{ for g in "$1".d/*.yaml "$1".d/*.yml; do if [ -f "$g" ]; then keys "$g" "$2"; fi; done; }}
variables() {{
  if [ -r "$1" ]; then
    sed -n 's/^[[:space:]]*\\(export[[:space:]]\\{{1,\\}}\\)\\{{0,1\\}}\\(K3S_[A-Z0-9_]*\\)=.*/\\2/p' "$1" |
    while IFS= read -r k || [ -n "$k" ]; do printf 'variable|%s|%s|%s\\n' "$2" "$1" "$k"; done
    f=$(sed -n "s/^[[:space:]]*K3S_CONFIG_FILE=[\\"']\\{{0,1\\}}\\([^\\"' ]*\\).*/\\1/p" "$1" | head -n 1)
    if [ -n "$f" ] && [ -r "$f" ]; then keys "$f" former; drops "$f" former; fi
  fi
}}
of_unit() {{
  sed -n 's/^Environment=//p' "$1" | grep -oE 'K3S_[A-Z0-9_]+=' |
  while IFS= read -r k; do printf 'variable|%s|%s|%s\\n' "$2" "$1" "${{k%=}}"; done
  f=$(sed -n "s/^Environment=.*K3S_CONFIG_FILE=\\([^\\"' ]*\\).*/\\1/p" "$1" | head -n 1)
  if [ -n "$f" ] && [ -r "$f" ]; then keys "$f" former; drops "$f" former; fi
  sed -n 's/^EnvironmentFile=-\\{{0,1\\}}//p' "$1" | while IFS= read -r e || [ -n "$e" ]; do
    case $e in /etc/default/*|*.service.env) ;; *) variables "$e" "$2";; esac
  done
}}
for u in k3s k3s-agent; do
  ours=no
  for f in /etc/systemd/system/$u.service /lib/systemd/system/$u.service; do
    if [ -r "$f" ]; then
      l=; IFS= read -r l <"$f" || :
      case $l in '{OURS};'*) ours=yes;; *)
        c=$(tr '\\n' ' ' <"$f" |
            sed -nE "s/.*[[:space:]'\\"](-c|--config)['\\"]?[= ]['\\"]?([^'\\" ]*).*/\\2/p")
        if [ -n "$c" ] && [ -r "$c" ]; then keys "$c" former; drops "$c" former; fi
        of_unit "$f" former;;
      esac
      break
    fi
  done
  variables /etc/default/$u lasts
  if [ "$ours" = no ]; then variables /etc/systemd/system/$u.service.env former; fi
  for g in /etc/systemd/system/$u.service.d/*.conf; do
    if [ -r "$g" ]; then
      of_unit "$g" lasts
      if grep -q '^ExecStart=.' "$g"; then printf 'variable|lasts|%s|ExecStart\\n' "$g"; fi
    fi
  done
done
if [ -r {paths.CONFIG} ]; then keys {paths.CONFIG} former; fi
for g in {paths.CONFIG}.d/*.yaml {paths.CONFIG}.d/*.yml; do
  case $g in {paths.REGISTRATION}) ;; *) if [ -f "$g" ]; then keys "$g" lasts; fi;; esac
done
echo 'done|'
"""

_VARIABLES = {
    "K3S_URL": "server",
    "K3S_CONFIG_FILE": "config",
    "K3S_KUBECONFIG_MODE": "write-kubeconfig-mode",
    "K3S_KUBECONFIG_OUTPUT": "write-kubeconfig",
    "K3S_KUBECONFIG_GROUP": "write-kubeconfig-group",
}
"""Variables that are not named like the key that they set."""


def key_of(variable: str) -> str:
    """Return the key of the configuration file that a variable of k3s sets."""
    if not variable.startswith("K3S_"):
        return variable
    plain = variable.removeprefix("K3S_").lower().replace("_", "-")
    return _VARIABLES.get(variable, plain)


def _read(rows: Rows) -> SettingPlaces:
    places: dict[tuple[str, bool], list[str]] = {}
    for tag in ("key", "variable"):
        for how, file, name in (row[:3] for row in rows.get(tag, ())):
            key = key_of(name) if tag == "variable" else name
            places.setdefault((file, how == "lasts"), []).append(key)
    return SettingPlaces(
        tuple(Place(file, tuple(dict.fromkeys(keys)), lasts) for (file, lasts), keys in places.items())
    )


SETTINGS_KIND = HostFactKind(K3sSettings, "where k3s's settings are", _SCRIPT, _read)

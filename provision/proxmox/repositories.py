"""Package repositories of a Proxmox VE host: the one that needs a subscription, or the one that needs none.

What counts is what apt itself would fetch (`apt-get update --print-uris`, which fetches and locks nothing),
in both formats of sources.list(5): a line each up to Proxmox VE 8, stanzas (deb822) since 9. A host without
a subscription gets 401 from enterprise.proxmox.com, and so `apt-get update` fails as a whole.
"""

from __future__ import annotations

from provision.hosts import names as host_names
from provision.hosts.resources.command import Command
from provision.inventory import Inventory
from provision.inventory.models.hypervisor import Hypervisor

FOLDER = "/etc/apt"
ENTERPRISE = "enterprise.proxmox.com"
OWN = "provision-pve"
"""Our file in sources.list.d, without its ending."""
_URIS = "t=$(apt-get update --print-uris) || exit 1"
_HAS = {
    "no_subscription": "case $t in */debian/pve/dists/*/pve-no-subscription/*) ;; *) exit 1;; esac",
    "enterprise": f"case $t in *//{ENTERPRISE}/debian/pve/*) ;; *) exit 1;; esac",
}
_LACKS = {
    "no_subscription": f"case $t in *//{ENTERPRISE}/*) exit 1;; esac",
    "enterprise": f"for f in {FOLDER}/sources.list.d/{OWN}.*; do"
    ' ! grep -sq no-subscription "$f" || exit 1; done',
}
_SOURCES = {
    "no_subscription": ("http://download.proxmox.com/debian/pve", "pve-no-subscription"),
    "enterprise": (f"https://{ENTERPRISE}/debian/pve", "pve-enterprise"),
}
_STANZAS = r"""for f in @/sources.list.d/*.sources; do
  grep -sq '^[^#]*enterprise\.proxmox\.com' "$f" || continue
  awk 'BEGIN { RS = ""; ORS = "\n\n" } { n = split($0, l, "\n"); s = ""; has = 0
    for (i = 1; i <= n; i++) {
      if (l[i] ~ /^[^#]*enterprise\.proxmox\.com/) has = 1
      if (tolower(l[i]) !~ /^enabled[ \t]*:/) s = s l[i] "\n"
    }
    if (has) $0 = s "Enabled: WHETHER" } { print }' "$f" >"$f.new"
  cat "$f.new" >"$f"; rm "$f.new"
done"""
_LINES = r"""for f in @/sources.list @/sources.list.d/*.list; do
  if grep -sqE 'PATTERN' "$f"; then
    sed -i -E 'EDIT' "$f"
  fi
done"""
_OFF = _LINES.replace("PATTERN", r"^[^#]*enterprise\.proxmox\.com").replace(
    "EDIT", r"/^[^#]*enterprise\.proxmox\.com/s/^/# /"
)
_ON = _LINES.replace("PATTERN", r"^#.*enterprise\.proxmox\.com/debian/pve").replace(
    "EDIT", r"/enterprise\.proxmox\.com\/debian\/pve/s/^[# ]+//"
)
_ADD = """(
HAS ) || {
  . @RELEASE
  if [ -e /usr/share/keyrings/proxmox-archive-keyring.gpg ]; then
    printf '%s\\n' 'Types: deb' 'URIs: URI' "Suites: $VERSION_CODENAME" 'Components: COMPONENT' \\
      'Signed-By: /usr/share/keyrings/proxmox-archive-keyring.gpg' >@/sources.list.d/OWN.sources
  else
    echo "deb URI $VERSION_CODENAME COMPONENT" >@/sources.list.d/OWN.list
  fi
}"""


def guard(choice: str) -> str:
    """Return the read-only shell text that succeeds when apt reads the wanted repository alone."""
    return "; ".join((_URIS, _LACKS[choice], _HAS[choice]))


def script(choice: str) -> str:
    """Return the shell text that brings this about."""
    uri, component = _SOURCES[choice]
    add = _ADD.replace("'URIs: URI'", f"'URIs: {uri}'").replace("deb URI", f"deb {uri}")
    add = add.replace("Components: COMPONENT", f"Components: {component}")
    add = add.replace("CODENAME COMPONENT", f"CODENAME {component}").replace(
        "HAS", f"{_URIS}; {_HAS[choice]}"
    )
    if choice == "enterprise":
        lines = f"rm -f @/sources.list.d/{OWN}.list @/sources.list.d/{OWN}.sources\n{_ON}"
        stanzas = _STANZAS.replace("WHETHER", "yes")
    else:
        lines, stanzas = _OFF, _STANZAS.replace("WHETHER", "no")
    text = f"set -eu\n{lines}\n{stanzas}\n{add}"
    return text.replace("@RELEASE", "/etc/os-release").replace("OWN", OWN).replace("@", FOLDER) + "\n"


def repositories(inventory: Inventory, host: Hypervisor) -> tuple[Command, ...]:
    """Return the repositories of a host as declared; none if they are unmanaged."""
    if host.repositories == "unmanaged":
        return ()
    source = inventory.source(("hypervisors", host.name, "repositories"))
    system, choice = host_names.ssh(host.name), host.repositories
    name = f"repositories {choice}"
    return (Command(system, name, script(choice), unless=guard(choice), source=source),)

"""The systemd unit, its environment and the configuration files of k3s, as text.

The unit is our own and not that of k3s's installer: what is compared is exactly what is written, the memory
lock limit of pods is part of it, and nodes need neither the installer nor the internet. Its settings are
those of the installer's unit (install.sh, `create_systemd_service_file`), with LimitMEMLOCK added: RDMA pods
need it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from provision.hosts.resources.base import HEADER
from provision.inventory import Inventory
from provision.k3s import paths

CONTAINERD = "CONTAINERD_"


def unit_text(unit: str) -> str:
    """Return the unit of a server or an agent."""
    command = "server" if unit == paths.SERVER else "agent"
    return f"""{HEADER}[Unit]
Description=Lightweight Kubernetes ({command})
Documentation=https://k3s.io
Wants=network-online.target
After=network-online.target

[Service]
Type=notify
EnvironmentFile=-/etc/default/%N
EnvironmentFile=-{paths.environment_file(unit)}
KillMode=process
Delegate=yes
LimitNOFILE=1048576
LimitNPROC=infinity
LimitCORE=infinity
LimitMEMLOCK=infinity
TasksMax=infinity
TimeoutStartSec=0
Restart=always
RestartSec=5s
ExecStartPre=-/sbin/modprobe br_netfilter
ExecStartPre=-/sbin/modprobe overlay
ExecStart={paths.BINARY} {command}

[Install]
WantedBy=multi-user.target
"""


def environment_text(inventory: Inventory) -> str:
    """Return the environment of k3s and of its containerd: the proxy and its exceptions."""
    if inventory.proxy.url is None:
        return HEADER
    exceptions = ",".join(inventory.no_proxy)
    values = {"HTTP_PROXY": inventory.proxy.url, "HTTPS_PROXY": inventory.proxy.url, "NO_PROXY": exceptions}
    lines = [f'{prefix}{name}="{value}"' for prefix in ("", CONTAINERD) for name, value in values.items()]
    return HEADER + "".join(f"{line}\n" for line in lines)


def yaml_text(values: Mapping[str, Any]) -> str:
    """Return a mapping as a file of k3s."""
    import yaml  # noqa: PLC0415 - slow to import

    # Strings of an inventory remember where they were written, and YAML's safe writer refuses subclasses.
    plain = json.loads(json.dumps(values))
    return HEADER + str(yaml.safe_dump(plain, sort_keys=False, default_flow_style=False, width=1000))

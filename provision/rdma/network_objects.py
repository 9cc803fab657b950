"""What the Network Operator is told: values of its chart, its policy, pools and networks.

All of it is a pure function of the inventory and of the names of interfaces. Some fields hold JSON inside a
string; their content is typed here, so that no text is put together by hand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any

from provision.gpu.operator_values import owns_nfd
from provision.inventory import Inventory
from provision.inventory.models.cluster import IpPool, Operator, Rdma, RdmaNetwork
from provision.inventory.models.node import Node
from provision.k3s import cni_folders
from provision.kube.kinds import KubeKind
from provision.kube.names import is_member
from provision.kube.resources.node import parse_taint
from provision.kube.values import laid_over

POLICY = KubeKind("mellanox.com/v1alpha1", "NicClusterPolicy", "nicclusterpolicies", namespaced=False)
POLICY_NAME = "nic-cluster-policy"
MACVLAN = KubeKind("mellanox.com/v1alpha1", "MacvlanNetwork", "macvlannetworks", namespaced=False)
POOL = KubeKind("nv-ipam.nvidia.com/v1alpha1", "IPPool", "ippools")
ATTACHMENT = KubeKind("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", "network-attachment-definitions")
PREFIX = "rdma"
"""Resources are called `rdma/NAME`."""
VENDOR = "15b3"
"""PCI vendor of the NICs that the operator serves."""
NIC_LABEL = f"feature.node.kubernetes.io/pci-{VENDOR}.present"
IMAGES = "nvcr.io/nvidia/mellanox"
_PLUGIN, _IPAM, _MULTUS = "k8s-rdma-shared-dev-plugin", "nvidia-k8s-ipam", "multus-cni"


@dataclass(frozen=True, slots=True)
class SharedResource:
    """A resource of the shared device plugin.

    Args:
        name: `ib` of `rdma/ib`.
        pods: how many pods on a node share it.
        interfaces: network interfaces of the port, as the nodes call them.
    """

    name: str
    pods: int
    interfaces: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return it as the plugin reads it."""
        # By vendor alone, pods would get the device files of every NIC.
        selectors = {"vendors": [VENDOR], "ifNames": list(self.interfaces)}
        return {
            "resourcePrefix": PREFIX,
            "resourceName": self.name,
            "rdmaHcaMax": self.pods,
            "selectors": selectors,
        }


@dataclass(frozen=True, slots=True)
class Ipam:
    """Where a network's addresses come from."""

    pool: str

    def as_json(self) -> dict[str, Any]:
        """Return it as Multus hands it to the plugin."""
        return {"type": "nv-ipam", "poolName": self.pool}


def json_text(content: Mapping[str, Any]) -> str:
    """Return content as canonical JSON text: equal content is an equal string."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


# ---------------------------------------------------------------- what is declared


def operator_of(inventory: Inventory) -> Operator | None:
    """Return the operator as declared."""
    return inventory.rdma.operator if inventory.rdma is not None else None


def rail_nodes(inventory: Inventory, rail: str) -> tuple[Node, ...]:
    """Return the nodes of the cluster that have a rail."""
    return tuple(
        node
        for node in inventory.nodes.values()
        if node.manage and rail in node.rails and is_member(inventory, node)
    )


def used_rails(rdma: Rdma) -> tuple[str, ...]:
    """Return the rails of resources and networks."""
    rails = {resource.rail for resource in rdma.resources.values()}
    return tuple(sorted(rails | {network.rail for network in rdma.networks.values()}))


def pool_name(network: str) -> str:
    """Return how the pool of a network is called."""
    return f"{network}-pool"


def network_names(name: str, network: RdmaNetwork) -> tuple[tuple[str, str], ...]:
    """Return name and namespace of each MacvlanNetwork: one object serves one namespace."""
    return tuple(
        (name if index == 0 else f"{name}-{namespace}", namespace)
        for index, namespace in enumerate(network.namespaces)
    )


def namespaces_of(rdma: Rdma) -> tuple[str, ...]:
    """Return the namespaces whose pods get networks."""
    return tuple(dict.fromkeys(one for network in rdma.networks.values() for one in network.namespaces))


def tolerations(inventory: Inventory) -> list[dict[str, str]]:
    """Return what pods must tolerate to run on the nodes with rails."""
    rows: list[dict[str, str]] = []
    for node in inventory.nodes.values():
        if not node.rails:
            continue
        for taint in map(parse_taint, node.taints):
            row = {"key": taint.key, "operator": "Exists", "effect": taint.effect}
            if row not in rows:
                rows.append(row)
    return rows


# ---------------------------------------------------------------- what is made of it


def brings_nfd(inventory: Inventory) -> bool:
    """Whether this chart brings Node Feature Discovery: a cluster has one, that of the GPU Operator first."""
    operator = operator_of(inventory)
    if operator is not None and operator.nfd is not None:
        return operator.nfd
    has_other = inventory.gpu is not None and inventory.gpu.operator is not None
    return not (has_other and owns_nfd(inventory))


def chart_values(inventory: Inventory) -> Mapping[str, Any]:
    """Return the values of the chart."""
    operator = operator_of(inventory)
    values: dict[str, Any] = {
        "nfd": {"enabled": brings_nfd(inventory), "deployNodeFeatureRules": True},
        "sriovNetworkOperator": {"enabled": False},
        "maintenanceOperator": {"enabled": False},
        "operator": {
            "cniBinDirectory": cni_folders.PROGRAMS,
            "cniNetworkDirectory": cni_folders.CONFIGURATION,
            "admissionController": {"enabled": False},
        },
    }
    if brings_nfd(inventory):
        # The chart's own list leaves out network controllers, and its worker what taints keep away.
        classes = {"deviceClassWhitelist": ["02", "0300", "0302"], "deviceLabelFields": ["vendor"]}
        worker: dict[str, Any] = {"config": {"sources": {"pci": classes}}}
        rows = tolerations(inventory)
        if rows:
            plane = "node-role.kubernetes.io/control-plane"
            own = [
                {"key": plane, "operator": "Exists", "effect": "NoSchedule"},
                {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
            ]
            worker["tolerations"] = [*own, *(row for row in rows if row not in own)]
        values["node-feature-discovery"] = {"worker": worker}
    return laid_over(values, operator.values if operator is not None else {})


def policy(inventory: Inventory, resources: Sequence[SharedResource]) -> dict[str, Any]:
    """Return the policy's fields.

    The NIC's driver is the host's (`ofedDriver` is left out), and so are CNI plugins: k3s has links in its
    folder that lead nowhere inside a container, over which the installer of `cniPlugins` stumbles.
    """
    rdma, operator = inventory.rdma, operator_of(inventory)
    if rdma is None or operator is None:
        return {}
    version = image_version(operator)
    spec: dict[str, Any] = {}
    if resources:
        config = json_text({"configList": [one.as_json() for one in resources]})
        spec["rdmaSharedDevicePlugin"] = {**_image(_PLUGIN, version), "config": config}
    if rdma.networks:
        spec["nvIpam"] = {**_image(_IPAM, version), "enableWebhook": False}
        spec["secondaryNetwork"] = {"multus": _image(_MULTUS, version)}
    rows = tolerations(inventory)
    if rows:
        spec["tolerations"] = rows
    return {"spec": spec}


def chart_version(operator: Operator) -> str:
    """Return the chart's version: it has no `v`, its images have one."""
    return operator.version.removeprefix("v")


def image_version(operator: Operator) -> str:
    """Return the tag that all images of a release share."""
    return f"network-operator-v{chart_version(operator)}"


def _image(name: str, version: str) -> dict[str, Any]:
    return {"image": name, "repository": IMAGES, "version": version}


def pool(declared: IpPool) -> dict[str, Any]:
    """Return a pool's fields: only nodes with a NIC take a block of it."""
    term = {"matchExpressions": [{"key": NIC_LABEL, "operator": "In", "values": ["true"]}]}
    spec: dict[str, Any] = {
        "subnet": str(IPv4Network(declared.subnet)),
        "perNodeBlockSize": declared.block,
        "nodeSelector": {"nodeSelectorTerms": [term]},
    }
    if declared.gateway is not None:
        spec["gateway"] = declared.gateway
    if declared.exclude:
        spec["exclusions"] = [_span(text) for text in declared.exclude]
    return {"spec": spec}


def _span(text: str) -> dict[str, str]:
    first, _, last = (part.strip() for part in text.partition("-"))
    return {"startIP": first, "endIP": last or first}


def macvlan(network: RdmaNetwork, namespace: str, master: str, pool_of: str) -> dict[str, Any]:
    """Return a network's fields; without an MTU of its own, pods have the interface's."""
    spec: dict[str, Any] = {
        "networkNamespace": namespace,
        "master": master,
        "mode": "bridge",
        "ipam": json_text(Ipam(pool_of).as_json()),
    }
    if network.mtu is not None:
        spec["mtu"] = network.mtu
    return {"spec": spec}

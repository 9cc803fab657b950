"""The cluster: k3s, storage, GPUs, RDMA, sharing, Dynamo, and what verification expects."""

from typing import Annotated, Literal

from pydantic import Field

from provision.inventory.models.base import Model, SecretRef
from provision.inventory.models.node import Driver, GpuCards
from provision.inventory.scalars import (
    Address,
    Check,
    Count,
    DataRate,
    Flag,
    Label,
    LocalPath,
    Mebibytes,
    Network4,
    Seconds,
    Share,
    Text,
    Values,
    Whole,
    pattern,
    whole,
)

K3sVersion = Annotated[
    str,
    Check(
        pattern(r"v[0-9]+\.[0-9]+\.[0-9]+(?:-[a-z0-9.]+)?\+k3s[0-9]+", "k3s release like v1.35.7+k3s1"),
        {"type": "string"},
    ),
]


class K3s(Model):
    """The Kubernetes distribution."""

    version: K3sVersion
    """Release."""
    pod_cidr: Network4 = "10.42.0.0/16"
    """Addresses of pods."""
    service_cidr: Network4 = "10.43.0.0/16"
    """Addresses of services."""
    disable: tuple[Text, ...] = ()
    """Packaged components that are left out."""
    datastore: Literal["sqlite", "etcd"] | None = None
    """Datastore; unset, sqlite with one server and etcd with more."""
    token: SecretRef | None = None
    """Join token, by reference; unset, the server makes one."""
    tls_san: tuple[Text, ...] = ()
    """Further names and addresses in the server's certificate."""
    binary: LocalPath | None = None
    """k3s binary on the controller, instead of the release."""
    config: Values = Field(default_factory=dict)
    """Further keys of k3s's own configuration file."""


class SharedStorage(Model):
    """A path that nodes share."""

    path: Text
    """Mount point."""
    manage: Flag = False
    """Whether it is mounted by us."""
    server: Text | None = None
    """NFS server (`host:/export`), where it is managed."""
    options: Text | None = None
    """Mount options."""
    same_on_all: Flag | None = None
    """All nodes see the same files."""
    free: Mebibytes | None = None
    """Least free space."""


class Operator(Model):
    """An operator installed from its chart."""

    version: Text
    """Chart version."""
    nfd: Flag | None = None
    """Let it bring Node Feature Discovery."""
    namespace: Label | None = None
    """Namespace, where it is not the usual one."""
    values: Values = Field(default_factory=dict)
    """Further chart values, checked against the chart's own."""


class Gpu(Model):
    """GPU software of all GPU nodes."""

    driver: Driver | None = None
    """Driver settings that profiles and nodes may change key by key."""
    toolkit: Literal["host", "operator"] | None = None
    """Who brings the container toolkit."""
    operator: Operator | None = None
    """GPU Operator."""


class Assume(Model):
    """What the user asserts and nobody can check; printed as *assumed*."""

    several_macs_per_port: Flag | None = None
    """The switch lets several MACs through on one port."""
    lossless: Literal["true", "false", "unknown"] | None = None
    """The network is configured lossless."""


class RdmaResource(Model):
    """A Kubernetes resource of an RDMA port."""

    rail: Label
    """Rail."""
    pods_per_node: Count
    """How many pods of a node share it."""


class IpPool(Model):
    """Addresses for pods on a rail."""

    subnet: Network4
    """Network, inside the parent interface's."""
    block: Count
    """Addresses a node."""
    exclude: tuple[Text, ...] = ()
    """Addresses or ranges (`first-last`) that are not given out."""
    gateway: Address | None = None
    """Gateway, where there is one."""
    delegated: Flag = False
    """Your word that the network lets these addresses through."""


class RdmaNetwork(Model):
    """A secondary network of pods."""

    rail: Label
    """Rail."""
    resource: Label | None = None
    """Resource that its pods ask for."""
    namespaces: tuple[Label, ...] = ()
    """Namespaces that get the network."""
    mtu: Count | None = None
    """MTU inside pods; unset, the rail's."""
    pool: IpPool | None = None
    """Its addresses."""


class Rdma(Model):
    """RDMA for pods."""

    operator: Operator | None = None
    """Network Operator."""
    method: Literal["macvlan", "host_device", "sriov"] = "macvlan"
    """How pods get a port."""
    netns: Literal["shared", "exclusive"] | None = None
    """RDMA namespace mode: a kernel module option, one reboot."""
    assume: Assume = Field(default_factory=Assume.model_construct)
    """What is asserted and cannot be checked."""
    resources: dict[Label, RdmaResource] = Field(default_factory=dict)
    """Kubernetes resources by name."""
    networks: dict[Label, RdmaNetwork] = Field(default_factory=dict)
    """Secondary networks by name."""


class QueueGpu(Model):
    """GPU share of a queue."""

    quota: Whole | None = None
    """Guaranteed cards; -1 is unlimited."""
    limit: Whole | None = None
    """Most cards; -1 is unlimited."""
    weight: Whole | None = None
    """Weight over quota."""


class Queue(Model):
    """A queue of KAI Scheduler."""

    parent: Label | None = None
    """Parent queue."""
    gpu: QueueGpu | None = None
    """GPU share."""
    priority: Whole | None = None
    """Priority among siblings."""


class LocalChart(Model):
    """A chart on the controller, with its images."""

    chart: LocalPath
    """Chart archive."""
    registry: Text | None = None
    """Registry of its images."""
    tag: Text | None = None
    """Tag of its images."""


class Sharing(Model):
    """How workloads share cards: exactly one mode; an overlay that changes the mode replaces the section."""

    mode: Literal["none", "time_slicing", "mps", "hami", "kai", "kai_fractions"] = "none"
    """Sharing mode."""
    version: Text | None = None
    """Version of the mode's chart (hami, kai)."""
    slots_per_card: Count | None = None
    """How many shares a card shows (time_slicing, mps, hami)."""
    cards: dict[Label, tuple[Text, ...]] = Field(default_factory=dict)
    """Alias to slots (`node/0`), by PCI order (hami)."""
    fractions: Flag | None = None
    """Cooperative GPU fractions (kai); no memory limit is enforced."""
    queues: dict[Label, Queue] = Field(default_factory=dict)
    """Queues by name (kai, kai_fractions)."""
    default_queues: Literal["leave", "unlimited"] | None = None
    """What becomes of KAI's default queues (kai, kai_fractions)."""
    experimental: Flag = False
    """Your word that you know it is (kai_fractions)."""
    kai: LocalChart | None = None
    """KAI Scheduler's chart (kai_fractions)."""
    fractioning: LocalChart | None = None
    """GPU fractioning's chart (kai_fractions)."""
    images: Literal["registry", "import"] | None = None
    """From the registry, or pushed to the nodes (kai_fractions)."""
    values: Values = Field(default_factory=dict)
    """Further chart values."""


class DynamoDeployment(Model):
    """One graph deployment."""

    file: LocalPath
    """Manifest on the controller."""
    namespace: Label | None = None
    """Namespace, where it is not Dynamo's."""
    deadline: Seconds | None = None
    """Seconds until it must be ready."""


class Dynamo(Model):
    """NVIDIA Dynamo."""

    version: Text
    """Chart version."""
    namespace: Label = "dynamo"
    """Namespace of the platform."""
    values: Values = Field(default_factory=dict)
    """Further chart values."""
    deployments: dict[Label, DynamoDeployment] = Field(default_factory=dict)
    """Graph deployments by name."""


class ExpectRdma(Model):
    """Least RDMA figures, as a share of the port's rate."""

    write: Share | None = None
    """Host memory."""
    write_gpu: Share | None = None
    """GPU memory."""
    other_nic_share: Share | None = None
    """Most traffic that other ports may see meanwhile."""


class ExpectNccl(Model):
    """Least NCCL figures."""

    busbw: DataRate | None = None
    """Bus bandwidth (`280GBps`)."""
    nvls: Literal["required", "optional", "absent"] | None = None
    """Whether NVLink SHARP must be used."""


class Expect(Model):
    """What verification expects beyond what is declared elsewhere."""

    gpu_cards: dict[Label, GpuCards] = Field(default_factory=dict)
    """What a card shows in its guest, by alias."""
    rdma: ExpectRdma | None = None
    """RDMA figures."""
    nccl: ExpectNccl | None = None
    """NCCL figures."""


class VerifyOptions(Model):
    """How verification runs."""

    strict: Flag = False
    """An *unknown* check counts (exit 7) in `verify` and at the end of `apply`, as with `verify --strict`."""
    skip: tuple[Text, ...] = ()
    """Checks that are left out, by name (the tables of docs/verify.md)."""
    timeout: Annotated[int, Check(whole(1, 86400), {"type": "integer"})] | None = None
    """Seconds that one command of a check may take; what takes longer is *unknown*."""

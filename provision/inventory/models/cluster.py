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
    HostName,
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

ImageDigest = Annotated[
    str,
    Check(
        pattern(
            r"[a-z0-9][a-z0-9._:/-]*(?::[A-Za-z0-9._-]+)?@sha256:(?:[0-9a-f]{64}|<[^<>]+>)",
            "image with its digest like registry.example/cuda-sample:vectoradd@sha256:...",
        ),
        {"type": "string"},
    ),
]


HelmVersion = Annotated[
    str,
    Check(pattern(r"v[34]\.[0-9]+\.[0-9]+(?:-[a-z0-9.]+)?", "Helm release like v4.2.3"), {"type": "string"}),
]


class Helm(Model):
    """How charts are installed."""

    backend: Literal["controller", "cli"] = "controller"
    """The Helm controller that is a part of k3s, or the program `helm` on the machine of provision."""
    version: HelmVersion | None = None
    """Release of the program, of Helm 3 or 4: `provision pin` pins it."""
    binary: LocalPath | None = None
    """The program on this machine, instead of a release."""


class Cluster(Model):
    """How the cluster is changed while it works."""

    kubeconfig: LocalPath | None = None
    """Kubeconfig of an existing cluster: its nodes are not installed, and everything above them is."""
    context: Text | None = None
    """Context in the kubeconfig, if not the current one."""
    helm: Helm = Field(default_factory=Helm.model_construct)
    """How charts are installed."""
    max_unavailable: Count = 1
    """How many nodes may be unavailable at once; those that are not ready anyway count, too."""


class Snapshots(Model):
    """Snapshots of the etcd datastore, which each server keeps on its own disk."""

    schedule: Text = "0 */12 * * *"
    """When they are taken, as in crontab(5)."""
    keep: Count = 5
    """How many of them each server keeps."""


class K3s(Model):
    """The Kubernetes distribution."""

    version: K3sVersion
    """Release, as `v1.35.7+k3s1`."""
    pod_cidr: Network4 = "10.42.0.0/16"
    """Addresses of pods: IPv4 (IPv6 is unsupported), and the same ones for the life of the cluster."""
    service_cidr: Network4 = "10.43.0.0/16"
    """Addresses of services."""
    disable: tuple[Text, ...] = ()
    """Packaged components that are not installed."""
    datastore: Literal["sqlite", "etcd"] | None = None
    """Datastore; if unset, sqlite with one server and etcd with more."""
    token: SecretRef | None = None
    """Join token, by reference; if unset, the server creates one."""
    agent_token: SecretRef | None = None
    """Another token for agents, by reference; if unset, agents join with the join token."""
    endpoint: HostName | None = None
    """Stable name or address of all servers together: a virtual address, a load balancer or a DNS name."""
    tls_san: tuple[Text, ...] = ()
    """Further names and addresses in the server's certificate."""
    binary: LocalPath | None = None
    """k3s binary on the controller, instead of the release."""
    images: LocalPath | None = None
    """Archive of k3s's container images on the controller, for nodes that cannot pull them."""
    registries: Values = Field(default_factory=dict)
    """Content of k3s's registries.yaml: `mirrors`, `configs`."""
    snapshots: Snapshots | None = None
    """Snapshots of the etcd datastore; if unset, k3s's own schedule."""
    config: Values = Field(default_factory=dict)
    """More keys for k3s's own configuration file."""


class SharedStorage(Model):
    """A path that nodes share."""

    path: Text
    """Mount point."""
    manage: Flag = False
    """Whether provision mounts it."""
    server: Text | None = None
    """NFS server (`host:/export`), if it is managed."""
    options: Text | None = None
    """Mount options."""
    same_on_all: Flag | None = None
    """Whether all nodes see the same files."""
    free: Mebibytes | None = None
    """Free space that it must have."""


class Operator(Model):
    """An operator installed from its chart."""

    version: Text
    """Chart version."""
    nfd: Flag | None = None
    """Whether it installs Node Feature Discovery."""
    namespace: Label | None = None
    """Namespace; the own one of the operator by default."""
    repository: Text | None = None
    """Chart repository, or `oci://` address of the chart; the vendor's by default."""
    chart: LocalPath | None = None
    """Chart archive on the controller, instead of a repository."""
    values: Values = Field(default_factory=dict)
    """More chart values, checked against the chart's own."""


MigProfile = Annotated[
    str,
    Check(
        pattern(
            r"all-(?:disabled|enabled|balanced|[1-7]g\.[0-9]{1,3}gb(?:\.me|\+me)?)|custom-[a-z0-9.-]+",
            "configuration of the MIG manager like all-1g.10gb",
        ),
        {"type": "string"},
    ),
]


class Mig(Model):
    """MIG: cards that are divided by hardware."""

    strategy: Literal["none", "single", "mixed"] = "single"
    """Whether parts are offered as `nvidia.com/gpu` (single) or by their size (mixed)."""
    profiles: dict[Label, MigProfile] = Field(default_factory=dict)
    """Configuration of the MIG manager (`all-1g.10gb`, `all-disabled`) by node."""


class GpuOperator(Operator):
    """The GPU Operator."""

    allocation: Literal["device_plugin", "dra"] = "device_plugin"
    """How pods get cards: by the device plugin, or by DRA (`GPUCluster`), which is not supported yet."""
    mig: Mig | None = None
    """MIG; if unset, cards stay as they are."""


class Gpu(Model):
    """GPU software of all GPU nodes."""

    driver: Driver | None = None
    """Driver settings; profiles and nodes can override each key."""
    toolkit: Literal["host", "operator"] | None = None
    """Who installs the container toolkit."""
    operator: GpuOperator | None = None
    """GPU Operator."""


class Assume(Model):
    """What you assert and provision cannot check; shown as *assumed*."""

    several_macs_per_port: Flag | None = None
    """Whether the switch accepts several MAC addresses on one port."""
    lossless: Literal["true", "false", "unknown"] | None = None
    """Whether the network is configured to be lossless."""


class RdmaResource(Model):
    """A Kubernetes resource of an RDMA port."""

    rail: Label
    """Rail."""
    pods_per_node: Count
    """How many pods on a node can share it."""


class IpPool(Model):
    """Addresses for pods on a rail."""

    subnet: Network4
    """Network; part of the parent interface's network."""
    block: Count
    """Addresses per node."""
    exclude: tuple[Text, ...] = ()
    """Addresses or ranges (`first-last`) that pods do not get."""
    gateway: Address | None = None
    """Gateway, if there is one."""
    delegated: Flag = False
    """You confirm that the network routes these addresses."""


class RdmaNetwork(Model):
    """A secondary network of pods."""

    rail: Label
    """Rail."""
    resource: Label | None = None
    """Resource that its pods request."""
    namespaces: tuple[Label, ...] = ()
    """Namespaces that get the network."""
    mtu: Count | None = None
    """MTU inside pods; if unset, the rail's."""
    pool: IpPool | None = None
    """Its addresses."""


class Rdma(Model):
    """RDMA for pods."""

    operator: Operator | None = None
    """Network Operator."""
    method: Literal["macvlan", "host_device", "sriov"] = "macvlan"
    """How pods get a port."""
    netns: Literal["shared", "exclusive"] | None = None
    """RDMA namespace mode: an option of a kernel module; changing it needs a reboot."""
    assume: Assume = Field(default_factory=Assume.model_construct)
    """What you assert and provision cannot check."""
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


class QueueCpu(Model):
    """CPU share of a queue."""

    quota: Whole | None = None
    """Guaranteed cores; -1 is unlimited."""
    limit: Whole | None = None
    """Most cores; -1 is unlimited."""
    weight: Whole | None = None
    """Weight over quota."""


class QueueMemory(Model):
    """Memory share of a queue."""

    quota: Mebibytes | None = None
    """Guaranteed memory; if unset, unlimited."""
    limit: Mebibytes | None = None
    """Most memory; if unset, unlimited."""
    weight: Whole | None = None
    """Weight over quota."""


class Queue(Model):
    """A queue of KAI Scheduler."""

    parent: Label | None = None
    """Parent queue."""
    gpu: QueueGpu | None = None
    """GPU share."""
    cpu: QueueCpu | None = None
    """CPU share."""
    memory: QueueMemory | None = None
    """Memory share."""
    priority: Whole | None = None
    """Priority among siblings."""
    preempt_min_runtime: Seconds | None = None
    """Seconds that its pods run before pods of the same queue can preempt them."""
    reclaim_min_runtime: Seconds | None = None
    """Seconds that its pods run before other queues can reclaim their cards."""


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
    """Names for cards (`node/0` is the first by PCI order) (hami)."""
    fractions: Flag | None = None
    """Cooperative GPU fractions (kai); no memory limit is enforced."""
    queues: dict[Label, Queue] = Field(default_factory=dict)
    """Queues by name (kai, kai_fractions)."""
    default_queues: Literal["leave", "unlimited"] | None = None
    """Whether KAI's default queues stay as they are or become unlimited (kai, kai_fractions)."""
    experimental: Flag = False
    """You confirm that the mode is experimental (kai_fractions)."""
    kai: LocalChart | None = None
    """KAI Scheduler's chart (kai_fractions)."""
    fractioning: LocalChart | None = None
    """GPU fractioning's chart (kai_fractions)."""
    images: Literal["registry", "import"] | None = None
    """Where nodes get images: from the registry, or pushed to them (kai_fractions)."""
    values: Values = Field(default_factory=dict)
    """More chart values."""


class DynamoDeployment(Model):
    """One graph deployment."""

    file: LocalPath
    """Manifest on the controller."""
    namespace: Label | None = None
    """Namespace, if it is not Dynamo's."""
    deadline: Seconds | None = None
    """Seconds until it must be ready."""


class Dynamo(Model):
    """NVIDIA Dynamo."""

    version: Text
    """Chart version."""
    namespace: Label = "dynamo"
    """Namespace of the platform."""
    values: Values = Field(default_factory=dict)
    """More chart values."""
    deployments: dict[Label, DynamoDeployment] = Field(default_factory=dict)
    """Graph deployments by name."""


class ExpectRdma(Model):
    """RDMA figures that must be reached, as a share of the port's rate."""

    write: Share | None = None
    """From host memory."""
    write_gpu: Share | None = None
    """From GPU memory."""
    other_nic_share: Share | None = None
    """Traffic that other ports may have at the same time, at most; 5 % if unset."""


class ExpectNccl(Model):
    """NCCL figures that must be reached."""

    busbw: DataRate | None = None
    """Bus bandwidth of the cards of a node (`280GBps`)."""
    between_nodes: Share | None = None
    """Bus bandwidth of one card on each of two nodes, as a share of the rate of the port between them."""
    nvls: Literal["required", "optional", "absent"] | None = None
    """Whether NVLink SHARP must be used."""


class Expect(Model):
    """What verification expects besides what is declared elsewhere."""

    gpu_cards: dict[Label, GpuCards] = Field(default_factory=dict)
    """What a card shows in its guest, by the card's alias."""
    rdma: ExpectRdma | None = None
    """RDMA figures."""
    nccl: ExpectNccl | None = None
    """NCCL figures."""


class CheckImages(Model):
    """Images that checks run in pods; a check whose image is not named is not run."""

    cuda: ImageDigest | None = None
    """CUDA samples: `/cuda-samples/vectorAdd` and a shell."""
    network: ImageDigest | None = None
    """BusyBox with httpd, wget and nslookup."""
    rdma: ImageDigest | None = None
    """rping, perftest and ibverbs tools."""
    nccl: ImageDigest | None = None
    """NCCL tests; between nodes Python, NCCL's library (`libnccl.so.2`) and iproute2."""
    nixl: ImageDigest | None = None
    """UCX and NIXL."""
    dcgm: ImageDigest | None = None
    """DCGM with dcgmi and nv-hostengine."""


class DcgmOptions(Model):
    """Diagnostics of DCGM on all cards of each node."""

    level: Annotated[int, Check(whole(1, 3), {"type": "integer"})] = 1
    """1 takes seconds, 2 minutes, 3 half an hour. Level 4 takes hours: run it yourself."""
    seconds: Annotated[int, Check(whole(1, 3600), {"type": "integer"})] | None = None
    """Seconds that it may take, with the download of its image."""


class VerifyOptions(Model):
    """How verification runs."""

    strict: Flag = False
    """An *unknown* check makes the exit code 7, in `verify` and at the end of `apply`."""
    skip: tuple[Text, ...] = ()
    """Checks that are not run, by name."""
    timeout: Annotated[int, Check(whole(1, 86400), {"type": "integer"})] | None = None
    """Seconds that a command of a check may take; after that, the check is *unknown*."""
    pods: Flag = True
    """Whether checks run that make pods in a namespace of their own, and remove them."""
    images: CheckImages = Field(default_factory=CheckImages)
    """Images of those checks."""
    dcgm: DcgmOptions | None = None
    """DCGM's diagnostics; without it they are not run."""

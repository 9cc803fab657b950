"""The root of the inventory, with what follows from it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import Field, PrivateAttr

from provision.inventory.lock import Lock, Pin
from provision.inventory.login import Login
from provision.inventory.models.base import Model
from provision.inventory.models.cluster import (
    Cluster,
    Dynamo,
    Expect,
    Gpu,
    K3s,
    Rdma,
    SharedStorage,
    Sharing,
    VerifyOptions,
)
from provision.inventory.models.hypervisor import Hypervisor
from provision.inventory.models.node import Node, Profile
from provision.inventory.models.site import Access, Dhcp, Image, Lab, Network, Policy, Proxy, Sources
from provision.inventory.placeholders import find_placeholders, is_placeholder
from provision.inventory.scalars import Label, LocalPath, SchemaVersion, Text, Vars
from provision.inventory.tree import KeyPath, Tree
from provision.inventory.vocabulary import DhcpBackend, ResourceKind, Vocabulary
from provision.values.consent import Consent
from provision.values.diagnostics import Diagnostic, Source
from provision.values.redaction import Redactor

T = TypeVar("T")


class Inventory(Model):
    """The keys at the top of the file."""

    version: SchemaVersion
    """Version of this schema: 1."""
    name: Label
    """Name of the site; part of each marker and of each generated MAC address."""
    extends: LocalPath | None = None
    """Inventory that this one changes: mappings merge, `null` removes, everything else replaces."""
    vars: Vars = Field(default_factory=dict)
    """Values for templates of `host_resources` on all hosts."""
    policy: Policy = Field(default_factory=Policy.model_construct)
    """Consent by effect class."""
    access: Access = Field(default_factory=Access.model_construct)
    """How guests and nodes are reached."""
    proxy: Proxy = Field(default_factory=Proxy.model_construct)
    """HTTP proxy of nodes and pods."""
    sources: Sources = Field(default_factory=Sources.model_construct)
    """Where downloads come from."""
    network: Network | None = None
    """The site's network."""
    images: dict[Text, Image] = Field(default_factory=dict)
    """Cloud images by name."""
    hypervisors: dict[Label, Hypervisor] = Field(default_factory=dict)
    """Proxmox VE hosts by name."""
    profiles: dict[Text, Profile] = Field(default_factory=dict)
    """Settings that nodes share, by name."""
    nodes: dict[Label, Node] = Field(default_factory=dict)
    """Machines by name."""
    cluster: Cluster = Field(default_factory=Cluster.model_construct)
    """How the cluster is changed while it works."""
    k3s: K3s | None = None
    """The Kubernetes distribution."""
    storage: dict[Label, SharedStorage] = Field(default_factory=dict)
    """Paths that nodes share, by name."""
    gpu: Gpu | None = None
    """GPU software."""
    rdma: Rdma | None = None
    """RDMA for pods."""
    sharing: Sharing | None = None
    """How workloads share cards."""
    dynamo: Dynamo | None = None
    """NVIDIA Dynamo."""
    expect: Expect = Field(default_factory=Expect.model_construct)
    """What verification expects."""
    verify: VerifyOptions = Field(default_factory=VerifyOptions.model_construct)
    """How verification runs."""
    lab: Lab | None = None
    """A rehearsal site on this machine."""

    _tree: Tree | None = PrivateAttr(default=None)
    _file: str = PrivateAttr(default="")
    _digest: str = PrivateAttr(default="")
    _lock: Lock = PrivateAttr(default_factory=Lock)
    _redactor: Redactor = PrivateAttr(default_factory=Redactor)
    _vocabulary: Vocabulary = PrivateAttr(default_factory=Vocabulary)
    _derived: dict[object, tuple[Any, Any]] = PrivateAttr(default_factory=dict)

    def attach(
        self, tree: Tree, file: str, digest: str, lock: Lock, redactor: Redactor, vocabulary: Vocabulary
    ) -> None:
        """Take what the loader knows and no field says."""
        self._tree, self._file, self._digest, self._lock, self._redactor = tree, file, digest, lock, redactor
        self._vocabulary = vocabulary

    def with_sources(self, sources: Sources, lock: Lock) -> Self:
        """Return the same inventory with other sources, and with the lock file as it is now."""
        other = self.model_copy(update={"sources": sources})
        other._lock, other._derived = lock, {}  # noqa: SLF001 - another one of this class
        return other

    @property
    def file(self) -> str:
        """The inventory's file name, as the user typed it."""
        return self._file

    @property
    def sizes(self) -> dict[str, int]:
        """How many subjects of each kind are declared."""
        return {"hypervisor": len(self.hypervisors), "node": len(self.nodes)}

    @property
    def folder(self) -> Path:
        """The folder of the inventory's file."""
        return Path(self._file).parent

    @property
    def digest(self) -> str:
        """SHA-256 of the resolved content, in hex."""
        return self._digest

    @property
    def lock(self) -> Lock:
        """Digests from `provision.lock.yaml` beside the inventory."""
        return self._lock

    @property
    def redactor(self) -> Redactor:
        """Masks every secret of this inventory that was opened."""
        return self._redactor

    @property
    def dhcp(self) -> Dhcp | None:
        """Who hands out addresses, if that is declared."""
        return None if self.network is None else self.network.dhcp

    @property
    def dhcp_backend(self) -> DhcpBackend | None:
        """What is known of the declared DHCP server."""
        return None if self.dhcp is None else self._vocabulary.dhcp_backends.get(self.dhcp.backend)

    def resource_kind(self, kind: str) -> ResourceKind | None:
        """Return what a domain adds as a kind of host resources, None for ours."""
        return self._vocabulary.resource_kinds.get(kind)

    def source(self, path: KeyPath) -> Source | None:
        """Return where a field was written, through extends, overlays, profiles and ranges.

        Args:
            path: keys and list positions from the root, like `("nodes", "vm-1", "memory")`; the deepest
                part that was written counts.
        """
        return None if self._tree is None else self._tree.source(path)

    def element_sources(self, path: KeyPath) -> Sequence[Source | None]:
        """Return where each element of a list was written; empty where that is not known."""
        return () if self._tree is None else self._tree.element_sources(path)

    def consent(self, effect_class: str) -> Consent | None:
        """Return what the policy says about one effect class, None where it does not list it."""
        return self.policy.consent(effect_class)

    def derived(self, function: Callable[[Self], T]) -> T:
        """Return what a pure function makes of this inventory, computed once."""
        inventory, value = self._derived.get(function, (None, None))
        if inventory is not self:  # a copy with other fields shares the dictionary
            value = function(self)
            self._derived[function] = (self, value)
        result: T = value
        return result

    def hypervisor_of(self, node: Node) -> Hypervisor | None:
        """Return a node's hypervisor; None for bare metal."""
        return None if node.hypervisor is None else self.hypervisors[node.hypervisor]

    def manages(self, subject: str) -> bool:
        """Whether a hypervisor or node may be touched; so may what is neither, like the router."""
        item: Hypervisor | Node | None = self.hypervisors.get(subject) or self.nodes.get(subject)
        return item is None or item.manage

    def vars_of(self, subject: str) -> dict[str, object]:
        """Return the template values of a hypervisor or node, its own over the inventory's."""
        item: Hypervisor | Node | None = self.hypervisors.get(subject) or self.nodes.get(subject)
        return {**self.vars, **(item.vars if item is not None else {})}

    def login(self, subject: str) -> Login:
        """Return how a hypervisor or node is reached by SSH, its own settings over `access:`.

        Raises:
            KeyError: there is no such hypervisor or node.
        """
        host: Hypervisor | Node | None = self.hypervisors.get(subject)
        access = Access() if host is not None else self.access
        if host is None:
            host = self.nodes[subject]
        own = host.ssh
        return Login(
            address=host.address,
            user=own.user or access.user or "root",
            port=own.port or access.port,
            key=own.key or self.access.key,
            jump=own.jump or access.jump,
            known_hosts=own.known_hosts or self.access.known_hosts,
            host_key=own.host_key,
            sudo=own.sudo,
        )

    def image_pin(self, name: str) -> Pin | None:
        """Return an image's URL and digest: declared, else from the lock; None when unpinned.

        A pin of another URL than the declared one is none.
        """
        image = self.images[name]
        pinned = self._lock.images.get(name)
        if pinned is not None and image.url not in {None, pinned.url}:
            pinned = None
        if image.sha256 is not None and not is_placeholder(image.sha256):
            return Pin(image.url, image.sha256) if image.url is not None else None
        return pinned

    def placeholders(self) -> list[Diagnostic]:
        """Return a problem for each value that still waits for `provision pin` or `provision bootstrap`."""
        return find_placeholders(self)

    @property
    def no_proxy(self) -> tuple[str, ...]:
        """Exceptions for NO_PROXY: loopback, nodes, pods, services, then the declared ones."""
        exceptions = ["localhost", "127.0.0.1"]
        exceptions += [host.address for host in self.hypervisors.values()]
        exceptions += [node.address for node in self.nodes.values()]
        if self.k3s is not None:
            exceptions += [self.k3s.pod_cidr, self.k3s.service_cidr, ".svc", ".cluster.local"]
        exceptions += self.proxy.no_proxy
        return tuple(dict.fromkeys(exceptions))

"""What servers and agents share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import SecretStr

from provision.contracts.effect import Effect
from provision.contracts.generated import GeneratedValue
from provision.contracts.resource import Resource
from provision.contracts.role import Context, Questions
from provision.contracts.system import InventoryValue
from provision.hosts import names
from provision.hosts.facts import HostFacts
from provision.hosts.generated_values import generated_value
from provision.hosts.queries.file import FileText
from provision.hosts.resources.file import File
from provision.hosts.resources.service import UnitState
from provision.inventory import Inventory, Subject
from provision.inventory.models.cluster import K3s
from provision.inventory.models.node import Node
from provision.k3s import artifacts, configuration, paths, unit_files
from provision.k3s.join_network import ProveServer
from provision.k3s.k3s_effects import REJOIN_K3S, start_seconds
from provision.k3s.queries import JoinToken, Machine, MachineStatus, authority_of, password_of
from provision.k3s.resources.files import K3sFile, K3sUpload, ServerTokenFile
from provision.k3s.resources.membership import K3sMembership, joined_address
from provision.k3s.resources.node import EarlierNode
from provision.k3s.resources.token import K3sAbsent
from provision.kube.names import API

VALUE = "k3s-token"
"""The join token, as `provision rotate` takes it."""


def is_declared(inventory: Inventory, subject: Subject, part: str) -> bool:
    """Whether a node is a server or an agent of the cluster."""
    node = inventory.nodes.get(subject.name) if subject.kind == "node" else None
    return node is not None and node.manage and node.k3s == part and inventory.k3s is not None


def declared_k3s(inventory: Inventory) -> K3s:
    """Return the section of k3s, which a rule of the inventory demands where a node is in the cluster."""
    if inventory.k3s is None:
        raise ValueError("the inventory declares no k3s")
    return inventory.k3s


def values(inventory: Inventory) -> Sequence[GeneratedValue]:
    """Return the join token, unless the inventory names one; every server has it."""
    if inventory.k3s is None or inventory.k3s.token is not None:
        return ()
    value = generated_value(
        VALUE, {names.ssh(server.name): paths.TOKEN for server in configuration.servers(inventory)}
    )
    # A server that joined has the full form, and one that k3s's own installer made has no file of ours.
    homes = [
        (system, JoinToken(path))
        for path in (paths.TOKEN, paths.FULL_TOKEN.path)
        for system, _ in value.homes
    ]
    return (GeneratedValue(value.name, tuple(homes), value.upcoming, value.keep, value.make),)


def join_token(context: Context) -> SecretStr:
    """Return the bare join token."""
    declared = declared_k3s(context.inventory).token
    if declared is not None:
        return declared.open(context.inventory.redactor)
    return context.generated.value(VALUE)


def tokens_of_servers(inventory: Inventory) -> Questions:
    """Return the question for the full token of each server."""
    return {names.ssh(server.name): (paths.FULL_TOKEN,) for server in configuration.servers(inventory)}


def other_servers(inventory: Inventory, subject: Subject) -> frozenset[str]:
    """Return the systems of the servers that a step asks and can do without: one that lives is enough."""
    servers = configuration.servers(inventory)
    return frozenset(names.ssh(server.name) for server in servers if server.name != subject.name)


def living_servers(context: Context, without: str = "") -> list[Node]:
    """Return the servers that have made or joined the cluster, as far as they answer."""
    return [
        server
        for server in configuration.servers(context.inventory)
        if server.name != without
        and isinstance(context.answer(names.ssh(server.name), paths.FULL_TOKEN), SecretStr)
    ]


def full_token(context: Context, server: Node, user: str, password: SecretStr) -> SecretStr:
    """Return the token with which a node joins, and proves first that it has reached our cluster.

    Args:
        context: with the answer of a living server.
        server: the server.
        user: `server` or `node`, as the server checks it.
        password: the bare token.
    """
    full: SecretStr = context.require(names.ssh(server.name), paths.FULL_TOKEN)
    return SecretStr(f"{authority_of(full)}::{user}:{password.get_secret_value()}")


def machine(context: Context, system: str) -> MachineStatus:
    """Return the host as k3s meets it."""
    status: MachineStatus = context.require(system, Machine(), f"cannot see what k3s needs of {system}")
    return status


def interface(node: Node, status: MachineStatus) -> str:
    """Return the device with the node's address: declared, else the one that has it."""
    declared = node.interfaces.node if node.interfaces is not None else None
    return declared or status.interface_of(node.address)


def software(inventory: Inventory, node: Node, unit: str) -> list[Resource]:
    """Return the binary, and the archives of images."""
    system = names.ssh(node.name)
    source = inventory.source(("k3s", "version"))
    binary, images = artifacts.binary(inventory), artifacts.images(inventory)
    resources: list[Resource] = [
        K3sUpload(system, paths.BINARY, binary.blob, "0755", binary.label, unit=unit, source=source)
    ]
    if images is not None:
        # k3s imports any archive whose name ends as its format demands.
        suffix = "".join(PurePosixPath(images.file or images.asset).suffixes[-2:])
        path = f"{paths.IMAGES}/k3s-airgap-images{suffix}"
        resources.append(K3sUpload(system, path, images.blob, "0644", images.label, unit=unit, source=source))
    for image in artifacts.container_images(inventory):
        path = f"{paths.IMAGES}/{image.asset}"
        resources.append(K3sUpload(system, path, image.blob, "0644", image.label, unit=unit, source=source))
    return resources


def start_deadline(inventory: Inventory) -> float:
    """Return how many seconds a start of k3s may take, with the images that it imports first."""
    archives = (Path(image.file) for image in artifacts.container_images(inventory))
    return float(start_seconds(sum(file.stat().st_size for file in archives) >> 20))


def files(
    inventory: Inventory, node: Node, unit: str, config: Mapping[str, Any], token: SecretStr
) -> list[Resource]:
    """Return the configuration, its token, and the unit."""
    k3s = declared_k3s(inventory)
    system, source = names.ssh(node.name), inventory.source(("k3s",))

    def file(path: str, text: str, mode: str = "0600", **more: Any) -> K3sFile:
        return K3sFile(system, path, text.encode(), mode, "root", "root", unit=unit, source=source, **more)

    registries = configuration.registries(inventory, k3s)
    resources: list[Resource] = [
        _token_file(inventory, system, unit, token),
        file(paths.CONFIG, unit_files.yaml_text(config)),
    ]
    if registries:
        resources.append(file(paths.REGISTRIES, unit_files.yaml_text(registries), secret=True))
    registration = configuration.registration(node)
    if registration:
        resources.append(registration_file(inventory, node, unit_files.yaml_text(registration)))
    resources += [
        file(paths.environment_file(unit), unit_files.environment_text(inventory)),
        file(paths.unit_file(unit), unit_files.unit_text(unit), "0644", is_unit=True),
    ]
    return resources


def _token_file(inventory: Inventory, system: str, unit: str, token: SecretStr) -> Resource:
    source = inventory.source(("k3s",))
    text = f"{token.get_secret_value()}\n".encode()
    more: dict[str, Any] = {"secret": True, "unit": unit, "source": source}
    if unit == paths.AGENT:
        return K3sFile(system, paths.TOKEN, text, "0600", "root", "root", **more)
    password = password_of(token)
    if not isinstance(password, SecretStr):
        raise TypeError("a token is a secret")
    return ServerTokenFile(system, paths.TOKEN, text, "0600", "root", "root", password=password, **more)


def proof_of(context: Context, server: Node, address: str = "") -> ProveServer | None:
    """Return what must hold before a node starts to join; None for one that has joined: it knows all servers.

    Args:
        context: of the node.
        server: that it joins.
        address: another name or address by which it joins.
    """
    if context.require(names.ssh(context.subject.name), paths.PASSWORD).exists and not has_moved(context):
        return None
    backend = declared_k3s(context.inventory).config.get("flannel-backend", "vxlan")
    return ProveServer(address or str(server.address), str(server.address) if backend == "vxlan" else "")


def registration_file(inventory: Inventory, node: Node, text: str) -> Resource:
    """Return the file that counts only at registration, so that no restart follows it."""
    source = inventory.source(("nodes", node.name))
    return File(
        names.ssh(node.name), paths.REGISTRATION, text.encode(), "0600", "root", "root", source=source
    )


def has_moved(context: Context) -> bool:
    """Whether a node has joined under another address than the declared one.

    Raises:
        NotYet: its configuration cannot be read.
    """
    node = context.inventory.nodes[context.subject.name]
    system = names.ssh(node.name)
    config = context.require(system, paths.OWN_CONFIG, may_be_absent=True)
    has_joined = context.require(system, paths.PASSWORD).exists
    return bool(has_joined and joined_address(config) not in ("", node.address))


def former_membership(context: Context, unit: str) -> tuple[Resource, ...]:
    """Return what goes before a machine joins under a name that the cluster knows.

    A machine without its node password is a new one, one with a new disk, or one that has just left. The
    cluster would reject it (`Node password rejected`), and etcd takes no second member of one name. They come
    first: the effects of all that follows start k3s.
    """
    node = context.inventory.nodes[context.subject.name]
    system = names.ssh(node.name)
    moves = has_moved(context)
    machine_id = HostFacts(context.seen(system)).machine_id
    source = context.inventory.source(("nodes", node.name, "k3s"))
    resources: list[Resource] = []
    if moves:
        consent = (Effect(REJOIN_K3S),)
        resources.append(K3sMembership(system, unit, node.address, risks=consent, source=source))
    if moves or not context.require(system, paths.PASSWORD).exists:
        resources.append(EarlierNode(API, node.kubernetes_name, machine_id, node.address, source=source))
    return tuple(resources)


def retired(context: Context, unit: str) -> tuple[Resource, ...]:
    """Return what destroy removes from a machine that stays."""
    return (K3sAbsent(names.ssh(context.subject.name), unit),)


def absent_questions(unit: str) -> tuple[Any, ...]:
    """Return what tells whether a unit of ours is there."""
    return (FileText(paths.unit_file(unit)), UnitState(unit))


def left_on(inventory: Inventory, part: str, unit: str) -> Mapping[Subject, Questions]:
    """Return the nodes that may have a unit which they no longer declare."""
    return {
        Subject("node", name): {names.ssh(name): absent_questions(unit)}
        for name, node in inventory.nodes.items()
        if inventory.k3s is not None and node.manage and node.k3s != part
    }


def local_inputs(inventory: Inventory, _subject: Subject) -> tuple[InventoryValue, ...]:
    """Return the files and secrets of the controller that go to nodes."""
    k3s = declared_k3s(inventory)
    parts = (
        ("token", k3s.token),
        ("agent_token", k3s.agent_token),
        ("binary", k3s.binary),
        ("images", k3s.images),
    )
    return tuple((("k3s", key), value) for key, value in parts if value is not None)

"""A server of the cluster.

The first server makes the cluster, the others join one at a time (etcd takes one learner at a time). A first
server that comes back with an empty disk joins those that are left: it never makes a second cluster.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from provision.contracts.query import Unknown
from provision.contracts.resource import Resource
from provision.contracts.role import Context, Questions, Role
from provision.hosts import names
from provision.hosts.facts import MACHINE_ID
from provision.hosts.resources.service import UnitState
from provision.inventory import Inventory, Subject
from provision.inventory.models.node import Node
from provision.k3s import configuration, paths
from provision.k3s.queries import Machine
from provision.k3s.resources.files import K3sFile
from provision.k3s.resources.token import ClusterToken
from provision.k3s.resources.unit import K3sUnit
from provision.k3s.roles import common, left_nodes

UNIT = paths.SERVER
_SERVER_LINE = re.compile(r"(?m)^server: (\S+)$")


def declared(inventory: Inventory, subject: Subject) -> bool:
    """Whether the node is a server."""
    return common.is_declared(inventory, subject, "server")


def questions(inventory: Inventory, subject: Subject) -> Questions:
    """Ask the host what k3s needs and has, and every server for the full token."""
    asked = dict(common.tokens_of_servers(inventory))
    own = names.ssh(subject.name)
    more = (Machine(), paths.OWN_CONFIG, paths.DATASTORE, paths.PASSWORD, MACHINE_ID, UnitState(UNIT))
    asked[own] = (*asked.get(own, ()), *more)
    return asked


def resources(context: Context) -> Sequence[Resource]:
    """Return the server: software, files, the cluster's token, and the unit that runs."""
    inventory = context.inventory
    node = inventory.nodes[context.subject.name]
    k3s = common.declared_k3s(inventory)
    system = names.ssh(node.name)
    device = common.interface(node, common.machine(context, system))
    server = joined_server(context, node)
    token = common.join_token(context)
    join_url = f"https://{server.address}:{configuration.PORT}" if server is not None else ""
    config = configuration.server_config(inventory, node, k3s, device, join_url)
    own = token if server is None else common.full_token(context, source_of(context, node), "server", token)
    desired: list[Resource] = [*common.former_membership(context, UNIT)] if server is not None else []
    desired += common.software(inventory, node, UNIT)
    living = common.living_servers(context)
    if not living or living[0].name == node.name:
        desired.append(ClusterToken(system, token, source=inventory.source(("k3s", "token"))))
    if k3s.agent_token is not None:
        text = f"{k3s.agent_token.open(inventory.redactor).get_secret_value()}\n".encode()
        source = inventory.source(("k3s", "agent_token"))
        desired.append(
            K3sFile(
                system, paths.AGENT_TOKEN, text, "0600", "root", "root", secret=True, unit=UNIT, source=source
            )
        )
    desired += common.files(inventory, node, UNIT, config, own)
    joins = "" if server is None else server.name
    proof = None if server is None else common.proof_of(context, server)
    source = inventory.source(("nodes", node.name, "k3s"))
    desired.append(
        K3sUnit(system, UNIT, joins, deadline=common.start_deadline(inventory), proof=proof, source=source)
    )
    return desired


def joined_server(context: Context, node: Node) -> Node | None:
    """Return the server that a node joins, or has joined; None for the one that makes the cluster.

    Raises:
        NotYet: none is there to join.
    """
    servers = configuration.servers(context.inventory)
    by_url = {f"https://{server.address}:{configuration.PORT}": server for server in servers}
    first = servers[0]
    living = common.living_servers(context, without=node.name)
    others = [server for server in servers if server.name != node.name]
    if others and common.has_moved(context):
        if not living:  # it leaves first, and would make a second cluster when it comes back
            context.require(names.ssh(others[0].name), paths.FULL_TOKEN, f"{node.name} has no server to join")
        return [*living, *others][0]
    if _has_data(context, node):
        # What it joined once does not matter any more, and another line would only cost a restart.
        present = by_url.get(_present_line(context, node))
        if present is not None and present.name != node.name:
            return present
        return None if node.name == first.name else first
    if node.name == first.name and not living:
        for server in servers[1:]:
            # One that does not answer may have the cluster: a second one must not be made.
            _require_silent_about_cluster(context, server)
        return None
    if living:
        return living[0]
    context.require(names.ssh(first.name), paths.FULL_TOKEN, f"{first.name} has not made the cluster yet")
    return first


def source_of(context: Context, node: Node) -> Node:
    """Return the server whose full token names the CA: another one that lives, else its own."""
    others = common.living_servers(context, without=node.name)
    return others[0] if others else node


def _require_silent_about_cluster(context: Context, server: Node) -> None:
    answer = context.answer(names.ssh(server.name), paths.FULL_TOKEN)
    if isinstance(answer, Unknown) and "was not asked" not in answer.reason:
        context.require(names.ssh(server.name), paths.FULL_TOKEN, "", may_be_absent=True)


def _has_data(context: Context, node: Node) -> bool:
    """Whether it is a member: one that has left may have snapshots in the folder of its datastore."""
    system = names.ssh(node.name)
    return all(context.require(system, query).exists for query in (paths.DATASTORE, paths.PASSWORD))


def _present_line(context: Context, node: Node) -> str:
    content = context.answer(names.ssh(node.name), paths.OWN_CONFIG)
    text = content.decode("utf-8", "replace") if isinstance(content, bytes) else ""
    match = _SERVER_LINE.search(text)
    return match[1] if match is not None else ""


ROLE = Role(
    name="k3s_server",
    declared=declared,
    questions=questions,
    resources=resources,
    optional=common.other_servers,
    generates=common.values,
    needs=("base_os", "address", "first_contact", "gpu_driver", "rdma_host"),
    retired=partial(common.retired, unit=UNIT),
    unchosen=partial(common.retired, unit=UNIT),
    unchosen_on=partial(common.left_on, part="server", unit=UNIT),
    orphan_owners=left_nodes.owners,
    orphans=left_nodes.orphans,
    local_inputs=common.local_inputs,
)

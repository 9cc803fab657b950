"""An agent of the cluster: it begins when every server has ended and at least one is up."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from provision.contracts.resource import Resource
from provision.contracts.role import Context, Need, Questions, Role
from provision.hosts import names
from provision.hosts.facts import MACHINE_ID
from provision.hosts.resources.service import UnitState
from provision.inventory import Inventory, Subject
from provision.k3s import configuration, paths
from provision.k3s.queries import Machine
from provision.k3s.resources.unit import K3sUnit
from provision.k3s.roles import common

UNIT = paths.AGENT


def declared(inventory: Inventory, subject: Subject) -> bool:
    """Whether the node is an agent."""
    return common.is_declared(inventory, subject, "agent")


def questions(inventory: Inventory, subject: Subject) -> Questions:
    """Ask the host what k3s needs, and every server for the full token."""
    own = names.ssh(subject.name)
    return {
        **common.tokens_of_servers(inventory),
        own: (Machine(), UnitState(UNIT), paths.OWN_CONFIG, paths.PASSWORD, MACHINE_ID),
    }


def resources(context: Context) -> Sequence[Resource]:
    """Return the agent: software, files, and the unit that has joined."""
    inventory = context.inventory
    node = inventory.nodes[context.subject.name]
    k3s = common.declared_k3s(inventory)
    system = names.ssh(node.name)
    device = common.interface(node, common.machine(context, system))
    living = common.living_servers(context)
    server = living[0] if living else configuration.servers(inventory)[0]
    if k3s.agent_token is not None:
        token = common.full_token(context, server, "node", k3s.agent_token.open(inventory.redactor))
    else:
        token = common.full_token(context, server, "server", common.join_token(context))
    config = configuration.agent_config(inventory, node, k3s, device)
    source = inventory.source(("nodes", node.name, "k3s"))
    first = configuration.servers(inventory)[0]
    proof = common.proof_of(context, server, k3s.endpoint or str(first.address))
    return [
        *common.former_membership(context, UNIT),
        *common.software(inventory, node, UNIT),
        *common.files(inventory, node, UNIT, config, token),
        K3sUnit(
            system,
            UNIT,
            k3s.endpoint or server.name,
            deadline=common.start_deadline(inventory),
            proof=proof,
            source=source,
        ),
    ]


ROLE = Role(
    name="k3s_agent",
    declared=declared,
    questions=questions,
    resources=resources,
    optional=common.other_servers,
    generates=common.values,
    needs=(
        "base_os",
        "address",
        "first_contact",
        "gpu_driver",
        "rdma_host",
        Need("k3s_server", "any", "site"),
    ),
    retired=partial(common.retired, unit=UNIT),
    unchosen=partial(common.retired, unit=UNIT),
    unchosen_on=partial(common.left_on, part="agent", unit=UNIT),
    local_inputs=common.local_inputs,
)

"""Cross-field rules of the inventory: each finds problems with positions and stops nothing."""

from __future__ import annotations

from provision.inventory.models.inventory import Inventory
from provision.inventory.rules import addresses, cluster, machines, rdma, resources, site
from provision.inventory.rules.findings import Findings
from provision.inventory.tree import Tree
from provision.inventory.vocabulary import Vocabulary
from provision.values.diagnostics import Diagnostic


def check(inventory: Inventory, tree: Tree, vocabulary: Vocabulary) -> list[Diagnostic]:
    """Return every problem that fields alone do not show."""
    findings = Findings(tree, vocabulary)
    for rules in (site, machines, addresses, cluster, rdma, resources):
        rules.check(inventory, findings)
    return findings.problems

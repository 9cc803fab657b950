"""The inventory: models, loader (YAML 1.2 core with positions), JSON Schema, secrets, selectors."""

from __future__ import annotations

from typing import Any

from provision.inventory.loader import load
from provision.inventory.login import Login
from provision.inventory.models.inventory import Inventory
from provision.inventory.secret_files import open_at_hand, unopenable
from provision.inventory.secrets import Secret
from provision.inventory.selectors import SELECTORS, Subject, select
from provision.inventory.vocabulary import Vocabulary

__all__ = [
    "SELECTORS",
    "Inventory",
    "Login",
    "Secret",
    "Subject",
    "Vocabulary",
    "json_schema",
    "load",
    "open_at_hand",
    "select",
    "unopenable",
]


def json_schema(vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the JSON Schema of an inventory file, with the names that domains bring."""
    from provision.inventory.schema import json_schema as made  # noqa: PLC0415 - only `provision schema` needs it

    return made(vocabulary)

"""The inventory: models, loader (YAML 1.2 core with positions), JSON Schema, secrets, selectors."""

from __future__ import annotations

from provision.inventory.loader import load
from provision.inventory.login import Login
from provision.inventory.models.inventory import Inventory
from provision.inventory.secrets import Secret
from provision.inventory.selectors import SELECTORS, Subject, select

__all__ = ["SELECTORS", "Inventory", "Login", "Secret", "Subject", "load", "select"]

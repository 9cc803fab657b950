"""The models of the inventory; every field has a one-line docstring, the source of docs/inventory.md."""

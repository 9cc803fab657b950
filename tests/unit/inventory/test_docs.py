from __future__ import annotations

import json
from pathlib import Path

import pytest

from docs.generators.inventory_reference import reference_markdown
from provision.inventory import json_schema
from provision.inventory.docstrings import field_docs
from provision.inventory.schema import models

ROOT = Path(__file__).parents[3]


def test_the_reference_is_current() -> None:
    command = "python -m docs.generators.inventory_reference > docs/inventory.md"
    assert (ROOT / "docs" / "inventory.md").read_text() == reference_markdown(), f"run: {command}"


@pytest.mark.parametrize("model", models(), ids=lambda model: model.__name__)
def test_every_field_has_a_one_line_docstring(model: type) -> None:
    for name, text in field_docs(model).items():
        assert text, f"{model.__name__}.{name}"
        assert "\n" not in text
        assert text.endswith(".")
    assert model.__doc__


def test_the_reference_names_every_key() -> None:
    text = reference_markdown()
    for model in models():
        for name, field in model.model_fields.items():
            assert field.exclude or f"| `{name}` |" in text


def test_the_schema_is_json_and_describes_every_key() -> None:
    schema = json.loads(json.dumps(json_schema()))
    assert schema["properties"]["nodes"]["description"] == "Machines by name."
    assert "name" not in schema["$defs"]["Node"]["properties"]
    assert schema["$defs"]["Node"]["properties"]["memory"]["description"] == "Memory."
    assert schema["additionalProperties"] is False
    for part in (schema, *schema["$defs"].values()):
        for name, found in part.get("properties", {}).items():
            assert found.get("description"), name

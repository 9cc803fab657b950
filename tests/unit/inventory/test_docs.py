from __future__ import annotations

import json
import re

import pytest

from docs.generators.inventory_examples import Example, examples, keys_of, unsupported_fields
from docs.generators.inventory_reference import reference_markdown
from provision.api.domains import vocabulary
from provision.inventory import json_schema
from provision.inventory.docstrings import field_docs
from provision.inventory.models.cluster import Gpu
from provision.inventory.models.inventory import Inventory
from provision.inventory.models.node import Profile
from provision.inventory.schema import models


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
    schema = json.loads(json.dumps(json_schema(vocabulary())))
    assert schema["properties"]["nodes"]["description"] == "Machines by name."
    assert "name" not in schema["$defs"]["Node"]["properties"]
    assert schema["$defs"]["Node"]["properties"]["memory"]["description"] == "Memory."
    assert schema["additionalProperties"] is False
    for part in (schema, *schema["$defs"].values()):
        for name, described in part.get("properties", {}).items():
            assert described.get("description"), name


# ---------------------------------------------------------------- examples of the reference

WITHOUT_EXAMPLE = {(Inventory, "extends")}
"""A block that is laid over an inventory cannot extend another one."""


def test_every_key_is_in_an_example_of_the_reference() -> None:
    shown = {field for example in examples() for field in example.fields()}
    assert {field for model in models() for field in keys_of(model)} - shown == WITHOUT_EXAMPLE


def test_every_section_has_an_example() -> None:
    sections = set(re.findall(r"^### `(.+)`$", reference_markdown(), re.MULTILINE))
    assert sections - {example.section for example in examples()} == set()


def test_unsupported_keys_are_marked_in_example_and_table() -> None:
    text = reference_markdown()
    assert "  toolkit: host  # not supported yet\n" in text
    assert "Name servers, if they are not the gateway. *Not supported yet.* |" in text
    assert "| `packages` | list of package |  | Distribution packages that are installed. |" in text
    assert unsupported_fields()[Gpu, "toolkit"] == "partly supported"
    assert (Profile, "memory") not in unsupported_fields()


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.section)
def test_a_line_is_marked_for_each_thing_that_plan_refuses(example: Example) -> None:
    marks = example.marked.count("# not supported yet")
    assert bool(marks) is bool(example.unsupported)
    assert marks >= len({item.path for item in example.unsupported})


def test_the_schema_lists_the_names_that_domains_bring() -> None:
    names = vocabulary()
    definitions = json_schema(names)["$defs"]
    assert definitions["Policy"]["properties"]["never"]["items"]["enum"] == list(names.effect_classes)
    assert "dnsmasq" in definitions["Dhcp"]["properties"]["backend"]["enum"]

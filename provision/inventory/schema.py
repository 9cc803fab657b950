"""The JSON Schema of inventories, for editors."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from provision.inventory.docstrings import field_docs
from provision.inventory.models.inventory import Inventory
from provision.inventory.vocabulary import Vocabulary
from provision.values.references import load_object


def json_schema(vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of an inventory file, with the fields' docstrings.

    Args:
        vocabulary: names that domains bring; the schema lists them.
    """
    schema = Inventory.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "provision inventory"
    for model in models():
        part = schema if model is Inventory else schema["$defs"].get(model.__name__)
        if part is not None:
            _describe(part, model)
    # A file that extends another one needs nothing more; keys of nodes may be ranges.
    schema["anyOf"] = [{"required": schema.pop("required")}, {"required": ["extends"]}]
    for section in ("nodes", "profiles", "hypervisors"):
        keyed = schema["properties"][section]
        for part in keyed.pop("patternProperties", {}).values():
            keyed["additionalProperties"] = part
    for name in ("Node", "Hypervisor"):
        schema["$defs"][name].pop("required", None)
    _list_names(schema["$defs"], vocabulary)
    return schema


def _list_names(definitions: dict[str, Any], vocabulary: Vocabulary) -> None:
    for verdict in ("allow", "ask", "never"):
        definitions["Policy"]["properties"][verdict]["items"] = {"enum": list(vocabulary.effect_classes)}
    definitions["Dhcp"]["properties"]["backend"]["enum"] = list(vocabulary.dhcp_backends)
    for kind, added in vocabulary.resource_kinds.items():
        part = load_object(added.model).model_json_schema()
        part["properties"]["kind"] = {"const": kind}
        definitions.update(part.pop("$defs", {}))
        definitions[part["title"]] = part
        for model in ("Node", "Hypervisor", "Profile"):
            items = definitions[model]["properties"]["host_resources"]["items"]
            items["oneOf"].append({"$ref": f"#/$defs/{part['title']}"})
            items["discriminator"]["mapping"][kind] = f"#/$defs/{part['title']}"


def _describe(part: dict[str, Any], model: type[BaseModel]) -> None:
    docs = field_docs(model)
    for name, field in model.model_fields.items():
        if field.exclude:
            part["properties"].pop(name, None)
        elif name in part.get("properties", {}):
            part["properties"][name].pop("title", None)
            part["properties"][name]["description"] = docs[name]
            part["properties"][name].pop("default", None)


def models() -> tuple[type[BaseModel], ...]:
    """Return all models of the inventory, the root first, each once."""
    reached: dict[type[BaseModel], None] = {Inventory: None}
    queue: list[type[BaseModel]] = [Inventory]
    while queue:
        for field in queue.pop(0).model_fields.values():
            for model in members(field.annotation):
                if model not in reached:
                    reached[model] = None
                    queue.append(model)
    return tuple(reached)


def members(annotation: Any) -> tuple[type[BaseModel], ...]:
    """Return the models that an annotation names, at any depth."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return (annotation,)
    models_named: list[type[BaseModel]] = []
    for argument in getattr(annotation, "__args__", ()):
        models_named += members(argument)
    if hasattr(annotation, "__origin__") and not isinstance(annotation.__origin__, type):
        models_named += members(annotation.__origin__)
    return tuple(dict.fromkeys(models_named))

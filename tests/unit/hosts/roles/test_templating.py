"""Texts of the inventory: strict, sandboxed, and free where there is nothing to fill in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from provision.hosts.templating import _compiled, read_template, render
from provision.values.diagnostics import Source
from provision.values.errors import UsageError

SOURCE = Source("lab.yaml", 7, 3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain { } % text\n", "plain { } % text\n"),
        ("{{ name }}\n", "vm-1\n"),
        ("{% for each in names %}{{ each }} {% endfor %}", "a b "),
        ("{{ quoted }}", "<&>\"'"),
        ("{# nothing #}x\n\n", "x\n\n"),
        ("{{ port + 1 }}", "81"),
        ("{{ name | upper }}", "VM-1"),
    ],
)
def test_texts_are_filled_in(text: str, expected: str) -> None:
    values = {"name": "vm-1", "names": ["a", "b"], "quoted": "<&>\"'", "port": 80}
    assert render(text, values, "content of /a") == expected


@pytest.mark.parametrize(
    "text",
    [
        "{{ nope }}",
        "{{ name.nope }}",
        "{{ name",
        "{% if %}",
        "{{ ''.__class__.__mro__ }}",
        "{{ names.append('c') }}",
        "{{ name + 1 }}",
        "{{ 1 / 0 }}",
        "{% include 'x' %}",
        "{{ 'x' * 2000000 }}",
        "{{ range(10000000) | list }}",
    ],
)
def test_what_is_wrong_or_forbidden_is_told_with_its_position(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        render(text, {"name": "vm-1", "names": ["a"]}, "content of /a", SOURCE)
    (problem,) = raised.value.diagnostics
    assert problem.code == "TEMPLATE_ERROR"
    assert problem.source == SOURCE
    assert "content of /a" in problem.summary


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"x" * (1024 * 1024 + 1)])
def test_unreadable_templates_are_told(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "t.j2"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError) as raised:
        read_template(path, SOURCE)
    assert raised.value.diagnostics[0].code == "TEMPLATE_UNREADABLE"
    assert raised.value.diagnostics[0].source == SOURCE


VALUES = {
    "name": "vm-1",
    "n": 7,
    "empty": "",
    "flag": True,
    "nothing": None,
    "half": 0.5,
    "true": "x",
    "range": "own",
    "loop": "x",
    "self": "x",
    "braces": "{{ name }}",
    "caller": "c",
    "not": "x",
}


@pytest.mark.parametrize(
    "text",
    [
        *("{{ name }}", "{{name}}{{ n }}\n\n", "a {{ name }} b {{ n }}\n", "{{ empty }}", "{{ braces }}"),
        *(
            "{{ flag }}",
            "{{ nothing }}",
            "{{ half }}",
            "{{ true }}",
            "{{ range }}",
            "{{ loop }}",
            "{{ caller }}",
        ),
        *("{{ name }}\r\n", "{{ name }} {% if n %}x{% endif %}", "{{ name }} {# x #}", "{{ n + 1 }}{{ n }}"),
        *("{{\nname }}", "{{ name -}} x", "}} {{ name }} {", "{{ name }}{", "{ {{ name }} }", "{{{ name }}}"),
        *("{{ '{{' }}{{ name }}", "#{{ name }}#", "%{{ name }}%", "{{ unset }}", "{{ self }}", "{{ not }}"),
    ],
)
def test_a_text_of_plain_names_becomes_what_jinja2_makes_of_it(text: str) -> None:
    assert _result(lambda: render(text, VALUES, "x")) == _result(lambda: _compiled(text).render(VALUES))


def _result(call: Callable[[], str]) -> str:
    """Return a text, or that there is none."""
    try:
        return call()
    except Exception:  # noqa: BLE001 - whatever Jinja2 or its sandbox raises
        return "no text"

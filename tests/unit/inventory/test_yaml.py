# ruff: noqa: E501 - tables with one case a line
from __future__ import annotations

from pathlib import Path

import pytest

from provision.api.domains import load_inventory as load
from provision.inventory import reader as reader_module
from provision.inventory.core_values import Scalar, core_value, typed_value
from provision.values.errors import UsageError
from provision.values.outcomes import ExitCode

from .conftest import SITE, Fails, Loads, Write, marked


@pytest.fixture(params=["libyaml", "pure"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "pure":
        monkeypatch.setattr(reader_module, "_parser", reader_module._PurePython)
    return str(request.param)


@pytest.mark.parametrize(
    "typed",
    [
        "52:54:00:12:34:56",
        "41:00",
        "on",
        "off",
        "yes",
        "580",
        "1.10",
        "0123456",
        "0x1F",
        "1e3",
        "2026-01-02",
        "true",
        "NO",
        "1_000",
        ".5",
    ],
)
@pytest.mark.usefixtures("parser")
def test_a_text_field_shows_what_was_typed(loads: Loads, typed: str) -> None:
    inventory = loads(SITE + f"proxy: {{ no_proxy: [{typed}] }}\n")
    assert inventory.proxy.no_proxy == (typed,)
    assert type(inventory.proxy.no_proxy[0]) is str


def test_a_mac_of_digits_stays_a_mac(loads: Loads) -> None:
    inventory = loads(SITE.replace("vmid: 101,", "vmid: 101, nics: [{ mac: 52:54:00:12:34:56 }],"))
    assert inventory.nodes["vm-1"].nics[0].mac == "52:54:00:12:34:56"


@pytest.mark.parametrize(
    ("typed", "core"),
    [
        ("true", True), ("False", False), ("on", "on"), ("yes", "yes"), ("12", 12), ("0123456", 123456), ("0o17", 15),
        ("0x1F", 31), ("+7", 7), ("1.10", 1.1), ("1e3", 1000.0), ("41:00", "41:00"), ("1_000", "1_000"),
        ("2026-01-02", "2026-01-02"), ("~", None), ("null", None), ("Null", None), ("", None), ("<<", "<<"), ("=", "="),
        (".inf", float("inf")), ("'12'", "12"), ("!!str 12", "12"), ("! 12", "12"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("parser")
def test_free_mappings_follow_yaml_1_2_core(loads: Loads, typed: str, core: object) -> None:
    site = SITE.replace("vmid: 101,", "vmid: 101, k3s: server,")
    k3s = loads(site + f"k3s: {{ version: v1.35.7+k3s1, config: {{ key: {typed} }} }}\n").k3s
    assert k3s is not None
    assert k3s.config["key"] == core
    assert type(k3s.config["key"]) is type(core)


def test_template_values_print_as_they_were_typed(loads: Loads) -> None:
    inventory = loads(SITE + "vars: { a: 1.10, b: 0644, c: 580, d: true, e: [1, x], f: { g: on } }\n")
    assert inventory.vars == {"a": "1.10", "b": "0644", "c": 580, "d": True, "e": [1, "x"], "f": {"g": "on"}}


@pytest.mark.parametrize("typed", ["on", "yes", "1", "'true'", "True "])
def test_only_true_and_false_are_booleans(loads: Loads, fails: Fails, typed: str) -> None:
    text = SITE + f"verify: {{ strict: {typed} }}\n"
    if typed.strip() == "True":
        assert loads(text).verify.strict is True
        return
    (problem,) = fails(text)
    assert "expected true or false" in problem.summary


def test_a_quoted_number_is_no_number(fails: Fails) -> None:
    (problem,) = fails(SITE.replace("cores: 2", 'cores: "2"'))
    assert "did you mean 2 without quotes" in problem.summary
    assert marked(problem) == '"2"'


@pytest.mark.usefixtures("parser")
def test_a_tab_is_named(fails: Fails) -> None:
    problems = fails("version: 1\nname: a\nproxy:\n\tno_proxy: []\n")
    assert [(problem.code, problem.source.line if problem.source else 0) for problem in problems] == [
        ("INVENTORY_TAB", 4)
    ]


@pytest.mark.usefixtures("parser")
def test_a_tab_in_flow_indentation_is_named_too(fails: Fails) -> None:
    problems = fails(SITE + "proxy: {\n\tno_proxy: [] }\n")
    assert [problem.code for problem in problems] == ["INVENTORY_TAB"]


@pytest.mark.usefixtures("parser")
def test_tabs_inside_block_scalars_are_content(loads: Loads) -> None:
    text = SITE + "vars:\n  makefile: |\n    all:\n    \ttrue\n    \tfalse\n"
    assert loads(text).vars["makefile"] == "all:\n\ttrue\n\tfalse\n"


@pytest.mark.usefixtures("parser")
def test_a_duplicate_key_names_its_first_line(fails: Fails) -> None:
    (problem,) = fails(SITE + "name: other\n")
    assert problem.code == "INVENTORY_DUPLICATE_KEY"
    assert "line 2" in problem.summary
    assert marked(problem) == "name"


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 10)}]\n" for n in range(8)
)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "INVENTORY_EMPTY"),
        ("# only a comment\n", "INVENTORY_EMPTY"),
        ("---\n", "INVENTORY_EMPTY"),
        ("null\n", "INVENTORY_EMPTY"),
        ("- a\n", "INVENTORY_SHAPE"),
        ("just words\n", "INVENTORY_SHAPE"),
        ("a: [1\n", "INVENTORY_SYNTAX"),
        ("a: b: c\n", "INVENTORY_SYNTAX"),
        ("a: '\n", "INVENTORY_SYNTAX"),
        ("a: \0\n", "INVENTORY_SYNTAX"),
        ("a: \x07\n", "INVENTORY_SYNTAX"),
        ("? [a, b]\n: c\n", "INVENTORY_KEY"),
        ("? {a: b}\n: c\n", "INVENTORY_KEY"),
        ("a: &x b\n*x : c\n", "INVENTORY_KEY"),
        ("a: *nowhere\n", "INVENTORY_ALIAS"),
        ("a: &a [*a]\n", "INVENTORY_ALIAS"),
        (BOMB, "INVENTORY_TOO_LARGE"),
        ("a: " + "[" * 100, "INVENTORY_TOO_DEEP"),
        ("a: " + "{a: " * 500 + "}" * 500, "INVENTORY_TOO_DEEP"),
        (b"a: \xff\xfe\n", "INVENTORY_UNREADABLE"),
        (b"\xff\xfea\x00", "INVENTORY_UNREADABLE"),
    ],
    ids=lambda value: repr(value[:16]),
)
@pytest.mark.usefixtures("parser")
def test_what_is_no_inventory_is_one_clear_error(fails: Fails, text: str | bytes, code: str) -> None:
    assert [fail.code for fail in fails(text)] == [code]


def test_a_file_of_50_mb_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    with path.open("wb") as file:
        file.truncate(50 * 1024 * 1024)
    with pytest.raises(UsageError, match="larger than 4 MiB"):
        load(path)


@pytest.mark.usefixtures("parser")
def test_unknown_tags_and_documents_are_errors(fails: Fails) -> None:
    codes = {
        fail.code for fail in fails(SITE + "proxy: !!python/object:os.system {}\nvars: { a: !secrt x }\n")
    }
    assert codes == {"INVENTORY_TAG"}
    assert [fail.code for fail in fails(SITE + "---\nname: other\n")] == ["INVENTORY_DOCUMENTS"]


def test_a_missing_file_and_a_folder_are_errors(tmp_path: Path) -> None:
    for path in (tmp_path / "none.yaml", tmp_path, tmp_path / ("x" * 300), tmp_path / "a\0b"):
        with pytest.raises(UsageError) as caught:
            load(path)
        assert [diagnostic.code for diagnostic in caught.value.diagnostics] == ["INVENTORY_UNREADABLE"]
        assert caught.value.exit_code == ExitCode.USAGE


def test_a_byte_order_mark_is_no_part_of_the_first_key(loads: Loads) -> None:
    assert loads("\ufeff" + SITE).name == "site"


def test_variables_are_replaced_and_typed_again(loads: Loads) -> None:
    text = SITE.replace("cores: 2", 'cores: "${CORES}"').replace("user: debian", 'user: "x-${NAME}"')
    inventory = loads(text + "vars:\n  kept: $${HOME}\n  count: ${CORES}\n", {"CORES": "4", "NAME": "y"})
    assert inventory.nodes["vm-1"].cores == 4
    assert inventory.access.user == "x-y"
    assert inventory.vars == {"kept": "${HOME}", "count": 4}


def test_braces_of_a_variable_in_a_flow_mapping_are_explained(fails: Fails) -> None:
    (problem,) = fails(SITE.replace("cores: 2", "cores: ${CORES}"))
    assert "in quotes" in problem.remedy


def test_block_scalars_keep_shell_variables(loads: Loads) -> None:
    assert loads(SITE + "vars:\n  run: |\n    echo ${HOME}\n").vars["run"] == "echo ${HOME}\n"


def test_unset_variables_are_all_named_with_their_place(fails: Fails) -> None:
    problems = fails(SITE.replace("cores: 2", 'cores: "${CORES}"').replace("user: debian", 'user: "${WHO}"'))
    named = [(problem.code, marked(problem)) for problem in problems if problem.code == "INVENTORY_VARIABLE"]
    assert named == [("INVENTORY_VARIABLE", '"${WHO}"'), ("INVENTORY_VARIABLE", '"${CORES}"')]


def test_converters_leave_plain_python_alone() -> None:
    assert core_value({"a": [1, None, True]}) == {"a": [1, None, True]}
    scalar = Scalar("012")
    scalar.core, scalar.folder = "int", ""
    assert (core_value(scalar), typed_value(scalar)) == (12, "012")


def test_a_carriage_return_ends_a_line(write: Write) -> None:
    with pytest.raises(UsageError) as caught:
        load(write("version: 1\r\nname: a\r\nnmae: b\r\n"))
    (problem,) = caught.value.diagnostics
    assert problem.source is not None
    assert (problem.source.line, problem.source.text) == (3, "nmae: b")


def test_nobody_is_shown_more_than_500_problems(fails: Fails) -> None:
    problems = fails(SITE + "name: again\n" * 600)
    assert len(problems) == 501
    assert problems[-1].summary == "and 100 more problems, not shown"

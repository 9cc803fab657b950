"""Pages are held to the code: links lead somewhere, commands exist, inventories load."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from docs.generators.console import without_outputs
from docs.generators.pages import GENERATED
from provision.api import read_playbook
from provision.api.domains import check_folders, effect_classes, role_references
from provision.api.domains import load_inventory as load
from provision.api.support import unsupported
from provision.cli.main import app
from provision.inventory.selectors import SELECTORS
from provision.verify.claims import check_files, claims

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SITE = sorted(DOCS.rglob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *SITE]
ROLES = sorted(role_references())
LINK = re.compile(r"\]\(([^)\s]+)\)")
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
HEADINGS = (
    "Declared by",
    "Resources",
    "Effects",
    "What it reads",
    "What it never touches",
    "Not tested yet",
)
SNIPPET = re.compile(r'--8<-- "(.+)"')


def prose(page: Path) -> str:
    """Return a page without its blocks of code."""
    return BLOCK.sub("", page.read_text(encoding="utf-8"))


def blocks(page: Path, language: str) -> list[str]:
    """Return the code blocks of a page in one language."""
    text = page.read_text(encoding="utf-8")
    return [body for _, found, body in BLOCK.findall(text) if found == language]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site make them."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(page: Path, root: Path = ROOT) -> list[str]:
    """Return the relative links of a page that lead nowhere."""
    broken = []
    for link in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        is_outside = not target.is_relative_to(root)
        if is_outside or not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_relative_link_resolves(page: Path) -> None:
    assert broken_links(page) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text(
        "# A b\n[x](#a-b) [y](nowhere.md) [z](#nothing) [w](https://example.org)\n```\n[c](code)\n```\n"
    )
    assert broken_links(page, tmp_path) == ["nowhere.md", "#nothing"]
    assert broken_links(page) == ["#a-b", "nowhere.md", "#nothing"]  # all of it is outside the project
    assert anchors(page) == {"a-b"}


def test_the_index_names_every_page() -> None:
    index = DOCS / "index.md"
    linked = {(DOCS / link.partition("#")[0]).resolve() for link in LINK.findall(prose(index))}
    assert {*SITE} - {index} <= linked


def test_the_site_has_every_page_in_its_navigation() -> None:
    paths = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    assert sorted(paths) == sorted(str(page.relative_to(DOCS)) for page in SITE)


@pytest.mark.parametrize("page", SITE, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_begins_with_what_to_type(page: Path) -> None:
    snippet = SNIPPET.match(page.read_text("utf-8"))
    text = (ROOT / snippet[1] if snippet else page).read_text("utf-8")
    assert re.match(r"# .+\n\n(<!-- .+ -->\n)?```(console|python)\n", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_an_output_is_run_or_recorded_and_not_invented(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for match in re.finditer(
        r"^(<!-- (?:run|recorded): .+ -->\n)?```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL
    ):
        outputs = [line for line in match[2].splitlines() if not line.startswith("$ ")]
        if outputs and match[1] is None:
            assert outputs in SHORT_OUTPUTS, match[2]


CONSOLE = re.compile(r"^(<!-- (?:run|recorded): .+ -->\n)?```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHORT_OUTPUTS = (["provision 0.1.0"], ["2"])
"""Of `provision --version` and `echo $?`."""


# ---------------------------------------------------------------- commands

TARGETS = {
    *re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE),
}
COMMANDS: Any = typer.main.get_command(app)


def command_lines(page: Path) -> Iterator[str]:
    """Yield what a page says to type: in its blocks, and in code within its text."""
    for language in ("console", "sh"):
        for body in blocks(page, language):
            lines = re.sub(r"\\\n", " ", body).splitlines()
            yield from (line.removeprefix("$ ") for line in lines if language == "sh" or line[:2] == "$ ")
    yield from re.findall(r"`((?:provision|make) [^`]+)`", prose(page))


def mistake(line: str) -> str:
    """Return what is wrong with a command line; empty if it can be typed."""
    for part in re.split(r"&&|\|(?=\s)|;|#", line):
        words = [word for word in shlex.split(part.strip().replace("'", "")) if "=" not in word[:12]]
        if words[:1] == ["make"] and words[1:]:
            return "" if words[1] in TARGETS else f"no target {words[1]}"
        if not words[:1] or words[0].rpartition("/")[2] != "provision":
            continue
        command = COMMANDS
        for word in words[1:]:
            if hasattr(command, "commands") and not word.startswith("-"):
                if word not in command.commands:
                    return "" if word.isupper() else f"no command {word}"
                command = command.commands[word]
        options = {option for each in command.params for option in each.opts} | {"--help", "--version", "--"}
        options |= {"--install-completion", "--show-completion"}
        before = words[: words.index("--")] if "--" in words else words
        wrong = [word for word in before if word.startswith("-") and word.partition("=")[0] not in options]
        if wrong:
            return f"no option {wrong[0]}"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_of_a_page_exist(page: Path) -> None:
    assert [(line, mistake(line)) for line in command_lines(page) if mistake(line)] == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("provision plan lab --step base_os", ""),
        ("provision plna lab", "no command plna"),
        ("provision plan lab --stpe x", "no option --stpe"),
        ("provision lab up lab && provision lab upp", "no command upp"),
        ("provision ssh lab vm-1 -- ls --color", ""),
        ("make nothing", "no target nothing"),
    ],
)
def test_a_mistyped_command_is_found(line: str, expected: str) -> None:
    assert mistake(line) == expected


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_names_that_python_of_a_page_imports_exist(page: Path) -> None:
    for body in blocks(page, "python"):
        nodes = list(ast.walk(ast.parse(body)))
        names: dict[str, object] = {}
        for node in nodes:
            if isinstance(node, ast.ImportFrom):
                module = importlib.import_module(str(node.module))
                names |= {alias.name: getattr(module, alias.name) for alias in node.names}
        for node in nodes:
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id in names
            ):
                assert hasattr(names[node.value.id], node.attr), node.attr


# ---------------------------------------------------------------- inventories and playbooks


def yaml_blocks() -> Iterator[Any]:
    for page in PAGES:
        if page.name != "inventory.md":  # its examples are tested beside their generator
            for number, body in enumerate(blocks(page, "yaml"), 1):
                if not SNIPPET.match(body):
                    yield pytest.param(body, id=f"{page.stem}-{number}")


@pytest.mark.parametrize("body", [*yaml_blocks()])
def test_yaml_of_a_page_loads(body: str, tmp_path: Path) -> None:
    if "\nsteps:" in body:
        playbook = tmp_path / "playbook.yaml"
        playbook.write_text(body)
        assert read_playbook(str(playbook)).entries
        return
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text(body)
    assert load(ROOT / "inventories" / "starter.yaml", overlays=[overlay], environ={}).nodes


def test_the_inventory_that_the_quickstart_builds_is_supported() -> None:
    written, added, network = blocks(DOCS / "quickstart.md", "yaml")
    kept = [line for line in written.splitlines() if not line.startswith("network:")]
    site = DOCS / "generators" / "site.yaml"  # what the outputs of the page are of
    built = "\n".join([*kept, *added.splitlines(), *network.splitlines()]) + "\n"
    assert site.read_text(encoding="utf-8").partition("\n")[2] == built
    assert unsupported(load(site, environ={})) == ()


def test_the_starter_inventory_is_supported_as_a_whole() -> None:
    assert unsupported(load(ROOT / "inventories" / "starter.yaml", environ={})) == ()


def test_what_the_readme_says_of_the_homelab_is_so() -> None:
    roles = {
        name: {item.role for item in unsupported(load(ROOT / "inventories" / f"{name}.yaml"))}
        for name in ("homelab", "lab")
    }
    assert roles == {"homelab": set(), "lab": set()}
    assert "nobody has run it on a card" in (ROOT / "README.md").read_text("utf-8")


# ---------------------------------------------------------------- pages about roles, effects, playbooks


def test_every_role_has_its_page_and_no_page_lacks_its_role() -> None:
    assert {each.stem for each in (DOCS / "roles").glob("*.md")} == set(ROLES)


@pytest.mark.parametrize("role", ROLES)
def test_a_role_s_page_tells_all_parts(role: str) -> None:
    page = DOCS / "roles" / f"{role}.md"
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"# Role `{role}`\n")
    assert tuple(re.findall(r"^## (.+)$", text, re.MULTILINE)) == HEADINGS
    assert all(part.strip() for part in re.split(r"^##? .+$", text, flags=re.MULTILINE)[1:])


def resource_kinds() -> set[str]:
    """Kinds of all resources in the source: named in a Key, or by a subclass of KeyedResource."""
    kinds: set[str] = set()
    bases: dict[str, set[str]] = {}
    named: dict[str, str] = {}
    for path in (ROOT / "provision").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        kinds |= set(re.findall(r'Key\(self(?:\.\w+)?\.system, "([a-z-]+)"', text))
        classes = re.findall(r"^class (\w+)\((.*)\):$((?:\n(?! {0,3}\S).*)*)", text, re.MULTILINE)
        for name, above, body in classes:
            bases[name] = set(above.split(", "))
            for kind in re.findall(r'^    kind: ClassVar\[str\] = "(.*)"$', body, re.MULTILINE):
                named[name] = kind
    resources = {"KeyedResource"}
    while more := {name for name, above in bases.items() if above & resources} - resources:
        resources |= more
    return kinds | {kind for name, kind in named.items() if name in resources}


def test_pages_of_roles_name_the_kinds_of_resources_that_exist() -> None:
    documented: set[str] = set()
    for role in ROLES:
        part = (DOCS / "roles" / f"{role}.md").read_text(encoding="utf-8").partition("## Resources")[2]
        documented |= set(re.findall(r"^\| `([a-z0-9-]+)` \|", part.partition("## ")[0], re.MULTILINE))
    assert documented == resource_kinds()


def test_the_page_of_consent_has_all_effect_classes_in_their_order() -> None:
    text = (DOCS / "consent.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| (\w+) \|", text, re.MULTILINE)
    assert rows == [(cls.name, cls.default_consent) for cls in effect_classes().values()]


@pytest.mark.parametrize("path", sorted((ROOT / "playbooks").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_shipped_playbook_has_its_page_with_all_of_its_roles(path: Path) -> None:
    playbook = yaml.safe_load(path.read_text(encoding="utf-8"))
    text = (DOCS / "playbooks" / f"{playbook['name']}.md").read_text(encoding="utf-8")
    for step in playbook["steps"]:
        assert f"`{step.get('role', 'verify')}`" in text


def test_the_page_of_playbooks_has_all_selectors() -> None:
    text = (DOCS / "playbooks.md").read_text(encoding="utf-8")
    assert all(f"| `{selector}` |" in text for selector in SELECTORS)


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_page_is_current(name: str) -> None:
    page = (DOCS / name).read_text(encoding="utf-8")
    assert without_outputs(page) == without_outputs(GENERATED[name]()), "run: make docs"


def test_every_check_claims_something_about_somebody() -> None:
    found = [
        claim
        for path in check_files(check_folders())
        for claim in claims(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert len(found) > 20
    for name, claim, subject in found:
        assert claim.endswith(".")
        assert claim != name
        assert subject, name


def test_the_command_lines_of_the_lab_s_page_are_those_of_the_commands() -> None:
    rows = re.findall(r"^\| `(provision lab (\w+)[^`]*)`", (DOCS / "lab.md").read_text("utf-8"), re.MULTILINE)
    titles = re.findall(r"^## `(provision lab \w+.*)`$", (DOCS / "cli.md").read_text("utf-8"), re.MULTILINE)
    real = {each.split()[2]: each.replace("[", "").replace("]", "") for each in titles}
    assert {verb: row.replace("[", "").replace("]", "") for row, verb in rows} == real


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_codes_that_a_page_names_exist(page: Path) -> None:
    codes = set(re.findall(r"`([A-Z]+(?:_[A-Z0-9]+)+)`", page.read_text(encoding="utf-8")))
    assert codes - quoted_codes() <= VARIABLES


VARIABLES = {
    "NO_COLOR",
    "PROVISION_TEST_GPU",
    "PROVISION_TEST_KUBECONFIG",
    "PROVISION_TEST_PVE",
    "PROVISION_TEST_PVE_BRIDGE",
    "PROVISION_TEST_PVE_CERTIFICATE",
    "PROVISION_TEST_PVE_NODE",
    "PROVISION_TEST_PVE_SECRET",
    "PROVISION_TEST_PVE_STORAGE",
    "PROVISION_TEST_PVE_VMID",
    "PROVISION_TEST_SEED",
}
"""Of the environment; our own stand in the source."""


@cache
def quoted_codes() -> frozenset[str]:
    """Return the texts in the source of the package that look like codes."""
    files = (ROOT / "provision").rglob("*.py")
    return frozenset(
        code for path in files for code in re.findall(r'"([A-Z0-9_]+)(?:"|: )', path.read_text("utf-8"))
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    paths = set(re.findall(FOLDERS + r"/[\w./-]*\w", text))
    named = {path for path in paths if "DOMAIN" not in path and "NAME" not in path}
    missing = {path for path in named if not (ROOT / path).exists() and not (DOCS / path).exists()}
    assert missing <= {"inventories/site.yaml"}


FOLDERS = r"\b(?<![/.])(?:benchmarks|docs|inventories|playbooks|provision|templates|tests)"


def test_the_architecture_names_every_folder_of_the_package() -> None:
    table = (DOCS / "architecture.md").read_text(encoding="utf-8").partition("## How a run goes")[0]
    folders = {path.parent.name for path in (ROOT / "provision").glob("*/__init__.py")}
    assert set(re.findall(r"`(\w+)/`", table)) >= folders

"""Pages that say what the code does are held to the code; links lead somewhere."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml

from docs.generators.verify_reference import reference
from provision.api.domains import check_folders, effect_classes, role_references
from provision.api.domains import load_inventory as load
from provision.api.support import unsupported
from provision.inventory.selectors import SELECTORS
from provision.verify.claims import check_files, claims

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
ROLES = sorted(role_references())
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADINGS = ("Declared by", "Resources", "Effects", "Facts it needs", "What it never touches", "Unproven")


def prose(page: Path) -> str:
    """Return a page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken(page: Path, root: Path = ROOT) -> list[str]:
    """Return the relative links of a page that lead nowhere."""
    found = []
    for link in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        outside = not target.is_relative_to(root)
        if outside or not target.exists() or (anchor and anchor not in anchors(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_relative_link_resolves(page: Path) -> None:
    assert broken(page) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text(
        "# A b\n[x](#a-b) [y](nowhere.md) [z](#nothing) [w](https://example.org)\n```\n[c](code)\n```\n"
    )
    assert broken(page, tmp_path) == ["nowhere.md", "#nothing"]
    assert broken(page) == ["#a-b", "nowhere.md", "#nothing"]  # all of it is outside the project
    assert anchors(page) == {"a-b"}


def test_the_index_names_every_page() -> None:
    index = DOCS / "index.md"
    linked = {(DOCS / each.partition("#")[0]).resolve() for each in LINK.findall(prose(index))}
    assert set(PAGES) - {index} <= linked


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
        documented |= set(re.findall(r"^\| `([a-z-]+)` \|", part.partition("## ")[0], re.MULTILINE))
    assert documented == resource_kinds()


def test_the_page_of_consent_has_all_effect_classes_in_their_order() -> None:
    text = (DOCS / "consent.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| (\w+) \|", text, re.MULTILINE)
    assert rows == [(cls.name, cls.default_consent) for cls in effect_classes().values()]


def test_the_page_of_playbooks_has_all_of_them_with_their_roles() -> None:
    text = (DOCS / "playbooks.md").read_text(encoding="utf-8")
    for path in (ROOT / "playbooks").glob("*.yaml"):
        playbook = yaml.safe_load(path.read_text(encoding="utf-8"))
        part = text.partition(f"\n## `{playbook['name']}`\n")[2].partition("\n## ")[0]
        assert part, path.name
        for step in playbook["steps"]:
            assert f"`{step.get('role', 'verify')}`" in part
    assert all(f"`{each}`" in text for each in SELECTORS)


def test_the_page_of_checks_is_the_generated_one() -> None:
    command = "python -m docs.generators.verify_reference > docs/verify.md"
    assert (DOCS / "verify.md").read_text(encoding="utf-8") == reference(), f"run: {command}"


def test_every_check_claims_something_about_somebody() -> None:
    found = [
        each
        for path in check_files(check_folders())
        for each in claims(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert len(found) > 20
    for name, claim, subject in found:
        assert claim.endswith(".")
        assert claim != name
        assert subject, name


def test_what_the_readme_says_of_the_homelab_is_so() -> None:
    waiting = {
        name: {each.role for each in unsupported(load(ROOT / "inventories" / f"{name}.yaml"))}
        for name in ("homelab", "lab")
    }
    assert waiting == {"homelab": {"k3s_server", "k3s_agent", "gpu_driver", "gpu_operator"}, "lab": set()}
    assert "declares k3s, a managed GPU driver and the GPU Operator" in (ROOT / "README.md").read_text(
        "utf-8"
    )


def test_the_command_lines_of_the_lab_s_page_are_those_of_the_commands() -> None:
    rows = re.findall(r"^\| `(provision lab (\w+)[^`]*)`", (DOCS / "lab.md").read_text("utf-8"), re.MULTILINE)
    titles = re.findall(r"^## `(provision lab \w+.*)`$", (DOCS / "cli.md").read_text("utf-8"), re.MULTILINE)
    real = {each.split()[2]: each.replace("[", "").replace("]", "") for each in titles}
    assert {verb: row.replace("[", "").replace("]", "") for row, verb in rows} == real


def test_codes_of_the_page_of_troubles_exist() -> None:
    codes = re.findall(r"\*\*`([A-Z_]+)`\*\*", (DOCS / "troubleshooting.md").read_text(encoding="utf-8"))
    assert codes
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "provision").rglob("*.py"))
    assert [each for each in codes if f'"{each}"' not in source] == []

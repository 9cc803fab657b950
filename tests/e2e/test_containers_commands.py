"""The smaller commands on container guests: ssh, trust, rebuild, import, cards, graph, report, --prune."""

from __future__ import annotations

import copy
import os
import re
from pathlib import Path

import pytest

from provision.report.schema import event_schema
from tests.e2e.foreign import alone, looked_at, plant
from tests.e2e.site import ROUTER, Done, Site, brought_up, inventory
from tests.unit.report.test_schema import problems

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and containers"),
]
FIRST = "198.18.0.11"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Site:
    declared = inventory("e2e-c-commands")
    # Of the user's own known hosts nothing is believed here.
    empty = tmp_path_factory.mktemp("nothing") / "known_hosts"
    empty.write_text("")
    declared["access"]["known_hosts"] = str(empty)
    made = Site(tmp_path_factory.mktemp("commands"), declared)
    return brought_up(made, request)


@pytest.fixture(scope="module")
def foreign(site: Site) -> dict[str, str]:
    return plant(site)


def is_quiet(site: Site, file: Path | None = None) -> None:
    result = site.provision("plan", file or site.file, "--detailed-exitcode").ended(0)
    assert "No changes" in result.out


def fits_the_schema(result: Done) -> set[str]:
    """Hold each line of `--json` to the published schema; return the types of events."""
    schema = event_schema()
    events = result.events()
    assert [found for each in events for found in problems(each, schema, schema)] == []
    return {each["type"] for each in events}


def test_every_line_of_json_fits_the_published_schema(site: Site, foreign: dict[str, str]) -> None:
    assert foreign
    planned = fits_the_schema(site.provision("plan", site.file, "--json").ended(0))
    assert {"planned_change", "planned_step", "plan"} <= planned
    applied = fits_the_schema(site.apply("--json").ended(0))
    assert {"run_started", "step_started", "change", "effect", "step_ended", "check", "run_ended"} <= applied
    assert "check" in fits_the_schema(site.provision("verify", site.file, "--json").ended(0))


def test_ssh_logs_in_as_provision_does_and_ends_as_the_command_does(site: Site) -> None:
    site.provision("ssh", site.file, "vm-1", "--", "true").ended(0)
    assert site.provision("ssh", site.file, "vm-2", "--", "uname", "-n").ended(0).out == "vm-2\n"
    assert site.provision("ssh", site.file, "router", "--", "uname", "-n").ended(0).out == "router\n"
    site.provision("ssh", site.file, "vm-1", "--", "exit", "23").ended(23)
    assert site.provision("ssh", site.file, "vm-9", "--", "true").ended(64).codes() == {"NODE_UNKNOWN"}


def test_a_key_that_nobody_accepted_is_refused_until_it_is_trusted(site: Site) -> None:
    overlay = site.lab / "site.yaml"
    before = overlay.read_text()
    found = re.search(r'(hypervisors:(?:.*\n)*?.*site")\n +host_key: "?(SHA256:[^"\n]+)"?\n', before)
    assert found is not None
    overlay.write_text(before.replace(found[0], f"{found[1]}\n"))
    trusted = site.file.with_name(f"{site.file.name}.trust")
    try:
        for _ in range(2):  # the second time after the store was lost
            result = site.apply().ended(4)
            assert result.codes() == {"HOST_KEY_UNKNOWN"}
            assert f"provision trust {site.file} pve/ssh {found[2]}" in " ".join(result.said.split())
            said = site.provision("trust", site.file, "pve/ssh", found[2]).ended(0).out
            written = re.search(r"Written: (.*)", said)
            assert written is not None
            trusted = Path(written[1])
            site.apply().ended(0)
            trusted.unlink()
    finally:
        overlay.write_text(before)
        trusted.unlink(missing_ok=True)
    told = site.provision("trust", site.file, "pve/ssh", found[2]).ended(64)
    assert told.codes() == {"TRUST_WITHOUT_EFFECT"}, "the key stands in the lab's own file"
    is_quiet(site)


def test_the_graph_names_every_step_after_those_that_it_waits_for(site: Site) -> None:
    text = site.provision("graph", site.file).ended(0).out
    steps = ["pve: image", "vm-1: virtual_machine", "vm-1: address", "vm-1: base_os", "verify"]
    places = [text.index(step) for step in steps]
    assert places == sorted(places)
    dot = site.provision("graph", site.file, "--dot").ended(0).out
    assert dot.startswith("digraph")
    assert dot.count("{") == dot.count("}")


def test_cards_lists_what_the_kernel_has(site: Site) -> None:
    """A container sees the machine's own devices: whatever these are, they are told as they are."""

    def slots(*words: str) -> dict[str, str]:
        rows = site.provision("cards", site.file, *words).ended(0).out.splitlines()
        assert rows[0] == "There is no card." or rows[0].split()[:4] == ["host", "slot", "id", "group"]
        return {row.split()[1]: row.split()[2] for row in rows[1:] if row.startswith("pve ")}

    kernel: dict[str, set[str]] = {}
    cards = set()
    for device in Path("/sys/bus/pci/devices").iterdir():
        words = [(device / name).read_text().strip().removeprefix("0x") for name in ("vendor", "device")]
        slot, _, function = device.name.rpartition(".")
        kernel.setdefault(slot, set()).add(":".join(words))
        if function == "0" and not (device / "class").read_text().startswith("0x06"):
            cards.add(slot)  # bridges are no cards
    every = slots("--all")
    assert cards <= set(every) <= set(kernel)
    assert all(found in kernel[slot] for slot, found in every.items())
    assert slots().items() <= every.items()


def test_the_report_of_a_run_is_one_page(site: Site) -> None:
    page = site.folder / "run.html"
    site.provision("report", "last", "--out", page).ended(0)
    text = page.read_text()
    run = site.provision("runs", "--limit", "1").ended(0).out
    name = re.search(r"\d{8}-\d{6}-[0-9a-f]{6}", run)
    assert name is not None
    assert name[0] in text
    assert "vm-1" in text
    assert not re.search(r"(src|href)=.?https?:", text), "it needs nothing else"
    assert "</html>" in text


def test_a_vm_is_made_anew_with_consent_and_nothing_else_is(site: Site) -> None:
    keys, other = site.fingerprints(FIRST), site.config(202)
    site.on(FIRST, "touch /var/lib/of-the-old-one")
    result = site.provision("rebuild", site.file, "vm-1").ended(0)
    assert "--allow replace" in result.out
    site.apply().ended(5)
    assert site.fingerprints(FIRST) == keys, "nobody has agreed yet"
    site.apply("--allow", "replace").ended(0)
    assert site.fingerprints(FIRST) == {site.marker(201)["host-key"]} != keys
    assert site.on(FIRST, "ls /var/lib/of-the-old-one 2>/dev/null; cat /etc/site/purpose") == "rehearsal\n"
    assert site.config(202) == other
    is_quiet(site)


def test_a_vm_of_nobody_is_adopted_with_the_key_that_a_person_gives(site: Site) -> None:
    config = site.lab / "api/qemu-server/201.conf"
    lines = config.read_text().splitlines(keepends=True)
    config.write_text("".join(each for each in lines if not each.startswith(("#provision", "tags:"))))
    (key,) = site.fingerprints(FIRST)
    assert "VMID_TAKEN_FOREIGN" in site.apply().ended(4).codes()
    assert site.provision("import", site.file, "vm-1").ended(64).codes() == {"CONFIRMATION_MISSING"}
    result = site.provision("import", site.file, "vm-1", "--yes").ended(4)
    assert result.codes() == {"HOST_KEY_UNKNOWN"}
    assert "#provision" not in config.read_text(), "nothing was written"
    site.provision("import", site.file, "vm-1", "--host-key", key, "--yes").ended(0)
    assert site.marker(201)["host-key"] == key
    assert (site.marker(201)["inventory"], site.marker(201)["node"]) == (site.name, "vm-1")
    is_quiet(site)


def test_what_left_the_inventory_is_shown_and_removed_only_on_demand(
    site: Site, foreign: dict[str, str]
) -> None:
    declared = copy.deepcopy(site.declared)
    del declared["nodes"]["vm-2"]
    # The lab's overlay belongs to the file's name and folder.
    site.write(declared=declared)
    try:
        plan = site.provision("plan", site.file, "--json").ended(0)
        assert any("vm-2" in each for each in plan.events("plan")[0]["orphans"])
        assert "vm-2" in site.provision("plan", site.file).ended(0).out
        site.apply().ended(0)
        assert "name: vm-2" in site.config(202)
        site.apply("--prune").ended(0)
        files = site.api_files()
        assert not [name for name in files if "202" in name and not name.startswith("tasks/")]
        assert "vm-2" not in site.on(ROUTER, "ls /etc/dnsmasq.d/hosts")
        assert looked_at(site) == foreign
        is_quiet(site)
    finally:
        site.write()


def test_destroy_leaves_what_is_somebody_elses(site: Site, foreign: dict[str, str]) -> None:
    site.provision("destroy", site.file, "--yes").ended(0)
    alone(site)
    assert looked_at(site) == foreign


def test_nothing_of_the_lab_is_left(site: Site) -> None:
    site.down()

"""`provision discover`: what is on a host becomes an inventory, and after the import the plan is empty."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from provision.api import discover as discovery_api
from provision.api.domains import load_inventory as load
from provision.api.import_vms import adopt_all, adoptions
from provision.cli import discover, main, vms
from provision.connections.local import LocalConnection
from provision.hosts.queries.shell import Shell
from provision.inventory import Inventory
from provision.proxmox import discovery
from provision.proxmox.discovery import discovered
from provision.proxmox.first_inventory import Trusted, discovered_inventory, network_of
from provision.proxmox.vm_files import VmFile
from provision.testing.model_proxmox import ModelVm
from provision.values.cancel import Cancel
from tests.model.model_site import ModelSite
from tests.model.test_bootstrap import CERTIFICATE, CHOICE, FOUND, KEY

MAC = "BC:24:11:00:00:0"
VMS: dict[int, dict[str, str]] = {
    100: {
        "name": "web",
        "cores": "4",
        "memory": "4096",
        "net0": f"virtio={MAC}1,bridge=vmbr0,firewall=1",
        "scsi0": "local-zfs:vm-100-disk-0,iothread=1,size=60G",
        "scsihw": "virtio-scsi-single",
        "boot": "order=scsi0;ide2;net0",
        "ide2": "none,media=cdrom",
        "ostype": "l26",
        "onboot": "1",
        "tags": "shop;front-end",
    },
    101: {  # a Windows guest from long ago
        "name": "Office.LAN",
        "cores": "2",
        "sockets": "2",
        "memory": "current=6000",
        "balloon": "2048",
        "bios": "ovmf",
        "machine": "pc-q35-8.1+pve0",
        "cpu": "host,hidden=1,flags=+pcid;-aes",
        "efidisk0": "local-zfs:vm-101-disk-0,efitype=4m,pre-enrolled-keys=1,size=1M",
        "tpmstate0": "local-zfs:vm-101-disk-1,size=4M,version=v2.0",
        "net0": f"e1000-82545em={MAC}2,bridge=vmbr0,tag=20",
        "net1": f"ne2k_pci={MAC}3,bridge=vmbr1",
        "sata1": "local-zfs:vm-101-disk-2,size=100G",
        "virtio3": "local-zfs:vm-101-disk-3,size=32G",
        "boot": "order=sata1",
        "startup": "order=2,up=30",
        "protection": "1",
        "agent": "enabled=0",
        "numa": "1",
    },
    102: {  # nobody gave it a name; its disk is no whole number of GiB
        "memory": "512",
        "bios": "ovmf",
        "net0": f"virtio={MAC}4,bridge=vmbr0",
        "virtio0": "local-zfs:vm-102-disk-0,size=2252M",
    },
    103: {  # two have one name; a gap between its disks; a card that root gave it
        "name": "web",
        "net0": f"virtio={MAC}5,bridge=vmbr0",
        "scsi0": "local-zfs:vm-103-disk-0,size=8G",
        "scsi5": "local-zfs:vm-103-disk-1,size=9G",
        "hostpci0": "0000:02:00,pcie=1",
        "machine": "q35",
        "ipconfig0": "ip=192.168.1.63/24,gw=192.168.1.1",
    },
    104: {"name": "tmpl", "template": "1", "net0": f"virtio={MAC}6,bridge=vmbr0"},
    105: {"name": "lost", "net0": f"virtio={MAC}7,bridge=vmbr0"},
    106: {"name": "island", "cores": "1"},
}
ADDRESSES = {100: "192.168.1.60", 101: "192.168.1.61", 102: "192.168.1.62", 103: "192.168.1.63"}


def write_inventory(folder: Path, *, manage: bool) -> Inventory:
    for name in ("id", "id.pub", "t"):
        (folder / name).write_text("ssh-ed25519 AAAA me\n")
    files = [VmFile(vmid, config) for vmid, config in VMS.items()]
    nodes = discovered(
        "pve", "vmbr0", network_of(FOUND, "192.168.1.5"), files, ADDRESSES | {106: "192.168.1.66"}
    )
    trusted = Trusted("192.168.1.5", None, KEY, CERTIFICATE, folder / "id", "site", folder / "t")
    text = discovered_inventory("site", FOUND, CHOICE, trusted, nodes, ["Templates: 104"])
    file = folder / "site.yaml"
    file.write_text(text if not manage else text.replace("manage: false, hostname", "hostname"))
    return load(file)


def site_of(inventory: Inventory, folder: Path, machines: dict[int, ModelVm]) -> ModelSite:
    site = ModelSite(inventory, folder / "state")
    api = site.apis["pve/api"]
    api.vms, api.bridges = machines, {"vmbr0": "bridge", "vmbr1": "bridge"}
    site.hosts["pve/ssh"].state.bridges = ("vmbr0", "vmbr1")
    return site


@pytest.fixture
def machines() -> dict[int, ModelVm]:
    return {vmid: ModelVm(vmid, dict(config), running=vmid < 102) for vmid, config in VMS.items()}


def test_what_was_discovered_plans_as_no_change(tmp_path: Path, machines: dict[int, ModelVm]) -> None:
    inventory = write_inventory(tmp_path, manage=False)
    assert list(inventory.nodes) == ["web", "office-lan", "vm-102", "web-103"]
    plan = site_of(inventory, tmp_path, machines).plan()
    assert plan.empty
    assert plan.refusals == ()
    text = (tmp_path / "site.yaml").read_text()
    assert "# lost: {" in text, "without an address it is a comment"
    assert "VM 103 takes a card of the host: 0000:02:00,pcie=1" in text
    assert "# Templates: 104" in text


def test_the_first_plan_after_importing_all_is_empty(tmp_path: Path, machines: dict[int, ModelVm]) -> None:
    inventory = write_inventory(tmp_path, manage=True)
    models = site_of(inventory, tmp_path, machines)
    assert {problem.code for problem in models.plan().refusals} == {"VMID_TAKEN_FOREIGN"}
    before = {vmid: dict(machine.config) for vmid, machine in machines.items()}
    site = models.site()
    try:
        candidates, problems = adoptions(site, Cancel())
        assert problems == ()
        assert {candidate.node: candidate.changes for candidate in candidates} == dict.fromkeys(
            ["web", "office-lan", "vm-102", "web-103"], ()
        )
        models.apis["pve/api"].log.clear()
        assert adopt_all(site, Cancel()) == ("web", "office-lan", "vm-102", "web-103")
    finally:
        site.close()
    log = models.apis["pve/api"].log
    reads = [path for method, path, _ in log if method == "GET"]
    assert len(reads) <= 4 + 2 * len(candidates)
    for vmid, machine in machines.items():
        changed = {key for key in machine.config if machine.config[key] != before[vmid].get(key)}
        assert changed == ({"description", "tags"} if vmid < 104 else set())
    plan = models.plan()
    assert (plan.refusals, plan.empty) == ((), True), plan.steps


def test_what_cannot_be_taken_over_is_named_and_the_others_are(
    tmp_path: Path,
    machines: dict[int, ModelVm],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    inventory = write_inventory(tmp_path, manage=True)
    models = site_of(inventory, tmp_path, machines)
    del machines[102]
    machines[103].config["description"] = "provision: inventory=other node=x"
    monkeypatch.setattr(vms, "settle", lambda _context, _name: inventory)
    monkeypatch.setattr(vms, "open_site", lambda _inventory: models.site())
    assert main.main(["import", "site"]) == 64
    assert main.main(["import", "site", "--all", "--yes"]) == 4
    captured = capsys.readouterr()
    assert "2 VMs taken over" in captured.out
    assert "VM_ABSENT" in captured.out
    assert "VMID_TAKEN_FOREIGN" in captured.out
    assert main.main(["import", "site", "--all", "--yes"]) == 4
    assert "0 VMs taken over" in capsys.readouterr().out


# ---------------------------------------------------------------- what hosts say


@pytest.mark.parametrize(
    ("output", "address"),
    [
        (
            json.dumps(
                [
                    {"name": "lo"},
                    {
                        "hardware-address": "bc:24:11:00:00:01",
                        "ip-addresses": [
                            {"ip-address-type": "ipv6", "ip-address": "fe80::1"},
                            {"ip-address-type": "ipv4", "ip-address": "10.0.0.9"},
                        ],
                    },
                ]
            ),
            "10.0.0.9",
        ),
        ('[{"hardware-address":"bc:24:11:00:00:01"}]', ""),
        ('{"error":1}', ""),
        ("QEMU guest agent is not running", ""),
        ("[1,null,[]]", ""),
    ],
)
def test_an_agent_names_the_address_of_the_first_device(output: str, address: str) -> None:
    assert discovery.agent_address(output, f"{MAC}1") == address


@pytest.mark.parametrize(
    ("config", "address"),
    [("ip=10.0.0.9/24,gw=10.0.0.1", "10.0.0.9"), ("ip=dhcp", ""), ("", ""), ("ip=x/24", "")],
)
def test_cloud_init_names_a_static_address(config: str, address: str) -> None:
    assert discovery.static_address(VmFile(1, {"ipconfig0": config})) == address


def test_discover_changes_nothing_and_writes_the_inventory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[bytes] = []

    class Asked(LocalConnection):
        def execute(self, script: bytes, **more: Any) -> int | None:
            asked.append(script)
            return super().execute(script, **more)

    tools: dict[str, str] = {
        "pveversion": "echo pve-manager/9.2.11/abc",
        "pveum": "case $* in *token*) echo '[{\"tokenid\":\"site\"}]' ;; *) echo '[]' ;; esac",
        "pvesh": 'echo \'[{"storage":"local","type":"dir","content":"import,images,snippets"}]\'',
        "ip": "case $* in *neigh*) echo '192.168.1.60 dev vmbr0 lladdr bc:24:11:00:00:01 REACHABLE' ;;"
        " *addr*) echo '4: vmbr0    inet 192.168.1.5/24 scope global vmbr0' ;; esac",
        "openssl": f"echo 'sha256 Fingerprint={CERTIFICATE}'",
        "qm": 'echo \'[{"hardware-address":"bc:24:11:00:00:02","ip-addresses":'
        '[{"ip-address-type":"ipv4","ip-address":"192.168.1.61"}]}]\'',
    }
    for name, text in tools.items():
        tool = tmp_path / "bin" / name
        tool.parent.mkdir(exist_ok=True)
        tool.write_text(f"#!/bin/sh\n{text}\n")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr(discover, "connect", lambda _endpoint: Asked(("/bin/sh", "-s")))
    certificate = discovery_api._CERTIFICATE.command.replace("/etc/pve/local", str(tmp_path))
    monkeypatch.setattr(discovery_api, "_CERTIFICATE", Shell(certificate))
    (tmp_path / "pve-ssl.pem").write_text("certificate\n")
    monkeypatch.setattr("provision.proxmox.vm_files.VM_FILES", replace_folder(tmp_path))
    folder = tmp_path / "qemu-server"
    folder.mkdir()
    for vmid, more in ((100, ""), (101, "agent: 1\n")):
        text = "".join(f"{key}: {value}\n" for key, value in VMS[vmid].items() if key != "agent")
        (folder / f"{vmid}.conf").write_text(text + more)
    token = tmp_path / "token"
    out = tmp_path / "site.yaml"
    argv = ["discover", "root@192.168.1.5", "--out", str(out), "--token-file", str(token)]
    assert main.main(argv) == 0
    assert "provision bootstrap root@192.168.1.5 --name site" in capsys.readouterr().out
    inventory = load(out)
    assert {name: node.address for name, node in inventory.nodes.items()} == {
        "web": "192.168.1.60",
        "office-lan": "192.168.1.61",
    }
    assert len(asked) == 2, "one execution, and one more for what the host has not seen"
    assert main.main(argv) == 64, "a file that exists is kept"
    out.unlink()
    token.write_text("secret\n")
    assert main.main(argv) == 0
    assert load(out).hypervisors[next(iter(load(out).hypervisors))].api.token is not None


def replace_folder(folder: Path) -> Any:
    from provision.proxmox.vm_files import VM_FILES  # noqa: PLC0415 - as the fixture replaces it

    return replace(
        VM_FILES,
        command=VM_FILES.command.replace('"/etc/pve/nodes/${n%%.*}/qemu-server"', f'"{folder}/qemu-server"'),
    )

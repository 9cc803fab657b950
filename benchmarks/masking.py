"""What masking costs: a string with many secrets, and creating many VMs in memory, where nearly all is said.

python -m benchmarks.masking [--secrets 1000] [--vms 100]

Strings are masked as they come (plain, coloured, with a secret in them, split by an escape sequence). The
VMs stand on the models of the tests: no network, no processes, but every line, event and journal entry.
"""

from __future__ import annotations

import argparse
import base64
import secrets
import tempfile
import time
from pathlib import Path

from provision.api import Options
from provision.api.domains import load_inventory as load
from provision.values.cancel import Cancel
from provision.values.redaction import MASK, Redactor
from tests.model.model_site import ModelSite

LINE = "a line of some hundred characters that a command prints while it works, and nothing secret is in it"
ROUNDS = 2000
INVENTORY = """\
version: 1
name: site
access: { user: debian, key: ./id }
network:
  cidr: 10.0.0.0/16
  gateway: 10.0.0.1
  dhcp: { backend: dnsmasq, ssh: { user: root }, range: 10.0.200.0-10.0.220.0 }
images:
  debian-12: { url: "https://images.example/debian.img", sha256: "@SHA" }
hypervisors:
  pve:
    address: 10.0.0.5
    api: { token_id: a@pve!b, token: !secret { file: ./token }, fingerprint: "@PRINT" }
    storage: { images: local, disks: local-zfs, snippets: local }
profiles:
  small: { hypervisor: pve, image: debian-12, cores: 2, memory: 1GiB, disk: 4GiB, power: running }
nodes:
""".replace("@SHA", "ab" * 32).replace("@PRINT", ":".join(["AB"] * 32))


def strings(count: int) -> None:
    values = [secrets.token_urlsafe(24) for _ in range(count)]
    began = time.process_time()
    redactor = Redactor(*values)
    print(f"{count} secrets learnt: {(time.process_time() - began) / count * 1000:.3f} ms each")
    secret = values[-1]
    split = f"{secret[:9]}\x1b[1m{secret[9:]}"
    kinds = {
        "plain": LINE,
        "coloured": f"\x1b[31m{LINE}\x1b[0m",
        "with a secret": f"{LINE} {secret}",
        "with a secret in base64": f"{LINE} {base64.b64encode(b'user:' + secret.encode()).decode()}",
        "with a secret that is split": f"{LINE} {split}",
    }
    for name, text in kinds.items():
        began = time.process_time()
        for _ in range(ROUNDS):
            redactor.text(text)
        spent = time.process_time() - began
        masked = redactor.text(text)
        assert (MASK in masked) == ("secret" in name), name
        assert secret[9:] not in masked
        print(f"a string {name}: {spent / ROUNDS * 1000:.4f} ms")


def creation(vms: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in (("id", "private\n"), ("id.pub", "ssh-ed25519 AAAA me\n"), ("token", "a-secret\n")):
            (folder / file).write_text(text)
        nodes = (
            f"  vm-{n}: {{ profile: small, vmid: {1000 + n}, address: {address(n)} }}" for n in range(vms)
        )
        (folder / "site.yaml").write_text(INVENTORY + "\n".join(nodes) + "\n")
        models = ModelSite(load(folder / "site.yaml"), folder / "state")
        site = models.site()
        began = time.process_time()
        report = site.apply(None, Options(), models.events.append, Cancel(), lambda _: True)
        spent = time.process_time() - began
        site.close()
        assert report.exit_code == 0, [step.reason for step in report.steps if step.reason][:3]
        print(f"{vms} VMs created: {spent:.2f} CPU s, {len(models.events)} events")


def address(index: int) -> str:
    return f"10.0.{1 + index // 200}.{1 + index % 200}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--secrets", type=int, default=1000)
    parser.add_argument("--vms", type=int, default=100)
    given = parser.parse_args()
    strings(given.secrets)
    creation(given.vms)


if __name__ == "__main__":
    main()

"""A site in memory with something of every kind, as apply made it."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest

from provision.api.domains import load_inventory as load
from provision.verify import plugin
from tests.model.model_site import ModelSite

INVENTORY = (
    """
version: 1
name: tiny
policy: { allow: [reboot-hypervisor, reboot-guest, reboot-node, power-cycle, console-loss, delete] }
access: { user: debian, key: ./key, authorized_keys: ["ssh-ed25519 AAAAother other"] }
network: { cidr: 198.18.0.0/24, dhcp: { backend: dnsmasq, address: 198.18.0.1, ssh: {} } }
images:
  debian-12: { url: "https://example.org/debian.qcow2", sha256: "@SHA" }
hypervisors:
  pve:
    address: 198.18.0.5
    reserve_address: true
    api:
      url: https://198.18.0.5:8006
      token_id: a@pve!b
      token: !secret { file: ./token }
      fingerprint: "@PRINT"
    ssh: { user: root }
    storage: { images: local, disks: local-lvm, snippets: local }
    bridge: vmbr0
    repositories: no_subscription
    usb: { stick: { id: "10c4:ea60" } }
    cards:
      one: { address: "0000:01:00", id: "1234:1111" }
    host_resources:
      - { kind: file, path: /etc/motd, content: "{{ site }}\\n", mode: "0644" }
      - { kind: package, name: htop, hold: true }
      - { kind: package, name: nano, absent: true }
      - { kind: sysctl, key: vm.swappiness, value: "10" }
      - { kind: kernel_module, name: dummy, options: numdummies=2 }
      - { kind: kernel_module, name: pcspkr, blacklisted: true }
      - { kind: package, name: cron }
      - { kind: service, name: cron, enabled: true }
      - { kind: command, name: site folder, run: mkdir /etc/site, creates: /etc/site }
profiles:
  small:
    hypervisor: pve
    image: debian-12
    cores: 1
    sockets: 2
    memory: 1GiB
    disk: 4GiB
    balloon: off
    numa: true
    agent: true
    protection: false
    startup: { order: 3, up: 10 }
    cpu: { type: host, flags: ["+aes"] }
    tags: [lab]
    nics: [{ vlan: 7, mtu: 1450, firewall: true }]
    disks: [{ size: 2GiB, ssd: true, discard: true }]
    efi: {}
    bios: ovmf
    machine: pc-q35-10.1
    serial_console: true
    pool: lab
    tpm: { version: v2.0 }
    power: running
    start_at_boot: false
    timezone: Etc/UTC
    ntp: [198.18.0.1]
    swap: off
    packages: [ca-certificates]
    sysctl: { vm.max_map_count: 262144 }
    modules: [br_netfilter]
    hosts: { registry.lab: 198.18.0.3 }
    unattended_upgrades: keep_kernel
    host_resources:
      - { kind: file, path: /etc/app, content: "a = {{ name }}\\n", owner: root, group: root, mode: "0640" }
      - { kind: file, path: /etc/secret, secret: !secret { file: ./secret } }
      - { kind: file, path: /etc/profile, line: "export EDITOR=vi" }
      - { kind: file, path: /etc/nologin, absent: true }
      - { kind: package, name: cron }
      - { kind: service, name: cron, running: true, enabled: true }
      - { kind: command, name: setup, run: setup, unless: test -n ready }
storage:
  models: { path: /srv/models, manage: true, server: "198.18.0.3:/models", same_on_all: true, free: 100GiB }
gpu: { toolkit: host, operator: { version: v26.3.3 } }
sharing: { mode: kai, version: v0.18.6, queues: { team: { parent: all, gpu: { quota: 1 } }, all: {} } }
verify:
  images:
    cuda: "example.org/cuda@sha256:@DIGEST"
    dcgm: "example.org/dcgm@sha256:@DIGEST"
    network: "example.org/busybox@sha256:@DIGEST"
  dcgm: { level: 1 }
  skip: [test_kai_gives_cards, test_kai_places_a_gang_whole_or_not, test_kai_limits_a_queue,
    test_kai_takes_back_what_a_queue_lent, test_kai_puts_urgent_pods_first]
nodes:
  vm:
    profile: small
    vmid: 201
    address: 198.18.0.11
    gpus: [one]
    usb: [stick]
    k3s: server
    labels: { lab/role: test }
    taints: ["lab=yes:NoSchedule"]
  gpu:
    address: 198.18.0.12
    driver: { origin: nvidia, branch: "580", hold: true, power_limit: 300, fabric_manager: same-version }
    gpu_cards:
      { count: 2, name: NVIDIA H100 80GB HBM3, memory: 81559MiB, nvswitch: true, ecc: true, mig: false }
    rails: { r0: { device: rdma7, hca: mlx5_8, port: 1, mtu: 4220 } }
    rail_addresses: { r0: 10.224.7.143/12 }
k3s: { version: v1.35.7+k3s1, binary: ./k3s, datastore: etcd }
rdma: { netns: shared }
""".replace("@SHA", "0" * 64)
    .replace("@DIGEST", "a" * 64)
    .replace("@PRINT", ":".join(["00"] * 32))
)


OWN = {
    "token": "t",
    "secret": "hunter2-and-more",
    "key": "k",
    "key.pub": "ssh-ed25519 AAAA me",
    "k3s": "binary",
}
"""Files beside the inventory."""


@pytest.fixture(scope="session")
def applied(tmp_path_factory: pytest.TempPathFactory) -> ModelSite:
    """The site; tests take `site`, which they may damage."""
    folder = tmp_path_factory.mktemp("applied")
    for name, text in OWN.items():
        (folder / name).write_text(text)
    file = folder / "tiny.yaml"
    file.write_text(INVENTORY)
    site = ModelSite(load(file), folder / "state", checks=True)
    site.apply()
    return site


@pytest.fixture
def site(applied: ModelSite, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelSite]:
    """The applied site; what a test damages is undone afterwards."""
    monkeypatch.setattr(plugin, "SETTLING", 0.05)
    monkeypatch.setattr(plugin, "PAUSE", 0.01)
    hosts = {name: copy.deepcopy(host.state) for name, host in applied.hosts.items()}
    (api,) = applied.apis.values()
    kept = copy.deepcopy((api.vms, api.volumes, api.mappings, api.pools))
    store = applied.cluster.store
    cuda, network = copy.copy(applied.cluster.cuda), copy.copy(applied.cluster.network)
    objects, controllers = copy.deepcopy(store._objects), list(store.controllers)
    yield applied
    applied.is_shared = True
    for name, state in hosts.items():
        applied.hosts[name].state = state
    api.vms, api.volumes, api.mappings, api.pools = kept
    store._objects = objects
    store.controllers[:] = controllers
    vars(applied.cluster.cuda).update(vars(cuda))
    vars(applied.cluster.network).update(vars(network))

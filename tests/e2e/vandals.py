"""Vandals: how each kind of resource is damaged on a live system, and how the damage is undone.

They act as somebody would who does not know the product: a shell on the host, requests of root to the API,
or a file of the lab put aside. They know resources by their public fields, never how these are compared.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

BAG = "/run/vandal"
"""Where a host's originals are kept while they are damaged."""
NOT_HERE = "vandal: not here:"
"""What a script says when the host cannot be damaged like that."""
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBDt6sZdOlOXQtDXYcPcUL4Fo2zsrYSvTSCD5iQKqNlB vandal"


@dataclass(frozen=True)
class Shell:
    """A script for the system of the resource, run by root."""

    script: str


@dataclass(frozen=True)
class Config:
    """Keys of a VM's configuration, changed by a function of the ones that are there; undone as they were."""

    path: str
    change: Callable[[Mapping[str, str]], Mapping[str, str]]


@dataclass(frozen=True)
class PciMap:
    """The mapping is removed, or its card's id is another one."""

    name: str
    remove: bool


@dataclass(frozen=True)
class Aside:
    """A file of the lab, by its path in the lab's folder, is put aside."""

    path: str


@dataclass(frozen=True)
class Off:
    """The plug of a VM is pulled; nothing undoes it but a repair."""

    path: str


@dataclass(frozen=True)
class KubeNode:
    """A Node of the cluster is changed by a merge patch in JSON, and changed back by another one."""

    name: str
    patch: str
    back: str


Damage = Shell | Config | PciMap | Aside | Off | KubeNode


@dataclass(frozen=True)
class Mutation:
    """One damage.

    Args:
        name: what is damaged.
        damage: how.
        undo: script that undoes a script; the other kinds of damage undo themselves.
        path: file of which a copy is kept meanwhile, or key of a configuration; one damage at a time has it.
        field: the one field of its resource that a plan must name; empty where it takes several.
        alone: not all can be told meanwhile: a system is away, or must boot first.
        problem: the plan must say besides that it cannot mend it.
        seen: whether a plan is asked to name it.
        repair: whether an apply can mend it in a lab, as cheaply as anything.
    """

    name: str
    damage: Damage
    undo: str = ""
    path: str = ""
    field: str = ""
    alone: bool = False
    problem: bool = False
    seen: bool = True
    repair: bool = True


Vandal = Callable[[Any], Iterator[Mutation]]


def _shell(
    name: str,
    field: str,
    damage: str,
    undo: str,
    *,
    alone: bool = False,
    problem: bool = False,
    repair: bool = True,
) -> Mutation:
    return Mutation(name, Shell(damage), undo, field=field, alone=alone, problem=problem, repair=repair)


def _kept(name: str, field: str, path: str, damage: str, after: str = "", *, repair: bool = True) -> Mutation:
    """Return a damage to one file, of which a copy is kept."""
    there, copy = shlex.quote(path), shlex.quote(f"{BAG}/{path.replace('/', '_')}")
    keep = f"mkdir -p {BAG}; rm -f {copy}; cp -a {there} {copy}"
    undo = f"rm -f {there}; cp -a {copy} {there}\n{after}"
    return Mutation(name, Shell(f"{keep}\n{damage}"), undo, path, field, repair=repair)


def _append(path: str, text: str) -> str:
    return f"printf '%s\\n' {shlex.quote(text)} >>{shlex.quote(path)}"


def _whole(path: str, field: str, what: str = "") -> Iterator[Mutation]:
    """Yield damages of a file whose content is managed."""
    prefix = f"{what}: " if what else ""
    yield _kept(f"{prefix}content", field, path, _append(path, "# a vandal was here"))
    yield _kept(f"{prefix}removed", field, path, f"rm {shlex.quote(path)}")


def _mode(each: Any) -> Iterator[Mutation]:
    if each.mode:
        other = "0640" if int(each.mode, 8) != 0o640 else "0600"
        yield _kept("mode", "mode", each.path, f"chmod {other} {shlex.quote(each.path)}")


def file(each: Any) -> Iterator[Mutation]:
    """Damage a file: content, existence, mode, owner, group."""
    path = shlex.quote(each.path)
    if each.absent:
        yield _shell("appeared", "file", f"touch {path}", f"rm -f {path}")
        return
    if each.path.endswith("/.ssh/authorized_keys"):
        # Without its key, or with an owner that sshd does not trust, nobody could look at the host any more.
        yield _kept("key added", "content", each.path, _append(each.path, KEY))
        yield from _mode(each)
        return
    damages = _whole(each.path, "content") if each.content is not None else ()
    # What a server's token file holds is the token: who edits it asks for a rotation.
    is_token = each.path == "/etc/rancher/k3s/token" and each.unit == "k3s.service"
    of_k3s = bool(getattr(each, "unit", "")) or each.path.startswith("/etc/rancher/")
    for damage in damages:
        if not is_token or damage.name == "removed":
            # k3s reads the same with a comment more: no check has to mind, and a repair is of what is gone.
            yield replace(damage, repair=not of_k3s or damage.name == "removed")
    yield from _mode(each)
    if each.owner:
        yield _kept("owner", "owner", each.path, f"chown 1 {path}")
    if each.group:
        yield _kept("group", "group", each.path, f"chgrp 1 {path}")


def directory(each: Any) -> Iterator[Mutation]:
    """Damage a folder: its mode."""
    path = shlex.quote(each.path)
    other = "0750" if int(each.mode, 8) != 0o750 else "0700"
    yield _shell("mode", "mode", f"chmod {other} {path}", f"chmod {each.mode} {path}")


def file_line(each: Any) -> Iterator[Mutation]:
    """Damage a line: removed, changed."""
    path, line = shlex.quote(each.path), shlex.quote(each.line)
    without = f"grep -vxF -e {line} {path} >{BAG}/new || :\n"
    write = f"{without}cat {BAG}/new >{path}"
    yield _kept("removed", "line", each.path, write)
    yield _kept("changed", "line", each.path, f"{write}\n{_append(each.path, '# ' + each.line)}")


def package(each: Any) -> Iterator[Mutation]:
    """Damage dpkg's own list, each package as removed: the lab has no source that it could come back from."""
    for name in each.names:
        edit = f"/^Package: {name}$/,/^$/ s/^Status: install ok installed/Status: deinstall ok config-files/"
        status = "/var/lib/dpkg/status"
        yield _kept(f"{name} removed", name, status, f"sed -i {shlex.quote(edit)} {status}", repair=False)


def service(each: Any) -> Iterator[Mutation]:
    """Damage a unit: stopped (or started), disabled."""
    unit = shlex.quote(each.unit)
    if each.running is not None and each.unit not in ("ssh.service", "sshd.service"):
        verbs = ("stop", "start") if each.running else ("start", "stop")
        yield _shell("stopped", "running", f"systemctl {verbs[0]} {unit}", f"systemctl {verbs[1]} {unit}")
    if each.enabled:
        yield _shell("disabled", "enabled", *_disabled(each.unit))


def _disabled(unit: str) -> tuple[str, str]:
    """Return scripts that disable a unit and enable it again.

    By its links: `systemctl disable` runs Debian's update-rc.d as well, which takes an emulated machine 15 s.
    """
    links = f"find etc/systemd/system -lname {shlex.quote(f'*/{unit}')}"
    kept = shlex.quote(f"{BAG}/{unit}.tar")
    return (
        f"mkdir -p {BAG}; cd /; {links} | tar -cf {kept} -T -; {links} -delete; systemctl daemon-reload",
        f"tar -xf {kept} -C /; systemctl daemon-reload",
    )


def sysctl(each: Any) -> Iterator[Mutation]:
    """Damage a kernel parameter: live, at boot."""
    value, wanted = shlex.quote(each.name), each.value.split()
    other = " ".join((str(int(wanted[0]) + 1 if int(wanted[0]) != 1 else 0), *wanted[1:]))
    yield _shell("live value", "value", f"sysctl -qw {value}='{other}'", f"sysctl -qw {value}='{each.value}'")
    yield from _whole(each.file.path, "at boot", "at boot")


def kernel_module(each: Any) -> Iterator[Mutation]:
    """Damage a module: unloaded, no longer loaded at boot."""
    name = shlex.quote(each.name)
    unload = f"modprobe -r {name} || echo '{NOT_HERE} {name} is in use'"
    yield _shell("unloaded", "loaded", unload, f"modprobe {name}")
    for part, field in zip(each.files, ("at boot", "options"), strict=True):
        if not part.absent:
            yield from _whole(part.path, field, part.path)


def with_file(each: Any) -> Iterator[Mutation]:
    """Damage the one file of a resource."""
    yield from _whole(each.file.path, "file")


def modprobe_blacklist(each: Any) -> Iterator[Mutation]:
    """Damage the file of a blacklist, or its absence where no module has to be kept off."""
    if each.modules:  # another content may still keep the module off: no check has to mind
        yield from sorted(with_file(each), key=lambda mutation: mutation.name != "removed")
        return
    path = shlex.quote(each.file.path)
    yield _shell("appeared", "file", f"echo 'blacklist bochs' >{path}", f"rm -f {path}")


def kernel_arguments(each: Any) -> Iterator[Mutation]:
    """Damage the command line: of the next boot, and the running kernel's (another is mounted over it)."""
    # a comment more loses no argument: no check has to mind it
    yield from sorted(
        _whole(each.file.path, "at boot", "at boot"), key=lambda mutation: "removed" not in mutation.name
    )
    first = shlex.quote(each.arguments[0])
    yield _shell(
        "active",
        "active",
        f"mkdir -p {BAG}; tr ' ' '\\n' </proc/cmdline | grep -vxF -e {first} | tr '\\n' ' ' >{BAG}/cmdline\n"
        f"mount --bind {BAG}/cmdline /proc/cmdline",
        "umount /proc/cmdline",
        alone=True,  # what only the next boot can tell is left open
        problem=True,  # the host has booted with them once: another reboot is not owed
        repair=False,
    )


def hostname(each: Any) -> Iterator[Mutation]:
    """Damage the name: live, at boot, in /etc/hosts."""
    yield _shell("live", "hostname", "hostname vandal", f"hostname {shlex.quote(each.name)}")
    yield from _whole(each.file.path, "at boot", "at boot")
    pattern = f"/[[:blank:]]{each.name}\\([[:blank:]]\\|$\\)/d"
    yield _kept("in /etc/hosts", "/etc/hosts", "/etc/hosts", f"sed -i {shlex.quote(pattern)} /etc/hosts")


def timezone(each: Any) -> Iterator[Mutation]:
    """Damage the zone: the link, Debian's file."""
    yield _kept("link", "zone", "/etc/localtime", "ln -sf /usr/share/zoneinfo/Asia/Tokyo /etc/localtime")
    yield from _whole(each.file.path, "/etc/timezone", "file")


def time_sync(each: Any) -> Iterator[Mutation]:
    """Damage the time daemon: its servers, stopped, disabled."""
    # Another content may still name the servers: no check has to mind.
    yield from sorted(
        _whole(each.file.path, "servers", "servers"), key=lambda mutation: "removed" not in mutation.name
    )
    unit = each.unit.unit
    # A daemon that was started again needs a moment until it has its time from somebody.
    wait = "chronyc waitsync 90 0 0 1 >/dev/null"
    yield _shell("stopped", "", f"systemctl stop {unit}", f"systemctl start {unit}; {wait}")
    # Stopped, too: systemd 252 may forget that a daemon runs, and then abort itself, when a reload gives the
    # daemon its second name back (chronyd).
    disable, enable = _disabled(unit)
    disabled, enabled = f"systemctl stop {unit}; {disable}", f"{enable}; systemctl start {unit}; {wait}"
    yield _shell("disabled", "", disabled, enabled)


def swap(each: Any) -> Iterator[Mutation]:
    """Damage the absence of swap: at boot, active (where the kernel is the host's own)."""
    del each
    yield _kept("at boot", "at boot", "/etc/fstab", _append("/etc/fstab", "/vandal.swap none swap sw 0 0"))
    yield _shell(
        "active",
        "active",
        f"if systemd-detect-virt -qc; then echo '{NOT_HERE} the kernel is shared'; exit 0; fi\n"
        "dd if=/dev/zero of=/vandal.swap bs=1M count=4 status=none; chmod 600 /vandal.swap\n"
        "mkswap -q /vandal.swap >/dev/null; swapon /vandal.swap",
        "if [ -e /vandal.swap ]; then swapoff /vandal.swap; rm /vandal.swap; fi",
    )


def command(each: Any) -> Iterator[Mutation]:
    """Damage what a command makes: removed."""
    path, aside = shlex.quote(each.creates), shlex.quote(f"{BAG}/{each.creates.replace('/', '_')}")
    yield _shell("removed", each.creates, f"mkdir -p {BAG}; mv {path} {aside}", f"mv {aside} {path}")


def dhcp_reservation(each: Any) -> Iterator[Mutation]:
    """Damage a reservation: removed, another address, another MAC, the address also for somebody else."""
    wanted, router = each.reservation, each.router
    path = router.place(wanted.name)
    reload = "systemctl reload dnsmasq"
    yield _kept("removed", "content", path, f"rm {shlex.quote(path)}", reload)
    for name, old, new in (
        ("address", wanted.address, wanted.address.rpartition(".")[0] + ".251"),
        ("MAC", wanted.mac, "52:54:00:56:41:4e"),
    ):
        edit = shlex.quote(f"s/{old}/{new}/")
        yield _kept(name, "content", path, f"sed -i {edit} {shlex.quote(path)}", reload)
    # Somebody else's line is only looked at beside ours when ours does not stand, or holds something else.
    other = shlex.quote(f"{router.folder}/vandal-of-{wanted.name}")
    yield _shell(
        "taken by another",
        "reservation",
        f"echo '52:54:00:56:41:4e,{wanted.address},vandal' >{other}",
        f"rm -f {other}; {reload}",
        problem=True,
        repair=False,
    )


def snippet_gone(each: Any) -> Iterator[Mutation]:
    """Damage the absence of a snippet: it is there again."""
    path = shlex.quote(each.path)
    yield _shell("appeared", "file", f"echo '#cloud-config' >{path}; chmod 600 {path}", f"rm -f {path}")


# ---------------------------------------------------------------- the API

_FLIP = {"0": "1", "1": "0"}
_OTHER: Mapping[str, Callable[[str], str]] = {
    "onboot": lambda value: _FLIP[value],
    "protection": lambda value: _FLIP[value],
    "startup": lambda _: "order=77",
    "cores": lambda value: str(int(value) + 1),
    "sockets": lambda value: str(int(value) + 1),
    "memory": lambda value: str(int(value) + 64),
    "balloon": lambda value: "512" if value == "0" else "0",
    "numa": lambda value: _FLIP[value],
    "agent": lambda value: f"enabled={_FLIP[value.removeprefix('enabled=')]}",
    "machine": lambda value: "pc" if "q35" in value else "q35",
    "bios": lambda value: "ovmf" if value == "seabios" else "seabios",
    "cpu": lambda value: "cputype=qemu64" if "qemu64" not in value else "cputype=kvm64",
}
"""Another value of a VM's key; those that a running VM takes over at once come first."""
_AT_ONCE = ("onboot", "protection", "startup")


def vm(each: Any) -> Iterator[Mutation]:
    """Damage a VM's configuration, key by key; what waits for a power cycle is damage, too."""
    yield _key(
        each, "tags", lambda now: {"tags": ";".join({*now["tags"].split(";"), "vandal"} - {"provision"})}
    )
    managed = dict(each.settings)
    for key, other in _OTHER.items():
        if key in managed:
            yield _key(each, key, _always({key: other(managed[key])}), repair=key in _AT_ONCE)
    for at, nic in enumerate(each.nics):
        new, net = "e1000" if nic.model != "e1000" else "virtio", f"net{at}"
        yield _key(each, net, _replaced(net, f"{nic.model}=", f"{new}="), "model", repair=False)
        yield _key(each, net, _replaced(net, f"bridge={nic.bridge}", "bridge=vmbr9"), "bridge", repair=False)
    for at, _ in enumerate(each.passed):
        card = f"hostpci{at}"
        yield _key(each, card, _replaced(card, "pcie=1", "pcie=0"), "no longer PCI Express", repair=False)
        yield _key(each, card, _always({card: ""}), "removed", repair=False)


def _key(
    each: Any,
    key: str,
    change: Callable[[Mapping[str, str]], Mapping[str, str]],
    how: str = "",
    *,
    repair: bool = True,
) -> Mutation:
    """Return a damage to one key of a VM's configuration."""
    damage = Config(each.path, change)
    return Mutation(f"{key} {how}".strip(), damage, path=f"{each.path} {key}", field=key, repair=repair)


def _always(values: Mapping[str, str]) -> Callable[[Mapping[str, str]], Mapping[str, str]]:
    return lambda _now: values


def _replaced(key: str, old: str, new: str) -> Callable[[Mapping[str, str]], Mapping[str, str]]:
    return lambda now: {key: now[key].replace(old, new)}


def vm_marker(each: Any) -> Iterator[Mutation]:
    """Damage what is left of the first boot: the configuration names our snippet again.

    The keys in the marker are what the guest is trusted by: with another one it would rightly be refused.
    """
    path = f"/nodes/{each.node}/qemu/{each.vmid}"
    yield Mutation("snippet", Config(path, _always({"cicustom": f"vendor={each.snippet}"})), field="cicustom")


def vm_power(each: Any) -> Iterator[Mutation]:
    """Damage a VM's power: off.

    For plans the lab forgets which process the VM is, so that the API says that it is off and nothing has to
    boot afterwards; for the repair the plug is pulled.
    """
    yield Mutation("seen as off", Aside(f"guests/{each.vmid}/pid"), field="power", alone=True, repair=False)
    yield Mutation("off", Off(f"/nodes/{each.node}/qemu/{each.vmid}"), seen=False)


def pci_mapping(each: Any) -> Iterator[Mutation]:
    """Damage a mapping: another id, removed."""
    yield Mutation("id", PciMap(each.name, remove=False), field="id")
    yield Mutation("removed", PciMap(each.name, remove=True))


def image(each: Any) -> Iterator[Mutation]:
    """Damage an image: its volume is gone."""
    yield Mutation("removed", Aside(f"api/storage/{each.storage}/import/{each.file}"))


# ---------------------------------------------------------------- k3s


def upload(each: Any) -> Iterator[Mutation]:
    """Damage a program: its content (beside it, because it runs), existence, mode."""
    path = shlex.quote(each.path)
    changed = f"cp -a {path} {path}.new; echo >>{path}.new; mv {path}.new {path}"
    yield _kept("removed", "content", each.path, f"rm {path}")
    yield _kept("content", "content", each.path, changed)
    yield from _mode(each)


def k3s_token(each: Any) -> Iterator[Mutation]:
    """Damage the token that the running cluster has, as its file shows it."""
    del each
    path = "/var/lib/rancher/k3s/server/token"
    edit = shlex.quote("s/:server:.*/:server:vandal/")
    damage = _kept("another", "token", path, f"sed -i {edit} {path}", repair=False)
    yield replace(damage, alone=True)  # what agents need of the token is late until it is rotated


def k3s_unit(each: Any) -> Iterator[Mutation]:
    """Damage the unit: disabled; an agent's is stopped, too (without the server nobody could look)."""
    if each.unit == "k3s-agent.service":
        stop, start = f"systemctl stop {each.unit}", f"systemctl start {each.unit}"
        yield _shell("stopped", "running", stop, start)
    yield _shell("disabled", "enabled", *_disabled(each.unit))


def kube_node(each: Any) -> Iterator[Mutation]:
    """Damage a Node: each label that is declared, and the annotation that says whose it is."""
    pairs = [("labels", key, value) for key, value in each.labels]
    if each.owner:
        pairs.append(("annotations", "provision/inventory", each.owner))
    for section, key, value in pairs:
        patch, back = (json.dumps({"metadata": {section: {key: word}}}) for word in ("vandal", value))
        yield Mutation(f"{section} {key}", KubeNode(each.name, patch, back), field=f"{section}[{key}]")


def kube_cordon(each: Any) -> Iterator[Mutation]:
    """Leave a Node as a run that died in a drain does."""
    patch, back = (
        json.dumps(
            {"metadata": {"annotations": {"provision/cordoned": note}}, "spec": {"unschedulable": off}}
        )
        for note, off in (("vandal", True), (None, None))
    )
    yield Mutation("cordoned", KubeNode(each.name, patch, back), field="schedulable")


VANDALS: Mapping[str, Vandal] = {
    "command": command,
    "dhcp-reservation": dhcp_reservation,
    "directory": directory,
    "file": file,
    "file-line": file_line,
    "hostname": hostname,
    "image": image,
    "k3s-token": k3s_token,
    "k3s-unit": k3s_unit,
    "kernel-arguments": kernel_arguments,
    "kernel-module": kernel_module,
    "kube-cordon": kube_cordon,
    "kube-node": kube_node,
    "modprobe-blacklist": modprobe_blacklist,
    "package": package,
    "pci-mapping": pci_mapping,
    "service": service,
    "snippet-gone": snippet_gone,
    "swap": swap,
    "sysctl": sysctl,
    "time-sync": time_sync,
    "timezone": timezone,
    "upload": upload,
    "vm": vm,
    "vm-marker": vm_marker,
    "vm-power": vm_power,
}
"""Kind of resource → its damages, the first repairable one is what a repair is proven by."""

EXEMPT: Mapping[str, str] = {
    "root-filesystem": "a filesystem in use cannot be shrunk; each first boot proves that it is grown",
    "card-unbound": "a proof; to bind a driver would take the card from the VM that runs with it",
    "address-used": "a proof: it changes nothing, and without the address nobody could look",
    "dhcp-lease": "a proof: it changes nothing, and the lease file is the running dnsmasq's",
}
"""Kind of resource → why nobody damages it."""

UNREPAIRED: Mapping[str, str] = {
    "k3s-token": "a rotation needs the token that the damage replaced; rotations have tests of their own",
    "package": "the lab has no package source",
}
"""Kind of resource → why no apply repairs it in the lab."""

COSTLY = frozenset({"kernel-arguments", "modprobe-blacklist"})
"""Kinds whose repair makes an initramfs or a boot loader's menu: they share one apply."""

"""What `verify --break CHECK` does to a host of a lab: one thing that the check looks at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from shlex import quote

from provision.contracts.check import Damage
from provision.hosts.managed import Managed
from provision.hosts.names import DAEMONS, ssh
from provision.inventory import Inventory, Subject

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBroken broken"


def _managed(inventory: Inventory, name: str) -> Managed:
    if name in inventory.hypervisors:
        return Managed(inventory, Subject("hypervisor", name))
    return Managed(inventory, Subject("node", name))


def _files(managed: Managed) -> str:
    path = next((file.path for file in managed.files() if file.content is not None), "")
    return f"printf 'broken\\n' >> {quote(path)}" if path else ""


def _lines(managed: Managed) -> str:
    for path, line in managed.lines():
        file, copy = quote(path), quote(f"{path}.broken")
        return f"{{ grep -vxF -e {quote(line)} -- {file} || :; }} > {copy}; cat {copy} > {file}; rm {copy}"
    return ""


def _absent_files(managed: Managed) -> str:
    return next((f"touch {quote(path)}" for path in managed.absent_files()), "")


def _packages(managed: Managed) -> str:
    names = [name for name, declared in managed.packages().items() if declared and not declared.absent]
    return f"dpkg --force-all --remove {quote(names[-1])}" if names else ""


def _held_packages(managed: Managed) -> str:
    for name, declared in managed.packages().items():
        if declared and declared.hold is not None:
            return f"apt-mark {'unhold' if declared.hold else 'hold'} {quote(name)}"
    return ""


def _services(managed: Managed) -> str:
    for name, declared in managed.services():
        if declared.running is not None:
            return f"systemctl {'stop' if declared.running else 'start'} {quote(name)}"
        if declared.enabled is not None:
            return f"systemctl {'disable' if declared.enabled else 'enable'} {quote(name)}"
    return ""


def _other_value(managed: Managed) -> str:
    """Return `NAME=VALUE` of a parameter with a number, one off."""
    numbers = ((name, value) for name, value in managed.sysctls().items() if value.isdecimal())
    return next((f"{name}={abs(int(value) - 1)}" for name, value in numbers), "")


def _sysctl(managed: Managed) -> str:
    setting = _other_value(managed)
    return f"sysctl -w {quote(setting)}" if setting else ""


def _sysctl_at_boot(managed: Managed) -> str:
    name, _, value = _other_value(managed).partition("=")
    return f"sed -i 's/^{name} *=.*/{name} = {value}/' /etc/sysctl.d/*.conf" if name else ""


def _modules(managed: Managed) -> str:
    names = [name for name, declared in managed.modules() if not declared.blacklisted]
    return f"modprobe -r {quote(names[-1])}" if names else ""


def _modules_at_boot(managed: Managed) -> str:
    names = [name for name, declared in managed.modules() if not declared.blacklisted]
    return f"sed -i '/^{names[0].replace('_', '[-_]')}$/d' /etc/modules-load.d/*.conf" if names else ""


def _commands(managed: Managed) -> str:
    return next((f"rm -rf {quote(creates)}" for _, creates, _ in managed.commands() if creates), "")


def _hosts(managed: Managed) -> str:
    return next((f"printf '192.0.2.1 %s\\n' {quote(name)} >> /etc/hosts" for name in managed.hosts()), "")


def _always(script: str) -> Callable[[Managed], str]:
    return lambda _managed: script


_SCRIPTS: Mapping[str, Callable[[Managed], str]] = {
    "test_files": _files,
    "test_lines": _lines,
    "test_absent_files": _absent_files,
    "test_packages": _packages,
    "test_held_packages": _held_packages,
    "test_services": _services,
    "test_kernel_parameters": _sysctl,
    "test_kernel_parameters_at_next_boot": _sysctl_at_boot,
    "test_modules_are_loaded": _modules,
    "test_modules_at_next_boot": _modules_at_boot,
    "test_commands": _commands,
    "test_hostname": _always("printf 'broken\\n' > /etc/hostname"),
    "test_hosts_entries": _hosts,
    "test_timezone": _always("printf 'broken\\n' > /etc/timezone"),
    "test_no_swap_at_next_boot": _always("printf '/dev/null none swap sw 0 0\\n' >> /etc/fstab"),
    "test_time_daemon": _always(f"systemctl disable {' '.join(DAEMONS.values())} || :"),
}


def _damage(script: Callable[[Managed], str]) -> Callable[[Inventory, str], Damage | None]:
    def damage(inventory: Inventory, name: str) -> Damage | None:
        text = script(_managed(inventory, name))
        return Damage(ssh(name), script=text) if text else None

    return damage


def _authorized_keys(inventory: Inventory, name: str) -> Damage:
    user = inventory.login(name).user
    home = f'"$(getent passwd {quote(user)} | cut -d : -f 6)"'
    return Damage(ssh(name), script=f"printf '%s\\n' {quote(KEY)} >> {home}/.ssh/authorized_keys")


DAMAGES: Mapping[str, Callable[[Inventory, str], Damage | None]] = {
    **{check: _damage(script) for check, script in _SCRIPTS.items()},
    "test_authorized_keys": _authorized_keys,
}

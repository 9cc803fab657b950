"""Hypervisors and nodes alike: files, packages, services and kernel settings, now and at the next boot."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator

import pytest
from testinfra.host import Host

from provision.contracts.check import NotDeclared, Site, Trivial
from provision.hosts.commands import LOADED_MODULES
from provision.hosts.managed import DeclaredFile, Managed
from provision.hosts.systemd_units import unit
from provision.inventory import Subject

HOSTS = "/etc/hosts"
HOSTS_TEMPLATE = "/etc/cloud/templates/hosts.debian.tmpl"
"""What cloud-init makes /etc/hosts from at each boot, where it manages that file."""
CONFIGURATION = "modprobe -c | grep -E '^(options|blacklist) ' || true"
"""What modprobe reads, without the kernel's thousands of aliases."""


@pytest.fixture
def host(site: Site, machine: str) -> Host:
    """The machine by SSH."""
    return site.host(f"{machine}/ssh")


@pytest.fixture
def managed(site: Site, machine: str) -> Managed:
    """What is declared of it."""
    if machine in site.inventory.hypervisors:
        return Managed(site.inventory, Subject("hypervisor", machine))
    return Managed(site.inventory, Subject("node", machine))


# ------------------------------------------------------------ files


def test_files(host: Host, managed: Managed) -> None:
    """Every declared file is there, with its content, mode, owner and group."""
    files = list(managed.files())
    if not files:
        raise NotDeclared("no files")
    problems = [problem for file in files for problem in _file_problems(host, file)]
    assert not problems, "; ".join(problems)


def _file_problems(host: Host, file: DeclaredFile) -> Iterator[str]:
    status = host.run("stat -c '%%F|%%a|%%U|%%u|%%G|%%g' -- %s", file.path)
    if status.rc:
        yield f"{file.path} is missing"
        return
    kind, mode, user, uid, group, gid = status.stdout.strip().split("|")
    if not kind.startswith("regular"):  # `regular file` and `regular empty file`
        yield f"{file.path} is a {kind}"
        return
    if file.mode and int(mode, 8) != int(file.mode, 8):
        yield f"{file.path} has mode {mode}, not {file.mode}"
    if file.owner and file.owner not in (user, uid):
        yield f"{file.path} belongs to {user}, not {file.owner}"
    if file.group and file.group not in (group, gid):
        yield f"{file.path} belongs to group {group}, not {file.group}"
    if file.content is not None:
        # The path is a salt: no answer holds the bare hash of a secret.
        seen = host.check_output("{ printf %%s %s; cat -- %s; } | sha256sum", file.path, file.path)
        if seen.split()[0] != hashlib.sha256(file.path.encode() + file.content).hexdigest():
            yield f"{file.path} has other content"


def test_lines(host: Host, managed: Managed) -> None:
    """Every declared line is in its file, and in what that file is made from at boot."""
    lines = list(managed.lines())
    if not lines:
        raise NotDeclared("no lines")
    absent = [f"{path}: {line}" for path, line in lines if not _has_line(host, path, line)]
    assert not absent, "missing: " + "; ".join(absent)


def _has_line(host: Host, path: str, line: str) -> bool:
    if host.run("grep -sxF -e %s -- %s", line, path).rc:
        return False
    if path != HOSTS or host.run("grep -s manage_etc_hosts %s", HOSTS).rc:
        return True
    return bool(host.run("grep -sxF -e %s -- %s", line, HOSTS_TEMPLATE).rc == 0)


def test_absent_files(host: Host, managed: Managed) -> None:
    """Nothing is where a file is declared as absent."""
    paths = list(managed.absent_files())
    if not paths:
        raise NotDeclared("no absent files")
    present = [path for path in paths if host.run("test -e %s || test -L %s", path, path).rc == 0]
    assert not present, f"present: {', '.join(present)}"


# ------------------------------------------------------------ packages


def _packages(host: Host, managed: Managed) -> dict[str, str]:
    """Return dpkg's two letters of each declared package that it knows."""
    names = shlex.join(sorted(managed.packages()))
    text = host.run(f"dpkg-query -W -f '${{db:Status-Abbrev}} ${{Package}}\\n' -- {names}").stdout
    words = (line.split() for line in text.splitlines())
    return {row[1]: row[0] for row in words if len(row) > 1}


def _is_installed(letters: str) -> bool:
    return letters[1:2] in ("i", "t", "W")  # t and W: usable, while triggers are pending


def test_packages(host: Host, managed: Managed) -> None:
    """Every declared package is installed."""
    names = [name for name, declared in managed.packages().items() if declared is None or not declared.absent]
    if not names:
        raise NotDeclared("no packages")
    letters = _packages(host, managed)
    absent = [name for name in names if not _is_installed(letters.get(name.partition(":")[0], ""))]
    if absent:  # a name may belong to no package of its own
        text = host.run("dpkg-query -W -f '${db:Status-Abbrev} ${Provides}\\n'").stdout
        rows = [line.split(None, 1) for line in text.splitlines() if _is_installed(line)]
        provided = {word.split()[0] for row in rows for word in ",".join(row[1:]).split(",") if word.strip()}
        absent = [name for name in absent if name not in provided]
    assert not absent, f"not installed: {', '.join(absent)}"


def test_absent_packages(host: Host, managed: Managed) -> None:
    """No package is installed that is declared as absent."""
    names = [name for name, declared in managed.packages().items() if declared and declared.absent]
    if not names:
        raise NotDeclared("no absent packages")
    letters = _packages(host, managed)
    present = [name for name in names if _is_installed(letters.get(name.partition(":")[0], ""))]
    assert not present, f"installed: {', '.join(present)}"


def test_held_packages(host: Host, managed: Managed) -> None:
    """Every package is kept from upgrades, or not, as declared."""
    holds = {
        name: declared.hold
        for name, declared in managed.packages().items()
        if declared and declared.hold is not None and not declared.absent
    }
    if not holds:
        raise NotDeclared("no holds")
    letters = _packages(host, managed)
    held = {name: letters.get(name.partition(":")[0], "").startswith("h") for name in holds}
    wrong = [f"{name} is {'' if held[name] else 'not '}held" for name in holds if held[name] != holds[name]]
    assert not wrong, "; ".join(wrong)


# ------------------------------------------------------------ services


def test_services(host: Host, managed: Managed) -> None:
    """Every declared service runs and is enabled as declared."""
    services = list(managed.services())
    if not any(declared.running is not None or declared.enabled is not None for _, declared in services):
        raise NotDeclared("no services")
    problems: list[str] = []
    for name, declared in services:
        state = unit(host, name)
        if declared.running is not None and not (state.runs if declared.running else state.is_stopped):
            problems.append(f"{name} is {state.active} ({state.sub})")
        if declared.enabled is not None and not (
            state.starts_at_boot if declared.enabled else state.is_disabled
        ):
            problems.append(f"{name} is {state.file or 'missing'}")
    assert not problems, "; ".join(problems)


# ------------------------------------------------------------ kernel


def test_kernel_parameters(host: Host, managed: Managed) -> None:
    """Every declared kernel parameter has its value."""
    parameters = managed.sysctls()
    if not parameters:
        raise NotDeclared("no kernel parameters")
    actual = {name: " ".join(host.check_output("sysctl -n %s", name).split()) for name in parameters}
    wrong = [f"{name} = {value}" for name, value in actual.items() if value != parameters[name]]
    assert not wrong, "; ".join(wrong)


def test_kernel_parameters_at_next_boot(host: Host, managed: Managed) -> None:
    """Every declared kernel parameter gets its value at the next boot: no later file overrides it."""
    parameters = managed.sysctls()
    if not parameters:
        raise NotDeclared("no kernel parameters")
    text = host.check_output("systemd-analyze cat-config sysctl.d | grep -E '^# /|^[^#;]*=' || true")
    settings: dict[str, tuple[str, str]] = {}
    file = ""
    for row in text.splitlines():
        if row.startswith("# /"):
            file = row.removeprefix("# ")
        else:
            name, _, value = row.partition("=")
            settings[_dotted(name)] = (" ".join(value.split()), file)
    problems: list[str] = []
    for name, declared in parameters.items():
        value, file = settings.get(_dotted(name), ("", ""))
        if not file:
            problems.append(f"no file sets {name}")
        elif value != declared:
            problems.append(f"{file} sets {name} = {value}")
    assert not problems, "; ".join(problems)


def _dotted(name: str) -> str:
    """Return a parameter's name as compared; see sysctl.d(5) on the leading `-` and on slashes."""
    return name.strip().removeprefix("-").replace("/", ".")


def test_modules_are_loaded(host: Host, managed: Managed) -> None:
    """Every declared kernel module is loaded, or built into the kernel."""
    names = [name for name, declared in managed.modules() if not declared.blacklisted]
    if not names:
        raise NotDeclared("no modules")
    absent = [name for name in names if not _is_loaded(host, name)]
    if absent and (container := _container(host)):
        raise Trivial(f"the kernel is that of the machine which runs this {container} container")
    assert not absent, f"not loaded: {', '.join(absent)}"


def _is_loaded(host: Host, name: str) -> bool:
    if host.run("test -d %s", f"/sys/module/{name}").rc == 0:
        return True
    return _is_built_in(host, name)


def _is_built_in(host: Host, name: str) -> bool:
    builtin = f"/{name.replace('_', '[-_]')}\\.ko"
    return bool(host.run('grep -qs -e %s "/lib/modules/$(uname -r)/modules.builtin"', builtin).rc == 0)


def _container(host: Host) -> str:
    kind = str(host.run("systemd-detect-virt -c || true").stdout).strip()
    return "" if kind == "none" else kind


def test_modules_at_next_boot(host: Host, managed: Managed) -> None:
    """Every declared kernel module is loaded at the next boot."""
    names = [name for name, declared in managed.modules() if not declared.blacklisted]
    if not names:
        raise NotDeclared("no modules")
    text = host.check_output("systemd-analyze cat-config modules-load.d")
    listed = {row.strip().replace("-", "_") for row in text.splitlines()}
    absent = [name for name in names if name not in listed]
    assert not absent, f"in no file of modules-load.d: {', '.join(absent)}"


def test_module_options(host: Host, managed: Managed) -> None:
    """Every declared option of a kernel module is passed by modprobe, or by the kernel line."""
    declared = {name: module.options for name, module in managed.modules() if module.options}
    if not declared:
        raise NotDeclared("no options")
    passed: dict[str, dict[str, str]] = {}
    for row in host.check_output(CONFIGURATION).splitlines():
        words = row.split()
        if words[0] == "options":
            passed.setdefault(words[1].replace("-", "_"), {}).update(
                word.partition("=")[::2] for word in words[2:]
            )
    wrong: list[str] = []
    for name, options in declared.items():
        values = _kernel_options(host, name) if _is_built_in(host, name) else passed.get(name, {})
        place = "built in, and not on the kernel line" if _is_built_in(host, name) else "not passed"
        wrong += [
            f"{name}: {option} is {place}"
            for option in options.split()
            if values.get(option.partition("=")[0]) != option.partition("=")[2]
        ]
    assert not wrong, "; ".join(wrong)


def _kernel_options(host: Host, name: str) -> dict[str, str]:
    """Return the options of a built-in module on the kernel line: `NAME.OPTION=VALUE`."""
    options: dict[str, str] = {}
    for word in str(host.check_output("cat /proc/cmdline")).split():
        key, _, value = word.partition("=")
        module, dot, option = key.partition(".")
        if dot and module.replace("-", "_") == name:
            options[option] = value
    return options


def test_blacklisted_modules(host: Host, managed: Managed) -> None:
    """No module is loaded or built in that is declared as blacklisted, and modprobe has each on its list."""
    names = [name for name, declared in managed.modules() if declared.blacklisted]
    if not names:
        raise NotDeclared("no blacklisted modules")
    rows = (row.split() for row in host.check_output(CONFIGURATION).splitlines())
    listed = {row[1].replace("-", "_") for row in rows if row[0] == "blacklist"}
    loaded = {row.split()[0] for row in host.check_output(LOADED_MODULES).splitlines()}
    problems = [f"{name} is not blacklisted" for name in names if name not in listed]
    problems += [f"{name} is loaded" for name in names if name in loaded]
    line = str(host.check_output("cat /proc/cmdline"))
    off = [word for word in line.split() if word.startswith("initcall_blacklist=")]
    if not any("sysfb_init" in word for word in off):
        problems += [
            f"{name} is built into the kernel"
            for name in names
            if _is_built_in(host, name) and not any(name in word for word in off)
        ]
    assert not problems, "; ".join(problems)


# ------------------------------------------------------------ commands


def test_commands(host: Host, managed: Managed) -> None:
    """The guard of every declared command says that it has run."""
    commands = list(managed.commands())
    if not commands:
        raise NotDeclared("no commands")
    problems: list[str] = []
    for name, creates, unless in commands:
        if creates and host.run("test -e %s || test -L %s", creates, creates).rc:
            problems.append(f"{name}: {creates} is missing")
        elif not creates and (status := host.run(unless).rc):
            problems.append(f"{name}: its guard ends with status {status}")
    assert not problems, "; ".join(problems)

"""Resources that a site adds to a host: the last host step of its subject.

Texts may hold `{{ names }}` of `vars:` (the inventory's, the hypervisor's or node's, the resource's own).
"""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, ValidationInfo, ValidatorFunctionWrapHandler, WrapValidator

from provision.inventory.grammar import (
    FilePath,
    Line,
    ModuleName,
    OwnerName,
    PackageName,
    ParameterName,
    ShellText,
    UnitName,
)
from provision.inventory.models.base import Model, SecretRef
from provision.inventory.scalars import Flag, LocalPath, Mode, TargetPath, Text, Vars, Word
from provision.values.references import load_object


class FileResource(Model):
    """A file, or a line in it; exactly one of content, template, secret, line, or absent."""

    kind: Literal["file"]
    """Which kind of resource."""
    path: FilePath
    """Path on the host."""
    content: Text | None = None
    """Its whole content."""
    template: LocalPath | None = None
    """Jinja2 template on the controller for the content."""
    secret: SecretRef | None = None
    """Its whole content, by reference. It is never shown."""
    line: Line | None = None
    """One line that the file must have. The rest of the file is left alone."""
    vars: Vars = Field(default_factory=dict)
    """More values for the template."""
    mode: Mode | None = None
    """Octal mode; if unset, 0644 for new files and 0600 for secrets."""
    owner: OwnerName | None = None
    """Owning user."""
    group: OwnerName | None = None
    """Owning group."""
    sensitive: Flag = False
    """Never show the content in plans and logs."""
    absent: Flag = False
    """The file must not exist."""
    restart: tuple[UnitName, ...] = ()
    """Units to restart when it changes."""


class PackageResource(Model):
    """A distribution package."""

    kind: Literal["package"]
    """Which kind of resource."""
    name: PackageName
    """Package name."""
    absent: Flag = False
    """The package must not be installed."""
    hold: Flag | None = None
    """Whether upgrades are held back."""


class ServiceResource(Model):
    """A systemd unit."""

    kind: Literal["service"]
    """Which kind of resource."""
    name: UnitName
    """Unit name; `.service` may be left out."""
    running: Flag | None = None
    """Whether it runs now."""
    enabled: Flag | None = None
    """Whether it starts at boot."""


class SysctlResource(Model):
    """A kernel parameter, now and at boot."""

    kind: Literal["sysctl"]
    """Which kind of resource."""
    key: ParameterName
    """Its name with dots, as `vm.swappiness`."""
    value: Line
    """Its value."""


class KernelModuleResource(Model):
    """A kernel module."""

    kind: Literal["kernel_module"]
    """Which kind of resource."""
    name: ModuleName
    """Module name."""
    blacklisted: Flag = False
    """Never load it. Otherwise it is loaded now and at boot."""
    options: Line | None = None
    """Module options (`a=1 b=2`)."""


class CommandResource(Model):
    """A command with a guard that says whether it is needed. One guard is required."""

    kind: Literal["command"]
    """Which kind of resource."""
    name: Line
    """Its name in plans."""
    run: ShellText
    """POSIX shell text to run."""
    creates: TargetPath | None = None
    """The command runs while this path does not exist."""
    unless: ShellText | None = None
    """The command runs while this shell text fails. The text must not change anything."""


class AddedResource(Model):
    """A kind of resource that a domain of another package adds; its model is a subclass."""

    kind: Word
    """Which kind of resource."""
    name: Word
    """How it is called in plans."""


RESOURCE_KINDS = "resource kinds"
"""Key of the validation context under which the added kinds are."""


def _added(value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
    """Validate a resource by the model that a domain adds for its kind, or by ours."""
    kinds = (info.context or {}).get(RESOURCE_KINDS, {})
    name = value.get("kind") if isinstance(value, dict) else None
    kind = kinds.get(name) if isinstance(name, str) else None
    return (
        handler(value)
        if kind is None
        else load_object(kind.model).model_validate(value, context=info.context)
    )


BuiltInResource = Annotated[
    FileResource
    | PackageResource
    | ServiceResource
    | SysctlResource
    | KernelModuleResource
    | CommandResource,
    Field(discriminator="kind"),
]
HostResource = BuiltInResource | AddedResource


def _shared(value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
    """Validate a list that nodes share through their profile once; they then share the result, too."""
    memo = info.context
    if memo is None or not isinstance(value, list):
        return handler(value)
    validated = memo.get(id(value))
    if validated is None:
        validated = memo[id(value)] = (handler(value), value)  # keeps the list, so that its id stays taken
    return validated[0]


if TYPE_CHECKING:
    HostResources = tuple[HostResource, ...]
else:  # pydantic sees the built-in kinds; `_added` lets those of other packages through
    HostResources = Annotated[
        tuple[Annotated[BuiltInResource, WrapValidator(_added)], ...], WrapValidator(_shared)
    ]

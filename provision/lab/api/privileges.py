"""Privileges and built-in roles of Proxmox VE 9 (names: its user management documentation)."""

from __future__ import annotations

_VM = frozenset(
    f"VM.{name}"
    for name in [
        "Allocate",
        "Audit",
        "Backup",
        "Clone",
        "Config.CDROM",
        "Config.CPU",
        "Config.Cloudinit",
        "Config.Disk",
        "Config.HWType",
        "Config.Memory",
        "Config.Network",
        "Config.Options",
        "Console",
        "GuestAgent.Audit",
        "GuestAgent.FileRead",
        "GuestAgent.FileSystemMgmt",
        "GuestAgent.FileWrite",
        "GuestAgent.Unrestricted",
        "Migrate",
        "PowerMgmt",
        "Replicate",
        "Snapshot",
        "Snapshot.Rollback",
    ]
)
_DATASTORE = frozenset(
    {f"Datastore.{name}" for name in ("Allocate", "AllocateSpace", "AllocateTemplate", "Audit")}
)
_MAPPING = frozenset({"Mapping.Audit", "Mapping.Modify", "Mapping.Use"})
_SDN = frozenset({"SDN.Allocate", "SDN.Audit", "SDN.Use"})
_SYS = frozenset(
    f"Sys.{name}"
    for name in ("AccessNetwork", "Audit", "Console", "Incoming", "Modify", "PowerMgmt", "Syslog")
)
_ACCESS = frozenset(
    {"Group.Allocate", "Permissions.Modify", "Realm.Allocate", "Realm.AllocateUser", "User.Modify"}
)
_POOL = frozenset({"Pool.Allocate", "Pool.Audit"})

ALL = _VM | _DATASTORE | _MAPPING | _SDN | _SYS | _ACCESS | _POOL

_ONLY_ADMINISTRATOR = {
    "Mapping.Modify",
    "Permissions.Modify",
    "Realm.Allocate",
    "Sys.AccessNetwork",
    "Sys.Incoming",
    "Sys.Modify",
    "Sys.PowerMgmt",
}

ROLES: dict[str, frozenset[str]] = {
    "Administrator": ALL,
    "NoAccess": frozenset(),
    "PVEAdmin": ALL - _ONLY_ADMINISTRATOR,
    "PVEAuditor": frozenset(priv for priv in ALL if priv.endswith(".Audit")),
    "PVEDatastoreAdmin": _DATASTORE,
    "PVEDatastoreUser": frozenset({"Datastore.AllocateSpace", "Datastore.Audit"}),
    "PVEMappingAdmin": _MAPPING,
    "PVEMappingUser": frozenset({"Mapping.Audit", "Mapping.Use"}),
    "PVEPoolAdmin": _POOL,
    "PVEPoolUser": frozenset({"Pool.Audit"}),
    "PVESDNAdmin": _SDN,
    "PVESDNUser": frozenset({"SDN.Audit", "SDN.Use"}),
    "PVESysAdmin": frozenset({"Sys.Audit", "Sys.Console", "Sys.Syslog"}),
    "PVETemplateUser": frozenset({"VM.Audit", "VM.Clone"}),
    "PVEUserAdmin": frozenset({"Group.Allocate", "Realm.AllocateUser", "User.Modify"}),
    "PVEVMAdmin": _VM,
    "PVEVMUser": frozenset(
        {
            "VM.Audit",
            "VM.Backup",
            "VM.Config.CDROM",
            "VM.Config.Cloudinit",
            "VM.Console",
            "VM.GuestAgent.Audit",
            "VM.GuestAgent.FileRead",
            "VM.GuestAgent.FileSystemMgmt",
            "VM.GuestAgent.FileWrite",
            "VM.PowerMgmt",
        }
    ),
}

TOOL_ROLE = "ProvisionLab"
TOOL_PRIVILEGES = frozenset(
    {
        "Datastore.Allocate",
        "Datastore.AllocateSpace",
        "Datastore.AllocateTemplate",
        "Datastore.Audit",
        "Mapping.Audit",
        "Mapping.Modify",
        "Mapping.Use",
        "SDN.Use",
        "Sys.Audit",
        "Sys.Modify",
        "Sys.PowerMgmt",
        "VM.Allocate",
        "VM.Audit",
        "VM.Config.CDROM",
        "VM.Config.CPU",
        "VM.Config.Cloudinit",
        "VM.Config.Disk",
        "VM.Config.HWType",
        "VM.Config.Memory",
        "VM.Config.Network",
        "VM.Config.Options",
        "VM.GuestAgent.Audit",
        "VM.PowerMgmt",
    }
)


def capability_groups() -> dict[str, frozenset[str]]:
    """Return which privileges a ticket's `cap` shows for which part of the user interface."""
    permissions = frozenset({"Permissions.Modify"})
    return {
        "access": frozenset({"Group.Allocate", "Permissions.Modify", "User.Modify"}),
        "dc": _SDN | {"Sys.Audit", "Sys.Modify"},
        "mapping": _MAPPING | permissions,
        "nodes": _SYS | permissions,
        "sdn": _SDN | permissions,
        "storage": _DATASTORE | permissions,
        "vms": _VM | permissions,
    }

"""The prose around the generated reference."""

from __future__ import annotations

BEFORE = """
# The inventory

One YAML file declares the whole site: everything in it is wanted, nothing in it is observed. What is
unset is unmanaged. This page is generated from the models (`python -m docs.generators.inventory_reference >
docs/inventory.md`). `provision validate FILE` checks schema, references and formats and opens no secret,
chart or key file; `provision schema` prints a JSON Schema for editors.

## How files are read

- **YAML 1.2 core.** Only `true` and `false` are booleans; numbers are decimal (`0o17` and `0x1F` for the
  other bases). A text field keeps what was typed: `on`, `41:00`, `580`, `1.10` and `0123456` need no
  quotes. Duplicate keys, tabs in the indentation, several documents, files above 4 MiB, and aliases that
  expand to more than 250,000 values are errors.
- **Problems come all at once**, each with file, line, column, the line and a mark. A wrong inventory
  exits 64.
- **Sizes** are written with MiB, GiB or TiB. `60GB` is refused, because Proxmox VE counts in GiB.
- **Secrets** are references: `!secret { env: NAME }`, `!secret { file: NAME }` or `!secret { command:
  [PROGRAM, ARGUMENT] }`. They are opened before a plan asks anybody, never shown, and never part of a file of
  ours. A secret written in plain is refused.
- **`${NAME}`** is replaced by an environment variable in plain and quoted scalars (inside `{ }` it needs
  the quotes); `$${` writes `${`. Block scalars (`|`, `>`) are left alone, so shell text and file content
  go there.
- **Files of the controller** may start with `~`; relative names start at the folder of the file they are
  written in.
- **Placeholders** such as `<64 hex digits>` or `SHA256:...` are accepted here and refused by `plan`, with
  the command that writes the value. `provision pin` writes `provision.lock.yaml` beside the inventory.
- **`extends: base.yaml`** changes another inventory, and overlays change both: mappings merge, `null`
  removes a key, everything else replaces. Another `sharing.mode` or `network.dhcp.backend` replaces its
  whole section.
- **Profiles** merge into their nodes in the same way; driver settings merge node over profile over
  `gpu.driver`.
- **Ranges**: the key `gpu-[01-16]` with the address `10.0.0.1-10.0.0.16` declares sixteen nodes; `vmid`
  counts up.

## Selectors

Playbooks name subjects by `hypervisors`, `nodes`, `nodes.virtual` (those with a hypervisor), `nodes.gpu`
(those with `gpus` or `gpu_cards`), `nodes.rdma` (those with `rails` or `rail_addresses`),
`nodes.k3s_server`, `nodes.k3s_agent`, and `cluster` (where `k3s` is declared).

## What follows from what

- `gpus` on a VM implies `machine: q35`, `bios: ovmf` with an EFI disk without enrolled keys, CPU type
  `host`, no balloon, and no start at boot. `machine: i440fx` and a balloon are refused with it.
- `gpus` passes cards to a VM. `gpu_cards` says what any node must show; a mapping under `gpus` is read as
  `gpu_cards`.
- A VM's host name is its key unless `hostname` says otherwise; bare metal's is left alone.
- A VM with an image has its root filesystem grown to the whole disk, unless `grow_root: false`.
- Without `lab`, hypervisors need `api.token_id`, `api.token` and `api.fingerprint`, images `url` and
  `sha256`, and VMs `access.user` and `access.key`; with `lab`, the lab gives them.
"""

EFFECTS = """
## Effect classes

What a change may cost, in rising order of risk; the words of `policy` and `--allow`:
"""

AFTER = """
## What is looked at before anything is asked

Before `plan` and `apply` ask the first system, all of this is looked at, and every problem is told at
once with its place (exit 64):

- **What no role serves yet** (`FEATURE_UNSUPPORTED`): declared features, and options that nothing reads yet.
  `--target`, `--step` and the playbook leave out what they do not meet; `destroy` removes what was made
  in any case. `validate` notes it.
- **Placeholders** (`PLACEHOLDER`).
- **Secrets and files** (`SECRET_UNREADABLE`, `FILE_UNREADABLE`) that the chosen targets and steps need:
  API tokens and SSH keys of the systems that are asked; templates and secrets of `host_resources` of
  hosts whose step runs; the `.pub` of a key where `access.authorized_keys` is managed; files of the
  cluster's sections where neither `--target` nor `--step` is given. A secret's command runs once.
  `destroy` and `verify` need the tokens and keys of the systems that they ask, and no more. With `lab:`,
  the lab's own keys count.

All output is masked of every secret whose variable or file can be read, whatever the target is, and of
those that a command gave in this run: no command runs only to be masked.

## Unproven

Served, but not run by anybody yet:
"""

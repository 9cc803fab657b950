"""The prose around the generated reference."""

from __future__ import annotations

BEFORE = """
# Inventory

<!-- run: starter fresh -->
```console
$ provision validate starter.yaml
```

An inventory is one YAML file that declares the whole site. What you leave out is not managed. [The
annotated inventory](starter.md) is a complete example; this page lists every key. `provision schema --out
schema.json` writes a JSON Schema for your editor.

Keys that are *not supported yet* can be declared. `provision validate` lists them, and `plan` refuses them.

## How the file is read

- **YAML 1.2.** Only `true` and `false` are booleans, so `on`, `41:00`, `580` and `1.10` need no quotes in a
  text. Numbers are decimal (`0o17` and `0x1F` for other bases). Duplicate keys, tabs in the indentation,
  several documents, files above 4 MiB, and aliases that expand to more than 250,000 values are errors.
- **All problems are shown at once**, each with file, line and column. The exit code is 64.
- **Sizes** have the unit MiB, GiB or TiB. `60GB` is refused, because Proxmox VE counts in GiB.
- **Secrets** are references: `!secret { env: NAME }`, `!secret { file: NAME }` or `!secret { command:
  [PROGRAM, ARGUMENT] }`. They are opened before a plan asks any system, and never shown. A secret written
  in plain text is refused.
- **`${NAME}`** is replaced by an environment variable in plain and quoted text (inside `{ }` it needs the
  quotes); `$${` writes `${`. Block texts (`|`, `>`) are left alone, so shell text and file content can go
  there.
- **File names** may start with `~`. Relative names start at the folder of the file that they are written
  in.
- **Placeholders** such as `<64 hex digits>` or `SHA256:...` are accepted here, and refused by `plan` with
  the command that writes the value.
- **`extends: base.yaml`** changes another inventory: mappings merge, `null` removes a key, everything else
  replaces. Another `sharing.mode` or `network.dhcp.backend` replaces its whole section.
- **Profiles** merge into their nodes in the same way. Driver settings merge node over profile over
  `gpu.driver`.
- **Ranges**: the key `gpu-[01-16]` with the address `10.0.0.1-10.0.0.16` declares sixteen nodes; `vmid`
  counts up.

## What follows from what

- `gpus` on a VM implies `machine: q35`, `bios: ovmf` with an EFI disk without enrolled keys, CPU type
  `host`, no balloon, and no start at boot. `machine: i440fx` or a balloon with it is refused.
- `gpus` passes cards to a VM. `gpu_cards` says what a node must show; a mapping under `gpus` is read as
  `gpu_cards`.
- A VM's host name is its key, unless `hostname` says otherwise. A bare-metal node's name is left alone.
- A VM with an image has its root filesystem grown to the whole disk, unless `grow_root: false`.
- Without `lab`, hypervisors need `api.token_id`, `api.token` and `api.fingerprint`, images `url` and
  `sha256` (or `provision.lock.yaml`), and VMs `access.user` and `access.key`. With `lab`, the lab provides
  them.

[Playbooks](playbooks.md) list the selectors that choose subjects, such as `nodes.gpu`.
"""

EFFECTS = """
## Effect classes

What a change may cost, in rising order of risk: the words of `policy` and `--allow`. See
[consent](consent.md).
"""

AFTER = """
## What is checked before anything is asked

`plan` and `apply` check this before they ask the first system. All problems are shown at once, with their
place (exit code 64):

- **What is not supported yet** (`FEATURE_UNSUPPORTED`). `--target`, `--step` and the playbook leave out what
  they do not need; `destroy` removes what was created in any case.
- **Placeholders** (`PLACEHOLDER`).
- **Secrets and files** (`SECRET_UNREADABLE`, `FILE_UNREADABLE`) that the chosen targets and steps need: API
  tokens and SSH keys of the systems that are asked; templates and secrets of `host_resources` of hosts
  whose step runs; the `.pub` of a key if `access.authorized_keys` is managed; files of the cluster's
  sections if neither `--target` nor `--step` is given. A secret's command runs once. `destroy` and `verify`
  need the tokens and keys of the systems that they ask, and no more. With `lab:`, the lab's own keys count.

All output is masked: of every secret whose variable or file can be read, and of those that a command gave
in this run. No command runs only to be masked.

## Not tested yet

Supported, but nobody has run it yet:
"""

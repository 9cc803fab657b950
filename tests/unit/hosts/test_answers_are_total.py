"""What hosts said, and what is made of it: garbage and cut answers are never mistaken for facts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from provision.contracts.query import Frame, Unknown
from provision.hosts.operations.placement import saved_name
from provision.hosts.queries.boot_line import BootLine, BootLineStatus
from provision.hosts.queries.boot_swap import BootSwap, SwapUnit
from provision.hosts.queries.boot_sysctl import BootSetting, BootSysctl
from provision.hosts.queries.file import ABSENT, FileState, FileStatus, FileText, LinkTarget
from provision.hosts.queries.identity import Identity, MachineIdentity
from provision.hosts.queries.kernel import BootLoader, ModuleState
from provision.hosts.queries.left_files import FileNames, MarkedFiles
from provision.hosts.queries.modprobe import ModprobeRule, ModprobeRules
from provision.hosts.queries.notes import NotedState, NotedStates
from provision.hosts.queries.saved import OwnFiles, SavedFile
from provision.hosts.queries.secret import SecretText
from provision.hosts.queries.system import Bridges, ClockState, ClockStatus, HostKeys, NetworkLinks
from provision.hosts.query_kinds import HOST_KINDS
from provision.hosts.resources.filesystem import RootChain, RootStatus
from provision.hosts.resources.package import PackageState, PackageStatus
from provision.hosts.resources.pci import IommuState, IommuStatus, ModuleCandidates, PciFunction, PciFunctions
from provision.hosts.resources.service import UnitState, UnitStatus
from provision.hosts.resources.sysctl import SysctlValue

GIB = 1024**3
_SUM = hashlib.sha256(b"x\n").hexdigest()

PLAIN = b"""source|/dev/vda1
fstype|ext4
device|/dev/vda1
block|vda1 part 3221225472
block|vda disk 10737418240
partition|vda1|1|2048|6291456|vda|20971520
start|vda1|2048
blocks|786432
bsize|4096
done|
"""
UBUNTU_LVM = b"""source|/dev/mapper/ubuntu--vg-ubuntu--lv
fstype|ext4
device|/dev/mapper/ubuntu--vg-ubuntu--lv
block|dm-0 lvm 31138512896
block|vda3 part 62275977216
block|vda disk 64424509440
partition|vda3|3|4198400|121632768|vda|125829120
start|vda3|2048
start|vda3|4096
start|vda3|4198400
group|ubuntu-vg|31134318592
volume|/dev/vda3|ubuntu-vg|62272831488|62275977216
blocks|7602176
bsize|4096
done|
"""

SAMPLES: tuple[tuple[str, bytes, Mapping[Any, object]], ...] = (
    (
        "a machine's identity",
        b"me|0123456789abcdef0123456789abcdef||h|ssh-ed25519 AAAAx r@h|\nmac|52:54:00:00:00:01\ndone|\n",
        {
            Identity(): MachineIdentity(
                "0123456789abcdef0123456789abcdef",
                hostname="h",
                host_key="ssh-ed25519 AAAAx",
                macs=("52:54:00:00:00:01",),
            )
        },
    ),
    (
        "files",
        (
            b"s|regular file|644|root|adm|0|4|2|/etc/a\n"
            b"s|symbolic link|777|root|root|0|0|1|/etc/l\n"
            b"s|directory|1777|UNKNOWN|root|1234|0|40|/srv/shared\n"
            b"a|/etc/gone\nx|/root/secret\nsums\n" + f"{_SUM}  /etc/a\n".encode() + b"c|/etc/a\n:x\n\n.\n"
        ),
        {
            FileState("/etc/a", want="0" * 64): FileStatus(
                "file", "0644", "root", "adm", "0", "4", 2, _SUM, b"x\n"
            ),
            FileState("/etc/l"): FileStatus("link", "0777", "root", "root", "0", "0", 1),
            FileState("/srv/shared"): FileStatus("directory", "1777", "1234", "root", "1234", "0", 40),
            FileState("/etc/gone"): ABSENT,
            FileState("/root/secret"): Unknown("its folder may not be searched"),
        },
    ),
    (
        "texts",
        b"c|/proc/cmdline\n:root=/dev/vda1 quiet\n\n.\nc|/etc/open\n:no end\n.\na|/etc/gone\n",
        {
            FileText("/proc/cmdline"): b"root=/dev/vda1 quiet\n",
            FileText("/etc/open"): b"no end",
            FileText("/etc/gone"): None,
        },
    ),
    (
        "secrets",
        b"c|/etc/token\n:hunter2\n\n.\nc|/etc/odd\n:\xff\n\n.\nc|/etc/empty\n\n.\na|/etc/gone\nx|/etc/shut\n",
        {
            SecretText("/etc/token"): SecretStr("hunter2"),
            SecretText("/etc/odd"): Unknown("/etc/odd is not UTF-8 text"),
            SecretText("/etc/empty"): None,
            SecretText("/etc/gone"): None,
            SecretText("/etc/shut"): Unknown("/etc/shut may not be read"),
        },
    ),
    (
        "marked-files",
        b"0|/s/a.yaml:# provision inventory=lab node=vm-1\n0|/s/odd\ndone|\n",
        {
            MarkedFiles("/s", "# provision inventory=lab node="): (("/s/a.yaml", "vm-1"),),
            MarkedFiles("/t", "# provision inventory=lab node="): (),
        },
    ),
    (
        "file-names",
        b"0|/etc/kernel/cmdline.provision-0a\ndone|\n",
        {
            FileNames("/etc/kernel", "cmdline.provision-"): ("/etc/kernel/cmdline.provision-0a",),
            FileNames("/etc", "none"): (),
        },
    ),
    (
        "saved",
        b"nothing|/etc/new\nfile|/etc/a|b\nabsent|/etc/ours\nrestored|/etc/back\n",
        {
            SavedFile("/etc/new"): "nothing",
            SavedFile("/etc/a|b"): "file",
            SavedFile("/etc/ours"): "absent",
            SavedFile("/etc/back"): "restored",
        },
    ),
    (
        "own-files",
        (
            f"{saved_name('/etc/b|c')}.entry|/etc/b|c\n{saved_name('/etc/a')}.entry|/etc/a\n"
            f"{saved_name('/etc/c')}.entry|/etc/d\n{saved_name('../d')}.entry|../d\ndone\n"
        ).encode(),
        {OwnFiles(): ("/etc/a", "/etc/b|c")},
    ),
    (
        "noted",
        b"sysctl\nvm.swappiness\n60\nservice\ncron.service\nenabled active\nodd\nx\ny\ndone\n",
        {
            NotedStates(): (
                NotedState("service", "cron.service", "enabled active"),
                NotedState("sysctl", "vm.swappiness", "60"),
            )
        },
    ),
    (
        "modprobe",
        (
            b"m|/etc/modprobe.d/a.conf|blacklist  nouveau\n"
            b"m|/lib/modprobe.d/b.conf|options vfio-pci ids=10de:2204|x\n"
            b"m|/etc/modprobe.d/c.conf|blacklist\nm|alone\ndone|\n"
        ),
        {
            ModprobeRules(): (
                ModprobeRule("/etc/modprobe.d/a.conf", ("blacklist", "nouveau")),
                ModprobeRule("/lib/modprobe.d/b.conf", ("options", "vfio-pci", "ids=10de:2204|x")),
            )
        },
    ),
    (
        "links",
        b"/etc/localtime|/usr/share/zoneinfo/Etc/UTC\n/etc/passwd|\n",
        {LinkTarget("/etc/localtime"): "/usr/share/zoneinfo/Etc/UTC", LinkTarget("/etc/passwd"): ""},
    ),
    (
        "packages",
        (
            b"p|bash|amd64|ii |5.2.15-2+b8\np|nginx|amd64|rc |1.22\n"
            b"p|curl|amd64|hi |7.88\np|x|amd64|iF |1\ndone\n"
        ),
        {
            PackageState("bash"): PackageStatus("5.2.15-2+b8"),
            PackageState("bash:amd64"): PackageStatus("5.2.15-2+b8"),
            PackageState("nginx"): PackageStatus(),
            PackageState("curl"): PackageStatus("7.88", held=True),
            PackageState("x"): PackageStatus(),
            PackageState("never"): PackageStatus(),
        },
    ),
    (
        "units",
        (
            b"LoadState=loaded\nActiveState=active\nSubState=running\nUnitFileState=enabled\n\n"
            b"LoadState=not-found\nActiveState=inactive\nSubState=dead\nUnitFileState=\n\ndone\n"
        ),
        {
            UnitState("a.service"): UnitStatus("loaded", "active", "running", "enabled"),
            UnitState("b.service"): UnitStatus(),
        },
    ),
    (
        "sysctls",
        (
            b"v|/proc/sys/net/ipv4/tcp_rmem:4096\t131072\t6291456\nv|/proc/sys/net/ipv4/conf/a.1/forwarding:1\n"
            b"a|/proc/sys/kernel/none\n"
        ),
        {
            SysctlValue("net.ipv4.tcp_rmem"): "4096 131072 6291456",
            SysctlValue("net.ipv4.conf.a/1.forwarding"): "1",
            SysctlValue("kernel.none"): None,
        },
    ),
    (
        "modules",
        b"l vfio_pci\nb ext4\na nouveau\nf overlay\n",
        {
            ModuleState("vfio_pci"): "loaded",
            ModuleState("ext4"): "builtin",
            ModuleState("nouveau"): "absent",
            ModuleState("overlay"): "foreign",
        },
    ),
    (
        "boot by systemd-boot",
        (
            b"efi|yes\n"
            b"efiboot|Boot0004* Linux Boot Manager\tHD(2)/File(\\EFI\\SYSTEMD\\SYSTEMD-BOOTX64.EFI)\n"
            b"grub|yes\ndone|\n"
        ),
        {BootLoader(): "systemd-boot"},
    ),
    (
        "boot by GRUB under Secure Boot",
        b"efi|yes\npbt|grub (versions: 6.17.2-1-pve)\nsdboot|yes\ndone|\n",
        {BootLoader(): "grub"},
    ),
    (
        "boot by ZFSBootMenu beside GRUB",
        b"efi|yes\nefiboot|Boot0003* ZFSBootMenu\tHD(1)/\\EFI\\ZBM\\VMLINUZ.EFI\ngrub|yes\ndone|\n",
        {BootLoader(): "none"},
    ),
    ("boot by BIOS", b"pbt|uefi (versions: x)\ngrub|yes\ndone|\n", {BootLoader(): "grub"}),
    ("boot without a loader", b"done|\n", {BootLoader(): "none"}),
    (
        "root on a partition",
        PLAIN,
        {
            RootChain(): RootStatus(
                "/dev/vda1",
                "ext4",
                "/dev/vda1",
                "vda",
                1,
                "",
                3 * GIB,
                (20971520 - 2048 - 6291456) * 512,
            )
        },
    ),
    (
        "root on LVM, as Ubuntu's installer leaves it",
        UBUNTU_LVM,
        {
            RootChain(): RootStatus(
                "/dev/mapper/ubuntu--vg-ubuntu--lv",
                "ext4",
                "/dev/mapper/ubuntu--vg-ubuntu--lv",
                "vda",
                3,
                "/dev/vda3",
                7602176 * 4096,
                0,
                62275977216 - 62272831488,
                31134318592,
            )
        },
    ),
    (
        "kernel line at boot",
        b"o|/etc/99.cfg\nd|quiet provision.here\ng|/boot/grub/grub.cfg|linux /v root=/x 'a=b c'\ndone|\n",
        {
            BootLine(): BootLineStatus(
                (("grub", "/boot/grub/grub.cfg", 'linux /v root=/x "a=b c"'),),
                "quiet",
                "/etc/99.cfg",
            )
        },
    ),
    (
        "swap at boot",
        b"m|a.swap\nu|a.swap|/lib/systemd/system/a.swap|\nw|a.swap|/x/a.wants/a.swap\nz|zram0|/etc/zram.conf\ndone|\n",
        {BootSwap(): (SwapUnit("dev-zram0.swap", "/etc/zram.conf"),)},
    ),
    (
        "parameters at boot",
        b"p|/etc/sysctl.d/9.conf|/etc/sysctl.conf\nl|/etc/sysctl.d/9.conf|vm.swappiness = 1\ndone|\n",
        {
            BootSysctl("vm.swappiness"): (BootSetting("9.conf", "/etc/sysctl.conf", "1"),),
            BootSysctl("a.b"): (),
        },
    ),
    (
        "root on ZFS",
        b"source|rpool/ROOT/pve-1\nfstype|zfs\ndone|\n",
        {RootChain(): RootStatus("rpool/ROOT/pve-1", "zfs")},
    ),
    (
        "root in a container",
        b"source|overlay\nfstype|overlay\ndone|\n",
        {RootChain(): RootStatus("overlay", "overlay")},
    ),
    ("clock", b"clock|yes|systemd-nspawn\ndone|\n", {ClockState(): ClockStatus(True, "systemd-nspawn")}),
    (
        "host keys",
        b"key|/etc/ssh/ssh_host_ed25519_key|ssh-ed25519 AAAA root@a\nkey|/etc/ssh/ssh_host_rsa_key|\ndone|\n",
        {
            HostKeys(): (
                ("/etc/ssh/ssh_host_ed25519_key", "ssh-ed25519 AAAA"),
                ("/etc/ssh/ssh_host_rsa_key", ""),
            )
        },
    ),
    (
        "bridges",
        b"bridge|vmbr0\nbridge|vmbr1\ndone|\n",
        {Bridges(): ("vmbr0", "vmbr1")},
    ),
    (
        "links",
        b"link|lo\nlink|vmbr0\ndone|\n",
        {NetworkLinks(): ("lo", "vmbr0")},
    ),
    (
        "PCI",
        (
            b"f|0000:02:00.0|0x10de|0x2204|0x030000|nouveau|13|1|0x1458|0x4043\n"
            b"f|0000:02:00.1|0x10de|0x1aef|0x040300|snd_hda_intel|13|0||\n"
            b"f|0000:03:00.0|0x1234|0x1111|0x030000|bochs-drm|14|0|||(null)|bochs\ndone|\n"
        ),
        {
            PciFunctions(): (
                PciFunction("0000:02:00.0", "10de", "2204", "030000", "nouveau", "13", True, "1458:4043"),
                PciFunction("0000:02:00.1", "10de", "1aef", "040300", "snd_hda_intel", "13"),
                PciFunction("0000:03:00.0", "1234", "1111", "030000", "bochs-drm", "14", module="bochs"),
            )
        },
    ),
    (
        "module candidates",
        (
            b"f|0000:02:00.0\nm|0000:02:00.0|0x030000|6.17.2-1-pve|nvidiafb\nm|0000:02:00.0|0x030000|6.14.8-2-pve|nouveau\n"
            b"f|0000:02:00.1\nm|0000:02:00.1|0x040300|6.17.2-1-pve|snd-hda-intel\nf|0000:03:00.0\ndone|\n"
        ),
        {
            ModuleCandidates("0000:02:00"): frozenset(
                {("030000", "nvidiafb"), ("030000", "nouveau"), ("040300", "snd_hda_intel")}
            ),
            ModuleCandidates("0000:03:00"): frozenset(),
            ModuleCandidates("0000:04:00"): Unknown("there is no PCI function 0000:04:00"),
        },
    ),
    (
        "IOMMU",
        b"u|dmar0\nu|dmar1\nn|16\nt|DMAR\nc|GenuineIntel\ndone|\n",
        {IommuState(): IommuStatus(("dmar0", "dmar1"), 16, "GenuineIntel", "DMAR")},
    ),
)


def _parse(output: bytes, queries: Mapping[Any, object], **frame: Any) -> Mapping[Any, object]:
    asked = list(queries)
    kind = HOST_KINDS[asked[0].kind]
    return kind.parse(
        Frame(output, frame.get("stderr", b""), frame.get("rc", 0), frame.get("dropped", 0)), asked
    )


@pytest.mark.parametrize(("name", "output", "expected"), SAMPLES, ids=[sample[0] for sample in SAMPLES])
def test_answers_are_parsed(name: str, output: bytes, expected: Mapping[Any, object]) -> None:
    del name
    assert _parse(output, expected) == expected


@pytest.mark.parametrize(("name", "output", "expected"), SAMPLES, ids=[sample[0] for sample in SAMPLES])
def test_an_answer_cut_at_any_byte_is_whole_or_unknown(
    name: str, output: bytes, expected: Mapping[Any, object]
) -> None:
    del name
    for length in range(len(output)):
        answers = _parse(output[:length], expected, rc=None)
        assert set(answers) == set(expected)
        for query, answer in answers.items():
            if isinstance(answer, FileStatus) and answer.content is None:
                continue  # content comes last, and its hash has told already that it differs
            assert isinstance(answer, Unknown) or answer == expected[query], (length, query)


_LONG = [sample for sample in SAMPLES if sample[0].split()[0] not in ("root", "clock", "IOMMU")]
"""Answers that can grow beyond what a frame keeps."""


@pytest.mark.parametrize(("name", "output", "expected"), _LONG, ids=[sample[0] for sample in _LONG])
def test_an_answer_with_missing_bytes_is_unknown(
    name: str, output: bytes, expected: Mapping[Any, object]
) -> None:
    del name
    assert all(isinstance(answer, Unknown) for answer in _parse(output, expected, dropped=1).values())


@given(output=st.binary(max_size=300), stderr=st.binary(max_size=60), rc=st.sampled_from([0, 1, 127, None]))
def test_garbage_is_unknown(output: bytes, stderr: bytes, rc: int | None) -> None:
    for _, _, expected in SAMPLES:
        answers = _parse(b"\xff" + output, expected, stderr=stderr, rc=rc)
        assert set(answers) == set(expected)
        secrets = [answer for query, answer in answers.items() if isinstance(query, SecretText)]
        assert all(answer is None or isinstance(answer, SecretStr | Unknown) for answer in secrets)


@given(data=st.data())
def test_mangled_answers_never_raise(data: st.DataObject) -> None:
    _, output, expected = data.draw(st.sampled_from(SAMPLES))
    start = data.draw(st.integers(0, len(output)))
    mangled = (
        output[:start] + data.draw(st.binary(max_size=8)) + output[start + data.draw(st.integers(0, 8)) :]
    )
    assert set(_parse(mangled, expected)) == set(expected)


def test_the_reason_is_the_message_of_the_host() -> None:
    stderr = b"\nSystem has not been booted with systemd as init system.\nFailed to connect.\n"
    answer = _parse(b"", {UnitState("a.service"): None}, stderr=stderr, rc=1)[UnitState("a.service")]
    assert answer == Unknown("System has not been booted with systemd as init system.")


@pytest.mark.parametrize("kind", sorted(HOST_KINDS))
def test_every_kind_has_a_sample(kind: str) -> None:
    asked = {next(iter(expected)).kind for _, _, expected in SAMPLES}
    assert kind in asked | {"shell"}  # the free question's tests stand beside its own code


FILE = "HD(2,GPT,82f3e1c8-8654-4797-a584-90f373331323,0x800,0x100000)/File"
LOADERS = (
    # the firmware's entry, what proxmox-boot-tool says, what is installed, the loader
    (rf"Linux Boot Manager\t{FILE}(\EFI\SYSTEMD\SYSTEMD-BOOTX64.EFI)", "", "", "systemd-boot"),
    (rf"Linux Boot Manager\t{FILE}(\EFI\systemd\systemd-bootx64.efi)", "grub", "grub", "systemd-boot"),
    (
        r"Linux Secure Boot\tHD(1)/\EFI\Systemd\shimx64.efi\EFI\Systemd\systemd-bootx64.efi",
        "",
        "grub",
        "systemd-boot",
    ),
    (rf"proxmox\t{FILE}(\EFI\PROXMOX\GRUBX64.EFI)", "", "grub", "grub"),
    (rf"proxmox\t{FILE}(\EFI\proxmox\shimx64.efi)", "uefi", "sdboot", "grub"),
    (rf"debian\t{FILE}(\EFI\debian\shimaa64.efi)....", "", "grub", "grub"),
    (rf"ubuntu\t{FILE}(\EFI\ubuntu\grubx64.efi)RC", "", "grub", "grub"),
    (rf"UEFI OS\t{FILE}(\EFI\BOOT\BOOTX64.EFI)..BO", "uefi", "grub", "systemd-boot"),
    (rf"UEFI OS\t{FILE}(\EFI\BOOT\BOOTX64.EFI)..BO", "grub", "sdboot", "grub"),
    ("UEFI: Samsung SSD 970, Partition 2\tPciRoot(0x0)/Pci(0x1d,0x0)/NVMe(0x1)", "", "grub", "grub"),
    (
        "UEFI PXEv4 (MAC:BC2411000001)\tPciRoot(0x0)/MAC(bc2411000001,1)/IPv4(0.0.0.0)",
        "",
        "sdboot",
        "systemd-boot",
    ),
    (rf"ZFSBootMenu\t{FILE}(\EFI\zbm\vmlinuz-backup.EFI)", "", "grub", "none"),
    (rf"rEFInd Boot Manager\t{FILE}(\EFI\refind\refind_x64.efi)", "", "grub", "none"),
    (rf"rEFInd Boot Manager\t{FILE}(\EFI\refind\shimx64.efi)", "", "grub", "none"),
    (rf"Limine\t{FILE}(\EFI\limine\BOOTX64.EFI)", "", "grub", "none"),
    (rf"Debian (EFI stub)\t{FILE}(\EFI\debian\vmlinuz)root=/dev/nvme0n1p5 ro quiet", "", "grub", "none"),
    (rf"Linux\t{FILE}(\EFI\Linux\debian-6.12.efi)", "", "grub", "none"),
    ("", "uefi", "sdboot", "systemd-boot"),
    ("", "", "", "none"),
)


def test_a_boot_loader_is_known_by_what_the_firmware_started() -> None:
    for entry, tool, installed, loader in LOADERS:
        rows = ["efi|yes"]
        rows += [f"efiboot|Boot0004* {entry}"] if entry else []
        rows += [f"pbt|{tool} (versions: 6.17.2-1-pve)"] if tool else []
        rows += [f"{installed}|yes"] if installed else []
        frame = Frame("".join(f"{row}\n" for row in (*rows, "done|")).encode(), b"", 0)
        answers = HOST_KINDS["boot-loader"].parse(frame, [BootLoader()])
        assert answers == {BootLoader(): loader}, entry

"""What somebody does to a site, and which check must see it."""

from __future__ import annotations

from dataclasses import replace

from provision.gpu.mps import MpsStatus
from provision.gpu.words import Meaning
from provision.k3s.runtimes import CONTAINERD
from provision.testing.model_state import GIB, HostState
from tests.model.model_site import LEASES
from tests.model.verify.damage import (
    GPU,
    GPU_LISTS,
    GUEST,
    K3S,
    KEYS,
    LATER,
    PID,
    PVE,
    RESERVED,
    RESERVED_HYPERVISOR,
    ROUTER,
    Damage,
    add_host,
    add_key,
    another_node,
    api,
    card,
    cordon,
    driver,
    edit,
    fabric_error,
    file,
    gone,
    interface,
    kube_node,
    learner,
    mapped,
    netns,
    not_ready,
    not_shared,
    on,
    other_arguments,
    outdate_tags,
    port,
    sysctl,
    take_another,
    unit,
    vm,
    zram,
    zram_service,
)

OTHER_CONFIG = b"node-name: vm\ncluster-cidr: 10.42.0.0/16\nservice-cidr: 10.43.0.0/16\n"
CONFIG = "/etc/rancher/k3s/config.yaml"
SLOWED = "clocks_throttle_reasons"
CERTIFICATE = "/var/lib/rancher/k3s/server/tls/serving-kube-apiserver.crt"


def unlink_cards(state: HostState) -> None:
    state.unlinked_cards = True


DAMAGES = (
    Damage(
        "test_containerd_has_the_runtime",
        "has no runtime nvidia",
        on("vm/ssh", file(CONTAINERD, content=b"version = 3\n")),
    ),
    Damage(
        "test_pods_keep_cards_after_a_reload",
        "/dev/char has no links to /dev/nvidia0, /dev/nvidiactl",
        on("vm/ssh", unlink_cards),
    ),
    Damage(
        "test_k3s_environment",
        "other values than declared: HTTPS_PROXY",
        on("vm/ssh", file("/etc/default/k3s", content=b"HTTPS_PROXY=http://a:hunter2@b\n")),
    ),
    # the cluster's nodes
    Damage("test_node_is_ready", "no network", kube_node(not_ready), alone=True),
    Damage(
        "test_node_is_schedulable",
        "cordoned",
        kube_node(cordon),
    ),
    Damage(
        "test_node_labels",
        "lab/role is None",
        kube_node(lambda node: node["metadata"]["labels"].pop("lab/role")),
    ),
    Damage(
        "test_node_taints", "missing: lab=yes:NoSchedule", kube_node(lambda node: node["spec"].pop("taints"))
    ),
    Damage("test_cluster_members", "stranger is not declared", another_node, "cluster"),
    # k3s
    Damage(
        "test_k3s_runs",
        "k3s.service is inactive",
        on(GUEST, unit(K3S, active=False)),
        also=(("test_k3s_process", "vm"),),
    ),
    Damage("test_k3s_runs", "k3s.service is disabled", on(GUEST, unit(K3S, file="disabled"))),
    Damage("test_k3s_version", "v1.34.1", on(GUEST, lambda state: setattr(state, "k3s_version", "v1.34.1"))),
    Damage("test_k3s_files_are_private", f"{CONFIG}: root 644", on(GUEST, file(CONFIG, mode="0644"))),
    Damage(
        "test_k3s_files_are_private",
        "k3s.yaml: root 644",
        on(GUEST, file("/etc/rancher/k3s/k3s.yaml", mode="0644")),
    ),
    Damage(
        "test_k3s_files_are_private",
        f"{K3S}.env is missing",
        on(GUEST, lambda state: state.files.pop(f"/etc/systemd/system/{K3S}.env")),
    ),
    Damage(
        "test_k3s_version",
        "/usr/local/bin/k3s is missing",
        on(GUEST, lambda state: state.files.pop("/usr/local/bin/k3s")),
    ),
    Damage(
        "test_node_labels",
        "provision/inventory is another",
        kube_node(lambda node: node["metadata"]["annotations"].update({"provision/inventory": "another"})),
    ),
    Damage(
        "test_k3s_configuration",
        "node-ip is None",
        on(
            GUEST,
            file(CONFIG, content=b"node-name: vm\ncluster-cidr: 10.42.0.0/16\nservice-cidr: 10.43.0.0/16\n"),
        ),
    ),
    Damage(
        "test_k3s_process",
        "may lock 8388608",
        on(GUEST, file(f"/etc/systemd/system/{K3S}", content=b"[Unit]\n")),
    ),
    Damage(
        "test_flannel_device",
        "flannel.1 is missing",
        on(GUEST, lambda state: state.files.pop("/sys/class/net/flannel.1")),
    ),
    Damage("test_k3s_arguments", "cluster-cidr is 10.99.0.0/16", kube_node(other_arguments)),
    Damage("test_k3s_certificate", "Dec 1 06:00:00 2027", on(GUEST, file(CERTIFICATE, content=b"soon"))),
    Damage(
        "test_etcd_snapshots",
        "is 27 hours old",
        on(GUEST, lambda state: state.commands.update({"etcd-snapshots": {"etcd-snapshot-1": b"100000 1"}})),
    ),
    Damage(
        "test_etcd_snapshots",
        "no snapshot",
        on(GUEST, lambda state: state.commands.update({"etcd-snapshots": {}})),
    ),
    Damage("test_etcd_members", "vm does not vote (MemberIsLearner)", kube_node(learner), "cluster"),
    # files
    Damage("test_files", "/etc/app has other content", on(GUEST, file("/etc/app", content=b"b"))),
    Damage("test_files", "/etc/app has mode 644", on(GUEST, file("/etc/app", mode="0644"))),
    Damage("test_files", "/etc/app belongs to nobody", on(GUEST, file("/etc/app", owner="nobody"))),
    Damage("test_files", "/etc/app belongs to group games", on(GUEST, file("/etc/app", group="games"))),
    Damage("test_files", "/etc/app is missing", on(GUEST, gone("/etc/app"))),
    Damage(
        "test_files", "/etc/app is a symbolic link", on(GUEST, file("/etc/app", type="link", target="/x"))
    ),
    Damage("test_files", "/etc/secret has other content", on(GUEST, file("/etc/secret", content=b"x"))),
    Damage("test_files", "/etc/secret has mode 644", on(GUEST, file("/etc/secret", mode="0644"))),
    Damage("test_files", "/etc/motd has other content", on(PVE, file("/etc/motd", content=b"")), "pve"),
    Damage("test_lines", "/etc/profile: export EDITOR=vi", on(GUEST, file("/etc/profile", content=b"x\n"))),
    Damage("test_absent_files", "/etc/nologin", on(GUEST, file("/etc/nologin"))),
    # packages and services
    Damage("test_packages", "cron", on(GUEST, lambda state: state.packages.pop("cron"))),
    Damage(
        "test_packages", "ca-certificates", on(GUEST, lambda state: state.packages.pop("ca-certificates"))
    ),
    Damage("test_held_packages", "htop is not held", on(PVE, lambda state: state.held.clear()), "pve"),
    Damage("test_absent_packages", "nano", on(PVE, lambda state: state.packages.update(nano="1")), "pve"),
    Damage("test_services", "cron.service is inactive", on(GUEST, unit("cron.service", active=False))),
    Damage("test_services", "cron.service is disabled", on(GUEST, unit("cron.service", file="disabled"))),
    Damage("test_services", "(auto-restart)", on(GUEST, unit("cron.service", active=False, waiting=True))),
    # kernel
    Damage("test_kernel_parameters", "vm.max_map_count = 1", on(GUEST, sysctl("vm.max_map_count", "1"))),
    Damage(
        "test_kernel_parameters_at_next_boot",
        "/usr/lib/sysctl.d/99-vendor.conf sets vm.swappiness = 60",
        on(PVE, file("/usr/lib/sysctl.d/99-vendor.conf", content=b"vm.swappiness = 60\n")),
        "pve",
    ),
    Damage("test_kernel_parameters", "vm.swappiness = 60", on(PVE, sysctl("vm.swappiness", "60")), "pve"),
    Damage(
        "test_kernel_parameters_at_next_boot",
        "/etc/sysctl.d/99-later.conf sets vm.max_map_count = 65530",
        on(GUEST, lambda state: state.files.__setitem__("/etc/sysctl.d/99-later.conf", LATER)),
    ),
    Damage(
        "test_kernel_parameters_at_next_boot",
        "no file sets vm.swappiness",
        on(PVE, gone("/etc/sysctl.d/90-provision-vm.swappiness.conf")),
        "pve",
    ),
    Damage("test_modules_are_loaded", "dummy", on(PVE, lambda state: state.modules.discard("dummy")), "pve"),
    Damage(
        "test_modules_at_next_boot", "dummy", on(PVE, gone("/etc/modules-load.d/provision-dummy.conf")), "pve"
    ),
    Damage(
        "test_module_options",
        "dummy: numdummies=2",
        on(PVE, gone("/etc/modprobe.d/provision-dummy-options.conf")),
        "pve",
    ),
    Damage(
        "test_blacklisted_modules",
        "pcspkr is loaded",
        on(PVE, lambda state: state.modules.add("pcspkr")),
        "pve",
    ),
    Damage(
        "test_blacklisted_modules",
        "pcspkr is not blacklisted",
        on(PVE, gone("/etc/modprobe.d/provision-no-pcspkr.conf")),
        "pve",
    ),
    Damage("test_commands", "setup", on(GUEST, lambda state: state.probes.clear())),
    Damage("test_commands", "/etc/site is missing", on(PVE, gone("/etc/site")), "pve"),
    # the system
    Damage("test_hostname", "it calls itself x", on(GUEST, lambda state: setattr(state, "hostname", "x"))),
    Damage("test_hostname", "/etc/hostname says x", on(GUEST, file("/etc/hostname", content=b"x\n"))),
    Damage(
        "test_hostname", "/etc/hosts", on(GUEST, file("/etc/hosts", content=b"198.18.0.3 registry.lab\n"))
    ),
    Damage(
        "test_timezone",
        "Berlin",
        on(GUEST, file("/etc/localtime", target="/usr/share/zoneinfo/Europe/Berlin")),
    ),
    Damage("test_timezone", "/etc/timezone says UTC", on(GUEST, file("/etc/timezone", content=b"UTC\n"))),
    Damage("test_swap_is_off", "/dev/vdb", on(GUEST, lambda state: setattr(state, "swaps", ("/dev/vdb",)))),
    Damage(
        "test_no_swap_at_next_boot",
        "/dev/vdb",
        on(GUEST, file("/etc/fstab", content=b"/dev/vdb none swap sw 0 0")),
    ),
    Damage("test_no_swap_at_next_boot", "dev-zram0.swap", on(GUEST, zram)),
    Damage("test_no_swap_at_next_boot", "zramswap.service", on(GUEST, zram_service)),
    Damage(
        "test_no_swap_at_next_boot",
        "/etc/rc.local",
        on(GUEST, file("/etc/rc.local", content=b"swapon /swapfile\n", mode="0755")),
    ),
    Damage(
        "test_root_filesystem_fills_the_disk",
        "2048 MiB",
        on(GUEST, lambda state: setattr(state, "root", replace(state.root, size=2 * GIB))),
    ),
    Damage(
        "test_time_servers", "198.18.0.1", on(GUEST, gone("/etc/systemd/timesyncd.conf.d/provision.conf"))
    ),
    Damage("test_time_daemon", "disabled", on(GUEST, unit("systemd-timesyncd.service", file="disabled"))),
    Damage("test_authorized_keys", "1 further keys", on(GUEST, lambda state: add_key(state, b"ssh-rsa x\n"))),
    Damage(
        "test_authorized_keys", "keys are missing", on(GUEST, file(KEYS, content=b"ssh-ed25519 AAAA me\n"))
    ),
    Damage("test_authorized_keys", "644", on(GUEST, file(KEYS, mode="0644"))),
    Damage(
        "test_authorized_keys",
        "/home/debian/.ssh: debian 755",
        on(GUEST, file("/home/debian/.ssh", mode="0755")),
    ),
    # the VM
    Damage("test_name", "other", vm("name", "other")),
    Damage(
        "test_it_is_marked",
        "marked for",
        edit("description", "inventory=tiny", "inventory=other"),
        also=(("test_it_is_marked", "vm"),),  # nobody logs in to a foreign VM: a round of its own
    ),
    Damage(
        "test_it_is_marked",
        "no marker",
        vm("description", "Notes of a person"),
        also=(("test_first_host_key_is_replaced", "vm"),),
    ),
    Damage("test_machine", "pc", vm("machine", "pc")),
    Damage("test_machine", "pc-q35-9.2+pve1", vm("machine", "pc-q35-9.2+pve1")),
    Damage("test_serial_console", "serial0: unset", vm("serial0", None)),
    Damage("test_usb_devices", "not passed: stick", vm("usb0", None)),
    Damage("test_pool", "no pool", api(lambda model: model.pools.pop(201))),
    Damage("test_firmware", "seabios", vm("bios", None)),
    Damage(
        "test_firmware", "pre-enrolled-keys=1", edit("efidisk0", "pre-enrolled-keys=0", "pre-enrolled-keys=1")
    ),
    Damage("test_balloon", "512", vm("balloon", "512")),
    Damage("test_start_at_boot", "", vm("onboot", "1")),
    Damage("test_memory_and_cores", "memory: 512", vm("memory", None)),
    Damage("test_memory_and_cores", "cores: 4", vm("cores", "4")),
    Damage("test_memory_and_cores", "sockets: 1", vm("sockets", None)),
    Damage("test_cpu", "x86-64-v2", vm("cpu", "x86-64-v2,flags=+aes")),
    Damage("test_cpu", "flags: none", vm("cpu", "host")),
    Damage("test_switches", "numa is off", vm("numa", "0")),
    Damage("test_switches", "agent is off", vm("agent", "0")),
    Damage("test_switches", "protection is on", vm("protection", "1")),
    Damage("test_startup", "up: 99", vm("startup", "order=3,up=99")),
    Damage("test_tags", "lab", vm("tags", "provision")),
    Damage("test_tags", "no longer declared: old", outdate_tags),
    Damage("test_disks", "scsi0: 2048 of 4096 MiB", edit("scsi0", "size=4G", "size=2G")),
    Damage("test_disks", "there is no scsi1", vm("scsi1", None)),
    Damage("test_disks", "scsi1: ssd=0", edit("scsi1", "ssd=1", "ssd=0")),
    Damage("test_network_devices", "net0: bridge=vmbr9", edit("net0", "vmbr0", "vmbr9")),
    Damage("test_network_devices", "net0: tag=8", edit("net0", "tag=7", "tag=8")),
    Damage("test_network_devices", "net0: firewall=0", edit("net0", "firewall=1", "firewall=0")),
    Damage("test_tpm", "version v1.2", edit("tpmstate0", "version=v2.0", "version=v1.2")),
    Damage(
        "test_nothing_is_pending",
        "cores",
        lambda site: site.apis["pve/api"].vms[201].pending.update(cores="2"),
    ),
    Damage("test_no_snippet_is_left", "vendor", vm("cicustom", "vendor=local:snippets/x.yaml")),
    Damage(
        "test_first_host_key_is_replaced",
        "first key",
        edit("description", "host-key=", "first-key=SHA256:x host-key="),
    ),
    Damage("test_card_is_passed_through", "", edit("hostpci0", "pcie=1", "pcie=0")),
    Damage("test_card_is_passed_through", "", vm("hostpci0", None)),
    Damage("test_card_is_visible", "visible 0 times", on(GUEST, lambda state: state.functions.clear())),
    Damage(
        "test_power",
        "it is stopped",
        api(lambda model: setattr(model.vms[201], "running", False)),
        also=(("test_power", "vm"),),  # its guest is silent then: a round of its own
    ),
    Damage("test_repositories", "no pve-no-subscription", on(PVE, lambda state: state.probes.clear()), "pve"),
    Damage("test_clock", "off by 99 s", on(GUEST, lambda state: setattr(state, "skew", 99.0))),
    Damage(
        "test_time_is_synchronised",
        "no",
        on(GUEST, lambda state: setattr(state, "clock", replace(state.clock, synchronised=False))),
    ),
    Damage(
        "test_no_unit_has_failed",
        "cron.service",
        on(GUEST, unit("cron.service", active=False, failed=True)),
        also=(("test_services", "vm"),),
    ),
    # the hypervisor
    Damage(
        "test_system_is_running",
        "cron.service",
        on(PVE, unit("cron.service", active=False, failed=True)),
        "pve",
    ),
    Damage(
        "test_cards_have_no_host_driver",
        "bochs_drm",
        on(PVE, driver("bochs_drm")),
        "pve",
        (("test_cards_of_running_vms_are_with_vfio", "pve"), ("test_modules_of_cards_are_not_loaded", "pve")),
    ),
    Damage("test_nothing_else_of_the_group_is_touched", "0000:03:00.0", on(PVE, take_another), "pve"),
    Damage("test_mappings", "one has no mapping", api(lambda model: model.mappings.clear()), "pve"),
    Damage("test_mappings", "0000:03:00", api(mapped("0000:01:00", "0000:03:00")), "pve"),
    Damage("test_mappings", "1234:9999", api(mapped("id=1234:1111", "id=1234:9999")), "pve"),
    Damage("test_images", "debian-12", api(lambda model: model.volumes["local"].clear()), "pve"),
    Damage(
        "test_no_snippet_lies_there",
        "provision-tiny-vm.yaml",
        on(PVE, file("/var/lib/vz/local/snippets/provision-tiny-vm.yaml")),
        "pve",
    ),
    Damage("test_cards_of_running_vms_are_with_vfio", "0000:01:00", on(PVE, driver("")), "pve"),
    Damage(
        "test_modules_of_cards_are_not_loaded",
        "bochs_drm",
        on(PVE, lambda state: state.modules.add("bochs_drm")),
        "pve",
    ),
    Damage(
        "test_kernel_command_line_is_active",
        "bochs_drm",
        on(PVE, lambda state: setattr(state, "cmdline", "ro")),
        "pve",
    ),
    Damage(
        "test_kernel_command_line_at_next_boot",
        "/boot/grub/grub.cfg lacks",
        on(PVE, lambda state: setattr(state, "boot_line", "linux /vmlinuz root=/dev/vda1 ro")),
        "pve",
    ),
    Damage(
        "test_blacklist_at_next_boot",
        "bochs_drm",
        on(PVE, file("/etc/modprobe.d/provision-cards.conf", content=b"")),
        "pve",
    ),
    Damage(
        "test_kernel_command_line_at_next_boot",
        "the next update of GRUB's menu loses",
        on(PVE, gone("/etc/default/grub.d/50-provision.cfg")),
        "pve",
    ),
    # addresses
    Damage(
        "test_address_is_used",
        "198.18.0.99",
        on(
            GUEST,
            lambda state: state.commands.update(link=dict.fromkeys(state.commands["link"], b"198.18.0.99")),
        ),
        also=(("test_address_is_leased", "vm"), ("test_address_is_reserved", "vm")),
    ),
    Damage(
        "test_mac",
        "52:54:00:00:00:99",
        on(GUEST, lambda state: state.commands.update(link={"52:54:00:00:00:99": b"198.18.0.11"})),
        also=(("test_address_is_leased", "vm"), ("test_address_is_reserved", "vm")),
    ),
    Damage("test_address_is_leased", "no lease", on(ROUTER, file(LEASES, content=b""))),
    Damage("test_address_is_reserved", "0 reservations", on(ROUTER, gone(RESERVED))),
    Damage(
        "test_address_is_reserved",
        "2 reservations",
        on(ROUTER, file("/etc/dnsmasq.d/hosts/x", content=b"52:54:00:00:00:09,198.18.0.11,x\n")),
    ),
    Damage("test_address_is_reserved", "0 reservations", on(ROUTER, gone(RESERVED_HYPERVISOR)), "pve"),
    Damage(
        "test_address_is_reserved",
        "reserved for another: 52:54:00:00:00:09",
        on(ROUTER, file(RESERVED_HYPERVISOR, content=b"52:54:00:00:00:09,198.18.0.5,pve\n")),
        "pve",
    ),
    Damage("test_hosts_entries", "registry.lab has 198.18.0.3, 192.0.2.1", on(GUEST, add_host)),
    # storage
    Damage("test_shared_storage_is_mounted", "not mounted", on(GUEST, lambda state: state.mounts.clear())),
    Damage(
        "test_shared_storage_is_the_same",
        "lacks the marker of gpu",
        not_shared,
    ),
    Damage(
        "test_shared_storage_has_space", "10 MiB free", on(GUEST, lambda state: setattr(state, "free", 10))
    ),
    # GPUs
    Damage(
        "test_gpu_driver_is_bound",
        "0000:01:00.0 has none",
        on(GPU, lambda state: setattr(state.functions[0], "driver", "")),
        "gpu",
        (("test_gpu_count", "gpu"),),
    ),
    Damage("test_gpu_count", "no UUID: 00000000:02:00.0", on(GPU, card(uuid=Meaning.BROKEN)), "gpu"),
    # rails
    Damage("test_rail_address", "no interface has 10.224.7.143/12", on(GPU, interface(addresses=())), "gpu"),
    Damage(
        "test_rail_address",
        "rdma9 has 10.224.7.143/12, not rdma7",
        on(GPU, interface(name="rdma9")),
        "gpu",
        (("test_rail_mtu", "gpu"),),
    ),
    Damage("test_rail_port", "mlx5_8 port 1 is 1: DOWN", on(GPU, port(state="DOWN")), "gpu"),
    Damage("test_rail_port", "mlx5_8 port 1 is InfiniBand", on(GPU, port(link_layer="InfiniBand")), "gpu"),
    Damage(
        "test_rail_gid",
        "no RoCE v2 entry 0000:0000:0000:0000:0000:ffff:0ae0:078f",
        on(GPU, port(gids=())),
        "gpu",
    ),
    Damage("test_rail_mtu", "rdma7 has MTU 1500, not 4220", on(GPU, interface(mtu=1500)), "gpu"),
    Damage("test_rdma_namespaces", "the mode is exclusive, not shared", on(GPU, netns("exclusive")), "gpu"),
    Damage(
        "test_rdma_namespaces_at_boot",
        "nothing sets netns_mode=1 at boot",
        on(GPU, gone("/etc/modprobe.d/provision-rdma-netns.conf")),
        "gpu",
    ),
    Damage(
        "test_gpu_toolkit",
        "nvidia-container-runtime is not installed",
        on(GPU, lambda state: state.packages.pop("nvidia-container-toolkit")),
        "gpu",
    ),
    Damage("test_gpu_model", "40960 MiB", on(GPU, card(memory=40960)), "gpu"),
    Damage("test_gpu_model", "NVIDIA A100", on(GPU, card(name="NVIDIA A100")), "gpu"),
    Damage(
        "test_gpu_driver_version",
        "nvidia-smi lists no card",
        on(GPU, lambda state: setattr(state, "loaded_driver", "570.1.1")),
        "gpu",
        tuple((name, "gpu") for name in GPU_LISTS),
    ),
    Damage(
        "test_gpu_driver_at_next_boot",
        "has 570.1.1, and 580.178.04 is loaded",
        on(GPU, lambda state: setattr(state, "foreign_driver", "570.1.1")),
        "gpu",
    ),
    Damage("test_gpu_ecc", "00000000:02:00.0: Disabled", on(GPU, card(ecc="Disabled")), "gpu"),
    Damage("test_gpu_mig", "00000000:02:00.0: Enabled", on(GPU, card(mig="Enabled")), "gpu"),
    Damage(
        "test_gpu_compute_mode",
        "00000000:01:00.0: Exclusive_Process; 00000000:02:00.0: Exclusive_Process",
        on(GPU, lambda state: state.card_words.update({"compute_mode": "Exclusive_Process"})),
        "gpu",
    ),
    Damage(
        "test_gpu_no_mps_left",
        "/run/nvidia/mps/nvidia.com/gpu",
        on(GPU, lambda state: setattr(state, "mps", MpsStatus(killed=("/run/nvidia/mps/nvidia.com/gpu",)))),
        "gpu",
    ),
    Damage(
        "test_gpu_is_not_slowed_down",
        "00000000:01:00.0: its heat",
        on(GPU, lambda state: state.card_words.update({f"{SLOWED}.hw_thermal_slowdown": "Active"})),
        "gpu",
    ),
    Damage("test_gpu_power_limit", "00000000:02:00.0: 350.0", on(GPU, card(power_limit=350.0)), "gpu"),
    Damage("test_gpu_fabric", "In Progress", on(GPU, card(fabric=("In Progress", "N/A"))), "gpu"),
    Damage(
        "test_gpu_no_hardware_fault",
        "79, pid='<unknown>'",
        on(GPU, lambda state: setattr(state, "kernel_log", (f"NVRM: Xid (PCI:0000:02:00): 79, {PID}",))),
        "gpu",
    ),
    Damage(
        "test_gpu_fabric_no_fault",
        "NV_ERR_FABRIC_STATE_OUT_OF_SYNC; see the playbook nvls-recovery",
        on(GPU, fabric_error),
        "gpu",
    ),
    Damage(
        "test_gpu_daemons",
        "nvidia-fabricmanager.service is inactive",
        on(GPU, unit("nvidia-fabricmanager.service", active=False)),
        "gpu",
    ),
    Damage(
        "test_gpu_other_drivers_are_off",
        "loaded: nouveau",
        on(GPU, lambda state: state.modules.add("nouveau")),
        "gpu",
    ),
    Damage(
        "test_gpu_other_drivers_are_off",
        "not kept off: nouveau",
        on(GPU, gone("/etc/modprobe.d/provision-gpu.conf")),
        "gpu",
    ),
    Damage(
        "test_gpu_packages_are_held", "no package is held", on(GPU, lambda state: state.held.clear()), "gpu"
    ),
    Damage(
        "test_gpu_packages_are_held",
        "may replace",
        on(GPU, gone("/etc/apt/apt.conf.d/52provision-gpu")),
        "gpu",
    ),
)

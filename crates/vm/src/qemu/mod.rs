//! QEMU's words: the options of its command line, and what they say of vCPUs and memory.

mod command_line;
mod config_file;
mod doubt;
mod flags;
mod guest_cpus;
mod machine_types;
mod nics;
mod option_groups;
pub(crate) mod options;
mod qmp_socket;
mod sizes;
mod vcpu_topology;
mod write;

pub use command_line::{Backend, BackendKind, CommandLine, NumaNode};
pub use doubt::Doubt;
pub use guest_cpus::{GuestCaches, GuestCpus};
pub use option_groups::{OptionGroups, ReadFile, UnreadBecause, UnreadFile};
pub use qmp_socket::qmp_socket;
pub use sizes::memory_size;
pub use vcpu_topology::{VcpuTopology, vcpu_id};
pub use write::{MONITOR, escape, memory_id, policy_word};

/// Whether a program of this path is called as QEMU as a VM is: `qemu-system-x86_64`, `qemu-kvm`
/// (Red Hat), `kvm` (Proxmox, Debian). Wrappers and package managers put something around the name:
/// `.qemu-system-x86_64-wrapped` (NixOS), `qemu-kvm.real`, `qemu-kvm;5f3a (deleted)`.
pub fn is_qemu(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program);
    let name = name.strip_prefix('.').unwrap_or(name);
    let is_around = |rest: &str| !rest.starts_with(|letter: char| letter.is_ascii_alphanumeric() || letter == '_');
    let is_kvm = |rest: &str| ["", " (deleted)", "-wrapped", "-wrapped (deleted)"].contains(&rest);
    name.starts_with("qemu-system-")
        || name.strip_prefix("qemu-kvm").is_some_and(is_around)
        || name.strip_prefix("kvm").is_some_and(is_kvm)
}

/// Options that no other program is known to have, with one dash or two.
const QEMUS_OPTIONS: [&str; 6] = ["machine", "M", "accel", "enable-kvm", "nodefaults", "smp"];
/// Those that others write with two dashes (cloud-hypervisor, crosvm), and QEMU's users with one.
const QEMUS_WITH_ONE_DASH: [&str; 14] = [
    "blockdev",
    "cdrom",
    "chardev",
    "cpu",
    "device",
    "drive",
    "hda",
    "netdev",
    "no-user-config",
    "nographic",
    "numa",
    "object",
    "qmp",
    "readconfig",
];

/// Whether a command line is QEMU's, whatever its program is called.
pub fn has_qemus_options(arguments: &[impl AsRef<str>]) -> bool {
    let is_one = |argument: &str| {
        let Some(option) = argument.strip_prefix('-') else { return false };
        QEMUS_WITH_ONE_DASH.contains(&option) || QEMUS_OPTIONS.contains(&option.strip_prefix('-').unwrap_or(option))
    };
    arguments.iter().skip(1).any(|argument| is_one(argument.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qemu_is_known_by_its_name_whatever_is_around_it() {
        for program in [
            "/usr/bin/qemu-system-x86_64",
            "/nix/store/x-qemu-9.2.0/bin/.qemu-system-x86_64-wrapped",
            "/usr/bin/qemu-system-x86_64 (deleted)",
            "/usr/libexec/qemu-kvm;5f3a2c1b (deleted)",
            "qemu-kvm.real",
            "/nix/store/x/bin/.qemu-kvm-wrapped",
            "/usr/bin/kvm",
        ] {
            assert!(is_qemu(program), "{program}");
        }
        for program in
            ["qemu-img", "qemu-nbd", "/usr/sbin/kvm-ok", "kvm_stat", "qemu-kvmx", "qemu-storage-daemon", "vim"]
        {
            assert!(!is_qemu(program), "{program}");
        }
    }

    #[test]
    fn other_monitors_of_vms_have_other_options() {
        let has = |line: &str| has_qemus_options(&line.split(' ').collect::<Vec<_>>());
        for line in ["/opt/web -hda disk -m 512", "x --enable-kvm", "ld-linux.so.2 /opt/qemu -M q35", "x -readconfig a"]
        {
            assert!(has(line), "{line}");
        }
        for line in [
            "cloud-hypervisor --kernel vmlinux --cpus boot=4 --memory size=4G --disk path=a --serial tty --device path=b",
            "firecracker --api-sock /run/a --id b",
            "crosvm run --cpus 4 --mem 2048 --block a --initrd b c",
            "lkvm run -k bzImage -m 512 -c 2 -d disk",
            "vim qemu-system-x86_64",
            "-smp",
        ] {
            assert!(!has(line), "{line}");
        }
    }
}

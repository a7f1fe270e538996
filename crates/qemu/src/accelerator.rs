//! Hardware virtualization where it works, software emulation where it does not.

use std::fs::{File, OpenOptions};
use std::path::Path;
use vm::{Accelerator, TcgThreads, VirtualTopology};

/// From this many vCPUs on, TCG runs a guest on one thread: with a thread for each vCPU, the Linux
/// guest's patching of its own code at boot hangs now and then (2 boots in 10 at 32 vCPUs on two
/// host CPUs), and boots slower when it does not.
const SINGLE_THREAD_FROM_VCPUS: u32 = 32;

/// What this host offers a VM that may come to have `vcpus`, plugged-in ones included: the threads
/// of a VM are chosen when QEMU starts. KVM only if `/dev/kvm` opens for reading and writing
/// **and** the CPU shows `vmx` or `svm`. A `/dev/kvm` that opens without those flags exists (nested
/// clouds) and hangs stock kernels.
pub fn accelerator(vcpus: u32) -> Accelerator {
    let opened = OpenOptions::new().read(true).write(true).open("/dev/kvm");
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    choose(vcpus, &opened, &cpuinfo)
}

fn choose(vcpus: u32, dev_kvm: &std::io::Result<File>, cpuinfo: &str) -> Accelerator {
    let because = match dev_kvm {
        Err(error) => format!("/dev/kvm cannot be opened: {error}"),
        Ok(_) if !has_virtualization(cpuinfo) => "/dev/kvm opens, but the CPU shows neither vmx nor svm".to_owned(),
        Ok(_) => return Accelerator::Kvm,
    };
    let threads = if vcpus < SINGLE_THREAD_FROM_VCPUS { TcgThreads::Multi } else { TcgThreads::Single };
    Accelerator::Tcg { threads, because }
}

/// For QEMU's `-accel`.
pub(crate) fn argument(accelerator: &Accelerator) -> &'static str {
    match accelerator {
        Accelerator::Kvm => "kvm",
        Accelerator::Tcg { threads: TcgThreads::Multi, .. } => "tcg,thread=multi",
        Accelerator::Tcg { threads: TcgThreads::Single, .. } => "tcg,thread=single",
    }
}

/// Whether a guest on an AMD host sees this topology only with the CPU feature `topoext`, which
/// `-cpu host` leaves out (`no_autoenable_flags` in QEMU's target/i386/cpu.c): hardware threads,
/// and last-level caches that are smaller than a socket.
pub fn needs_topoext(topology: &VirtualTopology) -> bool {
    topology.threads_per_core > 1 || topology.dies_per_socket > 1
}

/// For QEMU's `-cpu`. The emulated CPU is an Intel one: TCG drops AMD's topology leaf, and a guest
/// would see no hardware threads.
pub(crate) fn cpu_model(accelerator: &Accelerator, amd: bool, topology: &VirtualTopology) -> &'static str {
    match accelerator {
        Accelerator::Kvm if amd && needs_topoext(topology) => "host,topoext=on",
        Accelerator::Kvm => "host",
        Accelerator::Tcg { .. } => "max,vendor=GenuineIntel",
    }
}

/// Whether the CPU of this host shows `vmx` or `svm`.
pub fn cpu_can_virtualize() -> bool {
    has_virtualization(&std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default())
}

fn has_virtualization(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    flags.split_whitespace().any(|flag| flag == "vmx" || flag == "svm")
}

/// Whether the host's CPU is AMD's, for QEMU's `topoext`.
pub(crate) fn host_is_amd() -> bool {
    let cpuinfo = std::fs::read_to_string(Path::new("/proc/cpuinfo")).unwrap_or_default();
    cpuinfo.lines().find(|line| line.starts_with("vendor_id")).is_some_and(|line| line.contains("AuthenticAMD"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened() -> std::io::Result<File> {
        File::open("/dev/null")
    }

    #[test]
    fn kvm_needs_the_device_and_the_flag() {
        let with = "vendor_id\t: X\nflags\t\t: fpu svm sse\n";
        let without = "flags\t\t: fpu sse svmlike\n";
        assert_eq!(choose(4, &opened(), with), Accelerator::Kvm);
        let tcg = choose(4, &opened(), without);
        assert!(matches!(&tcg, Accelerator::Tcg { because, .. } if because.contains("neither vmx nor svm")), "{tcg:?}");
        let closed = Err(std::io::Error::from(std::io::ErrorKind::PermissionDenied));
        let tcg = choose(4, &closed, with);
        assert!(matches!(&tcg, Accelerator::Tcg { because, .. } if because.contains("cannot be opened")), "{tcg:?}");
    }

    #[test]
    fn many_vcpus_share_a_thread_under_tcg() {
        let argument = |vcpus| super::argument(&choose(vcpus, &opened(), ""));
        assert_eq!(argument(31), "tcg,thread=multi");
        assert_eq!(argument(32), "tcg,thread=single");
    }
}

//! Hardware virtualization where it works, software emulation where it does not.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::path::Path;

/// What runs the guest's instructions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Accelerator {
    /// The CPU itself, through `/dev/kvm`.
    Kvm,
    /// QEMU's software emulation. Its speeds and ratios say nothing about hardware virtualization.
    Tcg {
        /// How many host threads run the vCPUs.
        threads: TcgThreads,
        /// Why not KVM.
        because: String,
    },
}

/// How TCG runs vCPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TcgThreads {
    /// All vCPUs in turn on one host thread.
    Single,
    /// Each vCPU on a host thread of its own.
    Multi,
}

/// From this many vCPUs on, TCG runs a guest on one thread: with a thread for each vCPU, the Linux
/// guest's patching of its own code at boot hangs now and then (2 boots in 10 at 32 vCPUs on two
/// host CPUs), and boots slower when it does not.
const SINGLE_THREAD_FROM_VCPUS: u32 = 32;

impl Accelerator {
    /// What this host offers a VM of `vcpus`: KVM only if `/dev/kvm` opens for reading and writing
    /// **and** the CPU shows `vmx` or `svm`. A `/dev/kvm` that opens without those flags exists
    /// (nested clouds) and hangs stock kernels.
    pub fn detect(vcpus: u32) -> Self {
        let opened = OpenOptions::new().read(true).write(true).open("/dev/kvm");
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self::choose(vcpus, &opened, &cpuinfo)
    }

    fn choose(vcpus: u32, dev_kvm: &std::io::Result<File>, cpuinfo: &str) -> Self {
        let because = match dev_kvm {
            Err(error) => format!("/dev/kvm cannot be opened: {error}"),
            Ok(_) if !has_virtualization(cpuinfo) => "/dev/kvm opens, but the CPU shows neither vmx nor svm".to_owned(),
            Ok(_) => return Self::Kvm,
        };
        let threads = if vcpus < SINGLE_THREAD_FROM_VCPUS { TcgThreads::Multi } else { TcgThreads::Single };
        Self::Tcg { threads, because }
    }

    /// Whether the CPU itself runs the guest.
    pub fn is_hardware(&self) -> bool {
        matches!(self, Self::Kvm)
    }

    /// For QEMU's `-accel`.
    pub(crate) fn argument(&self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg { threads: TcgThreads::Multi, .. } => "tcg,thread=multi",
            Self::Tcg { threads: TcgThreads::Single, .. } => "tcg,thread=single",
        }
    }

    /// For QEMU's `-cpu`. The emulated CPU is an Intel one: TCG drops AMD's topology leaf, and a
    /// guest would see no hardware threads.
    pub(crate) fn cpu_model(&self, amd_with_threads: bool) -> &'static str {
        match self {
            Self::Kvm if amd_with_threads => "host,topoext=on",
            Self::Kvm => "host",
            Self::Tcg { .. } => "max,vendor=GenuineIntel",
        }
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

impl fmt::Display for Accelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kvm => f.write_str("KVM"),
            Self::Tcg { because, .. } => write!(f, "TCG, software emulation ({because})"),
        }
    }
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
        assert_eq!(Accelerator::choose(4, &opened(), with), Accelerator::Kvm);
        let tcg = Accelerator::choose(4, &opened(), without);
        assert!(matches!(&tcg, Accelerator::Tcg { because, .. } if because.contains("neither vmx nor svm")), "{tcg:?}");
        let closed = Err(std::io::Error::from(std::io::ErrorKind::PermissionDenied));
        let tcg = Accelerator::choose(4, &closed, with);
        assert!(matches!(&tcg, Accelerator::Tcg { because, .. } if because.contains("cannot be opened")), "{tcg:?}");
    }

    #[test]
    fn many_vcpus_share_a_thread_under_tcg() {
        let argument = |vcpus| Accelerator::choose(vcpus, &opened(), "").argument();
        assert_eq!(argument(31), "tcg,thread=multi");
        assert_eq!(argument(32), "tcg,thread=single");
    }
}

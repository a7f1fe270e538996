//! The CPU's model from `/proc/cpuinfo`, which every architecture writes in words of its own.
//!
//! | architecture | lines that say it |
//! |---|---|
//! | x86, LoongArch | `model name`, `Model Name` |
//! | POWER, SPARC | `cpu` |
//! | arm | `CPU implementer` and `CPU part`, numbers that Linux's `arch/arm64/include/asm/cputype.h` names |
//! | RISC-V | `uarch`, or else `mvendorid` and `marchid`, or else `isa` |
//! | s390 | `vendor_id`, and `machine` in the line of each processor |
//! | Itanium and others | `vendor`, `family`, `model` |

use super::tree::Tree;
use std::collections::BTreeSet;

/// What `/proc/cpuinfo` says of the CPUs.
#[derive(Default)]
pub(super) struct CpuInfo {
    /// The model, for people.
    pub(super) model: Option<String>,
    /// Whether Intel made it.
    pub(super) is_intel: bool,
}

/// The keys that are read, and all that a capture keeps of the file.
const KEYS: [&str; 16] = [
    "model name",
    "Model Name",
    "cpu",
    "Processor",
    "CPU implementer",
    "CPU part",
    "uarch",
    "mvendorid",
    "marchid",
    "isa",
    "vendor_id",
    "vendor",
    "family",
    "model",
    "machine",
    "cpu family",
];

/// Makers of arm's CPUs, by `CPU implementer`.
const IMPLEMENTERS: [(u32, &str); 16] = [
    (0x41, "ARM"),
    (0x42, "Broadcom"),
    (0x43, "Cavium"),
    (0x46, "Fujitsu"),
    (0x48, "HiSilicon"),
    (0x4e, "NVIDIA"),
    (0x50, "APM"),
    (0x51, "Qualcomm"),
    (0x53, "Samsung"),
    (0x56, "Marvell"),
    (0x61, "Apple"),
    (0x69, "Intel"),
    (0x6d, "Microsoft"),
    (0x70, "Phytium"),
    (0xc0, "Ampere"),
    (0x66, "Faraday"),
];

/// Parts that servers have, by `CPU implementer` and `CPU part`.
const PARTS: [((u32, u32), &str); 17] = [
    ((0x41, 0xd07), "Cortex-A57"),
    ((0x41, 0xd08), "Cortex-A72"),
    ((0x41, 0xd0c), "Neoverse-N1"),
    ((0x41, 0xd40), "Neoverse-V1"),
    ((0x41, 0xd49), "Neoverse-N2"),
    ((0x41, 0xd4f), "Neoverse-V2"),
    ((0x41, 0xd84), "Neoverse-V3"),
    ((0x41, 0xd85), "Cortex-X925"),
    ((0x41, 0xd87), "Cortex-A725"),
    ((0x41, 0xd8e), "Neoverse-N3"),
    ((0x43, 0x0a1), "ThunderX"),
    ((0x43, 0x0af), "ThunderX2"),
    ((0x46, 0x001), "A64FX"),
    ((0x48, 0xd01), "Kunpeng-920"),
    ((0x48, 0xd02), "TaiShan-v120"),
    ((0xc0, 0xac3), "Ampere-1"),
    ((0xc0, 0xac4), "Ampere-1A"),
];

/// Reads it.
pub(super) fn read(tree: &Tree) -> CpuInfo {
    // The kernel writes the file as it is read; all of it, on a machine with 512 CPUs, takes longer
    // than everything else.
    const FIRST_CPUS: u64 = 8192;
    let lines = tree.lines_kept("proc/cpuinfo", FIRST_CPUS, kept).unwrap_or_default();
    let lines: Vec<(&str, &str)> = lines.iter().filter_map(|line| line.split_once(':')).collect();
    of(&lines.into_iter().map(|(key, value)| (key.trim(), value.trim())).collect::<Vec<_>>())
}

/// A line as it is read and captured. Of s390's `processor 0: version = FF, identification =
/// 29AA14, machine = 2817` only the last: the second is the serial number.
fn kept(line: &str) -> Option<String> {
    let (key, value) = line.split_once(':')?;
    if KEYS.contains(&key.trim()) {
        return Some(line.to_owned());
    }
    let machine = value.split(',').find_map(|part| part.trim().strip_prefix("machine = "))?;
    key.starts_with("processor").then(|| format!("machine: {}", machine.trim()))
}

fn of(lines: &[(&str, &str)]) -> CpuInfo {
    let first =
        |key: &str| lines.iter().find(|(found, value)| *found == key && !value.is_empty()).map(|&(_, value)| value);
    let is_intel = first("vendor_id") == Some("GenuineIntel");
    let named = ["model name", "Model Name", "cpu"].into_iter().find_map(first).map(str::to_owned);
    let model = named
        .or_else(|| arm(lines))
        .or_else(|| first("Processor").map(str::to_owned))
        .or_else(|| {
            first("machine").map(|machine| format!("{} machine {machine}", first("vendor_id").unwrap_or("s390")))
        })
        .or_else(|| risc_v(first))
        .or_else(|| Some(format!("{} family {} model {}", first("vendor")?, first("family")?, first("model")?)));
    CpuInfo { model, is_intel }
}

fn hexadecimal(text: &str) -> Option<u32> {
    u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// `ARM Neoverse-V2 (implementer 0x41, part 0xd4f)`; several parts (big and little cores) joined by
/// `+`.
fn arm(lines: &[(&str, &str)]) -> Option<String> {
    let mut kinds = BTreeSet::new();
    let mut implementer = None;
    for &(key, value) in lines {
        match key {
            "CPU implementer" => implementer = hexadecimal(value),
            "CPU part" => kinds.extend(implementer.zip(hexadecimal(value))),
            _ => {}
        }
    }
    let name = |&(implementer, part): &(u32, u32)| {
        let maker =
            IMPLEMENTERS.iter().find(|(number, _)| *number == implementer).map_or("unknown maker", |(_, name)| name);
        let known =
            PARTS.iter().find(|(numbers, _)| *numbers == (implementer, part)).map(|(_, name)| format!(" {name}"));
        format!("{maker}{} (implementer {implementer:#x}, part {part:#x})", known.unwrap_or_default())
    };
    let names: Vec<String> = kinds.iter().map(name).collect();
    (!names.is_empty()).then(|| names.join(" + "))
}

fn risc_v<'a>(first: impl Fn(&str) -> Option<&'a str>) -> Option<String> {
    let numbers = || Some(format!("vendor {}, architecture {}", first("mvendorid")?, first("marchid")?));
    let name = first("uarch").map(str::to_owned).or_else(numbers).or_else(|| first("isa").map(str::to_owned))?;
    Some(format!("RISC-V {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(text: &str) -> Option<String> {
        let lines: Vec<String> = text.lines().filter_map(kept).collect();
        let lines: Vec<(&str, &str)> = lines.iter().filter_map(|line| line.split_once(':')).collect();
        of(&lines.into_iter().map(|(key, value)| (key.trim(), value.trim())).collect::<Vec<_>>()).model
    }

    #[test]
    fn each_architecture_says_its_model_in_its_own_words() {
        let cases = [
            ("vendor_id\t: GenuineIntel\nmodel\t\t: 26\nmodel name\t: Intel Xeon X5570", "Intel Xeon X5570"),
            ("processor\t: 0\ncpu\t\t: POWER9, altivec supported", "POWER9, altivec supported"),
            ("CPU implementer\t: 0x41\nCPU part\t: 0xd4f", "ARM Neoverse-V2 (implementer 0x41, part 0xd4f)"),
            ("CPU implementer\t: 0x7f\nCPU part\t: 0x123", "unknown maker (implementer 0x7f, part 0x123)"),
            (
                "CPU implementer\t: 0x41\nCPU part\t: 0xd87\n\nCPU implementer\t: 0x41\nCPU part\t: 0xd85",
                "ARM Cortex-X925 (implementer 0x41, part 0xd85) + ARM Cortex-A725 (implementer 0x41, part 0xd87)",
            ),
            (
                "vendor_id       : IBM/S390\nbogomips per cpu: 14367.00\nprocessor 0: version = FF,  identification = \
                123456,  machine = 3931",
                "IBM/S390 machine 3931",
            ),
            ("system type\t: generic\nModel Name\t\t: Loongson-3A5000\nISA\t: loongarch64", "Loongson-3A5000"),
            ("isa\t: rv64imafdc\nuarch\t: sifive,u74-mc", "RISC-V sifive,u74-mc"),
            ("isa\t: rv64imafdcv\nmvendorid\t: 0x5b7\nmarchid\t: 0x0", "RISC-V vendor 0x5b7, architecture 0x0"),
            ("isa\t: rv64imafdc", "RISC-V rv64imafdc"),
            ("vendor     : GenuineIntel\nfamily     : 32\nmodel      : 1", "GenuineIntel family 32 model 1"),
        ];
        for (text, expected) in cases {
            assert_eq!(model(text).as_deref(), Some(expected), "{text}");
        }
        assert_eq!(model("bogomips per cpu: 14367.00\nBogoMIPS\t: 50.00"), None);
    }

    #[test]
    fn a_capture_has_no_serial_number() {
        let line = "processor 0: version = FF,  identification = 29AA14,  machine = 2817";
        assert_eq!(kept(line).as_deref(), Some("machine: 2817"));
        assert_eq!(kept("Serial\t\t: 0000000000000000"), None);
    }
}

//! Where a VM is, as a table for people.

use crate::text::{lines, table};
use std::collections::BTreeMap;
use std::fmt::Write;
use topology::{Bytes, CpuId, CpuSet};
use vm::{Accelerator, MemoryResidence, Residence, VcpuResidence};

/// A line for each virtual node: its vCPUs, where they may run, where its memory is.
pub(crate) fn view(residence: &Residence) -> String {
    let header = ["Virtual node", "vCPUs", "May run on CPUs", "Home nodes", "Memory is on", "Policy", "At home"];
    let mut table = table(header, &[0]);
    for memory in &residence.memory {
        let vcpus: Vec<&VcpuResidence> =
            residence.vcpus.iter().filter(|vcpu| vcpu.virtual_node == memory.virtual_node).collect();
        let numbers: CpuSet = vcpus.iter().map(|vcpu| CpuId(vcpu.index)).collect();
        table.add_row([
            memory.virtual_node.to_string(),
            numbers.to_string(),
            affinities(&vcpus),
            memory.home.to_string(),
            location(memory),
            memory.policy.clone().unwrap_or_else(|| "-".to_owned()),
            at_home(memory, &vcpus).to_owned(),
        ]);
    }
    let mut text = heading(residence);
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{}", lines(&table));
    text
}

fn heading(residence: &Residence) -> String {
    let Residence { vm, pid, qemu_version, accelerator, .. } = residence;
    format!("VM {vm}: QEMU {qemu_version}, process {pid}, {}; read back:\n", short(accelerator))
}

/// An accelerator in a word.
pub(crate) fn short(accelerator: &Accelerator) -> &'static str {
    if accelerator.is_hardware() { "KVM" } else { "TCG (software emulation)" }
}

/// Different sets of CPUs among the vCPUs of a node, each once.
fn affinities(vcpus: &[&VcpuResidence]) -> String {
    let mut sets: Vec<String> = vcpus.iter().map(|vcpu| vcpu.affinity.to_string()).collect();
    sets.sort_unstable();
    sets.dedup();
    sets.join(" | ")
}

fn location(memory: &MemoryResidence) -> String {
    if let Some(why) = &memory.unknown {
        return format!("unknown: {why}");
    }
    let on: BTreeMap<_, Bytes> = Residence::bytes_by_node(memory);
    let parts: Vec<String> = on.iter().map(|(node, bytes)| format!("node {node}: {bytes}")).collect();
    if parts.is_empty() { "nowhere yet (not touched)".to_owned() } else { parts.join(", ") }
}

fn at_home(memory: &MemoryResidence, vcpus: &[&VcpuResidence]) -> &'static str {
    match (memory.at_home && vcpus.iter().all(|vcpu| vcpu.at_home), memory.unknown.is_some()) {
        (_, true) => "unknown",
        (true, _) => "yes",
        (false, _) => "NO",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::NodeId;

    fn residence() -> Residence {
        let vcpu = |index, cpus: &str| VcpuResidence {
            index,
            thread_id: 100 + index,
            virtual_node: 0,
            affinity: cpus.parse().unwrap(),
            at_home: true,
        };
        Residence {
            vm: "a".into(),
            pid: 7,
            qemu_version: "7.2.22".into(),
            accelerator: Accelerator::Kvm,
            vcpus: vec![vcpu(0, "0-3"), vcpu(1, "0-3")],
            memory: vec![MemoryResidence {
                virtual_node: 0,
                home: "0".parse().unwrap(),
                pages_by_node: BTreeMap::from([(NodeId(0), 65_536)]),
                page_bytes: 4096,
                policy: Some("bind:0".into()),
                at_home: true,
                unknown: None,
            }],
            at_home: true,
        }
    }

    #[test]
    fn a_vm_at_home_is_one_line_a_node() {
        let text = view(&residence());
        // 65536 pages of 4096 bytes are 256 MiB.
        let row = text.lines().find(|line| line.contains("256 MiB")).unwrap();
        for part in ["0-1", "0-3", "node 0: 256 MiB", "bind:0", "yes"] {
            assert!(row.contains(part), "{part} in {row}");
        }
    }

    #[test]
    fn memory_away_from_home_and_memory_unknown_are_told_apart() {
        let mut away = residence();
        away.memory[0].at_home = false;
        assert!(view(&away).contains("NO"));
        away.memory[0].unknown = Some("this kernel has no numa_maps".into());
        let text = view(&away);
        assert!(text.contains("unknown: this kernel has no numa_maps") && !text.contains("NO"), "{text}");
    }
}

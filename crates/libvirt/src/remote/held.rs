//! What domains have of their host: the CPUs of their vCPUs, and their resident memory.

use super::{DomainStats, RemoteDomain};
use stacks::domain::Domain;
use std::collections::BTreeMap;
use topology::{Bytes, CpuId, CpuSet, Machine};

/// CPUs of each vCPU that is there: its pin, or those of all vCPUs, or the whole machine. Of their
/// count libvirt tells; which they are, the definition.
pub(crate) fn vcpus(domain: &Domain, stats: Option<&DomainStats>, machine: &Machine) -> BTreeMap<u32, CpuSet> {
    let whole: CpuSet = machine.usable_threads().map(|thread| thread.id).collect();
    let floating = domain.vcpu_cpuset.clone().unwrap_or(whole);
    let enabled = (0..domain.vcpus).filter(|&vcpu| !domain.absent.contains(CpuId(vcpu)));
    let others = domain.absent.iter().map(|vcpu| vcpu.0);
    let count = stats.and_then(|stats| stats.vcpus).unwrap_or(domain.vcpus);
    let there = enabled.chain(others).take(count as usize);
    there.map(|vcpu| (vcpu, domain.vcpu_pins.get(&vcpu).unwrap_or(&floating).clone())).collect()
}

/// Huge pages are taken when a domain starts, and are no resident memory in the kernel's count.
pub(super) fn resident(seen: &RemoteDomain) -> Option<Bytes> {
    let whole = (!seen.domain.huge_pages.is_empty()).then_some(seen.domain.memory);
    whole.or_else(|| Some(seen.stats.resident?.min(seen.domain.memory)))
}

#[cfg(test)]
mod tests {
    use super::super::observing::observation;
    use super::super::{DomainStats, Look, RemoteDomain};
    use super::*;
    use scheduler::{Moment, Occupancy};
    use stacks::domain;
    use std::collections::BTreeMap;
    use std::time::Instant;
    use topology::NodeId;
    use vm::NodeUse;

    /// Two nodes of four CPUs: node 0 has CPUs 0-3.
    fn machine() -> Machine {
        topology::read::from_synthetic("pack:2 [numa(memory=4GiB)] core:4 pu:1").expect("a machine")
    }

    fn seen(xml: &str, resident_mib: Option<u64>) -> RemoteDomain {
        let text = format!("<domain type='kvm'><name>a</name><memory unit='MiB'>1024</memory>{xml}</domain>");
        let domain = domain::parse(&text, "a.xml").expect(xml);
        let stats = DomainStats { resident: resident_mib.map(Bytes::from_mib), ..DomainStats::default() };
        RemoteDomain { uuid: "u".to_owned(), domain, stats }
    }

    fn occupancy(domains: &[RemoteDomain], machine: &Machine) -> (Occupancy, Vec<String>) {
        let look = Look { at: Instant::now(), free: BTreeMap::new(), cpus: BTreeMap::new(), domains: domains.to_vec() };
        let seen = observation(machine, &look, None, Moment(0));
        // The first is said of every domain.
        (Occupancy::of_observation(&seen, machine), seen.unseen_of(None).split_off(1))
    }

    fn mib(vcpus: u32, memory: u64, resident: u64) -> NodeUse {
        NodeUse { vcpus, memory: Bytes::from_mib(memory), resident: Bytes::from_mib(resident), ..NodeUse::default() }
    }

    #[test]
    fn pins_and_bound_memory_count_where_they_are() {
        let xml = "<vcpu>2</vcpu><cputune><vcpupin vcpu='0' cpuset='4-7'/><vcpupin vcpu='1' \
            cpuset='4-7'/></cputune><numatune><memory mode='strict' nodeset='1'/></numatune>";
        let (used, notes) = occupancy(&[seen(xml, Some(100))], &machine());
        assert_eq!((used.of(NodeId(0)), used.of(NodeId(1))), (NodeUse::default(), mib(2, 1024, 100)));
        assert!(notes.is_empty());
    }

    #[test]
    fn cells_are_bound_each_to_their_nodes() {
        let xml = "<vcpu cpuset='0-3'>2</vcpu><numatune><memory mode='strict' nodeset='0-1'/><memnode cellid='0' \
            mode='strict' nodeset='1'/></numatune><cpu><numa><cell id='0' cpus='0' memory='768' unit='MiB'/><cell \
            id='1' cpus='1' memory='256' unit='MiB'/></numa></cpu>";
        let (used, _) = occupancy(&[seen(xml, Some(0))], &machine());
        // Cell 0 on node 1: 768; cell 1 on both: 128 each. The vCPUs are pinned as a whole.
        assert_eq!((used.of(NodeId(0)), used.of(NodeId(1))), (mib(2, 128, 0), mib(0, 896, 0)));
    }

    #[test]
    fn a_domain_without_pins_floats() {
        let (used, _) = occupancy(&[seen("<vcpu>4</vcpu>", Some(512))], &machine());
        assert_eq!((used.of(NodeId(0)), used.of(NodeId(1))), (mib(2, 512, 256), mib(2, 512, 256)));
    }

    #[test]
    fn vcpus_that_are_not_plugged_in_hold_nothing() {
        let mut two = seen("<vcpu current='2' cpuset='0-3'>4</vcpu>", Some(0));
        two.stats.vcpus = Some(2);
        assert_eq!(occupancy(&[two], &machine()).0.of(NodeId(0)).vcpus, 2);
        // Those that are there need not be the first.
        let pins = "<cputune><vcpupin vcpu='0' cpuset='0-3'/><vcpupin vcpu='2' cpuset='4-7'/></cputune>";
        let list = "<vcpus><vcpu id='0' enabled='yes'/><vcpu id='2' enabled='yes'/></vcpus>";
        let mut apart = seen(&format!("<vcpu current='2'>4</vcpu>{list}{pins}"), Some(0));
        apart.stats.vcpus = Some(2);
        let used = occupancy(&[apart], &machine()).0;
        assert_eq!((used.of(NodeId(0)).vcpus, used.of(NodeId(1)).vcpus), (1, 1));
    }

    #[test]
    fn where_libvirt_does_not_say_what_is_resident_that_is_said() {
        let (used, notes) = occupancy(&[seen("<vcpu cpuset='0-3'>1</vcpu>", None)], &machine());
        assert_eq!(used.of(NodeId(0)), mib(1, 1024, 1024));
        assert!(notes[0].contains("how much memory of a is resident"), "{notes:?}");
        // Huge pages are not free memory any more, whatever is touched.
        let huge = "<vcpu cpuset='0-3'>1</vcpu><memoryBacking><hugepages/></memoryBacking>";
        let (used, notes) = occupancy(&[seen(huge, Some(7))], &machine());
        assert_eq!((used.of(NodeId(0)), notes.len()), (mib(1, 1024, 1024), 0));
    }
}

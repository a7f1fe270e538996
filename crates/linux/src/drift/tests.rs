//! Each disagreement, from the kernel's words to the finding.

use super::*;
use crate::cgroup::VmCgroup;
use crate::memory::Mapping;
use crate::vm::{Region, RegionEvidence, RegionKind, RunningVm, VmClient};
use topology::{CpuSet, Machine};

const MIB: u64 = 1 << 20;

/// Four nodes of two CPUs: node 1 has CPUs 2-3.
fn machine() -> Machine {
    topology::read::from_synthetic("numa:4 core:2 pu:1").unwrap()
}

/// A VM whose clients have 64 MiB each.
fn vm(clients: u32, kind: RegionKind) -> RunningVm {
    let client = |id: u32| {
        let start = 0x7f00_0000_0000 + u64::from(id) * 0x1_0000_0000;
        let region = Region {
            backend: None,
            addresses: start..start + 64 * MIB,
            kind,
            path: String::new(),
            page_size: (kind == RegionKind::HugePages).then_some(Bytes::from_mib(2)),
            evidence: RegionEvidence::Size,
        };
        VmClient {
            id: ClientId(id),
            virtual_node: Some(id),
            vcpus: vec![id],
            thread_ids: vec![100 + id],
            memory_size: region.size(),
            regions: vec![region],
            ..VmClient::default()
        }
    };
    RunningVm {
        key: VmKey { name: "web".to_owned(), pid: 7, started: 1 },
        clients: (0..clients).map(client).collect(),
        ..RunningVm::default()
    }
}

/// What the kernel says about one client: a policy, MiB by node, CPUs of its thread.
type Said<'a> = (&'a str, &'a [(u32, u64)], &'a str);

struct Case {
    vm: RunningVm,
    cgroup: VmCgroup,
    allowed: &'static str,
    fixed: Option<&'static str>,
    auto_numa: bool,
}

impl Case {
    fn new(clients: u32, kind: RegionKind) -> Self {
        let cgroup = VmCgroup::Own { path: "/machine.slice/web.scope".to_owned() };
        Self { vm: vm(clients, kind), cgroup, allowed: "0-3", fixed: None, auto_numa: false }
    }

    fn findings(&self, said: &[Said<'_>], homes: &[&str]) -> Vec<Finding> {
        let machine = machine();
        let page_size = self.vm.clients[0].regions[0].page_size.unwrap_or(Bytes::from_kib(4));
        let clients = self.vm.clients.iter().zip(said).map(|(client, &(policy, mib, cpus))| ClientFacts {
            client,
            affinity: vec![(client.thread_ids[0], cpus.parse::<CpuSet>().unwrap())],
            mappings: Ok(vec![Mapping {
                start: client.regions[0].addresses.start,
                policy: policy.to_owned(),
                pages: mib.iter().map(|&(node, mib)| (NodeId(node), mib * MIB / page_size.0)).collect(),
                page_size,
            }]),
        });
        let facts = VmFacts {
            vm: &self.vm,
            cgroup: &self.cgroup,
            allowed: Some(self.allowed.parse().unwrap()),
            fixed: self.fixed.map(str::to_owned),
            threads_fixed: false,
            clients: clients.collect(),
        };
        let host = HostFacts { machine: &machine, auto_numa: Some(self.auto_numa), huge_pages_free: BTreeMap::new() };
        let known = homes.iter().enumerate();
        let known = known.map(|(id, home)| ((self.vm.key.clone(), ClientId(id as u32)), home.parse().unwrap()));
        compare(&host, &facts, &known.collect())
    }
}

fn plain() -> Case {
    Case::new(1, RegionKind::Anonymous)
}

/// What was found, in short.
fn names(findings: &[Finding]) -> Vec<&'static str> {
    let name = |finding: &Finding| match finding.disagreement {
        Disagreement::PagesAway { .. } => "pages",
        Disagreement::PolicyElsewhere { .. } => "policy",
        Disagreement::NoPolicy => "none",
        Disagreement::CpusetNarrower { .. } => "narrower",
        Disagreement::CpusetWider { .. } => "wider",
        Disagreement::AffinityAway { .. } => "affinity",
        Disagreement::AutoNumaFights => "auto",
        Disagreement::MemfdFaultsElsewhere { .. } => "memfd",
        Disagreement::HugePagesMissing { .. } => "huge",
        Disagreement::Pinned => "pinned",
        Disagreement::Unreadable => "unreadable",
    };
    findings.iter().map(name).collect()
}

#[test]
fn a_vm_at_home_has_no_findings() {
    assert!(plain().findings(&[("bind:1", &[(1, 64)], "2-3")], &["1"]).is_empty());
    // Nobody decided: its threads say that node 1 is home.
    assert!(plain().findings(&[("bind:1", &[(1, 64)], "2-3")], &[]).is_empty());
    let two = Case::new(2, RegionKind::Anonymous);
    let interleaved: &[Said<'_>] = &[("interleave:0-1", &[(0, 32), (1, 32)], "0-3"), ("bind:2", &[(2, 64)], "4-5")];
    assert!(two.findings(interleaved, &["0-1", "2"]).is_empty());
}

#[test]
fn pages_away_are_moved_to_the_nearest_home() {
    let found = plain().findings(&[("bind:1", &[(1, 40), (3, 24)], "2-3")], &["1"]);
    assert_eq!(names(&found), ["pages"]);
    assert_eq!(found[0].severity, Severity::Problem);
    let Some(Cure::Act { action: Action::MoveMemory { from, to, at_most, .. } }) = &found[0].cure else { panic!() };
    assert_eq!((*from, *to, *at_most), (NodeId(3), NodeId(1), Bytes::from_mib(24)));
    assert!(found[0].evidence.contains("bind:1 N1=10240 N3=6144"), "{}", found[0].evidence); // 40 and 24 MiB in pages of 4 KiB
    let few = plain().findings(&[("bind:1", &[(1, 62), (3, 2)], "2-3")], &["1"]);
    assert_eq!(few[0].severity, Severity::Warning); // 2 of 64 MiB are less than a twentieth
}

#[test]
fn a_stale_policy_is_cured_by_confinement_where_the_kernel_rebinds_rightly() {
    let said: &[Said<'_>] = &[("bind:0", &[(2, 64)], "4-5"), ("bind:1", &[(3, 64)], "6-7")];
    let two = Case::new(2, RegionKind::Anonymous);
    let found = two.findings(said, &["2", "3"]);
    assert_eq!(names(&found), ["policy", "policy"]);
    let nodes: NodeSet = "2-3".parse().unwrap();
    assert_eq!(found[0].cure, Some(Cure::Confine { vm: two.vm.key.clone(), nodes }));
    assert_eq!(found[0].severity, Severity::Note); // every page is there already
    // Crossed: place 0 of nodes 2-3 is node 2, and client 0 lives on node 3.
    let crossed: &[Said<'_>] = &[("bind:0", &[(3, 64)], "6-7"), ("bind:1", &[(2, 64)], "4-5")];
    let found = two.findings(crossed, &["3", "2"]);
    let Some(Cure::ByHand { advice }) = &found[0].cure else { panic!("{found:?}") };
    assert!(advice.contains("the kernel would make 0 into 2"), "{advice}");
}

#[test]
fn a_stale_policy_needs_a_restart_where_the_cgroup_is_not_the_vms_own() {
    let stale: &[Said<'_>] = &[("bind:0", &[(1, 32)], "2-3")];
    let advice = |case: &Case, homes: &[&str]| match case.findings(stale, homes).remove(0).cure {
        Some(Cure::ByHand { advice }) => advice,
        other => panic!("{other:?}"),
    };
    let shared = Case { cgroup: VmCgroup::Shared { path: "/".to_owned() }, ..plain() };
    assert!(advice(&shared, &["1"]).contains("holds other processes too"));
    let old = Case { cgroup: VmCgroup::LeftAlone { layout: "cgroup v1".to_owned() }, ..plain() };
    assert!(advice(&old, &["1"]).contains("left alone: cgroup v1"));
    assert!(advice(&plain(), &[]).contains("nobody decided"));
    assert_eq!(plain().findings(stale, &["1"])[0].severity, Severity::Warning); // 32 MiB may still be touched on node 0
}

#[test]
fn a_memory_file_is_confined_to_one_node_or_started_again() {
    let found = Case::new(1, RegionKind::Memfd).findings(&[("bind:0", &[(2, 10)], "4-5")], &["2"]);
    assert_eq!(names(&found), ["memfd"]);
    assert_eq!(
        found[0].disagreement,
        Disagreement::MemfdFaultsElsewhere { policy: "bind:0".to_owned(), absent: Bytes::from_mib(54) } // 64 - 10
    );
    assert!(matches!(found[0].cure, Some(Cure::Confine { .. })));
    let said: &[Said<'_>] = &[("bind:0", &[(2, 64)], "4-5"), ("bind:1", &[(3, 64)], "6-7")];
    let two = Case::new(2, RegionKind::Memfd).findings(said, &["2", "3"]);
    let Some(Cure::ByHand { advice }) = &two[0].cure else { panic!("{two:?}") };
    assert!(advice.contains("never rebinds"), "{advice}");
}

#[test]
fn cpusets_are_narrower_or_wider() {
    let narrow = Case { allowed: "0", ..plain() };
    let found = narrow.findings(&[("bind:0", &[(0, 64)], "2-3")], &["1"]);
    assert_eq!(names(&found), ["narrower", "pages", "policy"]);
    assert_eq!(found[0].severity, Severity::Problem);
    let Some(Cure::ByHand { advice }) = &found[2].cure else { panic!() };
    assert!(advice.contains("must not be widened"), "{advice}");
    let wide = Case { allowed: "0-1", ..plain() };
    assert_eq!(names(&wide.findings(&[("bind:1", &[(1, 64)], "2-3")], &["1"])), ["wider"]);
}

#[test]
fn threads_that_stray_are_bound_to_the_home() {
    let found = plain().findings(&[("bind:1", &[(1, 64)], "0-7")], &["1"]);
    assert_eq!((names(&found), found[0].severity), (vec!["affinity"], Severity::Warning));
    let Some(Cure::Act { action: Action::Bind { cpus, .. } }) = &found[0].cure else { panic!() };
    assert_eq!(cpus.to_string(), "2-3");
    assert_eq!(plain().findings(&[("bind:1", &[(1, 64)], "0-1")], &["1"])[0].severity, Severity::Problem);
    // Nobody decided on a home; most of its memory is on node 1.
    assert_eq!(plain().findings(&[("bind:1", &[(1, 64)], "0-7")], &[])[0].severity, Severity::Note);
}

#[test]
fn memory_without_a_policy_is_the_kernels_to_move() {
    let said: &[Said<'_>] = &[("default", &[(1, 64)], "2-3")];
    assert_eq!(names(&plain().findings(said, &["1"])), ["none"]);
    let balanced = Case { auto_numa: true, ..plain() };
    assert_eq!(names(&balanced.findings(said, &["1"])), ["auto", "none"]);
    assert!(balanced.findings(&[("bind:1", &[(1, 64)], "2-3")], &["1"]).is_empty()); // the kernel leaves bound memory alone
}

#[test]
fn huge_pages_and_pins_are_named() {
    let found = Case::new(1, RegionKind::HugePages).findings(&[("bind:1", &[(0, 64)], "2-3")], &["1"]);
    assert_eq!(names(&found), ["pages", "huge"]);
    let Some(Cure::ByHand { advice }) = &found[1].cure else { panic!() };
    assert!(advice.contains("add 32 pages to /sys/devices/system/node/node1/hugepages/hugepages-2048kB"), "{advice}");
    let pinned = Case { fixed: Some("VFIO pins all of its memory"), ..plain() };
    let found = pinned.findings(&[("bind:1", &[(0, 64)], "2-3")], &["1"]);
    assert_eq!(names(&found), ["pages", "pinned"]);
    assert!(matches!(&found[0].cure, Some(Cure::ByHand { advice }) if advice.contains("VFIO")));
    assert_eq!(found[1].severity, Severity::Warning);
    assert_eq!(pinned.findings(&[("bind:1", &[(1, 64)], "2-3")], &["1"])[0].severity, Severity::Note);
}

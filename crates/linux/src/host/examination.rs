//! What is looked at only when somebody asks: every range of memory with its policy, each vCPU on
//! its own, threads that run no vCPU, limits of the cgroup, and what could not be seen.

use super::companions::shown;
use super::tracked::Tracked;
use crate::capabilities::{NEEDS_PTRACE, Rights};
use crate::cgroup::{self, VmCgroup};
use crate::error::read_text;
use crate::memory::{Mapping, mappings_in};
use crate::proc_text::{stat_field, status_amount, status_field};
use crate::root::Root;
use crate::sys;
use crate::vm::helpers::{self, Helper};
use crate::vm::{Given, Region, RegionKind, RunningVm, ThreadKind, VmClient, vhost};
use scheduler::{
    Backing, ClientObservation, Mobility, OtherThread, OtherThreadKind, PolicyOfMemory, SchedulingClass, Unseen, VmKey,
    VmLimits, VmObservation,
};
use std::collections::BTreeMap;
use std::ops::Range;
use topology::{Bytes, CpuSet, Machine, NodeId};

/// Page tables of a VM, in bytes: what the kernel walks to say where each of its pages is.
pub(super) fn page_tables(root: &Root, pid: u32) -> u64 {
    let status = read_text(&root.process(pid, "status")).unwrap_or_default();
    status_amount(&status, "VmPTE:").unwrap_or_default().0
}

/// Fills in what a look in every period leaves out; policies of memory only where page tables may
/// be walked.
pub(super) fn complete(
    root: &Root,
    tracked: &mut Tracked,
    observed: &mut VmObservation,
    machine: &Machine,
    may_walk: bool,
) {
    // One file for all clients: the kernel walks the page tables for it.
    let pid = tracked.vm.key.pid;
    let mappings = may_walk.then(|| mappings_in(root, pid, &(0..u64::MAX)).ok().flatten()).flatten();
    tracked.choices.take(&tracked.vm, mappings.as_deref(), machine);
    let vm = &tracked.vm;
    for (client, shown) in vm.clients.iter().zip(&mut observed.clients) {
        let choice = tracked.choices.of(vm, client);
        (shown.chosen_nodes, shown.spread_nodes) = (choice.bound, choice.spread);
    }
    let cpus: BTreeMap<u32, CpuSet> =
        vm.threads.vcpus.iter().filter_map(|vcpu| Some((vcpu.index, affinity(root, vm, vcpu.thread_id)?))).collect();
    for (client, shown) in vm.clients.iter().zip(&mut observed.clients) {
        shown.vcpu_cpus = client.vcpus.iter().filter_map(|vcpu| Some((*vcpu, cpus.get(vcpu)?.clone()))).collect();
        if let Some(mappings) = mappings.as_ref().filter(|_| !client.regions.is_empty()) {
            // Of a block that several clients have parts of, the kernel may say only the whole.
            let is_part = |region: &Region| region.backend.is_none() && region.given == Given::All;
            let has_part = vm.clients.len() > 1 && client.regions.iter().any(is_part);
            match (has_part, shown.memory.clone()) {
                (false, _) => policies(client, mappings, shown, None),
                (true, Some(estimated)) => policies(client, mappings, shown, Some(&estimated)),
                (true, None) => {}
            }
        }
    }
    // Of memory that cannot be told from QEMU's own, how much there is at most.
    if let [only] = &mut observed.clients[..]
        && only.memory.is_none()
    {
        let most = if vm.unread.is_some() { Bytes(u64::MAX) } else { only.memory_size };
        only.resident = resident(root, vm).map(|resident| resident.min(most));
    }
    observed.other_threads = other_threads(root, vm);
    observed.limits = Some(limits(root, tracked));
}

fn affinity(root: &Root, vm: &RunningVm, thread: u32) -> Option<CpuSet> {
    if root.is_live() {
        return sys::affinity(thread).ok();
    }
    let status = read_text(&root.thread(vm.key.pid, thread, "status")).ok()?;
    status_field(&status, "Cpus_allowed_list:")
}

/// The kernel's own words, and what they say of where the memory is: that counts more than an
/// estimate. Where a mapping goes beyond the client's memory, which then is a part of a block,
/// `estimated` counts instead.
fn policies(
    client: &VmClient,
    mappings: &[Mapping],
    shown: &mut ClientObservation,
    estimated: Option<&BTreeMap<NodeId, Bytes>>,
) {
    let (mut policies, mut unsaid) = (Vec::new(), Bytes(0));
    for region in &client.regions {
        let mut of_region = policies_of(region, mappings);
        if let Some(estimated) = estimated {
            part(region, mappings, &mut of_region, estimated.clone());
        }
        let resident: Bytes = of_region.iter().flat_map(|policy| policy.resident.values().copied()).sum();
        if region.given().is_none() {
            unsaid = unsaid.saturating_add(resident);
        }
        // What a device did not give is not there to be touched.
        let mut left = region.given().unwrap_or_default().saturating_sub(resident);
        for policy in &mut of_region {
            policy.absent = policy.absent.min(left);
            left = left.saturating_sub(policy.absent);
        }
        policies.extend(of_region);
    }
    let mut memory = BTreeMap::<NodeId, Bytes>::new();
    for (&node, &bytes) in policies.iter().flat_map(|policy| &policy.resident) {
        let sum = memory.entry(node).or_default();
        *sum = sum.saturating_add(bytes);
    }
    shown.memory = Some(memory);
    shown.memory_size = client.known_memory().saturating_add(unsaid);
    shown.memory_unknown_because = None;
    shown.policies = Some(policies);
}

/// Puts what was estimated of a part of a block in the place of what the kernel says of mappings
/// that go beyond it.
fn part(
    region: &Region,
    mappings: &[Mapping],
    policies: &mut [PolicyOfMemory],
    mut estimated: BTreeMap<NodeId, Bytes>,
) {
    let Range { start, end } = region.addresses;
    let goes_beyond = |(mapping, ends): (&Mapping, u64)| mapping.start < start || ends > end;
    let beyond: Vec<bool> = ranges(region, mappings).map(goes_beyond).collect();
    let own = policies.iter().zip(&beyond).filter(|(_, beyond)| !**beyond);
    for (node, bytes) in own.flat_map(|(policy, _)| &policy.resident) {
        if let Some(rest) = estimated.get_mut(node) {
            *rest = rest.saturating_sub(*bytes);
        }
    }
    for ((policy, (mapping, ends)), _) in
        policies.iter_mut().zip(ranges(region, mappings)).zip(&beyond).filter(|(_, beyond)| **beyond)
    {
        policy.resident = std::mem::take(&mut estimated);
        let size = Bytes(ends.min(end).saturating_sub(mapping.start.max(start)));
        policy.absent = size.saturating_sub(policy.resident.values().copied().sum());
    }
}

/// The mappings of a region. The first may begin below it: the kernel merges what adjoins.
/// `numa_maps` says no ends: a mapping ends at the next one at the latest.
fn ranges<'a>(region: &Region, mappings: &'a [Mapping]) -> impl Iterator<Item = (&'a Mapping, u64)> {
    let (start, end) = (region.addresses.start, region.addresses.end);
    let first = mappings.partition_point(|mapping| mapping.start <= start).saturating_sub(1);
    let within = mappings[first..].iter().take_while(move |mapping| mapping.start < end);
    within.zip(mappings[first..].iter().skip(1).map(|next| next.start).chain([u64::MAX]))
}

/// The policy of each, and what is resident there.
pub(super) fn policies_of(region: &Region, mappings: &[Mapping]) -> Vec<PolicyOfMemory> {
    let policy = |(mapping, end): (&Mapping, u64)| {
        let range = mapping.start.max(region.addresses.start)..end.min(region.addresses.end);
        let resident: BTreeMap<NodeId, Bytes> =
            mapping.pages.iter().map(|(&node, &pages)| (node, Bytes(pages * mapping.page_size.0))).collect();
        let size = Bytes(range.end.saturating_sub(range.start));
        PolicyOfMemory {
            nodes: mapping.policy.rsplit_once(':').and_then(|(_, nodes)| nodes.parse().ok()),
            policy: mapping.policy.clone(),
            backing: match region.kind {
                RegionKind::Anonymous => Backing::Anonymous,
                RegionKind::Memfd => Backing::SharedMemory,
                RegionKind::HugePages => Backing::HugePages,
                RegionKind::File => Backing::File,
            },
            absent: size.saturating_sub(resident.values().copied().sum()),
            resident,
        }
    };
    ranges(region, mappings).map(policy).collect()
}

fn resident(root: &Root, vm: &RunningVm) -> Option<Bytes> {
    status_amount(&read_text(&root.process(vm.key.pid, "status")).ok()?, "VmRSS:")
}

fn other_threads(root: &Root, vm: &RunningVm) -> Vec<OtherThread> {
    let thread = |(id, name, kind): &(u32, String, ThreadKind)| {
        let kind = shown(*kind)?;
        let client = vm.vhost_client.filter(|_| kind == OtherThreadKind::Vhost);
        Some(OtherThread { thread_id: *id, name: name.clone(), kind, client, cpus: affinity(root, vm, *id) })
    };
    let mut threads: Vec<OtherThread> = vm.threads.others.iter().filter_map(thread).collect();
    let known: Vec<u32> = threads.iter().map(|thread| thread.thread_id).collect();
    let kernels = vhost::threads(root, vm).into_iter().filter(|id| !known.contains(id));
    threads.extend(kernels.map(|id| OtherThread {
        thread_id: id,
        name: format!("vhost-{}", vm.key.pid),
        kind: OtherThreadKind::Vhost,
        client: vm.vhost_client,
        cpus: if root.is_live() { sys::affinity(id).ok() } else { None },
    }));
    threads.extend(of_helpers(root, vm));
    threads
}

/// Threads of processes that work for the VM.
fn of_helpers(root: &Root, vm: &RunningVm) -> Vec<OtherThread> {
    let helpers = helpers::of(root, vm.key.pid, vm.owner_uid);
    let of = |helper: &Helper| {
        let name = format!("{} (process {})", helper.name, helper.pid);
        let thread = |id: u32| OtherThread {
            thread_id: id,
            name: name.clone(),
            kind: OtherThreadKind::Helper,
            client: None,
            cpus: if root.is_live() { sys::affinity(id).ok() } else { None },
        };
        helper.threads(root).into_iter().map(thread).collect::<Vec<_>>()
    };
    helpers.iter().flat_map(of).collect()
}

fn limits(root: &Root, tracked: &Tracked) -> VmLimits {
    let vm = &tracked.vm;
    let path = tracked.cgroup.path();
    let amount = |file: &str| cgroup::least(root, path?, file, |text| text.parse().ok()).map(Bytes);
    let scheduling: Vec<(i32, u32)> =
        vm.threads.vcpus.iter().filter_map(|vcpu| scheduling(root, vm.key.pid, vcpu.thread_id)).collect();
    let class = |(_, policy): &(i32, u32)| match policy {
        1 | 2 => Some(SchedulingClass::RealTime),
        3 => Some(SchedulingClass::Batch),
        5 => Some(SchedulingClass::Idle),
        _ => None,
    };
    VmLimits {
        cgroup: path.map(str::to_owned),
        cgroup_is_its_own: matches!(tracked.cgroup, VmCgroup::Own { .. }),
        memory_max: amount("memory.max"),
        memory_high: amount("memory.high"),
        cpu_milli_max: path.and_then(|path| cgroup::least(root, path, "cpu.max", cpu_milli)),
        memory_nodes: tracked.allowed_now(root),
        cpus: tracked.allowed_cpus.clone(),
        nice: scheduling.iter().map(|(nice, _)| *nice).max_by_key(|nice| nice.abs()),
        class: scheduling.iter().find_map(class),
    }
}

/// `200000 100000`: microseconds of CPU time in so many microseconds.
fn cpu_milli(text: &str) -> Option<u64> {
    let (quota, period) = text.split_once(' ')?;
    (1000 * quota.parse::<u64>().ok()?).checked_div(period.parse().ok()?)
}

/// Nice value and policy of a thread: fields 19 and 41 of its `stat`.
fn scheduling(root: &Root, pid: u32, thread: u32) -> Option<(i32, u32)> {
    let text = read_text(&root.thread(pid, thread, "stat")).ok()?;
    Some((stat_field(&text, 19)?, stat_field(&text, 41)?))
}

/// Says if processes of other users are hidden.
///
/// Who may see them is not only who has `CAP_SYS_PTRACE`: a group may be let through, and the
/// capability of a user namespace opens nothing outside of it. The first process tells, since it is
/// nearly never the user's own.
pub(super) fn hidden_processes(root: &Root, rights: Rights) -> Option<String> {
    let first_is_seen = read_text(&root.process(1, "stat")).is_ok();
    if rights.ptrace && first_is_seen {
        return None;
    }
    let mounts = root.text("proc/self/mounts").unwrap_or_default();
    let is_proc = |line: &&str| line.split_whitespace().nth(1) == Some("/proc");
    let options = mounts.lines().rfind(is_proc)?.split_whitespace().nth(3)?;
    let has = |option: &str| options.split(',').any(|one| one.starts_with(option));
    let hides = has("hidepid=") && !has("hidepid=0") && !has("hidepid=off");
    let is_let_through = first_is_seen && has("gid=");
    (hides && !is_let_through).then(|| {
        "VMs of other users, if there are any: /proc is mounted with hidepid, which hides their processes".to_owned()
    })
}

/// VMs of which a user's share of a look did not suffice to read all, and of which it did but for
/// their policies.
pub(super) fn cut_short(incomplete: Vec<VmKey>, not_walked: Vec<VmKey>) -> impl Iterator<Item = Unseen> {
    let of = |(vms, what): (Vec<VmKey>, &str)| {
        let first = &vms.first()?.name;
        let more = vms.len() - 1;
        let names = if more == 0 { first.clone() } else { format!("{first} and {more} other VMs of its user") };
        Some(Unseen {
            what: format!("{what} of {names}: it takes longer than one user gets; that user can ask"),
            vms,
            ..Unseen::default()
        })
    };
    let incomplete = (incomplete, "policies of memory, single threads and limits");
    [incomplete, (not_walked, "policies of memory")].into_iter().filter_map(of)
}

/// What a look in every period cannot see.
pub(super) fn unseen(hidden: Option<&str>, vms: &[VmObservation], tracked: &[&RunningVm]) -> Vec<Unseen> {
    let of = |vms: &[&VmKey], what: String| Unseen {
        vms: vms.iter().copied().cloned().collect(),
        what,
        ..Unseen::default()
    };
    let mut unseen = Vec::new();
    if let Some(what) = hidden.map(str::to_owned) {
        unseen.push(Unseen { what, hides_vms: true, ..Unseen::default() });
    }
    let memory_unknown = |vm: &&VmObservation| {
        vm.clients.iter().any(|client| {
            client.memory.is_none()
                && client.memory_unknown_because.as_ref().is_some_and(|why| why.contains(NEEDS_PTRACE))
        })
    };
    let unreadable: Vec<&VmKey> = vms.iter().filter(memory_unknown).map(|vm| &vm.vm).collect();
    if !unreadable.is_empty() {
        let names: Vec<&str> = unreadable.iter().map(|vm| vm.name.as_str()).collect();
        unseen.push(of(
            &unreadable,
            format!("where the memory of {} is: only root may see it, or who has CAP_SYS_PTRACE", names.join(", ")),
        ));
    }
    for (vm, why) in tracked.iter().filter_map(|vm| Some((vm, vm.unread.as_ref()?))) {
        let what = format!("{}: how many vCPUs and how much memory it has is unknown: {why}", vm.key.name);
        unseen.push(of(&[&vm.key], what));
    }
    for vm in tracked.iter().filter(|vm| !vm.unplaced.is_empty()) {
        let (name, size) = (&vm.key.name, vm.unplaced.iter().map(Region::size).sum::<Bytes>());
        let what = format!(
            "{name}: {size} were plugged in later; which virtual node has them only its monitor knows, and that may \
            not be asked"
        );
        unseen.push(of(&[&vm.key], what));
    }
    let nameless =
        |vm: &&VmObservation| matches!(&vm.mobility, Mobility::Fixed { because } if because.contains("debug-threads"));
    for vm in vms.iter().filter(nameless) {
        let what = format!(
            "{}: which of its threads run vCPUs cannot be told (QEMU names them with -name NAME,debug-threads=on)",
            vm.vm.name
        );
        unseen.push(of(&[&vm.vm], what));
    }
    unseen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::RegionEvidence;

    const MIB: u64 = 1 << 20;

    fn mib(nodes: &[(u32, u64)]) -> BTreeMap<NodeId, Bytes> {
        nodes.iter().map(|&(node, mib)| (NodeId(node), Bytes::from_mib(mib))).collect()
    }

    /// A mapping that begins at so many MiB, with so many MiB on each node.
    fn mapping(at: u64, nodes: &[(u32, u64)]) -> Mapping {
        let pages = nodes.iter().map(|&(node, mib)| (NodeId(node), mib)).collect();
        Mapping { start: at * MIB, policy: "default".to_owned(), pages, page_size: Bytes::from_mib(1) }
    }

    #[test]
    fn a_part_of_a_block_has_what_was_estimated_of_it_and_not_the_whole() {
        // One block of 64 MiB: the lower half is virtual node 0's and on node 0, the upper half
        // virtual node 1's and on node 1. The kernel says 32 MiB on each of both, of the whole.
        let mappings = [mapping(100, &[(0, 32), (1, 32)]), mapping(164, &[])];
        let client = |at: u64| VmClient {
            fixed_memory: Bytes::from_mib(32),
            regions: vec![Region {
                backend: None,
                addresses: at * MIB..(at + 32) * MIB,
                kind: RegionKind::Anonymous,
                path: String::new(),
                page_size: None,
                evidence: RegionEvidence::Size,
                given: Given::All,
            }],
            ..VmClient::default()
        };
        let of = |at: u64, mappings: &[Mapping], estimated: &[(u32, u64)]| {
            let mut shown = ClientObservation::default();
            policies(&client(at), mappings, &mut shown, Some(&mib(estimated)));
            let absent: Bytes = shown.policies.iter().flatten().map(|policy| policy.absent).sum();
            (shown.memory.unwrap_or_default(), absent.mib())
        };
        assert_eq!(of(100, &mappings, &[(0, 32)]), (mib(&[(0, 32)]), 0));
        assert_eq!(of(132, &mappings, &[(1, 30)]), (mib(&[(1, 30)]), 2));
        // Split at 140 MiB, within the upper half: the last 24 MiB are its own, as the kernel says.
        let split = [mapping(100, &[(0, 32), (1, 6)]), mapping(140, &[(1, 20)]), mapping(164, &[])];
        assert_eq!(of(132, &split, &[(1, 26)]), (mib(&[(1, 26)]), 6)); // 6 + 20; 2 + 4 are untouched
    }
}

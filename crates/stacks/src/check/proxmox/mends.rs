//! What Proxmox starts otherwise than it was likely meant, and lines that mend it.
//!
//! **Problem.** Some lines count for nothing, and nobody says so: one that Proxmox cannot read, a
//! `numaN` while NUMA is off, vCPUs that no `numaN` names. And where a VM may have more vCPUs later
//! (`vcpus`), Proxmox starts those with the lowest numbers: all of them may be in the first virtual
//! node, with half of the memory in another one, where none runs.
//!
//! **Rule.** Each mend keeps vCPUs, memory and homes. vCPUs of a VM that may grow are numbered in
//! the order in which they come: those of power-on, node by node, then one for each virtual node in
//! turn; each is a virtual socket of its own, since sockets are ranges of numbers. Where one node
//! of the machine holds what runs, and nobody chose several, the VM is one virtual node instead.
//!
//! **Example.** `vcpus: 4`, 2 sockets of 16 cores, NUMA on: vCPUs 0-3 run, all in virtual node 0.

use super::conf::{Conf, LeftOut, Setting, numa_key};
use super::numa::NumaNode;
use super::of_numa::{named_anew, nodes, written};
use super::shape::shaped;
use judge::{Harm, Spot};
use std::collections::BTreeMap;
use topology::words::{count, named};
use topology::{CpuId, CpuSet, Machine};

/// The kind of a line that Proxmox cannot read.
pub(super) const LEFT_OUT: &str = "line_left_out";

/// What is started otherwise than it was likely meant.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Mend {
    /// The kind, a name that stays.
    pub(super) what: &'static str,
    pub(super) harm: Harm,
    /// Worth knowing only.
    pub(super) is_note: bool,
    pub(super) sentence: String,
    pub(super) because: &'static str,
    pub(super) spots: Vec<Spot>,
    pub(super) advice: String,
    /// Empty where no line mends it.
    pub(super) settings: Vec<Setting>,
}

/// The configuration with all that mended, and what that was; `startable` mends what then keeps it
/// from starting.
pub(super) fn mended(
    conf: &Conf,
    left: &[LeftOut],
    machine: Option<&Machine>,
    startable: &dyn Fn(&Conf) -> Conf,
) -> (Conf, Vec<Mend>) {
    let (mut conf, mut mends) = (conf.clone(), Vec::new());
    let mut apply = |conf: &mut Conf, mend: Mend| {
        if !mend.settings.is_empty() {
            *conf = startable(&conf.with(&mend.settings));
        }
        mends.push(mend);
    };
    for left in left {
        let mend = left_out(&conf, left);
        apply(&mut conf, mend);
    }
    for rule in [virtual_nodes_off, vcpus_without_node] {
        if let Some(mend) = rule(&conf) {
            apply(&mut conf, mend);
        }
    }
    if let Some(mend) = memory_without_vcpus(&conf, machine) {
        apply(&mut conf, mend);
    }
    (conf, mends)
}

fn left_out(conf: &Conf, left: &LeftOut) -> Mend {
    const UNREAD: &str = "Proxmox warns of a line that it cannot read, starts the VM without it, and drops it when it \
        writes the configuration again";
    let matters = ["numa", "affinity", "hugepages", "hotplug", "vcpus", "template"];
    let of = |key: &str| matters.iter().any(|one| key.trim_end_matches(|c: char| c.is_ascii_digit()) == *one);
    let meant = left.instead.as_ref().filter(|(key, _)| of(key) && conf.get(key).is_none());
    let is_note = !of(&left.key) && meant.is_none();
    let settings: Vec<Setting> = meant.map(|(key, value)| Setting::new(key, value)).into_iter().collect();
    let advice = match (meant, is_note) {
        (Some((key, _)), _) if *key != left.key => format!("write it as `{key}`"),
        (Some(_), _) => "write it so that Proxmox reads it".to_owned(),
        (None, true) => "nothing, where the host's Proxmox knows it".to_owned(),
        (None, false) => "write it so that Proxmox reads it, or take it out".to_owned(),
    };
    Mend {
        what: LEFT_OUT,
        harm: Harm::Refused,
        is_note,
        sentence: format!("Proxmox leaves line {} out: {}: {}", left.line, left.key, left.why),
        because: UNREAD,
        spots: vec![Spot { at: left.key.clone(), line: Some(left.line) }],
        advice,
        settings,
    }
}

fn virtual_nodes_off(conf: &Conf) -> Option<Mend> {
    let written = conf.numa_nodes();
    if conf.is_on("numa") || written.is_empty() {
        return None;
    }
    let ids: Vec<String> = written.keys().map(|&id| numa_key(id)).collect();
    let counts = if ids.len() == 1 { "counts" } else { "count" };
    Some(Mend {
        what: "virtual_nodes_off",
        harm: Harm::Chance,
        is_note: false,
        sentence: format!("{} {counts} for nothing while `numa` is off", ids.join(", ")),
        because: "Proxmox reads virtual nodes with `numa: 1` only: the guest is told of one, and no memory is bound",
        spots: conf.spots(["numa"]).into_iter().chain(conf.numa_spots()).collect(),
        advice: format!("switch NUMA on; or take {} out, if they are not meant", ids.join(", ")),
        settings: vec![Setting::new("numa", 1)],
    })
}

fn vcpus_without_node(conf: &Conf) -> Option<Mend> {
    let nodes = nodes(conf);
    let named_all = nodes.values().fold(CpuSet::new(), |sum, node| sum.union(&node.cpus));
    let all: CpuSet = (0..conf.most_vcpus() as u32).map(CpuId).collect();
    let rest = all.difference(&named_all);
    if nodes.is_empty() || rest.is_empty() {
        return None;
    }
    let land = shaped(conf).nodes;
    let into = land.iter().filter(|node| !node.vcpus.intersection(&rest).is_empty());
    let into: Vec<String> =
        into.map(|node| format!("{} in virtual node {}", node.vcpus.intersection(&rest), node.id)).collect();
    Some(Mend {
        what: "vcpus_without_node",
        harm: Harm::Misled,
        is_note: false,
        sentence: format!(
            "its virtual nodes name {} of its {}; QEMU puts {}",
            named_all.intersection(&all).len(),
            count(all.len(), "vCPU"),
            into.join(", ")
        ),
        because: "QEMU puts vCPUs that no virtual node names by the number of their socket, and says that it will refuse \
            them one day",
        spots: conf.numa_spots().into_iter().chain(conf.spots(["sockets", "cores"])).collect(),
        advice: format!("name all {}", count(all.len(), "vCPU")),
        settings: named_anew(conf),
    })
}

fn memory_without_vcpus(conf: &Conf, machine: Option<&Machine>) -> Option<Mend> {
    let vm = shaped(conf);
    let (present, most) = (conf.vcpus() as u32, conf.most_vcpus() as u32);
    let without = |node: &&judge::ShapedNode| node.vcpus.iter().all(|vcpu| vcpu.0 >= present);
    let empty: Vec<&judge::ShapedNode> = vm.nodes.iter().filter(without).collect();
    if empty.is_empty() || present == most || super::dimms::is_on(conf) {
        return None;
    }
    let memory: topology::Bytes = empty.iter().map(|node| node.memory).sum();
    let ids: topology::NodeSet = empty.iter().map(|node| topology::NodeId(node.id)).collect();
    let chosen = nodes(conf).values().any(|node| node.hostnodes.is_some());
    let one = !chosen && machine.is_none_or(|machine| holds(machine, conf));
    let (advice, settings) = match one {
        true => ("make it one virtual node: one node of the machine holds what runs", as_one(conf)),
        false => {
            ("number its vCPUs in the order in which they come, so that some run in each virtual node", in_order(conf))
        }
    };
    Some(Mend {
        what: "memory_without_vcpus",
        harm: Harm::Misled,
        is_note: false,
        sentence: format!(
            "of {} the {} with the lowest numbers are started, and {memory} of its memory are in {}, where none of them \
            runs",
            count(most as usize, "vCPU"),
            present,
            named("virtual node", &ids)
        ),
        because: "what runs has all of that memory on another node, as long as no vCPU is plugged in beside it",
        spots: conf.spots(["vcpus", "sockets", "cores"]).into_iter().chain(conf.numa_spots()).collect(),
        advice: advice.to_owned(),
        settings,
    })
}

/// Whether a node of the machine holds what runs, and, by its hardware threads, all that may come.
fn holds(machine: &Machine, conf: &Conf) -> bool {
    machine.nodes.iter().any(|node| {
        let (cores, threads) = (machine.usable_cores(node.id).len(), machine.usable_cpus(node.id).len());
        let (present, most) = (conf.vcpus() as usize, conf.most_vcpus() as usize);
        present <= cores && (most <= threads || present * 2 <= cores) && conf.memory() <= node.memory
    })
}

/// The VM as one virtual node.
fn as_one(conf: &Conf) -> Vec<Setting> {
    let most = conf.most_vcpus();
    let node = NumaNode {
        cpus: (0..most as u32).map(CpuId).collect(),
        memory: Some(conf.memory()),
        hostnodes: None,
        policy: None,
    };
    let mut settings =
        vec![Setting::new("sockets", 1), Setting::new("cores", most), Setting::new("numa0", node.text())];
    settings.extend(nodes(conf).keys().filter(|id| **id > 0).map(|&id| Setting::gone(numa_key(id))));
    settings
}

/// Its virtual nodes with vCPUs in the order in which they come.
fn in_order(conf: &Conf) -> Vec<Setting> {
    let vm = shaped(conf);
    let mut told: BTreeMap<u32, NumaNode> = nodes(conf);
    for node in vm.nodes.iter().filter(|_| vm.nodes.len() as u32 <= super::conf::MOST_NUMA) {
        let new = NumaNode { cpus: CpuSet::new(), memory: Some(node.memory), hostnodes: None, policy: None };
        told.entry(node.id).or_insert(new);
    }
    if told.is_empty() {
        return Vec::new();
    }
    let sizes: Vec<usize> = vm.nodes.iter().map(|node| node.vcpus.len()).collect();
    for (node, vcpus) in told.values_mut().zip(numbers(&sizes, conf.vcpus() as usize)) {
        node.cpus = vcpus;
    }
    let most = conf.most_vcpus();
    [Setting::new("sockets", most), Setting::new("cores", 1)].into_iter().chain(written(&told)).collect()
}

/// vCPUs of virtual nodes of these sizes: first `present` of them, in equal parts, then one for
/// each node in turn.
fn numbers(sizes: &[usize], present: usize) -> Vec<CpuSet> {
    let mut starts = vec![0; sizes.len()];
    let mut left = present.min(sizes.iter().sum());
    while left > 0 {
        for (start, size) in starts.iter_mut().zip(sizes) {
            if left > 0 && *start < *size {
                *start += 1;
                left -= 1;
            }
        }
    }
    let mut next = 0u32;
    let mut take = |many: usize| -> CpuSet {
        let taken = (next..next + many as u32).map(CpuId).collect();
        next += many as u32;
        taken
    };
    let mut sets: Vec<CpuSet> = starts.iter().map(|&many| take(many)).collect();
    while sets.iter().zip(sizes).any(|(set, size)| set.len() < *size) {
        for (set, size) in sets.iter_mut().zip(sizes) {
            if set.len() < *size {
                *set = set.union(&take(1));
            }
        }
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2 of 6 on each of two nodes, as docs/proxmox.md numbers them.
    #[test]
    fn vcpus_are_numbered_in_the_order_in_which_they_come() {
        let text =
            |sizes: &[usize], present| numbers(sizes, present).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(text(&[6, 6], 4), ["0-1,4,6,8,10", "2-3,5,7,9,11"]);
        assert_eq!(text(&[2, 4], 3), ["0-1", "2-5"]);
        assert_eq!(text(&[3, 3], 1), ["0-1,3", "2,4-5"]);
    }
}

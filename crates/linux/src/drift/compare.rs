//! The comparison itself: facts in, findings out.

use super::facts::{ClientFacts, HostFacts, VmFacts, policy_nodes};
use super::{Cure, Disagreement, Finding, Homes, Severity};
use crate::cgroup::{VmCgroup, rebound};
use crate::memory::Mapping;
use crate::vm::RegionKind;
use scheduler::Action;
use topology::{Bytes, CpuSet, NodeId, NodeSet};

/// Memory away from home that nobody needs to hear of: a few pages are always somewhere.
const NEGLIGIBLE: Bytes = Bytes::from_mib(1);

/// What disagrees about one VM. Nothing on a host with one node.
pub fn compare(host: &HostFacts<'_>, vm: &VmFacts<'_>, homes: &Homes) -> Vec<Finding> {
    if host.machine.nodes.len() < 2 {
        return Vec::new();
    }
    let mut judge = Judge { host, vm, all_homes: NodeSet::new(), findings: Vec::new() };
    let decided: Vec<(NodeSet, bool)> =
        vm.clients.iter().map(|client| client.home(vm.vm, host.machine, homes)).collect();
    judge.all_homes = decided.iter().flat_map(|(home, _)| home.iter()).collect();
    for (client, (home, presumed)) in vm.clients.iter().zip(&decided) {
        if !home.is_empty() {
            judge.cpuset_narrower(client, home);
            judge.affinity(client, home, *presumed);
        }
        match &client.mappings {
            Err(reason) => judge.add(Some(client), Disagreement::Unreadable, reason.clone(), Severity::Note, None),
            Ok(mappings) if !home.is_empty() => {
                judge.pages(client, home);
                judge.huge_pages(client, home);
                judge.policies(client, home, &decided, mappings);
            }
            Ok(_) => {}
        }
    }
    judge.whole();
    judge.findings
}

struct Judge<'a> {
    host: &'a HostFacts<'a>,
    vm: &'a VmFacts<'a>,
    /// The homes of all clients together.
    all_homes: NodeSet,
    findings: Vec<Finding>,
}

impl Judge<'_> {
    fn add(
        &mut self,
        client: Option<&ClientFacts<'_>>,
        disagreement: Disagreement,
        evidence: String,
        severity: Severity,
        cure: Option<Cure>,
    ) {
        let vm = Some(self.vm.vm.key.clone());
        let client = client.map(|client| client.client.id);
        self.findings.push(Finding { vm, client, disagreement, evidence, severity, cure });
    }

    /// The home node that is nearest to a node.
    fn nearest(&self, node: NodeId, home: &NodeSet) -> Option<NodeId> {
        home.iter().min_by_key(|&other| (self.host.machine.distance(node, other), other))
    }

    fn pages(&mut self, client: &ClientFacts<'_>, home: &NodeSet) {
        let resident = client.resident();
        let total: Bytes = resident.values().copied().sum();
        for (&on, &away) in resident.iter().filter(|(node, _)| !home.contains(**node)) {
            if away < NEGLIGIBLE {
                continue;
            }
            let cure = match (&self.vm.fixed, self.nearest(on, home)) {
                (Some(why), _) => Some(by_hand(format!("its memory stays where it is: {why}"))),
                (None, None) => None,
                (None, Some(to)) => {
                    let (vm, id) = (self.vm.vm.key.clone(), client.client.id);
                    Some(Cure::Act { action: Action::MoveMemory { vm, client: id, from: on, to, at_most: away } })
                }
            };
            // A twentieth of its memory is what N%L = 95 means.
            let severity = if away.0 >= total.0 / 20 { Severity::Problem } else { Severity::Warning };
            let evidence = format!("home {home}; numa_maps: {}", lines(client));
            self.add(Some(client), Disagreement::PagesAway { on, away, resident: total }, evidence, severity, cure);
        }
    }

    fn huge_pages(&mut self, client: &ClientFacts<'_>, home: &NodeSet) {
        let Some(page_size) = client.client.regions.iter().find_map(|region| region.page_size) else { return };
        let away = client.resident().into_iter().filter(|(node, _)| !home.contains(*node));
        let needed: Bytes = away.map(|(_, bytes)| bytes).sum();
        let Some(node) = home.first().filter(|_| needed > Bytes(0)) else { return };
        let free =
            home.iter().filter_map(|node| self.host.huge_pages_free.get(&node)?.get(&page_size.0).copied()).sum();
        if free >= needed {
            return;
        }
        let pages = needed.saturating_sub(free).0.div_ceil(page_size.0);
        let cure = by_hand(format!(
            "add {pages} pages to /sys/devices/system/node/node{node}/hugepages/hugepages-{}kB/nr_hugepages",
            page_size.0 >> 10
        ));
        let evidence = format!("home {home}; free in huge pages of {page_size} there: {free}");
        let disagreement = Disagreement::HugePagesMissing { node, page_size, needed, free };
        self.add(Some(client), disagreement, evidence, Severity::Warning, Some(cure));
    }

    fn policies(
        &mut self,
        client: &ClientFacts<'_>,
        home: &NodeSet,
        decided: &[(NodeSet, bool)],
        mappings: &[Mapping],
    ) {
        let absent = client.absent();
        let severity = if absent > Bytes(0) { Severity::Warning } else { Severity::Note };
        let shared = client.client.regions.iter().any(|region| region.kind == RegionKind::Memfd);
        if mappings.iter().any(|mapping| policy_nodes(&mapping.policy).is_none()) {
            self.without_policy(client, absent);
        }
        let stale = |mapping: &&Mapping| policy_nodes(&mapping.policy).is_some_and(|nodes| !nodes.is_subset(home));
        let Some(mapping) = mappings.iter().find(stale) else { return };
        let policy = mapping.policy.clone();
        let evidence = format!("home {home}; {absent} not touched yet; numa_maps: {}", lines(client));
        let cure = self.confinement(shared, decided).unwrap_or_else(|reason| {
            by_hand(format!(
                "only QEMU itself can change the policy of its memory: start it again with host-nodes={home} ({reason})"
            ))
        });
        let disagreement = match shared {
            true => Disagreement::MemfdFaultsElsewhere { policy, absent },
            false => Disagreement::PolicyElsewhere { policy },
        };
        self.add(Some(client), disagreement, evidence, severity, Some(cure));
    }

    fn without_policy(&mut self, client: &ClientFacts<'_>, absent: Bytes) {
        let evidence = format!("{absent} not touched yet; numa_maps: {}", lines(client));
        if self.host.auto_numa == Some(true) {
            let cure = by_hand(
                "sysctl kernel.numa_balancing=0, or start the VM with policy=bind, which the kernel leaves alone"
                    .to_owned(),
            );
            let evidence = format!("/proc/sys/kernel/numa_balancing is on; {evidence}");
            self.add(Some(client), Disagreement::AutoNumaFights, evidence, Severity::Warning, Some(cure));
        }
        self.add(Some(client), Disagreement::NoPolicy, evidence, Severity::Note, None);
    }

    /// Confining the VM's own cgroup to the homes, where the kernel's way to rebind policies comes out right for every client.
    fn confinement(&self, shared: bool, decided: &[(NodeSet, bool)]) -> Result<Cure, String> {
        let nodes = self.all_homes.clone();
        let VmCgroup::Own { .. } = self.vm.cgroup else {
            return Err(match self.vm.cgroup {
                VmCgroup::LeftAlone { layout } => format!("its cgroup is left alone: {layout}"),
                _ => "its cgroup holds other processes too".to_owned(),
            });
        };
        let allowed = self.vm.allowed.clone().unwrap_or_default();
        if !nodes.is_subset(&allowed) {
            return Err(format!("its cpuset allows nodes {allowed} only, and must not be widened"));
        }
        if shared && nodes.len() > 1 {
            return Err("a cpuset never rebinds the policy of a memory file".to_owned());
        }
        if decided.iter().any(|(_, presumed)| *presumed) {
            return Err("nobody decided on its home".to_owned());
        }
        for (client, (home, _)) in self.vm.clients.iter().zip(decided) {
            for mapping in client.mappings.iter().flatten() {
                let Some(bound) = policy_nodes(&mapping.policy) else { continue };
                let after = rebound(&bound, &allowed, &nodes);
                if !shared && !after.is_subset(home) {
                    return Err(format!("confined to nodes {nodes} the kernel would make {bound} into {after}"));
                }
            }
        }
        Ok(Cure::Confine { vm: self.vm.vm.key.clone(), nodes })
    }

    fn cpuset_narrower(&mut self, client: &ClientFacts<'_>, home: &NodeSet) {
        let Some(allowed) = self.vm.allowed.clone().filter(|allowed| !home.is_subset(allowed)) else { return };
        let evidence = format!("home {home}; Mems_allowed_list: {allowed}");
        let cure = by_hand(format!(
            "choose a home within nodes {allowed}, or start it again in a cgroup that allows {home}: a cpuset that is widened \
             sends bound memory to other nodes"
        ));
        self.add(Some(client), Disagreement::CpusetNarrower { allowed }, evidence, Severity::Problem, Some(cure));
    }

    fn affinity(&mut self, client: &ClientFacts<'_>, home: &NodeSet, presumed: bool) {
        let allowed = client.thread_nodes(self.host.machine);
        if allowed.is_empty() || allowed.is_subset(home) {
            return;
        }
        let severity = match (allowed.intersection(home).is_empty(), presumed) {
            (true, _) => Severity::Problem,
            (false, false) => Severity::Warning,
            (false, true) => Severity::Note,
        };
        let cpus = home.iter().fold(CpuSet::new(), |all, node| all.union(&self.host.machine.usable_cpus(node)));
        let (vm, id, home_nodes) = (self.vm.vm.key.clone(), client.client.id, home.clone());
        let act = || Cure::Act { action: Action::Bind { vm, client: id, home: home_nodes, cpus } };
        let cure = match self.vm.threads_fixed {
            true => by_hand("its affinity was set by another program: change it there".to_owned()),
            false => act(),
        };
        let of = |(thread, cpus): &(u32, CpuSet)| format!("thread {thread}: CPUs {cpus}");
        let threads: Vec<String> = client.affinity.iter().take(4).map(of).collect();
        let evidence = format!("home {home}; {}", threads.join(", "));
        self.add(Some(client), Disagreement::AffinityAway { allowed }, evidence, severity, Some(cure));
    }

    /// What concerns the VM as a whole.
    fn whole(&mut self) {
        let everything = self.host.machine.node_ids();
        if let Some(allowed) = self.vm.allowed.clone() {
            let bound = self.vm.clients.iter().flat_map(|client| client.mappings.iter().flatten());
            let bound = bound.filter_map(|mapping| policy_nodes(&mapping.policy)).count() > 0;
            let wider = self.all_homes.is_subset(&allowed) && allowed != self.all_homes && allowed != everything;
            if wider && bound && !self.all_homes.is_empty() {
                let evidence = format!("homes {}; Mems_allowed_list: {allowed}", self.all_homes);
                self.add(None, Disagreement::CpusetWider { allowed }, evidence, Severity::Note, None);
            }
        }
        if let Some(reason) = self.vm.fixed.clone() {
            let away =
                self.findings.iter().any(|finding| matches!(finding.disagreement, Disagreement::PagesAway { .. }));
            let severity = if away { Severity::Warning } else { Severity::Note };
            self.add(None, Disagreement::Pinned, reason, severity, None);
        }
    }
}

fn by_hand(advice: String) -> Cure {
    Cure::ByHand { advice }
}

/// The kernel's words for a client's mappings, the first few.
fn lines(client: &ClientFacts<'_>) -> String {
    let of = |mapping: &Mapping| {
        let nodes: Vec<String> = mapping.pages.iter().map(|(node, pages)| format!("N{node}={pages}")).collect();
        format!("{:x} {} {}", mapping.start, mapping.policy, nodes.join(" "))
    };
    let shown: Vec<String> = client.mappings.iter().flatten().take(3).map(of).collect();
    shown.join("; ")
}

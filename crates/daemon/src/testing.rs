//! A small host for tests: VMs of one client whose threads run where they were told.

use crate::{Balancer, Mode, PolicyFile, Rules, SavedFile};
use scheduler::balance::{Decision, MoveKind};
use scheduler::{
    Act, Action, ActionError, ClientId, ClientObservation, Done, GroupObservation, Moment, NodeObservation,
    Observation, Observe, ObserveError, VcpuGroup, VmKey, VmObservation,
};
use std::collections::BTreeMap;
use std::path::Path;
use topology::{Bytes, CpuSet, Machine, read};

/// A balancer of this host with the default policy, its memory below `directory`.
pub(crate) fn balancer(host: ScriptedHost, mode: Mode, directory: &Path) -> Balancer<ScriptedHost> {
    let file = SavedFile::new(directory.join("balance.json"), "boot".into());
    let restored = file.restore().unwrap();
    let rules = Rules::new(Vec::new());
    Balancer::new(host, &PolicyFile::default(), rules, mode, file, restored)
}

/// The VM with this number.
pub(crate) fn vm(number: u32) -> VmKey {
    VmKey { name: format!("vm{number}"), pid: number, started: u64::from(number) }
}

/// A decision to give the first client of a VM a home.
pub(crate) fn bind(vm: VmKey, home: &str, cpus: &str) -> Decision {
    let (home, cpus) = (home.parse().unwrap(), cpus.parse().unwrap());
    Decision {
        action: Action::Bind { vm, client: ClientId(0), home, cpus, groups: Vec::new() },
        kind: MoveKind::Adopt,
        because: "it is new".into(),
    }
}

/// CPUs 0-3, on two nodes of two or on one. Each VM has two vCPUs and a vhost thread, which are
/// bound one after the other.
#[derive(Debug)]
pub(crate) struct ScriptedHost {
    machine: Machine,
    now: Moment,
    bound: BTreeMap<(VmKey, u32), CpuSet>,
    vhosts: BTreeMap<VmKey, CpuSet>,
    /// Threads of a VM's process that run no vCPU, by id: those that may use what its vCPUs may go
    /// along with these.
    pub(crate) others: BTreeMap<VmKey, BTreeMap<u32, CpuSet>>,
    /// The VMs that run now.
    pub(crate) vms: Vec<VmKey>,
    /// VMs that so many of the next looks leave out.
    pub(crate) left_out: BTreeMap<VmKey, u32>,
    /// Whether every action fails for want of a capability.
    pub(crate) refuses: bool,
    /// What was asked of it.
    pub(crate) carried_out: Vec<Action>,
    /// Steps until the process is killed: a step begins an action, binds one thread, or ends the
    /// action.
    pub(crate) steps_left: Option<u32>,
}

/// Ids of vhost threads are those of their VMs' processes and this.
const VHOST: u32 = 1000;

/// How a scripted kill ends the work: as a panic that the test catches.
pub(crate) struct Killed;

impl ScriptedHost {
    pub(crate) fn two_nodes(vms: &[VmKey]) -> Self {
        Self::new("pack:2 [numa(memory=4GB)] core:2 pu:1", vms)
    }

    pub(crate) fn one_node(vms: &[VmKey]) -> Self {
        Self::new("pack:1 [numa(memory=4GB)] core:4 pu:1", vms)
    }

    fn new(synthetic: &str, vms: &[VmKey]) -> Self {
        Self {
            machine: read::from_synthetic(synthetic).unwrap(),
            now: Moment(0),
            bound: BTreeMap::new(),
            vhosts: BTreeMap::new(),
            others: BTreeMap::new(),
            vms: vms.to_vec(),
            left_out: BTreeMap::new(),
            refuses: false,
            carried_out: Vec::new(),
            steps_left: None,
        }
    }

    fn step(&mut self) {
        if let Some(left) = &mut self.steps_left {
            if *left == 0 {
                // Not a panic, whose backtraces would hide what fails.
                std::panic::resume_unwind(Box::new(Killed));
            }
            *left -= 1;
        }
    }

    fn thread(&self, vm: &VmKey, vcpu: u32) -> CpuSet {
        self.bound.get(&(vm.clone(), vcpu)).cloned().unwrap_or_else(|| "0-3".parse().unwrap())
    }

    /// Where a VM may run: the union over its threads.
    pub(crate) fn affinity_of(&self, vm: &VmKey) -> CpuSet {
        self.thread(vm, 0).union(&self.thread(vm, 1))
    }

    /// What another program does behind the balancer's back.
    pub(crate) fn bind(&mut self, vm: &VmKey, cpus: &str) {
        for vcpu in 0..2 {
            self.bound.insert((vm.clone(), vcpu), cpus.parse().unwrap());
        }
    }

    /// The same for one thread.
    pub(crate) fn bind_thread(&mut self, vm: &VmKey, vcpu: u32, cpus: &str) {
        self.bound.insert((vm.clone(), vcpu), cpus.parse().unwrap());
    }

    /// Where a VM's vhost thread may run.
    pub(crate) fn vhost_of(&self, vm: &VmKey) -> CpuSet {
        self.vhosts.get(vm).cloned().unwrap_or_else(|| "1-2".parse().unwrap())
    }

    /// What another program does with it.
    pub(crate) fn bind_vhost(&mut self, vm: &VmKey, cpus: &str) {
        self.vhosts.insert(vm.clone(), cpus.parse().unwrap());
    }

    fn seen(&self, vm: &VmKey) -> VmObservation {
        let own = |vcpu: u32| VcpuGroup { vcpus: vec![vcpu], cpus: self.thread(vm, vcpu) };
        let groups = (0..2).map(|vcpu| GroupObservation { group: own(vcpu), ..GroupObservation::default() });
        let divided = self.thread(vm, 0) != self.thread(vm, 1);
        let client = ClientObservation {
            groups: groups.filter(|_| divided).collect(),
            id: ClientId(0),
            vcpus: 2,
            cpus: self.affinity_of(vm),
            vcpu_cpus: (0..2).map(|vcpu| (vcpu, self.thread(vm, vcpu))).collect(),
            cpu_used: None,
            cpu_waited: None,
            memory: Some(BTreeMap::new()),
            memory_size: Bytes::from_mib(64),
            ..ClientObservation::default()
        };
        VmObservation::of_clients(vm.clone(), vec![client])
    }
}

impl Observe for ScriptedHost {
    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn now(&self) -> Moment {
        self.now
    }

    fn observe(&mut self) -> Result<Observation, ObserveError> {
        self.now = Moment(self.now.0 + 2000);
        let node = |id| NodeObservation {
            cpus: self.machine.usable_cpus(id),
            cpu_used: None,
            memory_free: Some(Bytes::GIB),
            huge_pages_free: BTreeMap::new(),
        };
        let shown = self.vms.iter().filter(|vm| !self.left_out.contains_key(vm));
        let vms = shown.map(|vm| self.seen(vm)).collect();
        self.left_out.retain(|_, looks| {
            *looks -= 1;
            *looks > 0
        });
        Ok(Observation {
            at: self.now,
            nodes: self.machine.node_ids().iter().map(|id| (id, node(id))).collect(),
            vms,
            ..Observation::default()
        })
    }

    fn has_ended(&self, vm: &VmKey) -> bool {
        !self.vms.contains(vm)
    }
}

impl Act for ScriptedHost {
    fn carry_out(&mut self, action: &Action) -> Result<Done, ActionError> {
        self.carried_out.push(action.clone());
        self.step();
        if self.refuses {
            return Err(ActionError::Permission {
                vm: action.vm().name.clone(),
                operation: "bind its threads".into(),
                needs: "CAP_SYS_NICE".into(),
            });
        }
        if let Action::Bind { vm, cpus, home, groups, .. } = action {
            let before = self.affinity_of(vm);
            if !home.is_empty() {
                let others = self.others.entry(vm.clone()).or_default();
                others.values_mut().filter(|now| **now == before).for_each(|now| *now = cpus.clone());
            }
            for vcpu in 0..2 {
                let own = groups.iter().find(|group| group.vcpus.contains(&vcpu)).map_or(cpus, |group| &group.cpus);
                self.bound.insert((vm.clone(), vcpu), own.clone());
                self.step();
            }
            if !home.is_empty() {
                self.vhosts.insert(vm.clone(), cpus.clone());
                self.step();
            }
        }
        Ok(Done::default())
    }

    fn followers(&mut self, vm: &VmKey, _client: ClientId) -> BTreeMap<u32, CpuSet> {
        let others = self.others.get(vm).into_iter().flatten();
        others.map(|(id, cpus)| (*id, cpus.clone())).chain([(VHOST + vm.pid, self.vhost_of(vm))]).collect()
    }

    fn give_back(&mut self, vm: &VmKey, _client: ClientId, thread_id: u32, cpus: &CpuSet) -> Result<(), ActionError> {
        match self.others.get_mut(vm).and_then(|others| others.get_mut(&thread_id)) {
            Some(now) => *now = cpus.clone(),
            None => {
                assert_eq!(thread_id, VHOST + vm.pid);
                self.vhosts.insert(vm.clone(), cpus.clone());
            }
        }
        self.step();
        Ok(())
    }
}

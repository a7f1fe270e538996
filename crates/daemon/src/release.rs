//! Undoing: every affinity that a balancer set is what it was before, unless somebody else changed it since.

use crate::balancer::nodes_of;
use crate::record::{ClientRecord, affinity};
use crate::{Balancer, DaemonError};
use scheduler::balance::BalanceState;
use scheduler::{Action, ActionError, ClientId, Host, Observation, VmKey};
use serde::Serialize;
use topology::CpuSet;

/// What became of one client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "released", rename_all = "snake_case")]
pub enum Released {
    /// It may run where it could before.
    Undone {
        /// Which VM.
        vm: VmKey,
        /// Which client.
        client: ClientId,
        /// CPUs.
        to: CpuSet,
        /// What is to be said of it: the program that manages the VM does not know, for example.
        because: Option<String>,
    },
    /// Somebody else has changed it since: it is left alone.
    Changed {
        /// Which VM.
        vm: VmKey,
        /// Which client.
        client: ClientId,
        /// What the balancer had set.
        set: CpuSet,
        /// What it is now.
        now: CpuSet,
    },
    /// It could not be undone.
    Failed {
        /// Which VM.
        vm: VmKey,
        /// Which client.
        client: ClientId,
        /// Why.
        error: ActionError,
    },
}

impl<H: Host> Balancer<H> {
    /// Undoes every affinity that this balancer, or the one whose memory it has, set; forgets what was undone. Memory stays where it is.
    ///
    /// # Errors
    /// Nothing at all can be read of the host, or the memory cannot be written.
    pub fn release(&mut self) -> Result<Vec<Released>, DaemonError> {
        let observation = self.host.observe()?;
        self.saved.keep_only(&observation);
        let mut all = Vec::new();
        let mut records = std::mem::take(&mut self.saved.vms);
        for record in &mut records {
            let vm = record.vm.clone();
            record.clients.retain(|client| {
                let released = self.release_client(&vm, client, &observation);
                let keep = matches!(&released, Some(Released::Failed { error, .. }) if !matches!(error, ActionError::Gone { .. }));
                all.extend(released);
                keep
            });
        }
        records.retain(|record| !record.clients.is_empty());
        self.saved.vms = records;
        self.saved.balance = BalanceState::default();
        self.save()?;
        Ok(all)
    }

    fn release_client(&mut self, vm: &VmKey, record: &ClientRecord, observation: &Observation) -> Option<Released> {
        let (vm, client) = (vm.clone(), record.client);
        let now = affinity(observation, &vm, client)?.clone();
        // The kernel leaves out CPUs that are offline.
        let online: CpuSet = observation.nodes.values().flat_map(|node| node.cpus.iter()).collect();
        if now.intersection(&online) != record.set.intersection(&online) {
            return Some(Released::Changed { vm, client, set: record.set.clone(), now });
        }
        // It went away and came back: nothing is left to undo.
        if now == record.before {
            return None;
        }
        let to = record.before.clone();
        let home = nodes_of(self.host.machine(), &to);
        let action = Action::Bind { vm: vm.clone(), client, home, cpus: to.clone() };
        Some(match self.host.carry_out(&action) {
            Ok(done) => Released::Undone { vm, client, to, because: done.because },
            Err(error) => Released::Failed { vm, client, error },
        })
    }
}

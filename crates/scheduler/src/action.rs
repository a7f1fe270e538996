//! What the balancer asks of a host, and the host.

use crate::{ClientId, Moment, Observation, VmKey};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use topology::{Bytes, CpuSet, Machine, NodeId, NodeSet};

/// vCPUs that may use CPUs of their own only: those under one last-level cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VcpuGroup {
    /// By rising number.
    pub vcpus: Vec<u32>,
    /// The CPUs.
    pub cpus: CpuSet,
}

/// A change of one client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Action {
    /// Lets the client's vCPU threads run on these CPUs only: all CPUs of its home. Its followers
    /// ([`Act::followers`]) go along to a home; they stay where they are when the client gets back
    /// what it had.
    Bind {
        /// The VM.
        vm: VmKey,
        /// The client.
        client: ClientId,
        /// Its home: one node, or the fewest nearest ones where one does not fit. Empty: none; it
        /// gets back what it had.
        home: NodeSet,
        /// The CPUs.
        cpus: CpuSet,
        /// vCPUs that may use a part of these only. Empty: all may use all; else each is in one.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        groups: Vec<VcpuGroup>,
    },
    /// Moves resident memory of the client from one node to another: at most so much, now.
    MoveMemory {
        /// The VM.
        vm: VmKey,
        /// The client.
        client: ClientId,
        /// Where it lies.
        from: NodeId,
        /// Where it shall lie.
        to: NodeId,
        /// At most so much.
        at_most: Bytes,
    },
}

impl Action {
    /// The VM that it changes.
    pub fn vm(&self) -> &VmKey {
        match self {
            Self::Bind { vm, .. } | Self::MoveMemory { vm, .. } => vm,
        }
    }

    /// The client that it changes.
    pub fn client(&self) -> ClientId {
        match self {
            Self::Bind { client, .. } | Self::MoveMemory { client, .. } => *client,
        }
    }
}

/// What an action did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// Memory that now lies where it should.
    pub moved: Bytes,
    /// Memory that was asked to move and would not: pinned, or the target was full.
    pub left: Bytes,
    /// Why some was left.
    pub because: Option<String>,
}

/// Why an action changed nothing, or only a part that was rolled back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(tag = "error", rename_all = "snake_case")]
pub enum ActionError {
    /// The VM ended meanwhile.
    #[error("{vm}: it ended meanwhile")]
    Gone {
        /// Its name.
        vm: String,
    },
    /// The host does not let us.
    #[error("{vm}: {operation}: permission is missing: {needs}")]
    Permission {
        /// Its name.
        vm: String,
        /// What was tried.
        operation: String,
        /// The capability that is missing, and what for.
        needs: String,
    },
    /// Something else.
    #[error("{vm}: {operation}: {reason}")]
    Failed {
        /// Its name.
        vm: String,
        /// What was tried.
        operation: String,
        /// Why not.
        reason: String,
    },
}

/// Why nothing at all could be read of a host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{of}: {reason}")]
pub struct ObserveError {
    /// What was looked at: `/proc`, `libvirt at qemu+ssh://web/system`, `recording night.jsonl`.
    pub of: String,
    /// Why it could not be read, as a sentence.
    pub reason: String,
}

impl ObserveError {
    /// An error of this source.
    pub fn new(of: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { of: of.into(), reason: reason.into() }
    }
}

/// A source of observations: this host (`linux`), another host's libvirt, a modelled host
/// (`simulator`), a recording.
pub trait Observe {
    /// The machine.
    fn machine(&self) -> &Machine;
    /// Now, on its clock.
    fn now(&self) -> Moment;
    /// Looks at everything that a balancer needs, every period. A VM that ends meanwhile is left
    /// out; what cannot be read is `None`.
    ///
    /// # Errors
    /// Nothing at all can be read.
    fn observe(&mut self) -> Result<Observation, ObserveError>;
    /// Looks at everything that can be known, also what takes long: for the judge, when somebody
    /// asks. A source that knows no more than [`observe`](Self::observe) says gives that.
    ///
    /// # Errors
    /// Nothing at all can be read.
    fn examine(&mut self) -> Result<Observation, ObserveError> {
        self.observe()
    }
    /// Whether a VM that a look did not show is known to have ended. A look may leave out one that
    /// runs, for want of time for example; a source that never does so knows it by the look alone.
    fn has_ended(&self, _vm: &VmKey) -> bool {
        true
    }
}

/// Something that carries decisions out: this host, or a modelled one.
pub trait Act {
    /// Carries out one action, wholly or not at all, but for memory that would not move (see
    /// [`Done`]).
    ///
    /// # Errors
    /// It could not, and nothing is half-done.
    fn carry_out(&mut self, action: &Action) -> Result<Done, ActionError>;

    /// Threads that run no vCPU and may go along with a bind of this client (QEMU's own, `vhost-*`,
    /// those of processes that work for the VM), each with the CPUs that it may use now. A host
    /// that knows of none has none.
    fn followers(&mut self, _vm: &VmKey, _client: ClientId) -> BTreeMap<u32, CpuSet> {
        BTreeMap::new()
    }

    /// Lets one of the [`followers`](Self::followers) of a client use these CPUs: what it might use
    /// before it went along.
    ///
    /// # Errors
    /// It could not, or there is no such thread.
    fn give_back(&mut self, vm: &VmKey, _client: ClientId, thread_id: u32, cpus: &CpuSet) -> Result<(), ActionError> {
        let (vm, operation) = (vm.name.clone(), format!("give thread {thread_id} back CPUs {cpus}"));
        Err(ActionError::Failed { vm, operation, reason: "no such thread goes along with it".to_owned() })
    }

    /// Lets threads of a VM that run no vCPU, by id, use these CPUs: of those that may go along.
    /// One that is there already, or has ended, is left as it is.
    ///
    /// # Errors
    /// Some could not be bound: which, and why.
    fn bind_others(&mut self, vm: &VmKey, _threads: &BTreeMap<u32, CpuSet>) -> Result<Done, ActionError> {
        let (vm, operation) = (vm.name.clone(), "bind its other threads".to_owned());
        Err(ActionError::Failed { vm, operation, reason: "this host cannot".to_owned() })
    }

    /// Puts right what a homenode that was killed left behind of a VM, and says what that was;
    /// `None` where nothing is wrong. A host that knows of nothing does nothing.
    ///
    /// # Errors
    /// It could not.
    fn put_right(&mut self, _vm: &VmKey) -> Result<Option<String>, ActionError> {
        Ok(None)
    }

    /// Confines the cgroup that a VM has for itself to the memory of these nodes, so that the
    /// kernel rebinds the policy of its memory ([`rebound`](crate::rebound)). Never widens. A host
    /// that cannot does nothing.
    ///
    /// # Errors
    /// It could not, or would not have come out right; nothing is changed.
    fn confine(&mut self, vm: &VmKey, nodes: &NodeSet) -> Result<Done, ActionError> {
        let (vm, operation) = (vm.name.clone(), format!("confine it to the memory of nodes {nodes}"));
        Err(ActionError::Failed { vm, operation, reason: "this host cannot".to_owned() })
    }
}

/// A host that VMs live on: it can be looked at and changed.
pub trait Host: Observe + Act {}

impl<H: Observe + Act> Host for H {}

//! VMs as the modelled host takes them: what they ask for, over time.

use crate::Profile;
use scheduler::{GuestMachine, Mobility};
use topology::{Bytes, NodeSet};
use vm::Stated;

/// A VM: its guest's topology and what runs in it. Nothing here says where it lives.
#[derive(Clone, Debug, PartialEq)]
pub struct VmShape {
    /// Name of the guest.
    pub name: String,
    /// Its weight where CPUs are short; 1024 is usual.
    pub shares: u32,
    /// Whether the balancer may move it.
    pub mobility: Mobility,
    /// Nodes that it may live on; absent: all.
    pub node_affinity: Option<NodeSet>,
    /// Whether all of its vCPUs count as busy from its start.
    pub latency_sensitive: bool,
    /// What its spec states to a balancer besides.
    pub stated: Stated,
    /// What its guest is told of its machine; `None` where nobody says, as in a trace.
    pub guest: Option<GuestMachine>,
    /// Its virtual nodes; one where the guest sees no nodes. Never empty.
    pub clients: Vec<ClientShape>,
}

/// A virtual node and what runs in it.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientShape {
    /// Its vCPUs.
    pub vcpus: u32,
    /// Its memory in all, touched or not.
    pub memory: Bytes,
    /// Of the memory on each node, the part that no one can move although the VM counts as movable
    /// (0 to 1): pages that some device or program holds. The kernel leaves them behind and says
    /// how many.
    pub held_part: f64,
    /// Part of its memory traffic that goes to the memory of the VM's other clients (0 to 1).
    pub sibling_part: f64,
    /// What runs, in the order of time; the first one begins with the VM. Never empty.
    pub phases: Vec<Phase>,
}

/// What runs from a moment on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    /// Milliseconds from the start of the VM.
    pub after_ms: u64,
    /// CPUs that its vCPUs would use if nobody else were there; at most their number.
    pub busy: f64,
    /// Memory that the guest touches in all from now on; what was touched once stays.
    pub resident: Bytes,
    /// How it uses memory.
    pub profile: Profile,
    /// What it keeps in last-level caches.
    pub reuse: Reuse,
}

/// What a client comes back to, as far as a last-level cache may hold it. The default: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reuse {
    /// What all of its threads together come back to.
    pub working_set: Bytes,
    /// Part of its lines that go there (0 to 1), and hit where the cache holds all of it.
    pub part: f64,
    /// Part of the working set that every thread uses (0 to 1): each cache under which it runs
    /// holds that. The rest is each thread's own.
    pub shared_part: f64,
}

impl VmShape {
    /// A VM of one client that does the same all its life, with all of its memory touched.
    pub fn steady(name: &str, vcpus: u32, memory: Bytes, busy: f64, profile: Profile) -> Self {
        let phase = Phase { after_ms: 0, busy, resident: memory, profile, reuse: Reuse::default() };
        let client = ClientShape { vcpus, memory, held_part: 0.0, sibling_part: 0.0, phases: vec![phase] };
        let mobility = Mobility::Movable;
        Self {
            name: name.to_owned(),
            shares: 1024,
            mobility,
            node_affinity: None,
            latency_sensitive: false,
            stated: Stated::default(),
            guest: None,
            clients: vec![client],
        }
    }

    /// vCPUs of all clients.
    pub fn vcpus(&self) -> u32 {
        self.clients.iter().map(|client| client.vcpus).sum()
    }

    /// Memory of all clients.
    pub fn memory(&self) -> Bytes {
        self.clients.iter().map(|client| client.memory).sum()
    }
}

impl Reuse {
    /// What one vCPU comes back to where nobody says: an assumption.
    pub const USUAL_FOR_A_VCPU: Bytes = Bytes(2 << 20);

    /// Of [`Profile::chasing`]: some of the pointers are followed again and again, by all threads.
    pub fn chasing(working_set: Bytes) -> Self {
        Self { working_set, part: 0.3, shared_part: 0.5 }
    }

    /// Of [`Profile::computing`]: mostly the same again.
    pub fn computing(working_set: Bytes) -> Self {
        Self { working_set, part: 0.7, shared_part: 0.2 }
    }

    /// Of [`Profile::mixed`].
    pub fn mixed(working_set: Bytes) -> Self {
        Self { working_set, part: 0.5, shared_part: 0.3 }
    }
}

impl Profile {
    /// Copies memory as fast as a core can: the cores wait for memory alone.
    pub fn streaming() -> Self {
        Self { lines_in_flight: 10.0, core_ns_per_line: 2.0, write_share: 0.333, counted_bytes_per_line: 42.7 }
    }

    /// Follows pointers: one load at a time, some work on each.
    pub fn chasing() -> Self {
        Self { lines_in_flight: 1.0, core_ns_per_line: 20.0, write_share: 0.1, counted_bytes_per_line: 64.0 }
    }

    /// Works in caches mostly.
    pub fn computing() -> Self {
        Self { lines_in_flight: 4.0, core_ns_per_line: 200.0, write_share: 0.2, counted_bytes_per_line: 64.0 }
    }

    /// Between these: a database or an application server, a few loads in flight and work between
    /// them.
    pub fn mixed() -> Self {
        Self { lines_in_flight: 2.0, core_ns_per_line: 40.0, write_share: 0.25, counted_bytes_per_line: 64.0 }
    }
}

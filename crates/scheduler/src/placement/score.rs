//! What makes one placement better than another: a list of costs, compared from the first to the last.

use topology::Bytes;

/// The cost of a placement: vCPUs and distances in thousandths, or in eighths once [`Score::rounded`]. Every field is a sum over nodes or clients, so that no numbering of nodes can change it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Score {
    /// Bytes that a node lacks for what is placed there. Zero in every placement that is carried out.
    pub(crate) short: u64,
    /// Machine nodes beyond one for each client.
    pub(crate) straddled: u32,
    /// Homes without CPUs: memory that is nobody's local memory.
    pub(crate) memory_only: u32,
    /// Clients whose memory cannot lie on their home nodes in equal parts.
    pub(crate) unequal: u32,
    /// vCPUs beyond the hardware threads of their node.
    pub(crate) beyond_threads: u64,
    /// vCPUs beyond the cores of their node; not counted with `prefer_ht`.
    pub(crate) beyond_cores: u64,
    /// Machine nodes used, or left unused where the VM is to be spread.
    pub(crate) nodes: u32,
    /// Distance: between the homes of each two clients, there and back, and inside each home.
    pub(crate) distance: u64,
    /// How crowded the CPUs become: the growth of load^2 / cores.
    pub(crate) crowding: u64,
    /// How full the memory becomes: the growth of used^2 / size.
    pub(crate) fullness: u64,
}

impl Score {
    /// Without what only the division of a vCPU among the nodes of a home adds: vCPUs and distances in eighths, crowding in
    /// tenths. Rising costs stay rising.
    pub(crate) fn rounded(self) -> Self {
        // The offset keeps the common fractions away from the edges of a step.
        let eighths = |milli: u64| (milli + 37) / 125;
        Self {
            beyond_threads: eighths(self.beyond_threads),
            beyond_cores: eighths(self.beyond_cores),
            distance: eighths(self.distance),
            crowding: (self.crowding + 37_000) / 100_000,
            ..self
        }
    }

    /// The first cost in which `other` is worse, in words; `None` between equals.
    pub(crate) fn advantage_over(&self, other: &Self, spread: bool) -> Option<String> {
        let whole = |eighths: u64| eighths as f64 / 8.0;
        let counted = |own: f64, others: f64, of: &str| format!("{own} {of}, not {others}");
        let advantage = if self.straddled != other.straddled {
            counted(self.straddled.into(), other.straddled.into(), "machine nodes beyond one for each client")
        } else if self.memory_only != other.memory_only {
            counted(self.memory_only.into(), other.memory_only.into(), "homes without CPUs")
        } else if self.unequal != other.unequal {
            "memory in equal parts on its nodes".to_owned()
        } else if self.beyond_threads != other.beyond_threads {
            counted(whole(self.beyond_threads), whole(other.beyond_threads), "vCPUs without a free hardware thread")
        } else if self.beyond_cores != other.beyond_cores {
            counted(whole(self.beyond_cores), whole(other.beyond_cores), "vCPUs without a free core")
        } else if self.nodes != other.nodes {
            (if spread { "more nodes, as policy.placement asks" } else { "fewer nodes" }).to_owned()
        } else if self.distance != other.distance {
            counted(whole(self.distance).round(), whole(other.distance).round(), "is the sum of distances")
        } else if self.crowding != other.crowding {
            "its CPUs are less crowded by what runs already".to_owned()
        } else if self.fullness != other.fullness {
            "a smaller part of its memory is in use".to_owned()
        } else {
            return None;
        };
        Some(advantage)
    }
}

/// What is placed on a node, with the terms of the score that follow from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeLoad {
    pub(crate) cores: u64,
    pub(crate) threads: u64,
    pub(crate) units: u64,
    pub(crate) count_cores: bool,
    pub(crate) memory: u64,
    pub(crate) available: u64,
    /// Thousandths of vCPUs that were there before.
    pub(crate) held_milli: u64,
    /// Thousandths of vCPUs placed.
    pub(crate) milli: u64,
    /// Bytes placed.
    pub(crate) bytes: u64,
    /// Homes that name the node.
    pub(crate) homes: u32,
}

impl NodeLoad {
    /// The node's own terms; the others stay zero.
    pub(crate) fn terms(&self) -> Score {
        let load = self.held_milli + self.milli;
        let beyond = |limit: u64| load.saturating_sub(limit * 1000).min(self.milli);
        Score {
            short: self.bytes.saturating_sub(self.available),
            beyond_threads: beyond(self.threads),
            beyond_cores: if self.count_cores { beyond(self.cores) } else { 0 },
            crowding: growth(self.held_milli, load, self.units),
            fullness: growth(
                mib(self.memory - self.available),
                mib(self.memory - self.available + self.bytes),
                mib(self.memory),
            ),
            nodes: u32::from(self.homes > 0),
            ..Score::default()
        }
    }
}

fn mib(bytes: u64) -> u64 {
    Bytes(bytes).mib()
}

/// (after^2 - before^2) / size: what is added to a fuller node costs more.
fn growth(before: u64, after: u64, size: u64) -> u64 {
    let square = |amount: u64| u128::from(amount) * u128::from(amount);
    ((square(after) - square(before)) / u128::from(size.max(1))).min(u128::from(u64::MAX >> 16)) as u64
}

//! What is wrong, what it costs, and what cures it.

use crate::commands;
use crate::shaped::Spot;
use scheduler::{Action, VmKey};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use topology::{CpuSet, NodeSet};

/// How much a finding matters. It follows from the [`Harm`]: the same fault has the same severity
/// in a definition and in a VM that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing; may well be meant.
    Note,
    /// Costs performance when something else happens: a page is touched, a thread is moved, the
    /// guest decides.
    Warning,
    /// Costs performance now, or the VM does not start.
    Problem,
}

/// What kind of harm it does; from the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Harm {
    /// It cannot start, or not as it is written.
    Refused,
    /// It waits: for CPUs, or for remote memory, with each instruction.
    Waits,
    /// Its guest decides by something that is not so.
    Misled,
    /// Where it lives is left to chance.
    Chance,
}

impl Harm {
    /// How much that matters.
    fn severity(self) -> Severity {
        match self {
            Self::Refused | Self::Waits => Severity::Problem,
            Self::Misled | Self::Chance => Severity::Warning,
        }
    }
}

/// An estimate, from the machine's table of distances or from counted CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum Cost {
    /// Accesses to memory.
    MemoryLatency {
        /// Share of accesses that go to another node, 0 to 1.
        remote_share: f64,
        /// Mean latency in multiples of the local one.
        factor: f64,
    },
    /// Accesses to memory of any virtual node, against what the guest was told of distances.
    AgainstTold {
        /// Share of accesses that take longer than told, 0 to 1.
        longer_share: f64,
        /// Mean latency in multiples of the one told; below 1 where memory is nearer.
        factor: f64,
    },
    /// Time on a CPU.
    CpuTime {
        /// vCPUs that compete for each hardware thread.
        factor: f64,
    },
}

impl Cost {
    /// How many times longer it takes.
    pub fn factor(&self) -> f64 {
        match self {
            Self::MemoryLatency { factor, .. } | Self::AgainstTold { factor, .. } | Self::CpuTime { factor } => *factor,
        }
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MemoryLatency { remote_share, factor } => write!(
                f,
                "≈ {factor:.2} times the local latency in the mean, {:.0} % of accesses remote, by the machine's \
                distances",
                remote_share * 100.0
            ),
            Self::AgainstTold { longer_share, factor } => write!(
                f,
                "≈ {factor:.2} times the latency that its guest was told, in the mean; {:.0} % of accesses take longer \
                 than told, if its vCPUs touch all of its memory evenly",
                longer_share * 100.0
            ),
            Self::CpuTime { factor } => {
                write!(f, "≈ {factor:.2} busy vCPUs for each hardware thread that they may use")
            }
        }
    }
}

/// A part of a VM that a cure changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Aspect {
    /// Virtual nodes, and all that follows from them.
    Shape,
    /// Which of its vCPUs are there when it starts.
    Presence,
    /// Virtual sockets, dies, cores and threads.
    Topology,
    /// What the guest is told of its caches.
    Cache,
    /// Virtual threads of a core: none.
    Threads,
    /// Virtual threads of a core: two, each pair bound to the two of one core.
    Siblings,
    /// Distances between virtual nodes.
    Distances,
    /// CPUs and memory nodes that lead away from the home.
    Home,
    /// CPUs of all vCPUs, also of those that are at home.
    Pins,
    /// CPUs of the emulator and of iothreads.
    OtherThreads,
}

impl Aspect {
    /// Whether the guest must be started again for it.
    pub fn needs_restart(self) -> bool {
        matches!(
            self,
            Self::Shape
                | Self::Presence
                | Self::Topology
                | Self::Cache
                | Self::Threads
                | Self::Siblings
                | Self::Distances
        )
    }
}

/// What a program can do about a VM that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "repair", rename_all = "snake_case")]
pub enum Repair {
    /// An action of the balancer's kind.
    Act {
        /// It.
        #[serde(flatten)]
        action: Action,
    },
    /// Let threads that run no vCPU use these CPUs.
    BindOthers {
        /// The VM.
        vm: VmKey,
        /// The CPUs of each, by thread.
        threads: BTreeMap<u32, CpuSet>,
    },
    /// Write the `cpuset.mems` of the VM's own cgroup: confines it to these nodes and lets the
    /// kernel rebind its policy by position, which was computed beforehand to come out right.
    Confine {
        /// The VM.
        vm: VmKey,
        /// The nodes.
        nodes: NodeSet,
    },
}

/// What would mend it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cure {
    /// In words.
    pub advice: String,
    /// What it changes; empty where no edit of the VM mends it.
    pub changes: BTreeSet<Aspect>,
    /// Whether part of it takes effect only when the guest is started again.
    pub restart: bool,
    /// Commands that do what can be done while it runs, and QEMU's options where there is no XML.
    pub commands: Vec<String>,
    /// What `homenode doctor --fix` does, in a VM that runs.
    pub repairs: Vec<Repair>,
    /// The change as a unified diff of the XML.
    pub patch: Option<String>,
}

/// That somebody decided to live with a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Accepted {
    /// Why.
    pub reason: String,
    /// The last day on which that counts, as `2027-06-30`.
    pub until: String,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Its kind, a name that stays.
    pub what: &'static str,
    /// The VM; `None` for the host.
    pub vm: Option<String>,
    /// Its process, where it runs.
    pub process: Option<u32>,
    /// How much it matters.
    pub severity: Severity,
    /// What harm it does.
    pub harm: Harm,
    /// What is wrong, as a sentence.
    pub sentence: String,
    /// The values seen.
    pub seen: String,
    /// Where they are written.
    pub spots: Vec<Spot>,
    /// An estimate of what it costs, where there is a figure.
    pub cost: Option<Cost>,
    /// Why it costs.
    pub because: &'static str,
    /// What would mend it.
    pub cure: Cure,
    /// Where somebody decided to live with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted: Option<Accepted>,
}

impl Finding {
    /// Whether somebody should do something: it is more than a note, and nobody decided to live
    /// with it.
    pub fn needs_doing(&self) -> bool {
        self.severity > Severity::Note && self.accepted.is_none()
    }

    /// A finding without figures and without a cure: what a rule here, or a stack itself, says.
    pub fn new(what: &'static str, harm: Harm, sentence: String, because: &'static str) -> Self {
        let (severity, cure) = (harm.severity(), Cure::default());
        let (vm, process, cost, seen, spots) = (None, None, None, String::new(), Vec::new());
        Self { what, vm, process, severity, harm, sentence, seen, spots, cost, because, cure, accepted: None }
    }

    pub(crate) fn note(mut self) -> Self {
        self.severity = Severity::Note;
        self
    }

    pub(crate) fn seen(mut self, seen: impl Into<String>) -> Self {
        self.seen = seen.into();
        self
    }

    pub(crate) fn at(mut self, spots: impl IntoIterator<Item = Spot>) -> Self {
        self.spots.extend(spots);
        self.spots.dedup();
        self
    }

    pub(crate) fn costs(mut self, cost: Cost) -> Self {
        self.cost = Some(cost);
        self
    }

    pub(crate) fn cure(mut self, advice: impl Into<String>, changes: &[Aspect]) -> Self {
        self.cure.advice = advice.into();
        self.cure.changes = changes.iter().copied().collect();
        self.cure.restart = changes.iter().any(|aspect| aspect.needs_restart());
        self
    }

    /// Leaves out commands that only work on the VM's own host: for a host that is only looked at
    /// from here.
    pub fn keep_to_other_hosts(&mut self) {
        self.cure.commands.retain(|line| !commands::acts_on_this_host(line));
    }

    /// Worst first: by severity, by harm, then by what they cost, then by kind.
    pub fn order(&self, other: &Self) -> std::cmp::Ordering {
        let factor = |finding: &Self| finding.cost.map_or(1.0, |cost| cost.factor());
        (other.severity.cmp(&self.severity))
            .then(self.harm.cmp(&other.harm))
            .then(factor(other).total_cmp(&factor(self)))
            .then(self.what.cmp(other.what))
    }
}

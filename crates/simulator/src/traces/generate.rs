//! A trace from a seed: a mix of small, medium and wide VMs whose load rises and falls with the day
//! and from phase to phase.

use super::{Arrival, Random, Trace};
use crate::Profile;
use crate::host::{ClientShape, Phase, Reuse, VmShape};
use scheduler::{Mobility, Moment};
use topology::{Bytes, Machine};
use vm::Stated;

/// What kind of trace. Sizes and lengths are assumptions: no trace of a real cloud is behind them.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceRule {
    /// Length of the trace, in seconds.
    pub seconds: f64,
    /// VMs that are there at a time, about.
    pub vms: u32,
    /// Mean life of a VM, in seconds; none: they all stay.
    pub mean_life_s: Option<f64>,
    /// Mean length of a phase, in seconds; none: the load never changes.
    pub mean_phase_s: Option<f64>,
    /// CPUs that all VMs together would use, on average, for each core of the machine; above 1 CPUs
    /// are short.
    pub load: f64,
    /// Part of the machine's memory that VMs have at most.
    pub memory_part: f64,
    /// Part of the VMs with a passed-through device: their memory cannot move.
    pub fixed_memory_part: f64,
    /// VMs of the first minute start within so many seconds (a power-on storm).
    pub storm_s: f64,
}

impl Default for TraceRule {
    fn default() -> Self {
        Self {
            seconds: 3600.0,
            vms: 40,
            mean_life_s: Some(3600.0),
            mean_phase_s: Some(300.0),
            load: 0.7,
            memory_part: 0.7,
            fixed_memory_part: 0.05,
            storm_s: 20.0,
        }
    }
}

/// A class of sizes: vCPUs as parts of a node's cores.
#[derive(Clone, Copy, Debug)]
enum Size {
    Small,
    Medium,
    Wide,
}

/// One VM of two is small, one of ten wider than half a node.
const SIZES: [(f64, Size); 3] = [(0.5, Size::Small), (0.4, Size::Medium), (0.1, Size::Wide)];
/// GiB of memory for each vCPU, before all are scaled to fit the machine.
const GIB_PER_VCPU: [(f64, f64); 3] = [(0.3, 2.0), (0.5, 4.0), (0.2, 8.0)];
/// Seconds of a day, the period of the daily rise and fall.
const DAY_S: f64 = 86_400.0;
/// Part of its memory that a guest has touched soon after its start.
const TOUCHED: (f64, f64) = (0.5, 0.95);

/// KiB that each vCPU comes back to, before caches: no distribution is known.
const KIB_REUSED: [(f64, u64); 3] = [(0.4, 512), (0.4, 1536), (0.2, 6144)];

/// How a VM uses memory and caches.
type Use = (Profile, fn(Bytes) -> Reuse);

/// By how often it is met. Who streams comes back to nothing.
fn uses() -> [(f64, Use); 4] {
    [
        (0.4, (Profile::mixed(), Reuse::mixed)),
        (0.3, (Profile::computing(), Reuse::computing)),
        (0.15, (Profile::chasing(), Reuse::chasing)),
        (0.15, (Profile::streaming(), |_| Reuse::default())),
    ]
}

struct Draft {
    vcpus: u32,
    clients: u32,
    gib: f64,
    uses: Use,
    kib_reused: u64,
    activity: f64,
    day: f64,
    storm: bool,
    at_s: f64,
    leaves_s: Option<f64>,
    has_device: bool,
}

impl TraceRule {
    /// The trace of this seed for a machine of that size.
    pub fn generate(&self, machine: &Machine, seed: u64) -> Trace {
        let mut random = Random::part(seed, 2);
        let cores: Vec<u32> = machine.nodes.iter().map(|node| machine.usable_cores(node.id).len() as u32).collect();
        let node_cores = cores.iter().copied().max().unwrap_or(1).max(2);
        let mut drafts: Vec<Draft> = Vec::new();
        for _ in 0..self.vms {
            let at_s = random.between(0.0, self.storm_s);
            drafts.push(self.draft(&mut random, node_cores, at_s, true));
        }
        if let Some(life_s) = self.mean_life_s {
            let mut at_s = self.storm_s;
            loop {
                at_s += random.exponential(life_s / f64::from(self.vms.max(1)));
                if at_s >= self.seconds {
                    break;
                }
                drafts.push(self.draft(&mut random, node_cores, at_s, false));
            }
        }
        // From a stream of their own: all else is as it was before caches were modelled.
        let mut of_caches = Random::part(seed, 3);
        drafts.iter_mut().for_each(|draft| draft.kib_reused = *of_caches.weighted(&KIB_REUSED));
        drafts.sort_by(|one, other| one.at_s.total_cmp(&other.at_s));
        let all_cores = f64::from(cores.iter().sum::<u32>());
        let scale = self.scale(&drafts, all_cores, machine);
        let arrival = |(index, draft): (usize, &Draft)| self.arrival(&mut random, index, draft, scale);
        Trace {
            name: format!("{} VMs on {}", self.vms, machine.name),
            seed: Some(seed),
            ends: ms(self.seconds),
            arrivals: drafts.iter().enumerate().map(arrival).collect(),
        }
    }

    fn draft(&self, random: &mut Random, node_cores: u32, at_s: f64, storm: bool) -> Draft {
        let size = *random.weighted(&SIZES);
        let wide = 1.0 + 1.5 * random.unit();
        let vcpus = match size {
            Size::Small => 1 + random.below(2) as u32,
            Size::Medium => (2 + 2 * random.below(4) as u32).min(node_cores),
            Size::Wide => 2 * (f64::from(node_cores) * wide / 2.0).round() as u32,
        };
        // Two of three wide guests see their nodes; the others are one client, as many a VM in the
        // field is.
        let sees_nodes = vcpus > node_cores && random.chance(0.67);
        let clients = if sees_nodes { vcpus.div_ceil(node_cores) } else { 1 };
        // Of a steady population, a VM that is there at first has lived for a while: the rest of
        // its life is as long as a new one's.
        let leaves_s = self.mean_life_s.map(|life_s| at_s + random.exponential(life_s).max(30.0));
        Draft {
            vcpus,
            clients,
            gib: f64::from(vcpus) * *random.weighted(&GIB_PER_VCPU),
            uses: *random.weighted(&uses()),
            kib_reused: 0,
            activity: if random.chance(0.2) { 0.05 } else { random.between(0.3, 1.0) },
            day: random.between(0.0, 0.4),
            storm,
            at_s,
            leaves_s: leaves_s.filter(|leaves_s| *leaves_s < self.seconds),
            has_device: random.chance(self.fixed_memory_part),
        }
    }

    /// Factors of activity and of memory that bring a typical moment to the rule's load and below
    /// its memory.
    fn scale(&self, drafts: &[Draft], all_cores: f64, machine: &Machine) -> (f64, f64) {
        let first = drafts.iter().filter(|draft| draft.storm);
        let busy: f64 = first.clone().map(|draft| f64::from(draft.vcpus) * draft.activity).sum();
        let memory: f64 = machine.nodes.iter().map(|node| node.memory.0 as f64).sum::<f64>() / (1u64 << 30) as f64;
        let mut most: f64 = 0.0;
        for now in drafts.iter().map(|draft| draft.at_s) {
            let is_there = |draft: &&Draft| draft.at_s <= now && draft.leaves_s.is_none_or(|leaves_s| leaves_s > now);
            most = most.max(drafts.iter().filter(is_there).map(|draft| draft.gib).sum());
        }
        (self.load * all_cores / busy.max(1e-9), (self.memory_part * memory / most.max(1e-9)).min(1.0))
    }

    fn arrival(&self, random: &mut Random, index: usize, draft: &Draft, (load, memory): (f64, f64)) -> Arrival {
        let lives_s = draft.leaves_s.unwrap_or(self.seconds) - draft.at_s;
        let touched = random.between(TOUCHED.0, TOUCHED.1);
        let mut starts_s = vec![0.0];
        if let Some(mean_s) = self.mean_phase_s {
            while let Some(last) = starts_s.last().filter(|last| **last < lives_s) {
                starts_s.push(last + random.exponential(mean_s).max(5.0));
            }
        }
        let levels: Vec<f64> = starts_s.iter().map(|_| random.between(0.5, 1.5)).collect();
        let steady = self.mean_phase_s.is_none();
        let per_client = (draft.gib * memory / f64::from(draft.clients) * 1024.0).max(64.0) as u64;
        let client = |number: u32| {
            let vcpus = draft.vcpus / draft.clients + u32::from(number < draft.vcpus % draft.clients);
            let phase = |(start_s, level): (&f64, &f64)| {
                let day = 1.0 + draft.day * (std::f64::consts::TAU * (draft.at_s + start_s) / DAY_S).sin();
                let level = if steady { 1.0 } else { level * day };
                let busy = thousandths(f64::from(vcpus) * draft.activity * load * level).clamp(0.0, f64::from(vcpus));
                let resident = Bytes((Bytes::from_mib(per_client).0 as f64 * touched) as u64);
                let (profile, reuse) = draft.uses;
                let reuse = reuse(Bytes((draft.kib_reused << 10) * u64::from(vcpus)));
                Phase { after_ms: ms(*start_s).0, busy, resident, profile, reuse }
            };
            ClientShape {
                vcpus,
                memory: Bytes::from_mib(per_client),
                held_part: 0.0,
                sibling_part: if draft.clients > 1 { 0.15 } else { 0.0 },
                phases: starts_s.iter().zip(&levels).map(phase).collect(),
            }
        };
        let because = "VFIO pins all of its memory".to_owned();
        let vm = VmShape {
            name: format!("vm{index}"),
            shares: *random.weighted(&[(0.8, 1024), (0.1, 512), (0.1, 2048)]),
            mobility: if draft.has_device { Mobility::MemoryFixed { because } } else { Mobility::Movable },
            node_affinity: None,
            latency_sensitive: false,
            stated: Stated::default(),
            guest: None,
            clients: (0..draft.clients).map(client).collect(),
        };
        Arrival { at: ms(draft.at_s), leaves: draft.leaves_s.map(ms), vm }
    }
}

/// Rounded, so that a file holds every digit.
fn thousandths(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn ms(seconds: f64) -> Moment {
    Moment((seconds * 1000.0).round() as u64)
}

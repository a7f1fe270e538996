//! Memory traffic and cache occupancy of each client, as far as this host counts them.
//!
//! **Problem.** Two VMs that stream and share a memory controller slow each other down while
//! another controller idles. Nothing in `/proc` shows it.
//!
//! **Rule.** [`resctrl`] where it is mounted and counts traffic; else counters of the vCPU threads
//! ([`perf`]); else unknown. The kernel is asked anew every so many looks: somebody may mount
//! resctrl. A look spends a bounded time on it; where that does not suffice, clients take turns,
//! and between two turns the last rate stands for a while.
//!
//! **Properties.** What a counter did not say is unknown, never zero. Who only looks makes no group
//! and removes none.

mod group;
mod perf;
mod readings;
mod resctrl;

use crate::root::Root;
use crate::vm::{RunningVm, VmClient};
use perf::Perf;
use readings::{DomainReading, Rate};
use resctrl::{At, Resctrl};
use scheduler::{ClientId, Traffic, TrafficMeter, TrafficSource};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use topology::Bytes;

/// A client of a VM: the process, and which.
type Key = (u32, ClientId);

/// Looks between two questions whether there is anything that counts.
const ASK_EVERY: u64 = 32;
/// Time that one look of a balancer spends on counting.
const WITHIN: Duration = Duration::from_millis(8);
/// Most looks between two turns of a client.
const SELDOM: u64 = 16;
/// How long a rate stands, in nanoseconds.
const STANDS_NS: u64 = 30_000_000_000;
/// VMs that a sentence names.
const NAMED: usize = 4;

/// What counts memory traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrafficFrom {
    /// Resctrl where it is mounted and counts traffic, else perf.
    #[default]
    Auto,
    /// Monitoring groups of resctrl alone.
    Resctrl,
    /// Event counters of threads alone.
    Perf,
    /// Nothing: traffic is unknown.
    Off,
}

/// How traffic is counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrafficOptions {
    /// What counts it.
    pub from: TrafficFrom,
    /// Whether monitoring groups may be made for VMs. Groups that are there are read in any case.
    pub may_create: bool,
    /// Where resctrl is mounted; `None`: where it usually is.
    pub mount: Option<PathBuf>,
    /// To see what counting costs where the CPU counts nothing: software events are read in place
    /// of cache misses, and say no rate; threads are taken to be in no group of resctrl.
    pub stand_in: bool,
}

/// Why something counts nothing here, as a sentence.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct CountsNothing(String);

/// Why a client is not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Why {
    NoThreads,
    NoGroup,
    OutOfGroups,
    NotPermitted,
    Elsewhere,
    TakenAway,
    Unsaid,
    Silent,
    Unassigned,
    NoCounters,
}

impl Why {
    fn words(self) -> &'static str {
        match self {
            Self::NoThreads => "which threads run its vCPUs is unknown",
            Self::NoGroup => "resctrl has no monitoring group of it; `homenode balance`, as root, makes them",
            Self::OutOfGroups => "the CPU has no monitoring group left (a quarter is left to other programs)",
            Self::NotPermitted => "only root may make monitoring groups of resctrl",
            Self::Elsewhere => "another program put its threads into groups of resctrl, which are left alone",
            Self::TakenAway => "another program removed its monitoring group again and again",
            Self::Unsaid => "the kernel does not say in which groups of resctrl threads are (Linux 5.6 does)",
            Self::Silent => "its counters say nothing, or went backwards",
            Self::Unassigned => "the CPU has no counter left for it (resctrl says Unassigned)",
            Self::NoCounters => "its threads' counters cannot be opened",
        }
    }
}

/// What was counted of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Measured {
    pub(crate) traffic: Option<Traffic>,
    pub(crate) unsplit: Option<f64>,
    pub(crate) occupancy: Option<Bytes>,
}

/// A look, as counting needs it.
pub(crate) struct Look<'a> {
    pub(crate) root: &'a Root,
    pub(crate) turn: u64,
    pub(crate) now_ns: u64,
    /// Files that may still be kept open.
    pub(crate) spare: &'a Cell<usize>,
    /// Whether it must not take long.
    pub(crate) hurries: bool,
}

/// Everything that counts on this host.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    options: TrafficOptions,
    resctrl: Option<Resctrl>,
    perf: Option<Perf>,
    has_asked: bool,
    has_swept: bool,
    /// Why there is nothing that counts.
    nothing: Vec<String>,
    known: BTreeMap<Key, Known>,
    /// Looks between two turns of a client.
    every: u64,
    spent: Duration,
    overran: bool,
    unmeasured: BTreeMap<Why, BTreeSet<String>>,
    /// The kernel's last refusal to open counters.
    refusal: Option<String>,
}

#[derive(Debug)]
struct Known {
    turn: u64,
    at_ns: Option<u64>,
    readings: Option<Vec<DomainReading>>,
    last: Measured,
}

impl Meters {
    pub(crate) fn new(options: TrafficOptions) -> Self {
        Self { options, every: 1, ..Self::default() }
    }

    /// Begins a look. `lives`: the clients that are there.
    pub(crate) fn begin(&mut self, look: &Look<'_>, lives: impl Fn(&(u32, ClientId)) -> bool) {
        self.every = match (self.overran, self.spent * 2 < WITHIN) {
            (true, _) => (self.every + 1).min(SELDOM),
            (false, true) => (self.every - 1).max(1),
            _ => self.every,
        };
        (self.spent, self.overran) = (Duration::ZERO, false);
        self.unmeasured.clear();
        self.refusal = None;
        if !self.has_asked || look.turn.is_multiple_of(ASK_EVERY) {
            self.ask(look.root);
        }
        self.known.retain(|key, _| lives(key));
        if let Some(resctrl) = &mut self.resctrl {
            resctrl.keep(&lives);
            if self.options.may_create && !self.has_swept {
                resctrl.sweep(look.root);
                self.has_swept = true;
            }
        }
        if let Some(perf) = &mut self.perf {
            perf.keep(&lives);
        }
    }

    /// Finds out what counts here. What was found and is still there stays.
    fn ask(&mut self, root: &Root) {
        let from = self.options.from;
        let mount = self.options.mount.clone().unwrap_or_else(|| root.join("sys/fs/resctrl"));
        self.nothing.clear();
        self.resctrl = self.resctrl.take().filter(|_| mount.join("info").is_dir());
        if matches!(from, TrafficFrom::Auto | TrafficFrom::Resctrl) && self.resctrl.is_none() {
            self.resctrl = Resctrl::find(mount).map_err(|why| self.nothing.push(why.to_string())).ok();
        }
        let suffices = self.resctrl.as_ref().is_some_and(Resctrl::counts_traffic);
        let wants_perf = from == TrafficFrom::Perf || (from == TrafficFrom::Auto && !suffices);
        self.perf = self.perf.take().filter(|_| wants_perf);
        // What the CPU counts stays the same, and what this process may do.
        if wants_perf && self.perf.is_none() {
            self.perf = Perf::find(root, self.options.stand_in).map_err(|why| self.nothing.push(why.to_string())).ok();
        }
        self.has_asked = true;
    }

    fn source(&self) -> Option<TrafficSource> {
        let resctrl = self.resctrl.as_ref().filter(|resctrl| resctrl.counts_traffic());
        resctrl.map(|_| TrafficSource::Resctrl).or(self.perf.as_ref().map(|_| TrafficSource::Perf))
    }

    /// What counts, and what it misses.
    pub(crate) fn meter(&self) -> TrafficMeter {
        if self.options.from == TrafficFrom::Off {
            return TrafficMeter { source: None, notes: vec!["the policy switched that off".to_owned()] };
        }
        let source = self.source();
        let missed = self.unmeasured.iter().map(|(why, vms)| {
            let named: Vec<&str> = vms.iter().take(NAMED).map(String::as_str).collect();
            let more = match vms.len().saturating_sub(NAMED) {
                0 => String::new(),
                more => format!(" and {more} more VMs"),
            };
            format!("memory traffic of {}{more} is unknown: {}", named.join(", "), why.words())
        });
        let nothing = self.nothing.iter().filter(|_| source.is_none()).cloned();
        let caveat = self.resctrl.as_ref().and_then(Resctrl::caveat);
        TrafficMeter { source, notes: nothing.chain(caveat).chain(missed).chain(self.refusal.clone()).collect() }
    }

    /// What was counted of a client since its last turn. `stranger`: its VM is of a user who is not
    /// trusted.
    pub(crate) fn measure(&mut self, look: &Look<'_>, vm: &RunningVm, client: &VmClient, stranger: bool) -> Measured {
        if self.resctrl.is_none() && self.perf.is_none() {
            return Measured::default();
        }
        let key = (vm.key.pid, client.id);
        let hurries = look.hurries && self.spent > WITHIN;
        self.overran |= hurries;
        let known = self.known.get(&key);
        if hurries || known.is_some_and(|known| look.hurries && known.turn + self.every > look.turn) {
            let fresh = |at_ns: u64| look.now_ns.saturating_sub(at_ns) < STANDS_NS;
            return known.filter(|known| known.at_ns.is_some_and(fresh)).map(|known| known.last).unwrap_or_default();
        }
        let start = Instant::now();
        let last = self.count(look, vm, client, stranger);
        self.spent += start.elapsed();
        last
    }

    fn count(&mut self, look: &Look<'_>, vm: &RunningVm, client: &VmClient, stranger: bool) -> Measured {
        let key = (vm.key.pid, client.id);
        let Self { options, resctrl, perf, .. } = self;
        let known = self.known.remove(&key);
        let then_ns = known.as_ref().and_then(|known| known.at_ns);
        let seconds = then_ns.map(|then| look.now_ns.saturating_sub(then) as f64 / 1e9).filter(|&time| time > 0.0);
        let (mut last, mut why, mut readings) = (Measured::default(), None, None);
        if let Some(resctrl) = resctrl {
            let at = At { root: look.root, turn: look.turn, options, stranger, spare: look.spare };
            match resctrl.read(&at, vm, client) {
                Ok(now) => {
                    last.occupancy = readings::occupancy(&now);
                    let before = known.and_then(|known| known.readings);
                    let both = before.as_ref().zip(seconds);
                    let rate = both.map(|(before, seconds)| readings::rate(before, &now, seconds));
                    match rate {
                        Some(Some(rate)) => last.set(rate),
                        Some(None) if resctrl.counts_traffic() => {
                            why = Some(if readings::is_unassigned(&now) { Why::Unassigned } else { Why::Silent });
                        }
                        _ => {}
                    }
                    readings = Some(now);
                }
                Err(because) => why = Some(because),
            }
        }
        if let Some(perf) = perf {
            match perf.rate(key, &client.thread_ids, seconds, look.spare, stranger) {
                Ok(rate) => {
                    why = None;
                    rate.into_iter().for_each(|rate| last.set(rate));
                }
                Err(error) => {
                    why = Some(Why::NoCounters);
                    self.refusal = Some(perf::refusal(look.root, &error));
                }
            }
        }
        if let Some(why) = why {
            self.unmeasured.entry(why).or_default().insert(vm.key.name.clone());
        }
        self.known.insert(key, Known { turn: look.turn, at_ns: Some(look.now_ns), readings, last });
        last
    }

    /// What was counted so far is no beginning of a rate.
    pub(crate) fn forget_rates(&mut self) {
        self.known.clear();
    }

    /// Files that are open.
    pub(crate) fn open_files(&self) -> usize {
        self.resctrl.as_ref().map_or(0, Resctrl::open_files) + self.perf.as_ref().map_or(0, Perf::open_files)
    }
}

impl Measured {
    fn set(&mut self, rate: Rate) {
        match rate {
            Rate::Split(traffic) => self.traffic = Some(traffic),
            Rate::Unsplit(bytes) => self.unsplit = Some(bytes),
        }
    }
}

#[cfg(test)]
mod tests;

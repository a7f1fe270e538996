//! Counters of cache misses of vCPU threads, where resctrl counts no traffic.
//!
//! **Problem.** A miss of the last-level cache is a line of memory traffic, whoever missed: the
//! guest or QEMU. How a CPU counts them is a matter of its maker: generic events mean misses of the
//! last cache on Intel, of the second on AMD, of the first on Arm.
//!
//! **Rule.** A thread's counters count user code, the kernel and the guest: KVM leaves them running
//! while the guest runs, unless they exclude it. Where the hardware has fewer counters than are
//! asked for, the kernel lets them take turns, and what they saw is scaled up. What ran and was not
//! seen is unknown. A CPU of which nobody wrote down here how it counts is not counted.
//!
//! **Example.** 10 ms on a CPU, counted for 5 ms of them: 1000 misses. 2000 x 64 bytes.

use super::readings::Rate;
use super::{CountsNothing, Key};
use crate::root::Root;
use crate::sys::{CounterEvent, CounterGroup, GroupCount, thread_id};
use scheduler::Traffic;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;

/// Bytes of a line.
const LINE: f64 = 64.0;
/// Descriptors that VMs of strangers leave to others.
const LEFT_BY_STRANGERS: usize = 8192;
/// Least part of a thread's time that must have been counted.
const LEAST_COUNTED: f64 = 0.01;
const HARDWARE: u32 = 0;
const HARDWARE_CACHE: u32 = 3;
const RAW: u32 = 4;

/// Events that count traffic on a CPU, and what their counts mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventSet {
    events: [CounterEvent; 3],
    count: usize,
    meaning: Meaning,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// Misses of the last-level cache; loads from the own node's memory; loads from others'. What
    /// the loads tell of shares is taken for all.
    MissesAndShares,
    /// Misses of the last-level cache.
    Misses,
    /// Lines from the own node's memory, lines from others'.
    NearAndFar,
    /// None of these: to see what reading costs.
    StandIn,
}

const fn event(kind: u32, config: u64) -> CounterEvent {
    CounterEvent { kind, config }
}

/// `PERF_COUNT_HW_CACHE_MISSES`: on Intel `LONGEST_LAT_CACHE.MISS`, requests of a core that missed
/// the last-level cache, with what its first two caches fetched ahead.
const MISSES: CounterEvent = event(HARDWARE, 3);
/// `PERF_COUNT_HW_CACHE_NODE`, loads: answered by the own node's memory, by another's.
const NEAR_LOADS: CounterEvent = event(HARDWARE_CACHE, 6);
const FAR_LOADS: CounterEvent = event(HARDWARE_CACHE, 6 | 1 << 16);
/// `ls_any_fills_from_sys.dram_io_near` and `..._far` of Zen 3 and later (AMD's PPRs).
const NEAR_FILLS: CounterEvent = event(RAW, 0x0844);
const FAR_FILLS: CounterEvent = event(RAW, 0x4044);
/// Software events, which every kernel counts: CPU time, page faults, context switches.
const STAND_INS: [CounterEvent; 3] = [event(1, 1), event(1, 2), event(1, 3)];

impl EventSet {
    const fn new(events: [CounterEvent; 3], count: usize, meaning: Meaning) -> Self {
        Self { events, count, meaning }
    }

    fn events(&self) -> &[CounterEvent] {
        &self.events[..self.count]
    }

    /// What to try on the CPU that `/proc/cpuinfo` describes, the best first.
    fn of_cpu(cpuinfo: &str) -> Vec<Self> {
        let field = |key: &str| {
            let line = cpuinfo.lines().find(|line| line.split(':').next().is_some_and(|name| name.trim() == key));
            line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim())
        };
        let family = field("cpu family").and_then(|family| family.parse::<u32>().ok());
        match (field("vendor_id"), family) {
            (Some("GenuineIntel"), Some(6..)) => vec![
                Self::new([MISSES, NEAR_LOADS, FAR_LOADS], 3, Meaning::MissesAndShares),
                Self::new([MISSES, MISSES, MISSES], 1, Meaning::Misses),
            ],
            (Some("AuthenticAMD"), Some(0x19..)) => {
                vec![Self::new([NEAR_FILLS, FAR_FILLS, FAR_FILLS], 2, Meaning::NearAndFar)]
            }
            _ => Vec::new(),
        }
    }

    /// Traffic of lines, by event, in `seconds`.
    fn rate(&self, lines: [f64; 3], seconds: f64) -> Option<Rate> {
        let per_second = |lines: f64| lines * LINE / seconds;
        let [first, second, third] = lines;
        let split = |all: f64, far: f64| Rate::Split(Traffic { local: per_second(all - far), remote: per_second(far) });
        Some(match self.meaning {
            Meaning::StandIn => return None,
            Meaning::NearAndFar => split(first + second, second),
            Meaning::MissesAndShares if second + third > 0.0 => split(first, first * third / (second + third)),
            Meaning::MissesAndShares | Meaning::Misses => Rate::Unsplit(per_second(first)),
        })
    }
}

/// Counters of the vCPU threads of all clients.
#[derive(Debug)]
pub(super) struct Perf {
    set: EventSet,
    known: BTreeMap<Key, Vec<Thread>>,
}

#[derive(Debug)]
struct Thread {
    id: u32,
    counters: CounterGroup,
    before: Option<GroupCount>,
}

impl Perf {
    /// Counters that work here.
    ///
    /// # Errors
    /// None does, or may not: a sentence.
    pub(super) fn find(root: &Root, stand_in: bool) -> Result<Self, CountsNothing> {
        if !root.is_live() {
            return Err(CountsNothing("perf: this is a captured tree".to_owned()));
        }
        if let Some(why) = may_not(root) {
            return Err(CountsNothing(why));
        }
        let sets = if stand_in {
            vec![EventSet::new(STAND_INS, 3, Meaning::StandIn)]
        } else {
            EventSet::of_cpu(&root.text("proc/cpuinfo").unwrap_or_default())
        };
        let mut why = "perf: how this CPU counts what leaves its last-level cache is not known".to_owned();
        for set in sets {
            match CounterGroup::open(thread_id(), set.events()) {
                Ok(_) => return Ok(Self { set, known: BTreeMap::new() }),
                Err(error) => why = refusal(root, &error),
            }
        }
        Err(CountsNothing(why))
    }

    /// Traffic of a client since it was last asked, `seconds` ago; `None` at first, and where one
    /// of its threads could not be counted.
    ///
    /// # Errors
    /// Its counters cannot be opened.
    pub(super) fn rate(
        &mut self,
        key: Key,
        threads: &[u32],
        seconds: Option<f64>,
        spare: &Cell<usize>,
        stranger: bool,
    ) -> io::Result<Option<Rate>> {
        let known = self.known.entry(key).or_default();
        if !known.iter().map(|thread| thread.id).eq(threads.iter().copied()) {
            let least = if stranger { LEFT_BY_STRANGERS } else { 0 };
            follow(known, threads, &self.set, spare, least)?;
        }
        let mut lines = (!known.is_empty()).then_some([0.0; 3]);
        for thread in known {
            let now = thread.counters.read().ok();
            let added = thread.before.zip(now).and_then(|(before, now)| scaled(&before, &now));
            thread.before = now;
            lines = lines.zip(added).map(|(sum, added)| std::array::from_fn(|event| sum[event] + added[event]));
        }
        Ok(lines.zip(seconds).and_then(|(lines, seconds)| self.set.rate(lines, seconds)))
    }

    /// Forgets clients that ended.
    pub(super) fn keep(&mut self, lives: impl Fn(&Key) -> bool) {
        self.known.retain(|key, _| lives(key));
    }

    /// Descriptors that are open.
    pub(super) fn open_files(&self) -> usize {
        self.known.values().map(Vec::len).sum::<usize>() * self.set.count
    }
}

/// Opens counters of threads that are new, and closes those of threads that went.
/// `least`: descriptors that must be left.
fn follow(
    known: &mut Vec<Thread>,
    threads: &[u32],
    set: &EventSet,
    spare: &Cell<usize>,
    least: usize,
) -> io::Result<()> {
    let new = threads.iter().filter(|&&id| known.iter().all(|thread| thread.id != id)).count();
    // All of them or none: a part of a client means nothing, and would keep others from being
    // counted.
    if new > 0 && spare.get().checked_sub(new * set.count).is_none_or(|left| left < least) {
        return Err(io::Error::from_raw_os_error(libc::EMFILE));
    }
    let mut before = std::mem::take(known);
    for &id in threads {
        if let Some(at) = before.iter().position(|thread| thread.id == id) {
            known.push(before.swap_remove(at));
            continue;
        }
        match CounterGroup::open(id, set.events()) {
            Ok(counters) => known.push(Thread { id, counters, before: None }),
            // It ended.
            Err(why) if why.raw_os_error() == Some(libc::ESRCH) => continue,
            Err(why) => {
                known.clear();
                return Err(why);
            }
        }
        spare.set(spare.get().saturating_sub(set.count));
    }
    Ok(())
}

/// What was counted between, as if all the time had been counted; `None` where too little was, or
/// counters went back.
fn scaled(before: &GroupCount, now: &GroupCount) -> Option<[f64; 3]> {
    let enabled = now.enabled_ns.checked_sub(before.enabled_ns)? as f64;
    let running = now.running_ns.checked_sub(before.running_ns)? as f64;
    if enabled == 0.0 {
        // It did not run.
        return Some([0.0; 3]);
    }
    if running / enabled < LEAST_COUNTED {
        return None;
    }
    let mut lines = [0.0; 3];
    for (line, (now, before)) in lines.iter_mut().zip(now.counts.iter().zip(&before.counts)) {
        *line = now.checked_sub(*before)? as f64 * (enabled / running).max(1.0);
    }
    Some(lines)
}

/// Why this host's counters are left alone, as a sentence.
fn may_not(root: &Root) -> Option<String> {
    if let Some(module) = ["kvm_intel", "kvm_amd"].into_iter().find(|module| gives_pmu_away(root, module)) {
        return Some(format!(
            "perf: {module}.enable_mediated_pmu is on: while homenode counted, no VM with counters of its own could \
             start"
        ));
    }
    // A generic event is that of one kind of core: what a thread did on the other would be guessed.
    let kinds = ["cpu_core", "cpu_atom"].map(|kind| root.join("sys/bus/event_source/devices").join(kind).exists());
    (kinds == [true, true]).then(|| {
        "perf: this CPU has two kinds of cores, which count apart: what a thread draws on both is not known".to_owned()
    })
}

/// Whether VMs get the hardware's counters for themselves: KVM then starts none that asks for them
/// while anybody counts a guest, and nobody may while one runs.
fn gives_pmu_away(root: &Root, module: &str) -> bool {
    let file = format!("sys/module/{module}/parameters/enable_mediated_pmu");
    root.text(&file).is_ok_and(|text| matches!(text.trim(), "Y" | "1"))
}

/// Why counters cannot be opened, as a sentence.
pub(super) fn refusal(root: &Root, error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            let paranoid = root.text("proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
            format!(
                "perf: needs CAP_PERFMON, to count what threads of others do (kernel.perf_event_paranoid is {})",
                topology::input::excerpt(paranoid.trim())
            )
        }
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::EINVAL) => {
            "perf: this CPU shows no counters of cache misses (virtual machines often show none)".to_owned()
        }
        Some(libc::ENOSYS) => "perf: this kernel has no counters (perf_event_open)".to_owned(),
        Some(libc::EMFILE | libc::ENFILE) => "perf: too few files may be open".to_owned(),
        _ => format!("perf: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_for_a_part_of_the_time_is_scaled_up() {
        let count = |enabled_ns, running_ns, misses| GroupCount { enabled_ns, running_ns, counts: [misses, 0, 0, 0] };
        let before = count(100, 100, 7);
        // 10 ms on a CPU, 5 ms of them counted: 1000 misses are 2000.
        assert_eq!(scaled(&before, &count(10_000_100, 5_000_100, 1007)), Some([2000.0, 0.0, 0.0]));
        assert_eq!(scaled(&before, &before), Some([0.0; 3])); // it did not run
        assert_eq!(scaled(&before, &count(10_000_100, 100, 7)), None); // it ran, and was not counted
        assert_eq!(scaled(&before, &count(10_000_100, 10_000_100, 6)), None); // backwards
        assert_eq!(scaled(&count(9, 9, 9), &count(1, 1, 9)), None);
    }

    #[test]
    fn counters_of_two_kinds_of_cores_and_of_a_pmu_that_guests_have_are_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let there = |file: &str, text: &str| {
            let path = root.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert_eq!(may_not(&root), None);
        // One kind of core has one device, whatever it is called.
        there("sys/bus/event_source/devices/cpu/type", "4\n");
        there("sys/bus/event_source/devices/cpu_core/type", "4\n");
        assert_eq!(may_not(&root), None);
        there("sys/bus/event_source/devices/cpu_atom/type", "10\n");
        assert!(may_not(&root).is_some_and(|why| why.contains("two kinds of cores")));
        there("sys/module/kvm_intel/parameters/enable_mediated_pmu", "N\n");
        assert!(may_not(&root).is_some_and(|why| why.contains("two kinds of cores")));
        there("sys/module/kvm_intel/parameters/enable_mediated_pmu", "Y\n");
        assert!(may_not(&root).is_some_and(|why| why.contains("kvm_intel.enable_mediated_pmu")));
    }

    #[test]
    fn each_refusal_of_the_kernel_says_what_would_help() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        std::fs::create_dir_all(root.join("proc/sys/kernel")).unwrap();
        std::fs::write(root.join("proc/sys/kernel/perf_event_paranoid"), "4\n").unwrap();
        for (error, words) in [
            (libc::EACCES, "needs CAP_PERFMON, to count what threads of others do (kernel.perf_event_paranoid is 4)"),
            (libc::EPERM, "CAP_PERFMON"),
            (libc::ENOENT, "shows no counters of cache misses"),
            (libc::EOPNOTSUPP, "shows no counters of cache misses"),
            (libc::ENOSYS, "perf_event_open"),
            (libc::EMFILE, "too few files may be open"),
            (libc::ENFILE, "too few files may be open"),
            (libc::EBUSY, "os error 16"),
        ] {
            let said = refusal(&root, &io::Error::from_raw_os_error(error));
            assert!(said.starts_with("perf: ") && said.contains(words), "{error}: {said}");
        }
    }

    #[test]
    fn a_client_whose_threads_cannot_all_be_counted_has_no_counters() {
        let mut perf = match Perf::find(&Root::default(), true) {
            Ok(perf) => perf,
            Err(why) => {
                return eprintln!("SKIPPED a_client_whose_threads_cannot_all_be_counted_has_no_counters: {why}");
            }
        };
        let (key, spare) = ((7, scheduler::ClientId(0)), Cell::new(5));
        let own = thread_id();
        // Two threads need six descriptors: the five are left to clients that fit.
        let full = perf.rate(key, &[own, own + 1], None, &spare, false).unwrap_err();
        assert_eq!((full.raw_os_error(), perf.open_files(), spare.get()), (Some(libc::EMFILE), 0, 5));
        // The second event is one that no kernel has: the first, which opened, is closed again.
        spare.set(100);
        perf.set.events[1] = event(1, 1 << 40);
        assert!(perf.rate(key, &[own], None, &spare, false).is_err());
        assert_eq!((perf.open_files(), spare.get()), (0, 100));
        perf.set.events = STAND_INS;
        assert_eq!(perf.rate(key, &[own], None, &spare, false).unwrap(), None);
        assert_eq!((perf.open_files(), spare.get()), (3, 97));
    }

    #[test]
    fn what_events_mean_depends_on_the_cpu() {
        let sets =
            |vendor: &str, family: u32| EventSet::of_cpu(&format!("vendor_id\t: {vendor}\ncpu family\t: {family}\n"));
        let intel = sets("GenuineIntel", 6);
        // 1000 misses in 2 s: 32,000 bytes a second; 3 of 4 loads are from other nodes.
        let split = Rate::Split(Traffic { local: 8000.0, remote: 24_000.0 });
        assert_eq!(intel[0].rate([1000.0, 25.0, 75.0], 2.0), Some(split));
        assert_eq!(intel[0].rate([1000.0, 0.0, 0.0], 2.0), Some(Rate::Unsplit(32_000.0)));
        assert_eq!(intel[1].rate([1000.0, 9.0, 9.0], 2.0), Some(Rate::Unsplit(32_000.0)));
        let amd = sets("AuthenticAMD", 0x19);
        assert_eq!(amd[0].rate([250.0, 750.0, 0.0], 2.0), Some(split));
        assert_eq!((sets("AuthenticAMD", 0x17).len(), sets("HygonGenuine", 24).len()), (0, 0));
        assert_eq!(EventSet::of_cpu("processor : 0\nFeatures : fp asimd\n"), []);
    }

    #[test]
    fn threads_come_and_go_and_descriptors_have_an_end() {
        let mut perf = match Perf::find(&Root::default(), true) {
            Ok(perf) => perf,
            Err(why) => return eprintln!("SKIPPED threads_come_and_go_and_descriptors_have_an_end: {why}"),
        };
        let key = (7, scheduler::ClientId(0));
        let (stop, wait) = std::sync::mpsc::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        let other = std::thread::spawn(move || {
            tell.send(thread_id()).unwrap();
            let _ = wait.recv();
        });
        let (own, other_id) = (thread_id(), told.recv().unwrap());
        let spare = Cell::new(7);
        assert_eq!(perf.rate(key, &[own, other_id], None, &spare, false).unwrap(), None);
        assert_eq!((perf.open_files(), spare.get()), (6, 1));
        // A third would need three more.
        let full = perf.rate(key, &[own, other_id, 1], Some(1.0), &spare, false).unwrap_err();
        assert!(refusal(&Root::default(), &full).contains("too few files"), "{full}");
        // The others stay counted; one that ended says its last.
        spare.set(100);
        perf.rate(key, &[own, other_id], Some(1.0), &spare, false).unwrap();
        drop(stop);
        other.join().unwrap();
        perf.rate(key, &[own, other_id], Some(1.0), &spare, false).unwrap();
        perf.rate(key, &[own], Some(1.0), &spare, false).unwrap();
        assert_eq!(perf.open_files(), 3);
        assert_eq!(perf.rate((8, key.1), &[other_id], Some(1.0), &spare, false).unwrap(), None);
        // A stranger's VM leaves many.
        assert!(perf.rate((9, key.1), &[own], None, &spare, true).is_err());
        perf.keep(|_| false);
        assert_eq!(perf.open_files(), 0);
    }
}

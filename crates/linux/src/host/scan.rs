//! Which processes are VMs: all of them are looked at once, and later only those that are new and a
//! share of the others.

use super::Depth;
use crate::error::LinuxError;
use crate::root::{Root, numbered_entries};
use crate::vm::{arguments, kvm};
use ::vm::qemu::{has_qemus_options, is_qemu};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::time::{Duration, Instant};

/// Scans that a process is looked at again after its first: a shell that becomes QEMU does so at
/// once.
const YOUNG: u8 = 3;
/// Later, every so many scans: a process may still become another program.
const EVERY: u32 = 16;
/// Processes of which one scan looks through the descriptors: each is a few dozen system calls.
const LOOKED_THROUGH: usize = 16;
/// Mark of a process without any program, seen so from its youth on: a thread of the kernel. It
/// never becomes anything.
const KERNEL: u8 = u8::MAX;

/// Remembers which processes are no VMs.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// Scans that each process, none of them a VM, was seen in.
    others: BTreeMap<u32, u8>,
    /// VMs of programs that are not QEMU, by number of the process.
    foreign: BTreeMap<u32, String>,
    turn: u32,
}

impl Scan {
    /// The numbers of the processes that are VMs now. `known` are those that are known to be VMs
    /// and still run.
    ///
    /// # Errors
    /// The list of processes cannot be read.
    pub(super) fn run(
        &mut self,
        root: &Root,
        known: &BTreeSet<u32>,
        depth: Depth,
    ) -> Result<BTreeSet<u32>, LinuxError> {
        self.turn = self.turn.wrapping_add(1);
        let mut looked_through = 0;
        let mut vms = BTreeSet::new();
        let mut others = BTreeMap::new();
        for pid in numbered_entries(&root.join("proc"))? {
            if known.contains(&pid) {
                vms.insert(pid);
                continue;
            }
            let seen = self.others.get(&pid).copied().unwrap_or(0);
            let due = seen < YOUNG || (seen != KERNEL && (self.turn + pid).is_multiple_of(EVERY));
            let words = if due || depth == Depth::Whole { first_words(root, pid) } else { Vec::new() };
            let program = words.first();
            let is_some_program = program.is_some_and(|program| !program.is_empty());
            // A program of another name is a VM by its file or by its descriptors. With QEMU's
            // options they are looked through at once, else when it had time to open them.
            let like_qemu = has_qemus_options(&words);
            let wanted = is_some_program && (depth == Depth::Whole || like_qemu || seen + 1 == YOUNG);
            let may = depth == Depth::Whole || like_qemu || looked_through < LOOKED_THROUGH;
            if program.is_some_and(|program| is_qemu(program))
                || (like_qemu && kvm::runs_qemu(root, pid))
                || (wanted && may && self.by_descriptors(root, pid, &mut looked_through))
            {
                vms.insert(pid);
            } else {
                // More than young is not counted; who could not be looked through waits.
                let later = if seen < YOUNG && (may || !wanted) { seen + 1 } else { seen };
                let is_kernels = seen == YOUNG - 1 && program.is_some_and(|program| program.is_empty());
                others.insert(pid, if is_kernels { KERNEL } else { later });
            }
        }
        self.foreign.retain(|pid, _| others.contains_key(pid));
        self.others = others;
        Ok(vms)
    }

    /// Whether a process that is not called QEMU is one. A VM of another program is remembered.
    fn by_descriptors(&mut self, root: &Root, pid: u32, looked_through: &mut usize) -> bool {
        *looked_through += 1;
        if !kvm::has_vm(root, pid) {
            return false;
        }
        let words = arguments(root, pid).unwrap_or_default();
        let is_qemus = has_qemus_options(&words);
        if let Some(program) = words.into_iter().next().filter(|_| !is_qemus) {
            self.foreign.insert(pid, program);
        }
        is_qemus
    }

    /// VMs that are not watched, as sentences.
    pub(super) fn foreign(&self) -> impl Iterator<Item = String> {
        self.foreign.iter().map(|(pid, program)| {
            format!(
                "process {pid} ({program}) runs a VM with KVM, and its command line is not QEMU's: it is not watched"
            )
        })
    }
}

/// The time of one look for VMs that it sees for the first time: to examine one takes as long as a
/// later look at ten.
#[derive(Debug)]
pub(super) struct Newcomers {
    within: Option<Duration>,
    began: Instant,
    examined: usize,
    waiting: usize,
}

impl Newcomers {
    /// Begins now. `None`: the time is not limited.
    pub(super) fn new(within: Option<Duration>) -> Self {
        Self { within, began: Instant::now(), examined: 0, waiting: 0 }
    }

    /// Whether the next one is examined in this look: the first in any case.
    pub(super) fn next_may(&mut self) -> bool {
        let may = self.examined == 0 || self.within.is_none_or(|within| self.began.elapsed() < within);
        *(if may { &mut self.examined } else { &mut self.waiting }) += 1;
        may
    }

    /// How many wait for a later look.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }
}

/// The first words of a command line: no more than the first bytes of it are read. Empty where
/// there is none.
fn first_words(root: &Root, pid: u32) -> Vec<String> {
    let mut start = [0u8; 512];
    let read = std::fs::File::open(root.process(pid, "cmdline")).and_then(|mut file| file.read(&mut start));
    let Ok(length) = read else { return Vec::new() };
    start[..length].split(|&byte| byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn newcomers_wait_where_time_is_up_and_the_first_never_does() {
        let mut none = Newcomers::new(Some(Duration::ZERO));
        assert_eq!(([none.next_may(), none.next_may(), none.next_may()], none.waiting()), ([true, false, false], 2));
        let mut all = Newcomers::new(None);
        assert_eq!(((0..1000).filter(|_| all.next_may()).count(), all.waiting()), (1000, 0));
    }

    #[test]
    fn vms_are_found_at_once_and_a_process_may_become_one() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let is = |pid: u32, program: &str| {
            fs::create_dir_all(root.process(pid, "")).unwrap();
            fs::write(root.process(pid, "cmdline"), format!("{program}\0-m\0512\0")).unwrap();
        };
        is(10, "/usr/bin/qemu-system-x86_64");
        is(11, "/usr/bin/kvm");
        is(12, "sh");
        is(13, "/usr/libexec/qemu-kvm");
        is(14, "qemu-img");
        let mut scan = Scan::default();
        let known = scan.run(&root, &BTreeSet::new(), Depth::Usual).unwrap();
        assert_eq!(known, BTreeSet::from([10, 11, 13]));
        is(12, "qemu-system-aarch64");
        assert!(scan.run(&root, &known, Depth::Usual).unwrap().contains(&12));
        // An old process is looked at again too, within EVERY scans.
        (0..YOUNG).for_each(|_| drop(scan.run(&root, &known, Depth::Usual)));
        is(14, "qemu-system-x86_64");
        let found = (0..EVERY).any(|_| scan.run(&root, &known, Depth::Usual).unwrap().contains(&14));
        assert!(found);
        // A link to QEMU is QEMU at once, also where it emulates and so has no descriptors of KVM.
        is(16, "/opt/web");
        fs::write(root.process(16, "cmdline"), "/opt/web\0-accel\0tcg\0").unwrap();
        std::os::unix::fs::symlink("/usr/bin/qemu-system-x86_64", root.process(16, "exe")).unwrap();
        assert!(scan.run(&root, &known, Depth::Usual).unwrap().contains(&16));
        // Threads of the kernel have no program.
        fs::create_dir_all(root.process(15, "")).unwrap();
        fs::write(root.process(15, "cmdline"), "").unwrap();
        (0..=YOUNG).for_each(|_| drop(scan.run(&root, &known, Depth::Usual)));
        assert_eq!(scan.others[&15], KERNEL);
        fs::remove_dir_all(root.process(10, "")).unwrap();
        assert!(!scan.run(&root, &BTreeSet::new(), Depth::Usual).unwrap().contains(&10));
    }
}

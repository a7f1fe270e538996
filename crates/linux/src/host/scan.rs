//! Which processes may be VMs: all of them are looked at once, and later only those that are new
//! and a share of the others.

use super::Depth;
use super::find::Look;
use super::owners::Owners;
use super::share::{Shares, Work};
use crate::error::LinuxError;
use crate::root::Root;
use crate::vm::{FirstWords, arguments, kvm};
use ::vm::qemu::{has_qemus_options, is_qemu};
use std::collections::{BTreeMap, BTreeSet};

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
/// VMs of other programs that are named one by one.
const NAMED: usize = 16;

/// Whether it is a process's turn to be looked at again.
pub(super) fn is_due(pid: u32, turn: u32) -> bool {
    turn.wrapping_add(pid).is_multiple_of(EVERY)
}

/// A process that is none.
#[derive(Clone, Copy, Debug, Default)]
struct Other {
    inode: u64,
    /// Scans that it was seen in.
    seen: u8,
}

/// Remembers which processes are no VMs.
#[derive(Debug, Default)]
pub(super) struct Scan {
    others: BTreeMap<u32, Other>,
    /// VMs of programs that are not QEMU, by number of the process.
    foreign: BTreeMap<u32, String>,
    turn: u32,
}

impl Scan {
    /// The numbers of the processes that look like QEMU now, without those that are `known`;
    /// `listed`: all, with their inodes.
    ///
    /// # Errors
    /// Descriptors or memory do not suffice to look at them.
    pub(super) fn run(
        &mut self,
        look: &Look<'_>,
        listed: &[(u32, u64)],
        known: impl Fn(u32) -> bool,
        owners: &Owners,
        shares: &mut Shares,
    ) -> Result<BTreeSet<u32>, LinuxError> {
        let whole = look.depth == Depth::Whole;
        self.turn = self.turn.wrapping_add(1);
        let mut looked_through = 0;
        let mut candidates = BTreeSet::new();
        let mut others = BTreeMap::new();
        for &(pid, inode) in listed.iter().filter(|(pid, _)| !known(*pid)) {
            let before = self.others.get(&pid).filter(|other| other.inode == inode);
            let seen = before.map_or(0, |other| other.seen);
            let due = seen < YOUNG || (seen != KERNEL && is_due(pid, self.turn));
            let first = if due || whole { Some(FirstWords::read(look.root, pid)?) } else { None };
            let words = first.as_ref().map(FirstWords::words).unwrap_or_default();
            let program = words.first();
            // A program of another name is a VM by its descriptors: they are looked through when it
            // had time to open them.
            let is_some_program = program.is_some_and(|program| !program.is_empty());
            let wanted = is_some_program && (whole || seen + 1 == YOUNG);
            let may = whole || looked_through < LOOKED_THROUGH;
            if program.is_some_and(|program| is_qemu(program))
                || has_qemus_options(&words)
                || (wanted && may && self.by_descriptors(look.root, pid, owners, shares, &mut looked_through)?)
            {
                candidates.insert(pid);
            } else {
                // More than young is not counted; who could not be looked through waits.
                let later = if seen < YOUNG && (may || !wanted) { seen + 1 } else { seen };
                let is_kernels = seen == YOUNG - 1 && program.is_some_and(|program| program.is_empty());
                others.insert(pid, Other { inode, seen: if is_kernels { KERNEL } else { later } });
            }
        }
        self.foreign.retain(|pid, _| others.contains_key(pid));
        self.others = others;
        Ok(candidates)
    }

    /// Whether a process that is not called QEMU is one, by its file and its descriptors. A VM of
    /// another program is remembered.
    fn by_descriptors(
        &mut self,
        root: &Root,
        pid: u32,
        owners: &Owners,
        shares: &mut Shares,
        looked_through: &mut usize,
    ) -> Result<bool, LinuxError> {
        *looked_through += 1;
        if kvm::runs_qemus_file(root, pid) {
            return Ok(true);
        }
        let share = owners.of_process(root, pid).and_then(|(_, share)| share);
        if !shares.suffices(share, Work::New) || !shares.charge(share, || kvm::has_vm(root, pid))? {
            return Ok(false);
        }
        let words = arguments(root, pid).unwrap_or_default();
        let is_qemus = has_qemus_options(&words);
        if let Some(program) = words.into_iter().next().filter(|_| !is_qemus) {
            self.foreign.insert(pid, program);
        }
        Ok(is_qemus)
    }

    /// VMs that are not watched, as sentences.
    pub(super) fn foreign(&self) -> Vec<String> {
        let one = |(pid, program): (&u32, &String)| {
            format!(
                "process {pid} ({program}) runs a VM with KVM, and its command line is not QEMU's: it is not watched"
            )
        };
        let more = self.foreign.len().saturating_sub(NAMED);
        let more = (more > 0).then(|| format!("{more} more processes run VMs with KVM, and are not QEMU"));
        self.foreign.iter().take(NAMED).map(one).chain(more).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::numbered_inodes;
    use std::fs;

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
        let owners = Owners::read(&root, 0);
        let mut run = |known: &BTreeSet<u32>| {
            let look = Look { root: &root, depth: Depth::Usual, within: None, now_ns: 0 };
            let listed = numbered_inodes(&root.join("proc")).unwrap();
            let found = scan.run(&look, &listed, |pid| known.contains(&pid), &owners, &mut Shares::default()).unwrap();
            (found, scan.others.clone())
        };
        let known = run(&BTreeSet::new()).0;
        assert_eq!(known, BTreeSet::from([10, 11, 13]));
        is(12, "qemu-system-aarch64");
        assert_eq!(run(&known).0, BTreeSet::from([12]));
        // An old process is looked at again too, within EVERY scans.
        (0..YOUNG).for_each(|_| drop(run(&known)));
        is(14, "qemu-system-x86_64");
        assert!((0..EVERY).any(|_| run(&known).0.contains(&14)));
        // What has QEMU's options may be a link to it.
        is(16, "/opt/web");
        fs::write(root.process(16, "cmdline"), "/opt/web\0-accel\0tcg\0").unwrap();
        assert!(run(&known).0.contains(&16));
        // Threads of the kernel have no program.
        fs::create_dir_all(root.process(15, "")).unwrap();
        fs::write(root.process(15, "cmdline"), "").unwrap();
        (0..YOUNG).for_each(|_| drop(run(&known)));
        assert_eq!(run(&known).1[&15].seen, KERNEL);
        // Another process with its number is new.
        fs::rename(root.process(15, ""), root.process(99, "")).unwrap();
        is(15, "qemu-system-x86_64");
        assert!(run(&known).0.contains(&15));
        fs::remove_dir_all(root.process(10, "")).unwrap();
        assert!(!run(&BTreeSet::new()).0.contains(&10));
    }
}

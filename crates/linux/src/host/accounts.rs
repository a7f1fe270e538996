//! The time accounts of a VM's vCPU threads. Their files stay open between observations: to open
//! one takes longer than to read it.

use crate::counters::ThreadTime;
use crate::root::Root;
use std::cell::Cell;
use std::fs::File;

/// One thread.
#[derive(Debug)]
struct Account {
    thread_id: u32,
    file: Option<File>,
    before: Option<ThreadTime>,
    now: Option<ThreadTime>,
}

/// All vCPU threads of a VM.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    threads: Vec<Account>,
    before_ns: u64,
    now_ns: u64,
}

impl Accounts {
    /// Reads the accounts of these threads, and forgets all others. `spare` is how many more files
    /// may stay open.
    pub(super) fn read<'a>(
        &mut self,
        root: &Root,
        pid: u32,
        threads: impl Iterator<Item = &'a u32> + Clone,
        now_ns: u64,
        spare: &Cell<usize>,
    ) {
        if !self.threads.iter().map(|account| &account.thread_id).eq(threads.clone()) {
            self.follow(threads);
        }
        (self.before_ns, self.now_ns) = (self.now_ns, now_ns);
        self.threads.iter_mut().for_each(|account| account.read(root, pid, spare));
    }

    /// What was read so far is no beginning of a rate.
    pub(super) fn forget_rates(&mut self) {
        self.now_ns = 0;
    }

    /// Keeps what is known of threads that stay.
    fn follow<'a>(&mut self, threads: impl Iterator<Item = &'a u32>) {
        let mut known = std::mem::take(&mut self.threads);
        let account = |&thread_id: &u32| match known.iter().position(|account| account.thread_id == thread_id) {
            Some(at) => known.swap_remove(at),
            None => Account { thread_id, file: None, before: None, now: None },
        };
        self.threads = threads.map(account).collect();
    }

    /// Threads whose account could be read.
    pub(super) fn readable(&self) -> usize {
        self.threads.iter().filter(|account| account.now.is_some()).count()
    }

    /// Files that are open.
    pub(super) fn open_files(&self) -> usize {
        self.threads.iter().filter(|account| account.file.is_some()).count()
    }

    /// CPUs used and waited for by some threads between the last two observations; `None` unless
    /// each was read in both.
    pub(super) fn used(&self, threads: &[u32]) -> (Option<f64>, Option<f64>) {
        let Some(elapsed_ns) = self.elapsed_ns().filter(|_| !threads.is_empty()) else { return (None, None) };
        let (mut ran, mut waited) = (0, 0);
        for thread in threads {
            let account = self.threads.iter().find(|account| account.thread_id == *thread);
            let Some((before, now)) = account.and_then(|account| account.before.zip(account.now)) else {
                return (None, None);
            };
            ran += now.ran_ns.saturating_sub(before.ran_ns);
            waited += now.waited_ns.saturating_sub(before.waited_ns);
        }
        (Some(ran as f64 / elapsed_ns), Some(waited as f64 / elapsed_ns))
    }

    /// The same of a client that has no vCPUs, and so no threads.
    pub(super) fn used_by_none(&self) -> (Option<f64>, Option<f64>) {
        let none = self.elapsed_ns().map(|_| 0.0);
        (none, none)
    }

    /// Time between the last two readings.
    fn elapsed_ns(&self) -> Option<f64> {
        let elapsed = self.now_ns.saturating_sub(self.before_ns);
        (self.before_ns > 0 && elapsed > 0).then_some(elapsed as f64)
    }
}

impl Account {
    fn read(&mut self, root: &Root, pid: u32, spare: &Cell<usize>) {
        self.before = self.now.take();
        if self.file.is_none() {
            let Ok(file) = File::open(root.thread(pid, self.thread_id, "schedstat")) else { return };
            self.now = ThreadTime::read_again(&file).ok().flatten();
            // Files of a captured tree are replaced, not continued.
            if root.is_live() && self.now.is_some() && spare.get() > 0 {
                spare.set(spare.get() - 1);
                self.file = Some(file);
            }
        } else if let Some(file) = &self.file {
            self.now = ThreadTime::read_again(file).ok().flatten();
            if self.now.is_none() {
                self.file = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const SECOND: u64 = 1_000_000_000;

    fn tree(threads: &[(u32, &str)]) -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        threads.iter().for_each(|(thread, text)| write(&root, *thread, text));
        (directory, root)
    }

    fn write(root: &Root, thread: u32, text: &str) {
        fs::create_dir_all(root.thread(7, thread, "")).unwrap();
        fs::write(root.thread(7, thread, "schedstat"), text).unwrap();
    }

    #[test]
    fn use_is_what_was_added_in_the_time_between() {
        let (_directory, root) = tree(&[(8, "100 10 1\n"), (9, "0 0 1\n")]);
        let spare = Cell::new(10);
        let mut accounts = Accounts::default();
        accounts.read(&root, 7, [8, 9].iter(), SECOND, &spare);
        assert_eq!(accounts.used(&[8, 9]), (None, None));
        write(&root, 8, "1000000100 500000010 1\n");
        write(&root, 9, "1000000000 0 1\n");
        accounts.read(&root, 7, [8, 9].iter(), 3 * SECOND, &spare);
        // Two seconds: thread 8 ran 1 s and waited 0.5 s, thread 9 ran 1 s.
        assert_eq!(accounts.used(&[8, 9]), (Some(1.0), Some(0.25)));
        assert_eq!(accounts.used(&[8]), (Some(0.5), Some(0.25)));
        accounts.forget_rates();
        accounts.read(&root, 7, [8, 9].iter(), 4 * SECOND, &spare);
        assert_eq!(accounts.used(&[8]), (None, None));
        accounts.read(&root, 7, [8, 9].iter(), 5 * SECOND, &spare);
        assert_eq!(accounts.used(&[8]), (Some(0.0), Some(0.0)));
    }

    #[test]
    fn a_thread_that_comes_or_goes_leaves_the_others_known() {
        let (_directory, root) = tree(&[(8, "0 0 1\n"), (9, "0 0 1\n")]);
        let spare = Cell::new(10);
        let mut accounts = Accounts::default();
        accounts.read(&root, 7, [8].iter(), SECOND, &spare);
        accounts.read(&root, 7, [9, 8].iter(), 2 * SECOND, &spare);
        assert_eq!((accounts.used(&[8]), accounts.used(&[8, 9])), ((Some(0.0), Some(0.0)), (None, None)));
        fs::remove_dir_all(root.thread(7, 9, "")).unwrap();
        accounts.read(&root, 7, [9, 8].iter(), 3 * SECOND, &spare);
        assert_eq!((accounts.readable(), accounts.used(&[9])), (1, (None, None)));
    }

    #[test]
    fn files_stay_open_only_where_there_are_some_to_spare() {
        let own = std::process::id();
        let root = Root::default();
        let spare = Cell::new(1);
        let mut accounts = Accounts::default();
        let threads = [own, crate::sys::thread_id()];
        accounts.read(&root, own, threads.iter(), SECOND, &spare);
        accounts.read(&root, own, threads.iter(), 2 * SECOND, &spare);
        assert_eq!((accounts.open_files(), spare.get()), (1, 0));
    }
}

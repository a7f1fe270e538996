//! Which CPUs a thread may run on.

use super::checked;
use super::mask::Mask;
use std::io;
use topology::CpuSet;

/// Words of a query: 8192 CPUs, the most that a kernel is built for. A query with fewer bits than
/// the kernel has fails.
const QUERY_WORDS: usize = 128;

/// The CPUs that a thread may run on (sched_getaffinity(2)). Thread 0 is the caller.
pub fn affinity(thread_id: u32) -> io::Result<CpuSet> {
    let mut words = [0; QUERY_WORDS];
    query(thread_id, &mut words).map(Mask::set_of)
}

/// The words that the kernel filled.
fn query(thread_id: u32, words: &mut [u64; QUERY_WORDS]) -> io::Result<&[u64]> {
    let (bytes, pointer) = (size_of_val(words), words.as_mut_ptr());
    // SAFETY: `pointer` is valid for writes of `bytes` bytes, and the kernel writes at most that
    // many.
    let filled = unsafe { libc::syscall(libc::SYS_sched_getaffinity, thread_id as libc::pid_t, bytes, pointer) };
    let filled = checked(filled)? as usize;
    Ok(&words[..filled / size_of::<u64>()])
}

/// The CPUs that any of some threads may run on, read again and again: while the kernel says what
/// it said before, no set is built.
#[derive(Debug, Default)]
pub struct AffinityOfThreads {
    /// What the kernel said, thread after thread.
    words: Vec<u64>,
    scratch: Vec<u64>,
    cpus: CpuSet,
    /// Words of each thread.
    length: usize,
}

impl AffinityOfThreads {
    /// What each thread might use when they were last [`read`](Self::read), those left out that had
    /// ended.
    pub fn by_thread(&self) -> impl Iterator<Item = CpuSet> + '_ {
        self.words.chunks(self.length.max(1)).map(Mask::set_of)
    }

    /// Asks for each thread; those that ended are left out. The second is whether any thread's CPUs
    /// are others than the last time.
    pub fn read(&mut self, threads: &[u32]) -> (&CpuSet, bool) {
        self.scratch.clear();
        let mut length = 0;
        for &thread in threads {
            let mut words = [0; QUERY_WORDS];
            if let Ok(filled) = query(thread, &mut words) {
                self.scratch.extend_from_slice(filled);
                length = filled.len();
            }
        }
        let changed = self.scratch != self.words;
        if changed {
            std::mem::swap(&mut self.scratch, &mut self.words);
            self.length = length;
            let mut all = [0; QUERY_WORDS];
            let by_thread = self.words.chunks(length.max(1));
            by_thread.for_each(|words| all.iter_mut().zip(words).for_each(|(all, word)| *all |= word));
            self.cpus = Mask::set_of(&all);
        }
        (&self.cpus, changed)
    }
}

/// Lets a thread run on `cpus` only (sched_setaffinity(2)). Thread 0 is the caller. The kernel
/// takes away CPUs that the thread's cpuset forbids, silently: read it back with [`affinity`].
pub fn set_affinity(thread_id: u32, cpus: &CpuSet) -> io::Result<()> {
    let mask = Mask::of(cpus);
    // SAFETY: the pointer is valid for reads of `mask.bytes()` bytes, and the kernel only reads
    // them.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_setaffinity, thread_id as libc::pid_t, mask.bytes(), mask.as_ptr()) };
    checked(result).map(drop)
}

/// The kernel's id of the calling thread.
pub fn thread_id() -> u32 {
    // SAFETY: gettid takes no argument and cannot fail.
    unsafe { libc::gettid() as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_live_thread_is_bound_from_outside_and_read_back() {
        let (tell, told) = mpsc::channel();
        let (release, wait) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(thread_id()).unwrap();
            let _ = wait.recv();
            // SAFETY: sched_getcpu takes no argument and touches no memory of ours.
            topology::CpuId(unsafe { libc::sched_getcpu() } as u32)
        });
        let tid = told.recv().unwrap();
        let one: CpuSet = affinity(tid).unwrap().first().into_iter().collect();
        set_affinity(tid, &one).unwrap();
        assert_eq!(affinity(tid).unwrap(), one);
        drop(release);
        assert!(one.contains(thread.join().unwrap()));
    }

    #[test]
    fn what_threads_may_use_together_is_kept_until_it_changes() {
        let mut together = AffinityOfThreads::default();
        let own = affinity(0).unwrap();
        let me = thread_id();
        assert_eq!(together.read(&[me, me]), (&own, true));
        assert_eq!(together.by_thread().collect::<Vec<_>>(), [own.clone(), own.clone()]);
        assert_eq!(together.read(&[me, me]), (&own, false));
        assert_eq!(together.read(&[u32::MAX >> 1]), (&CpuSet::new(), true)); // it ended
    }

    #[test]
    fn a_thread_that_is_not_there_is_an_error() {
        let error = affinity(u32::MAX >> 1).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
        assert_eq!(set_affinity(0, &CpuSet::new()).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
}

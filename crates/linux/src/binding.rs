//! Letting threads of a process run on certain CPUs: all of them, or none.

use crate::root::Root;
use crate::sys;
use std::io;
use topology::CpuSet;

/// What binding did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// Threads whose affinity is now a part of what was asked, with what the kernel left: the
    /// cpuset of their cgroup forbids the rest.
    pub narrowed: Option<CpuSet>,
}

/// Lets each of `threads` of process `pid` run on `cpus` only. If one fails, those before it get
/// back what they had.
///
/// # Errors
/// The kernel's error for the first thread that failed; `ESRCH` also for a thread that is none of
/// the process (any more).
pub fn bind_threads(pid: u32, threads: &[u32], cpus: &CpuSet) -> io::Result<Bound> {
    bind_all(threads, cpus, &Calls { pid })
}

/// Lets a thread of whichever process run on `cpus` only.
///
/// # Errors
/// The kernel's.
pub fn bind_any(thread: u32, cpus: &CpuSet) -> io::Result<()> {
    sys::set_affinity(thread, cpus)
}

/// What each of `threads` of process `pid` may run on now.
///
/// # Errors
/// As [`bind_threads`].
pub fn affinities(pid: u32, threads: &[u32]) -> io::Result<Vec<CpuSet>> {
    let calls = Calls { pid };
    threads.iter().map(|&thread| calls.get(thread)).collect()
}

/// What somebody else's binding to `cpus` did; `None` where a thread may run elsewhere, so that it
/// is not bound.
pub fn bound_by_other(pid: u32, threads: &[u32], cpus: &CpuSet) -> Option<Bound> {
    bound_already(&affinities(pid, threads).ok()?, cpus)
}

fn bound_already(now: &[CpuSet], cpus: &CpuSet) -> Option<Bound> {
    let inside = now.iter().all(|now| !now.is_empty() && now.is_subset(cpus));
    inside.then(|| Bound { narrowed: now.iter().find(|now| *now != cpus).cloned() })
}

/// Gives each thread back what it had, as far as that is possible.
pub fn give_back(pid: u32, threads: &[u32], before: &[CpuSet]) {
    let calls = Calls { pid };
    for (&thread, cpus) in threads.iter().zip(before) {
        if calls.get(thread).is_ok_and(|now| now != *cpus) {
            // A thread that ended meanwhile has nothing to be given back.
            let _ = calls.set(thread, cpus);
        }
    }
}

/// The calls, so that a failure on the way can be tested.
trait Affinities {
    fn get(&self, thread: u32) -> io::Result<CpuSet>;
    fn set(&self, thread: u32, cpus: &CpuSet) -> io::Result<()>;
}

struct Calls {
    pid: u32,
}

impl Affinities for Calls {
    fn get(&self, thread: u32) -> io::Result<CpuSet> {
        // The number of a thread that ended may already be another process's.
        if !Root::default().thread(self.pid, thread, "").exists() {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        sys::affinity(thread)
    }

    fn set(&self, thread: u32, cpus: &CpuSet) -> io::Result<()> {
        sys::set_affinity(thread, cpus)
    }
}

fn bind_all(threads: &[u32], cpus: &CpuSet, calls: &impl Affinities) -> io::Result<Bound> {
    let before = threads.iter().map(|&thread| calls.get(thread)).collect::<io::Result<Vec<CpuSet>>>()?;
    let mut bound = Bound::default();
    for (done, &thread) in threads.iter().enumerate() {
        if before[done] == *cpus {
            continue;
        }
        match calls.set(thread, cpus).and_then(|()| calls.get(thread)) {
            Ok(now) if now == *cpus => {}
            Ok(now) => bound.narrowed = Some(now),
            Err(error) => {
                for (&thread, old) in threads.iter().zip(&before).take(done + 1) {
                    // A thread that ended has nothing to be given back.
                    let _ = calls.set(thread, old);
                }
                return Err(error);
            }
        }
    }
    Ok(bound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    /// Threads 1 to 3; thread 3 cannot be set.
    struct Scripted(RefCell<BTreeMap<u32, CpuSet>>);

    impl Affinities for Scripted {
        fn get(&self, thread: u32) -> io::Result<CpuSet> {
            self.0.borrow().get(&thread).cloned().ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))
        }

        fn set(&self, thread: u32, cpus: &CpuSet) -> io::Result<()> {
            if thread == 3 {
                return Err(io::Error::from_raw_os_error(libc::EPERM));
            }
            // The cgroup forbids CPU 7.
            let forbidden: CpuSet = "7".parse().unwrap();
            self.0.borrow_mut().insert(thread, cpus.difference(&forbidden));
            Ok(())
        }
    }

    fn scripted() -> Scripted {
        Scripted(RefCell::new((1..=3).map(|thread| (thread, "0-1".parse().unwrap())).collect()))
    }

    #[test]
    fn all_threads_or_none() {
        let world = scripted();
        let cpus = "2-3".parse().unwrap();
        let error = bind_all(&[1, 2, 3], &cpus, &world).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
        assert!(world.0.borrow().values().all(|cpus| cpus.to_string() == "0-1"), "{:?}", world.0);
        assert!(bind_all(&[1, 9], &cpus, &world).is_err()); // no thread 9: nothing is tried
        assert_eq!(world.get(1).unwrap().to_string(), "0-1");
        assert_eq!(bind_all(&[1, 2], &cpus, &world).unwrap(), Bound::default());
        assert_eq!(world.get(2).unwrap(), cpus);
    }

    #[test]
    fn what_a_cpuset_took_away_is_said() {
        let bound = bind_all(&[1], &"6-7".parse().unwrap(), &scripted()).unwrap();
        assert_eq!(bound.narrowed, Some("6".parse().unwrap()));
    }

    #[test]
    fn bound_is_who_may_run_nowhere_else() {
        let sets = |all: &[&str]| all.iter().map(|cpus| cpus.parse().unwrap()).collect::<Vec<CpuSet>>();
        let home = "4-5".parse().unwrap();
        assert_eq!(bound_already(&sets(&["4-5", "4-5"]), &home), Some(Bound::default()));
        assert_eq!(bound_already(&sets(&["4-5", "5"]), &home), Some(Bound { narrowed: Some("5".parse().unwrap()) }));
        assert_eq!(bound_already(&sets(&["4-5", "4-6"]), &home), None);
    }

    #[test]
    fn a_thread_of_another_process_is_never_touched() {
        let mut other = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        let all = sys::affinity(other.id()).unwrap();
        let error = bind_threads(std::process::id(), &[other.id()], &all).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
        other.kill().unwrap();
        other.wait().unwrap();
    }
}

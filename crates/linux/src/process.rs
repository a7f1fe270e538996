//! Processes and their threads, from `/proc` (proc(5)).

use crate::error::{LinuxError, read_text};
use crate::proc_text::{stat_field, status_text};
use crate::root::{Root, numbered_entries};
use crate::sys::clock_ticks_per_second;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use topology::Bytes;

/// A process that cannot be mistaken for a later one with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its number.
    pub pid: u32,
    /// When it started, in clock ticks since boot (field 22 of `/proc/PID/stat`).
    pub started_ticks: u64,
}

impl Identity {
    /// The process that has this number now.
    pub fn of(pid: u32) -> Result<Self, LinuxError> {
        Ok(Self { pid, started_ticks: crate::vm::started_ticks(&Root::default(), pid)? })
    }

    /// Whether it still runs: same number, same start, and not a zombie.
    pub fn is_alive(self) -> bool {
        Self::of(self.pid).is_ok_and(|now| now == self) && run_state(self.pid) != Some('Z')
    }

    /// Whether it is known to have ended. Of a process that may not be read (`hidepid`), or could
    /// not be for a moment, neither this nor [`is_alive`](Self::is_alive) is true.
    pub fn has_ended(self) -> bool {
        match Self::of(self.pid) {
            Ok(now) => now != self || run_state(self.pid) == Some('Z'),
            // The kernel says so also of a process that is hidden.
            Err(_) => crate::sys::send_signal(self.pid, 0).is_err_and(|why| why.raw_os_error() == Some(libc::ESRCH)),
        }
    }

    /// Seconds that it has been running.
    pub fn age_seconds(self) -> Result<f64, LinuxError> {
        let path = Path::new("/proc/uptime");
        let text = read_text(path)?;
        let uptime: f64 = text
            .split_whitespace()
            .next()
            .and_then(|seconds| seconds.parse().ok())
            .ok_or_else(|| LinuxError::format(path, "uptime in seconds"))?;
        Ok((uptime - self.started_ticks as f64 / clock_ticks_per_second() as f64).max(0.0))
    }
}

fn directory(pid: u32) -> PathBuf {
    Path::new("/proc").join(pid.to_string())
}

/// The kernel's letter for what a process does (proc(5)): `R`, `S`, `D`, `T` stopped by a signal,
/// `t` by a debugger, `Z` ended.
pub fn run_state(pid: u32) -> Option<char> {
    let text = read_text(&directory(pid).join("stat")).ok()?;
    stat_field(&text, 3)
}

/// A thread of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// The kernel's number of it.
    pub id: u32,
    /// Its name, at most 15 bytes.
    pub name: String,
}

/// Numbers of all processes that this one may see, rising.
pub fn all() -> Result<Vec<u32>, LinuxError> {
    numbered_entries(Path::new("/proc"))
}

/// Numbers of all processes that run and descend from `ancestor`, which is left out.
pub fn descendants(ancestor: u32) -> Result<Vec<u32>, LinuxError> {
    let parent = |pid: u32| {
        let stat = read_text(&directory(pid).join("stat")).ok()?;
        let runs = stat_field::<char>(&stat, 3)? != 'Z';
        Some((pid, stat_field::<u32>(&stat, 4)?, runs))
    };
    let processes: Vec<(u32, u32, bool)> = all()?.into_iter().filter_map(parent).collect();
    let (mut family, mut looked_at) = (vec![ancestor], 0);
    while let Some(&one) = family.get(looked_at) {
        family.extend(processes.iter().filter(|(_, parent, _)| *parent == one).map(|(pid, ..)| *pid));
        looked_at += 1;
    }
    let runs = |pid: &u32| processes.iter().any(|(of, _, runs)| of == pid && *runs);
    Ok(family.into_iter().skip(1).filter(runs).collect())
}

/// The numbers of all users that some process has: as its real, effective or saved one, or for
/// files.
pub fn users() -> Result<BTreeSet<u32>, LinuxError> {
    let of = |pid: u32| {
        let status = read_text(&directory(pid).join("status")).unwrap_or_default();
        let ids = status_text(&status, "Uid:").unwrap_or_default();
        ids.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<u32>>()
    };
    Ok(all()?.into_iter().flat_map(of).collect())
}

/// The threads of a process, by number. Threads that end meanwhile are left out.
pub fn threads(pid: u32) -> Result<Vec<Thread>, LinuxError> {
    let tasks = directory(pid).join("task");
    let name = |id: u32| {
        let text = read_text(&tasks.join(id.to_string()).join("comm")).ok()?;
        Some(Thread { id, name: topology::input::name(text.trim_end_matches('\n')) })
    };
    Ok(numbered_entries(&tasks)?.into_iter().filter_map(name).collect())
}

/// Resident memory of a process, in pages; `None` where it is gone.
pub fn resident_pages(pid: u32) -> Option<u64> {
    read_text(&directory(pid).join("statm")).ok()?.split_whitespace().nth(1)?.parse().ok()
}

/// Memory of a process that is resident; `None` where nobody may know.
pub fn resident(pid: u32) -> Option<Bytes> {
    let status = read_text(&directory(pid).join("status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(Bytes::from_kib(kib))
}

/// Program and arguments of a process; empty for a kernel thread or a zombie.
pub fn command_line(pid: u32) -> Result<Vec<String>, LinuxError> {
    crate::vm::arguments(&Root::default(), pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_process_is_alive_and_a_recycled_number_is_not_it() {
        let ours = Identity::of(std::process::id()).unwrap();
        assert!(ours.is_alive());
        assert!(ours.age_seconds().unwrap() < 3600.0);
        let earlier = Identity { started_ticks: ours.started_ticks - 1, ..ours };
        assert!(!earlier.is_alive() && earlier.has_ended() && !ours.has_ended());
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        let of_child = Identity::of(child.id()).unwrap();
        assert!(!of_child.has_ended());
        child.kill().unwrap();
        // Nobody has waited for it yet: it is a zombie.
        let ends = || {
            (0..2000).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(5));
                of_child.has_ended()
            })
        };
        assert!(ends());
        child.wait().unwrap();
        assert!(of_child.has_ended());
    }

    #[test]
    fn grandchildren_descend_from_us() {
        let mut child = std::process::Command::new("sh").args(["-c", "sleep 30 & wait"]).spawn().unwrap();
        let found = (0..200).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            descendants(std::process::id()).unwrap().contains(&child.id())
                && descendants(child.id()).unwrap().len() == 1
        });
        assert!(found);
        for pid in descendants(child.id()).unwrap() {
            crate::sys::send_signal(pid, 9).unwrap();
        }
        child.wait().unwrap();
        assert!(descendants(child.id()).unwrap().is_empty());
    }

    #[test]
    fn a_named_thread_is_listed() {
        let (release, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::Builder::new().name("CPU 7/TCG".to_owned());
        let handle = thread.spawn(move || wait.recv()).unwrap();
        let named = || threads(std::process::id()).unwrap().iter().any(|thread| thread.name == "CPU 7/TCG");
        // The thread names itself after it started.
        let found = (0..200).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            named()
        });
        assert!(found);
        drop(release);
        let _ = handle.join().unwrap();
    }

    #[test]
    fn a_command_line_is_split_into_arguments() {
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        // The new program takes its arguments over a moment after the old one let go of its own.
        let words = (0..200).map(|_| command_line(child.id()).unwrap()).find(|words| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            !words.is_empty()
        });
        assert_eq!(words.unwrap(), ["sleep", "30"]);
        assert!(all().unwrap().contains(&child.id()));
        assert!(users().unwrap().contains(&crate::sys::effective_user_id()));
        let identity = Identity::of(child.id()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!identity.is_alive());
    }
}

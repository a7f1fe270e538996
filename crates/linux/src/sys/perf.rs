//! Event counters of a thread: perf_event_open(2).

use super::checked;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Events of one group at most.
pub const MOST_EVENTS: usize = 4;

/// An event, in the kernel's numbers (`struct perf_event_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterEvent {
    /// `PERF_TYPE_*`.
    pub kind: u32,
    /// Which of that kind.
    pub config: u64,
}

/// What a group counted since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupCount {
    /// Nanoseconds in which its thread was on a CPU.
    pub enabled_ns: u64,
    /// Nanoseconds of these in which the hardware counted: less where counters are shared.
    pub running_ns: u64,
    /// By event, in the order of opening.
    pub counts: [u64; MOST_EVENTS],
}

/// Counters of one thread that count at the same times; closed when dropped.
#[derive(Debug)]
pub struct CounterGroup {
    leader: File,
    /// Open as long as the leader is.
    _members: Vec<OwnedFd>,
}

/// The first published form of `struct perf_event_attr` (`PERF_ATTR_SIZE_VER0`), which every kernel
/// takes.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
}

const TOTAL_TIME_ENABLED: u64 = 1;
const TOTAL_TIME_RUNNING: u64 = 2;
const GROUP: u64 = 8;
const CLOSE_ON_EXEC: libc::c_ulong = 8;

impl CounterGroup {
    /// Opens and starts counters of a thread, wherever it runs: of user code, of the kernel on its
    /// behalf, and of its guest. Threads that it makes later are not counted.
    ///
    /// # Errors
    /// `EACCES` or `EPERM` without the right, `ESRCH` if the thread ended, `ENOENT`, `EOPNOTSUPP`
    /// or `ENODEV` where the CPU has no such counter, `EMFILE`, `EINVAL` for too many events.
    pub fn open(thread: u32, events: &[CounterEvent]) -> io::Result<Self> {
        let (Some((first, others)), true) = (events.split_first(), events.len() <= MOST_EVENTS) else {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        };
        let leader = open(thread, *first, None)?;
        let member = |event: &CounterEvent| open(thread, *event, Some(&leader));
        let members = others.iter().map(member).collect::<io::Result<Vec<OwnedFd>>>()?;
        Ok(Self { leader: File::from(leader), _members: members })
    }

    /// What was counted so far. A thread that ended keeps its last counts.
    ///
    /// # Errors
    /// The kernel says nothing, or something else.
    pub fn read(&self) -> io::Result<GroupCount> {
        let mut buffer = [0u8; 8 * (3 + MOST_EVENTS)];
        let length = (&self.leader).read(&mut buffer)?;
        let mut words = buffer[..length].chunks_exact(8).map(|word| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(word);
            u64::from_ne_bytes(bytes)
        });
        let mut next = || words.next().ok_or(io::Error::from(io::ErrorKind::UnexpectedEof));
        let number = next()?;
        let mut count = GroupCount { enabled_ns: next()?, running_ns: next()?, counts: [0; MOST_EVENTS] };
        for slot in count.counts.iter_mut().take(usize::try_from(number).unwrap_or(MOST_EVENTS)) {
            *slot = next()?;
        }
        Ok(count)
    }
}

fn open(thread: u32, event: CounterEvent, leader: Option<&OwnedFd>) -> io::Result<OwnedFd> {
    let attributes = Attributes {
        kind: event.kind,
        size: size_of::<Attributes>() as u32,
        config: event.config,
        read_format: TOTAL_TIME_ENABLED | TOTAL_TIME_RUNNING | GROUP,
        ..Attributes::default()
    };
    let group = leader.map_or(-1, AsRawFd::as_raw_fd);
    let any_cpu: libc::c_int = -1;
    // SAFETY: `attributes` has the layout and the size that it names, and lives through the call,
    // which only reads it.
    let opened = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            thread as libc::pid_t,
            any_cpu,
            group,
            CLOSE_ON_EXEC,
        )
    };
    let descriptor = checked(opened)?;
    // SAFETY: the kernel just made this descriptor for us, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as libc::c_int) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `PERF_TYPE_SOFTWARE`, `PERF_COUNT_SW_TASK_CLOCK` and `..._PAGE_FAULTS`: counted everywhere.
    const TASK_CLOCK: CounterEvent = CounterEvent { kind: 1, config: 1 };
    const PAGE_FAULTS: CounterEvent = CounterEvent { kind: 1, config: 2 };

    #[test]
    fn a_group_counts_what_its_thread_does() {
        let own = crate::sys::thread_id();
        let group = match CounterGroup::open(own, &[TASK_CLOCK, PAGE_FAULTS]) {
            Ok(group) => group,
            Err(why) => return eprintln!("SKIPPED a_group_counts_what_its_thread_does: {why}"),
        };
        let before = group.read().unwrap();
        let touched = vec![1u8; 64 << 20];
        assert_eq!(std::hint::black_box(&touched)[4096], 1);
        let after = group.read().unwrap();
        assert!(after.enabled_ns > before.enabled_ns && after.running_ns > before.running_ns, "{after:?}");
        assert!(after.counts[0] > before.counts[0] && after.counts[1] > before.counts[1], "{after:?}");
        assert_eq!(after.counts[2..], [0, 0]);
    }

    #[test]
    fn what_cannot_be_counted_is_an_error() {
        let own = crate::sys::thread_id();
        assert_eq!(CounterGroup::open(own, &[]).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert!(CounterGroup::open(own, &[TASK_CLOCK; MOST_EVENTS + 1]).is_err());
        assert!(CounterGroup::open(own, &[CounterEvent { kind: 1, config: 1 << 40 }]).is_err());
        assert!(CounterGroup::open(i32::MAX as u32, &[TASK_CLOCK]).is_err());
    }
}

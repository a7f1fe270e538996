//! Calling off a start from another thread: whoever waits for signals.
//!
//! **Rule.** Until a start is complete, calling it off ends the process of the VM; the start then
//! fails, and removes what there is of the VM on its own way out. Once it is complete, there is
//! nothing to call off. Both are decided under one lock: a VM is never both reported as running and
//! ended.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// One start, as somebody sees it who may call it off. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct CallOff(Arc<Mutex<Stage>>);

/// Ends the process of a VM at once; nothing happens where it has ended.
pub type End = Box<dyn Fn() + Send>;

#[derive(Default)]
enum Stage {
    #[default]
    BeforeProcess,
    Process(End),
    CalledOff,
    Complete,
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BeforeProcess => "BeforeProcess",
            Self::Process(_) => "Process",
            Self::CalledOff => "CalledOff",
            Self::Complete => "Complete",
        })
    }
}

impl CallOff {
    /// Calls the start off; false if it was complete before.
    pub fn call_off(&self) -> bool {
        let mut stage = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*stage {
            Stage::Complete => return false,
            Stage::Process(end) => end(),
            Stage::BeforeProcess | Stage::CalledOff => {}
        }
        *stage = Stage::CalledOff;
        true
    }

    /// Whether it was called off.
    pub fn is_called_off(&self) -> bool {
        matches!(*self.0.lock().unwrap_or_else(PoisonError::into_inner), Stage::CalledOff)
    }

    /// For a backend: from now on there is a process, which `end` ends.
    pub fn has_process(&self, end: End) {
        let mut stage = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match *stage {
            Stage::CalledOff => end(),
            _ => *stage = Stage::Process(end),
        }
    }

    /// For a backend: the start is complete; false if it was called off before.
    pub fn complete(&self) -> bool {
        let mut stage = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let in_time = !matches!(*stage, Stage::CalledOff);
        if in_time {
            *stage = Stage::Complete;
        }
        in_time
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_start_is_called_off_or_complete_and_never_both() {
        let start = CallOff::default();
        assert!(start.complete() && !start.call_off() && !start.is_called_off());
        let start = CallOff::default();
        assert!(start.call_off() && !start.complete() && start.is_called_off());
    }

    #[test]
    fn the_process_ends_whether_it_was_there_before_or_comes_after() {
        for before in [true, false] {
            let (start, ended) = (CallOff::default(), Arc::new(AtomicBool::new(false)));
            let end = Arc::clone(&ended);
            let end: End = Box::new(move || end.store(true, Ordering::Relaxed));
            if before {
                start.has_process(end);
                start.call_off();
            } else {
                start.call_off();
                start.has_process(end);
            }
            assert!(ended.load(Ordering::Relaxed));
        }
    }
}

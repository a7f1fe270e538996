//! Calling off a start from another thread: whoever waits for signals.
//!
//! **Rule.** Until a start is complete, calling it off kills QEMU; the start then fails, and
//! removes what there is of the VM on its own way out. Once it is complete, there is nothing to
//! call off. Both are decided under one lock: a VM is never both reported as running and ended.

use linux::sys::ProcessHandle;
use std::sync::{Arc, Mutex, PoisonError};

/// The kernel's signal number of SIGKILL.
const SIGKILL: i32 = 9;

/// One start, as somebody sees it who may call it off. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct CallOff(Arc<Mutex<Stage>>);

#[derive(Debug, Default)]
enum Stage {
    #[default]
    BeforeQemu,
    Qemu(ProcessHandle),
    CalledOff,
    Complete,
}

impl CallOff {
    /// Calls the start off; false if it was complete before.
    pub fn call_off(&self) -> bool {
        let mut stage = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*stage {
            Stage::Complete => return false,
            Stage::Qemu(qemu) => kill(qemu),
            Stage::BeforeQemu | Stage::CalledOff => {}
        }
        *stage = Stage::CalledOff;
        true
    }

    /// Whether it was called off.
    pub fn is_called_off(&self) -> bool {
        matches!(*self.0.lock().unwrap_or_else(PoisonError::into_inner), Stage::CalledOff)
    }

    /// From now on there is a QEMU to kill.
    pub(crate) fn qemu_is(&self, qemu: ProcessHandle) {
        let mut stage = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match *stage {
            Stage::CalledOff => kill(&qemu),
            _ => *stage = Stage::Qemu(qemu),
        }
    }

    /// The start is complete; false if it was called off before.
    pub(crate) fn complete(&self) -> bool {
        let mut stage = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let in_time = !matches!(*stage, Stage::CalledOff);
        if in_time {
            *stage = Stage::Complete;
        }
        in_time
    }
}

fn kill(qemu: &ProcessHandle) {
    // An error means that it has ended already.
    let _ = qemu.signal(SIGKILL);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::Duration;

    fn sleeper() -> (std::process::Child, ProcessHandle) {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let handle = ProcessHandle::open(child.id()).unwrap();
        (child, handle)
    }

    #[test]
    fn a_start_is_called_off_or_complete_and_never_both() {
        let start = CallOff::default();
        assert!(start.complete() && !start.call_off() && !start.is_called_off());
        let start = CallOff::default();
        assert!(start.call_off() && !start.complete() && start.is_called_off());
    }

    #[test]
    fn qemu_ends_whether_it_was_there_before_or_comes_after() {
        for before in [true, false] {
            let (mut child, handle) = sleeper();
            let (start, ended) = (CallOff::default(), ProcessHandle::open(child.id()).unwrap());
            if before {
                start.qemu_is(handle);
                start.call_off();
            } else {
                start.call_off();
                start.qemu_is(handle);
            }
            assert!(ended.wait_ended(Duration::from_secs(60)).unwrap());
            child.wait().unwrap();
        }
    }
}

//! Adding vCPUs and memory to a VM that runs, and taking them away.
//!
//! **Problem.** QEMU plugs a device in at once; whether the guest uses it is another matter, and
//! where its thread runs and its memory lies is nobody's business but ours. homenode may be killed
//! in between.
//!
//! **Rule.** What is plugged in is read from QEMU first, never taken from a record. Each device is
//! told to the caller as soon as it is there. A vCPU's thread is born on the CPUs of its client's
//! present home; memory is bound to that home before the guest gets any of it. Then the guest has
//! time to do its part, anew as often as it gets on; what it has not done by then is said, and
//! stays.
//!
//! **Example.** A client was born on node 0 and lives on node 2 now. 1 GiB more of its virtual node
//! is a virtio-mem device of its own, bound to node 2; the next 1 GiB comes from the same device.

mod memory;
mod there;
mod vcpus;

pub use there::block_size;
pub(crate) use there::{places, plugged_memory};

use crate::QemuError;
use crate::qmp::Qmp;
use serde_json::json;
use std::time::{Duration, Instant};
use topology::NodeSet;
use vm::qemu::policy_word;
use vm::{Added, Client, Resize, Resized};

/// How often QEMU is asked whether the guest got on.
const LOOK: Duration = Duration::from_millis(5);

/// Carries out a [`Resize`] of the VM at a monitor, whose QEMU is process `pid`.
pub(crate) fn resize(
    qmp: &mut Qmp,
    pid: u32,
    resize: &Resize,
    done: &mut dyn FnMut(&Added),
) -> Result<Resized, QemuError> {
    let added = there::read(qmp, resize)?;
    if added != resize.added {
        done(&added);
    }
    let runs = qmp.execute("query-status", &json!({}))?["running"] == true;
    let resized = Resized { added, ..Resized::default() };
    let mut work = Work { qmp, pid, resize, runs, resized, done };
    work.check()?;
    work.check_thread_places()?;
    work.free_main_thread()?;
    work.unplug_vcpus()?;
    work.resize_memory()?;
    work.plug_vcpus()?;
    if !runs {
        work.resized
            .notes
            .push(format!("VM {}: its vCPUs are stopped: its guest does its part when they go on", work.qmp.vm()));
    }
    Ok(work.resized)
}

/// What is being done to one VM.
struct Work<'a> {
    qmp: &'a mut Qmp,
    pid: u32,
    resize: &'a Resize,
    /// Whether its vCPUs run.
    runs: bool,
    resized: Resized,
    done: &'a mut dyn FnMut(&Added),
}

impl Work<'_> {
    /// Everything that can be refused before anything is done.
    fn check(&self) -> Result<(), QemuError> {
        self.check_vcpus()?;
        self.check_memory()
    }

    fn bad_input(&self, problem: String) -> QemuError {
        QemuError::Spec { vm: self.qmp.vm().to_owned(), problem }
    }

    /// Writes down what is there now.
    fn tell(&mut self) {
        (self.done)(&self.resized.added);
    }

    fn undone(&mut self, what: &str) {
        self.resized.undone.push(format!("VM {}: {what}", self.qmp.vm()));
    }

    fn client_of(&self, virtual_node: u32) -> Option<&Client> {
        let clients = &self.resize.placement.clients;
        clients.iter().find(|client| client.virtual_nodes.contains(&virtual_node))
    }

    /// The machine nodes that new memory of a virtual node is bound to, and how; `None` where the
    /// kernel may choose.
    fn binding(&self, virtual_node: u32) -> Option<(NodeSet, &'static str)> {
        let client = self.client_of(virtual_node)?;
        let policy = policy_word(client.memory_policy)?;
        crate::attached::host_has_numa().then(|| (client.bound_to(), policy))
    }

    /// Looks until nothing is left of what the guest should do, or it has not got on for its
    /// patience: one that goes to and fro does not. A VM whose vCPUs are stopped is looked at once.
    /// Whether nothing is left.
    fn wait(&mut self, mut left: impl FnMut(&mut Qmp) -> Result<u64, QemuError>) -> Result<bool, QemuError> {
        let mut least = left(self.qmp)?;
        let mut deadline = Instant::now() + self.resize.patience;
        while least > 0 && self.runs && Instant::now() < deadline {
            std::thread::sleep(LOOK);
            let now = left(self.qmp)?;
            if now < least {
                (least, deadline) = (now, Instant::now() + self.resize.patience);
            }
        }
        Ok(least == 0)
    }

    /// Asks the guest to give a device back, and waits for it. Why it is still there, as words;
    /// `None` where it has gone.
    fn unplug(&mut self, id: &str) -> Result<Option<String>, QemuError> {
        self.qmp.execute("device_del", &json!({ "id": id }))?;
        let deadline = Instant::now() + self.resize.patience;
        // Of a vCPU no event says that it is gone.
        while there::has_device(self.qmp, id)? {
            if Instant::now() >= deadline {
                let seconds = self.resize.patience.as_secs();
                return Ok(Some(format!("its guest has not let it go within {seconds} s")));
            }
            // One event a look: who never stops talking is out of time all the same.
            let event = self.qmp.event(LOOK)?;
            let why = event.and_then(|event| there::refusal(&event, id));
            if why.is_some() {
                return Ok(why);
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests;

//! What each VM got, against what it would get alone on the machine.

use serde::Serialize;

/// The account of one VM from its start to now or to its end.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Account {
    /// Name of the guest.
    pub name: String,
    /// Cache lines that it moved: its work.
    pub lines: f64,
    /// Lines that it would have moved alone on the machine, each client on the fewest nodes that
    /// have its cores, all memory local.
    pub ideal_lines: f64,
    /// Its progress: CPU seconds that an ideal run would have needed for the work that was done.
    pub progress_s: f64,
    /// CPU seconds that it wanted.
    pub wanted_s: f64,
    /// Seconds in which it wanted to run.
    pub busy_s: f64,
    /// Lines from memory of another node than the thread's.
    pub remote_lines: f64,
    /// CPU seconds used.
    pub used_s: f64,
    /// CPU seconds waited for a CPU.
    pub waited_s: f64,
    /// Bytes of its memory that were moved from node to node.
    pub moved_bytes: u64,
    /// Times that its threads were bound to another set of CPUs than before.
    pub binds: u32,
}

impl Account {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            lines: 0.0,
            ideal_lines: 0.0,
            progress_s: 0.0,
            wanted_s: 0.0,
            busy_s: 0.0,
            remote_lines: 0.0,
            used_s: 0.0,
            waited_s: 0.0,
            moved_bytes: 0,
            binds: 0,
        }
    }

    /// Its throughput relative to ideal: 1 is as good; a little more where its threads reach the
    /// controllers of more nodes than its home would have. Mean over the CPU time that it wanted,
    /// so that a second of pointer chasing counts as much as one of streaming. `None` if it wanted
    /// none.
    pub fn throughput(&self) -> Option<f64> {
        (self.wanted_s > 0.0).then(|| self.progress_s / self.wanted_s)
    }
}

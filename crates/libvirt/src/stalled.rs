//! Whether a domain has ended, and whether its guest stands still though nobody paused it.

use crate::{Connection, LibvirtError};
use std::time::Duration;

/// CPU time that the QEMU of a stopped guest may still take between two looks.
const IDLE_CPU_SECONDS: f64 = 0.05;
/// How long libvirt may take to answer: whoever looks waits for something else.
const LIMIT: Duration = Duration::from_secs(5);

/// Looks for a guest that stands still.
///
/// **Rule.** libvirt is asked only where QEMU spent nearly no CPU time since the last look: a guest
/// that is measured is left alone, and one that was stopped spends none.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    /// CPU time of its QEMU at the last look, in seconds.
    spent: Option<f64>,
}

impl Standing {
    /// Why the guest stands still, as a sentence; `None` where it runs, and of a first look.
    pub(crate) fn look(&mut self, pid: u32, connection: &Connection, uuid: &str, name: &str) -> Option<String> {
        let spent = linux::load::process_cpu_seconds(pid).ok()?;
        let before = self.spent.replace(spent)?;
        if spent - before > IDLE_CPU_SECONDS { None } else { stalled(connection, uuid, name) }
    }
}

/// Whether a domain has no process any more.
pub(crate) fn has_ended(connection: &Connection, uuid: &str) -> Result<bool, LibvirtError> {
    match connection.state(uuid) {
        Ok(state) => Ok(!state.has_process()),
        Err(error) if error.is_no_such_domain() => Ok(true),
        Err(error) => Err(error),
    }
}

fn stalled(connection: &Connection, uuid: &str, name: &str) -> Option<String> {
    let connection = connection.with_limit(LIMIT);
    let said = connection.ask(&["domstate", "--reason", "--domain", uuid]).ok()?;
    let why = stands_still(said.trim())?;
    // `vda: no space`, a line for each disk; other words where no disk has an error.
    let disks = connection.ask(&["domblkerror", "--domain", uuid]).unwrap_or_default();
    let errors: Vec<&str> = disks.lines().map(str::trim).filter(|line| line.contains(": ")).collect();
    let told = if errors.is_empty() { String::new() } else { format!(": {}", errors.join(", ")) };
    let advice = match errors.iter().any(|line| line.ends_with("no space")) {
        true => format!(
            ". Make room where its disk is written (`{} domblklist {uuid}` names it)",
            connection.command_by_hand()
        ),
        false => String::new(),
    };
    Some(format!("VM {name}: libvirt has stopped the guest, {why}{told}{advice}"))
}

/// What a domain's state and its reason say of a guest that nobody paused and that does not run;
/// `None` of any other.
fn stands_still(words: &str) -> Option<&'static str> {
    match words {
        "paused (I/O error)" => Some("since a disk of it cannot be read or written"),
        "paused (watchdog)" => Some("since its watchdog fired"),
        "paused (crashed)" | "crashed (panicked)" => Some("since its kernel has panicked"),
        "paused (event)" => Some("since QEMU said that something went wrong"),
        "pmsuspended (disk)" | "pmsuspended (unknown)" | "pmsuspended" => Some("which went to sleep by itself"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::stands_still;

    /// What virsh 9.0 prints.
    #[test]
    fn what_stands_still_by_itself_is_told_from_what_somebody_paused() {
        for words in
            ["running (booted)", "running (unpaused)", "paused (user)", "paused (migrating)", "paused (saving)"]
        {
            assert_eq!(stands_still(words), None, "{words}");
        }
        for (words, part) in [
            ("paused (I/O error)", "a disk of it"),
            ("paused (watchdog)", "watchdog"),
            ("paused (crashed)", "panicked"),
            ("crashed (panicked)", "panicked"),
            ("pmsuspended (unknown)", "by itself"),
        ] {
            assert!(stands_still(words).is_some_and(|why| why.contains(part)), "{words}");
        }
    }
}

//! What is refused before anything is sent.

use crate::MigrationError;
use crate::link::To;
use crate::protocol::{Built, Hello};
use crate::source::Say;
use inventory::Record;
use vm::manifest::{Manifest, Verdict};

/// Refuses what QEMU would take without a word.
pub(crate) fn compare(
    vm: &str,
    host: &str,
    ours: &Manifest,
    built: &Built,
    say: &mut dyn FnMut(&Say<'_>),
) -> Result<(), MigrationError> {
    let differences = ours.differences(&built.manifest);
    let (refuse, warn): (Vec<_>, Vec<_>) = differences.iter().partition(|found| found.verdict == Verdict::Refuses);
    warn.iter().for_each(|found| say(&Say::Note(&found.to_string())));
    if refuse.is_empty() {
        return Ok(());
    }
    let because = refuse.iter().map(|found| format!("\n  {found}")).collect();
    Err(MigrationError::Refused { vm: vm.to_owned(), host: host.to_owned(), because, bad_input: true })
}

/// Refuses a guest that its QEMU cannot write.
pub(crate) fn check_vcpus_gone(record: &Record, ours: &Manifest) -> Result<(), MigrationError> {
    let added = record.placement.as_ref().map(|kept| &kept.added);
    match added.and_then(|added| added.keeps_guest_here(ours.run_by.hardware)) {
        Some(why) => Err(MigrationError::BadInput(format!("VM {} cannot be sent: {why}", record.spec.name))),
        None => Ok(()),
    }
}

/// Refuses more connections than the other homenode takes.
pub(crate) fn check_connections(host: &str, wanted: u32, most: u32) -> Result<(), MigrationError> {
    match most.max(1) {
        1 if wanted > 1 => Err(MigrationError::BadInput(format!(
            "--connections {wanted}: the homenode on {host} is older and takes one connection; leave it out, or use \
            the same version of homenode on both hosts"
        ))),
        most if wanted > most => {
            Err(MigrationError::BadInput(format!("--connections {wanted}: {host} takes {most} at most")))
        }
        _ => Ok(()),
    }
}

/// That `unix:` leads to this place, and a host to another one.
pub(crate) fn check_place(to: &To, ours: &Hello, theirs: &Hello) -> Result<(), MigrationError> {
    match (to, ours.is_same_place(theirs)) {
        (To::ThisHost, false) => {
            let problem = "--to unix: the homenode that it starts keeps other VMs: it must see the same \
                HOMENODE_STATE_DIR and HOMENODE_RUNTIME_DIR";
            Err(MigrationError::BadInput(problem.to_owned()))
        }
        (To::Host(host), true) => Err(MigrationError::BadInput(format!(
            "--to {host}: that is this host; `--to unix:` gives a VM another home on it"
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_homenode_is_sent_one_connection() {
        // It does not say how many it takes.
        assert!(check_connections("b", 1, 0).is_ok() && check_connections("b", 8, 8).is_ok());
        let refused = |wanted, most| check_connections("b", wanted, most).unwrap_err();
        assert!(refused(2, 0).is_bad_input() && refused(2, 0).to_string().contains("homenode on b is older"));
        assert!(refused(8, 4).is_bad_input() && refused(8, 4).to_string().contains("b takes 4 at most"));
    }
}

//! What is refused before anything is sent.

use crate::MigrationError;
use crate::blocker::blocker;
use crate::link::To;
use crate::protocol::{Built, Hello};
use crate::source::Say;
use qemu::migration::Outgoing;
use vm::manifest::Verdict;
use vm::{Manifest, MemoryDeviceKind};

/// What QEMU says cannot be sent.
pub(crate) fn check_blocked(vm: &str, source: &mut Outgoing) -> Result<(), MigrationError> {
    let blocked = source.blocked()?;
    if blocked.is_empty() {
        return Ok(());
    }
    let because = blocked.iter().map(|words| blocker(words)).collect::<Vec<_>>().join("; ");
    Err(MigrationError::BadInput(format!("VM {vm} cannot be sent as it is: {because}")))
}

/// QEMU 10 under emulation was seen to end, by an assertion of its own
/// (`tlb_reset_dirty_range_all`), while it sent a guest that had virtio-mem plugged in: two of
/// three that also had vCPUs plugged in. The guest is lost then.
pub(crate) fn check_emulated(manifest: &Manifest) -> Result<(), MigrationError> {
    let has_virtio_mem = manifest.added.memory.iter().any(|device| device.kind == MemoryDeviceKind::VirtioMem);
    if manifest.run_by.hardware || !has_virtio_mem {
        return Ok(());
    }
    Err(MigrationError::BadInput(format!(
        "VM {name} cannot be sent while it runs: its guest is emulated (TCG) and has memory plugged in, and \
        QEMU may end while it sends such a guest; `homenode vm suspend {name}` and `homenode vm resume {name}` \
        give it other homes",
        name = manifest.spec.name
    )))
}

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
    fn an_emulated_guest_with_virtio_mem_is_not_sent() {
        // It has a virtio-mem device plugged in, and runs under KVM.
        let text = include_str!("../../../fuzz/seeds/manifest/web.json");
        let kvm = Manifest::from_text(text.trim_end()).unwrap();
        assert!(check_emulated(&kvm).is_ok());
        let mut emulated = kvm;
        emulated.run_by.hardware = false;
        let error = check_emulated(&emulated).unwrap_err();
        assert!(error.is_bad_input() && error.to_string().contains("vm suspend web"), "{error}");
        emulated.added.memory.clear();
        assert!(check_emulated(&emulated).is_ok());
    }
}

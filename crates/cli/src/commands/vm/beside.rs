//! Suspend and resume where what runs a VM writes its guest into a file of its own (libvirt).
//!
//! **Order.** Into the file: the record says which file before libvirt begins; libvirt writes it
//! and ends QEMU; its checksum is written beside it. Where homenode is killed in between, the VM
//! runs and the next look lets it go on, or its file is whole and the next look finds it suspended
//! ([`vm::truth`]); what lies beside it is then made by `vm resume`.

use crate::commands::vm::suspend::failure;
use crate::failure::bad_input;
use crate::kept;
use crate::transfer_view::TransferView;
use anyhow::{Context, anyhow};
use inventory::{Held, Record};
use libvirt::Domains;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use suspended::beside::guest_of;
use suspended::{About, Opened, Unfinished, Written};
use topology::Bytes;
use vm::Vm;
use vm::backend::{GuestBytes, ReachedBy, Transfer};
use vm::history::{LifeEvent, UnixSeconds};
use vm::life::State;

/// Where a guest goes, beside the file that is about it.
pub(super) struct Place {
    guest: PathBuf,
    /// The user whose it will be.
    writer: u32,
}

impl Place {
    /// Beside this file. Its checksum is read from it: whoever may not read it is told before
    /// anything is stopped.
    pub(super) fn of(vm: &dyn Vm, path: &Path) -> anyhow::Result<Self> {
        let guest = guest_of(path);
        if guest.symlink_metadata().is_ok() {
            let guest = guest.display();
            return Err(bad_input(format!("{guest}: it is there already; name another file with --to, or remove it")));
        }
        let seen = std::fs::metadata(format!("/proc/{}", vm.pid()));
        let writer = seen.with_context(|| format!("VM {}: its process has just ended", vm.name()))?.uid();
        if [0, writer].contains(&linux::sys::effective_user_id()) {
            return Ok(Self { guest, writer });
        }
        Err(bad_input(format!(
            "VM {}: libvirt would write a file that this user may not read, and homenode keeps its checksum: do it \
            as root",
            vm.name()
        )))
    }
}

/// Writes the guest of a VM whose vCPUs wait, and what must be known of its file.
pub(super) fn write(
    vm: &mut dyn Vm,
    held: &mut Held,
    Place { guest, writer }: &Place,
    (file, about): (Unfinished, &About),
    (view, called_off): (&TransferView, Arc<AtomicBool>),
) -> anyhow::Result<Written> {
    let path = file.path().to_owned();
    held.change_life(|life| life.suspended_in = Some(path)).map_err(kept::failure)?;
    let into = GuestBytes::File { path: guest, called_off: &called_off };
    if let Err(error) = vm.save(into, &mut |transfer| view.tell(transfer)) {
        held.change_life(|life| life.suspended_in = None).map_err(kept::failure)?;
        return Err(crate::backend::failure(error));
    }
    let all = about.manifest.memory();
    file.finish_beside(&about.to_text()?, Some(*writer), &mut read(view, all)).map_err(failure)
}

/// Shows how much of a guest of so many bytes was read.
pub(super) fn read(view: &TransferView, all: Bytes) -> impl FnMut(Bytes) + use<'_> {
    move |done| view.tell(Transfer { done, remaining: all.saturating_sub(done) })
}

/// Makes what must be known of a file that libvirt has written to its end for a homenode that was
/// killed: its checksum is that of now.
pub(super) fn recover(record: &Record, path: &Path) -> anyhow::Result<()> {
    let ReachedBy::Libvirt(domain) = &record.life.backend else { return Ok(()) };
    let Some((saved_at, id)) = last_suspended(record) else { return Ok(()) };
    let guest = guest_of(path);
    if record.life.state != State::Suspended || !id.is_empty() || !libvirt::is_whole(&guest) {
        return Ok(());
    }
    // What was finished before the kill says how it was then.
    if let Ok(opened) = Opened::open(path) {
        opened.check_beside(&mut |_| {}).map_err(failure)?;
        std::fs::remove_file(path).with_context(|| format!("{} cannot be replaced", path.display()))?;
    }
    let name = &record.spec.name;
    let topology = record.topology.as_ref().ok_or_else(|| anyhow!("VM {name}: nothing is kept of its topology"))?;
    let added = record.placement.as_ref().map(|kept| kept.added.clone()).unwrap_or_default();
    let manifest = Domains::of(domain).manifest_of(&guest, (&record.spec, topology, &added));
    let manifest = manifest.map_err(crate::backend::failure)?;
    let about = About { id, saved_at, life: record.life.clone(), manifest };
    let writer = guest.symlink_metadata().map(|seen| seen.uid()).ok();
    let file = Unfinished::create(path).map_err(failure)?;
    file.finish_beside(&about.to_text()?, writer, &mut |_| {}).map_err(failure)?;
    crate::output::note(format_args!(
        "VM {name}: homenode was ended while it was suspended; libvirt had written {} to its end",
        guest.display()
    ));
    Ok(())
}

fn last_suspended(record: &Record) -> Option<(UnixSeconds, String)> {
    record.life.history.iter().rev().find_map(|chapter| match &chapter.event {
        LifeEvent::Suspended { id, .. } => Some((chapter.at, id.clone())),
        _ => None,
    })
}

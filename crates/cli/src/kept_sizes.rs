//! What others plugged into a VM since its record was written: `virsh setvcpus`, `attach-device`,
//! `update-memory-device`.
//!
//! **Rule.** What is plugged in is what the program that runs the VM says. Whoever looks writes it
//! down, and the spec's size with it. Where others gave it more than its spec lets it have, the
//! spec stays as it is.

use crate::{backend, kept, output};
use inventory::{Inventory, InventoryError, Kept, Record};
use qemu::RuntimeDir;
use vm::Added;
use vm::history::LifeEvent;
use vm::life::State;

/// The record with what is plugged in now; written where that can be.
///
/// # Errors
/// Its files cannot be read.
pub(crate) fn brought_up(directory: &RuntimeDir, inventory: &Inventory, mut record: Record) -> anyhow::Result<Record> {
    let Some(added) = plugged(directory, &record) else { return Ok(record) };
    if is_written(&record, &added) {
        return Ok(record);
    }
    let name = &record.spec.name;
    match inventory.hold_now(name) {
        Ok(mut held) => {
            // It may have been changed before it was ours.
            let Some(added) = plugged(directory, held.record()) else { return Ok(held.record().clone()) };
            let mut now = held.record().clone();
            if is_written(&now, &added) {
                return Ok(now);
            }
            tell(&mut now, &added);
            let written = held
                .set_placement(now.placement.clone())
                .and_then(|()| held.set_spec(now.spec.clone()))
                .and_then(|()| held.change_life(|life| life.history.clone_from(&now.life.history)));
            // What cannot be written is shown all the same.
            if let Err(error) = written {
                output::note(error);
            }
            Ok(now)
        }
        // Whoever has it writes what he plugs.
        Err(InventoryError::Busy { .. }) => Ok(record),
        Err(_) => {
            tell(&mut record, &added);
            Ok(record)
        }
    }
}

/// What is plugged in, where others can have plugged it.
fn plugged(directory: &RuntimeDir, record: &Record) -> Option<Added> {
    if !matches!(record.life.state, State::Running | State::Paused) {
        return None;
    }
    let (name, topology) = (&record.spec.name, record.topology.as_ref()?);
    let known = &record.placement.as_ref()?.added;
    let plugged = backend::of(directory, &record.life.backend).plugged(name, topology).unwrap_or_else(|error| {
        output::note(format_args!("VM {name}: what is plugged in is shown as it was last written down: {error}"));
        None
    })?;
    // An emulating QEMU uses the place of a vCPU's thread once.
    let gone = known.vcpus.iter().filter(|vcpu| !plugged.vcpus.contains(vcpu)).count() as u32;
    Some(Added { taken_away: known.taken_away + gone, ..plugged })
}

fn is_written(record: &Record, added: &Added) -> bool {
    record.placement.as_ref().is_none_or(|kept| kept.added == *added)
}

fn tell(record: &mut Record, added: &Added) {
    let before = record.sizes();
    record.placement = record.placement.take().map(|kept| Kept { added: added.clone(), ..kept });
    let sizes = record.sizes();
    if sizes == before {
        return;
    }
    let spec = record.spec.of_sizes(&sizes);
    if spec.check().is_ok() {
        record.spec = spec;
    }
    record.life.tell(LifeEvent::resized(&before, &sizes), kept::now());
}

//! vCPUs that are plugged in and out.

use super::{Work, there};
use crate::QemuError;
use crate::qmp::Qmp;
use linux::LinuxError;
use linux::sys::{affinity, set_affinity};
use linux::vm::main_thread;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use topology::{CpuId, CpuSet};
use vm::qemu::vcpu_id;

/// `CR0.PG`: the guest's kernel runs on this vCPU. One that waits to be brought up has it off.
const PAGING: u64 = 1 << 31;

impl Work<'_> {
    pub(super) fn check_vcpus(&self) -> Result<(), QemuError> {
        let is_plugged = |vcpu: &u32| self.resized.added.vcpus.contains(vcpu);
        let may_be = |vcpu: u32| self.resize.topology.nodes.iter().any(|node| node.absent.contains(&vcpu));
        if let Some(vcpu) = self.resize.plug.iter().find(|&&vcpu| !may_be(vcpu)) {
            return Err(self.bad_input(format!("it has no vCPU {vcpu} that may be plugged in")));
        }
        if let Some(vcpu) = self.resize.unplug.iter().find(|vcpu| !is_plugged(vcpu)) {
            let problem =
                format!("vCPU {vcpu} was there at power-on: only those that were plugged in can be taken away");
            return Err(self.bad_input(problem));
        }
        Ok(())
    }

    /// An emulating QEMU has places for the threads of as many vCPUs as there may be, uses none of
    /// them twice, and ends when one is lacking (`tcg_register_thread`, QEMU 7.2 to 10.0).
    pub(super) fn check_thread_places(&mut self) -> Result<(), QemuError> {
        let slots = there::slots(self.qmp, &self.resize.topology)?;
        let new = |slot: &&there::Slot| !slot.present && self.resize.plug.contains(&slot.vcpu);
        let (new, present) = (slots.iter().filter(new).count(), slots.iter().filter(|slot| slot.present).count());
        let (most, gone) = (slots.len(), self.resized.added.taken_away);
        if new == 0 || present + new + gone as usize <= most {
            return Ok(());
        }
        if self.qmp.execute("query-kvm", &json!({}))?["enabled"] == true {
            return Ok(());
        }
        let left = most.saturating_sub(gone as usize).max(present);
        Err(self.bad_input(format!(
            "emulated (TCG), it may have {left} vCPUs until its next power-on, not {}: QEMU has places for the threads \
            of \
             {most}, and does not use those of the {gone} again that were taken away",
            present + new
        )))
    }

    /// Those that are there already stay as they are.
    pub(super) fn plug_vcpus(&mut self) -> Result<(), QemuError> {
        let slots = there::slots(self.qmp, &self.resize.topology)?;
        let wanted = &self.resize.plug;
        let new: Vec<there::Slot> =
            slots.into_iter().filter(|slot| wanted.contains(&slot.vcpu) && !slot.present).collect();
        for slot in &new {
            self.plug_vcpu(slot)?;
            self.resized.added.vcpus.push(slot.vcpu);
            self.tell();
        }
        self.wait_online()
    }

    fn plug_vcpu(&mut self, slot: &there::Slot) -> Result<(), QemuError> {
        let node = self.resize.topology.nodes.iter().find(|node| node.vcpus.contains(&slot.vcpu));
        let client = node.and_then(|node| self.client_of(node.id));
        let cpus = client.map(|client| client.cpus_of(slot.vcpu)).unwrap_or_default();
        let mut arguments = slot.properties.clone();
        arguments.insert("driver".to_owned(), Value::from(slot.driver.clone()));
        arguments.insert("id".to_owned(), Value::from(vcpu_id(slot.vcpu)));
        let before: BTreeSet<u32> = self.qmp.vcpu_threads(self.pid)?.iter().map(|thread| thread.thread_id).collect();
        self.born_on(&cpus, |qmp| qmp.execute("device_add", &Value::Object(arguments)).map(drop))?;
        let threads = self.qmp.vcpu_threads(self.pid)?;
        let thread = threads.iter().find(|thread| thread.index == slot.vcpu).map(|thread| thread.thread_id);
        // One that runs other vCPUs too stays where they need it.
        if let Some(thread) = thread.filter(|thread| !before.contains(thread)) {
            self.bind(thread, &cpus)?;
        }
        Ok(())
    }

    /// A thread begins with the affinity of the thread that makes it: QEMU's main one, which is on
    /// these CPUs meanwhile. So there is no moment at which a new vCPU could run elsewhere. Where
    /// homenode is killed in that moment, whoever looks next brings the main thread back
    /// ([`main_thread`]).
    fn born_on(
        &mut self,
        cpus: &CpuSet,
        make: impl FnOnce(&mut Qmp) -> Result<(), QemuError>,
    ) -> Result<(), QemuError> {
        let usual = affinity(self.pid).map_err(|error| self.host("read the affinity of QEMU's main thread", error))?;
        self.bind(self.pid, cpus)?;
        let made = make(self.qmp);
        self.bind(self.pid, &usual)?;
        made
    }

    /// Gives QEMU's main thread its own CPUs back, where a homenode that was killed while it
    /// plugged a vCPU left it on those of one client.
    pub(super) fn free_main_thread(&self) -> Result<(), QemuError> {
        let threads = linux::process::threads(self.pid).map_err(QemuError::host(self.qmp.vm()))?;
        let threads: Vec<(u32, &str)> = threads.iter().map(|thread| (thread.id, thread.name.as_str())).collect();
        let left = main_thread::left_behind(self.pid, &threads, || self.resize.placement.cpus_apart());
        match left.map_err(|error| self.host("read the affinity of QEMU's threads", error))? {
            Some(usual) => self.bind(self.pid, &usual),
            None => Ok(()),
        }
    }

    fn bind(&self, thread: u32, cpus: &CpuSet) -> Result<(), QemuError> {
        let bound = set_affinity(thread, cpus);
        bound.map_err(|error| self.host(&format!("let thread {thread} run on CPUs {cpus} only"), error))
    }

    fn host(&self, action: &str, error: std::io::Error) -> QemuError {
        QemuError::host(self.qmp.vm())(LinuxError::call(action.to_owned(), error))
    }

    /// Waits until the guest runs on all that are wanted, also those that an earlier call plugged.
    fn wait_online(&mut self) -> Result<(), QemuError> {
        let wanted = self.resize.plug.clone();
        let offline = |qmp: &mut Qmp| {
            let is_off = |&vcpu: &u32| Ok::<_, QemuError>((!is_online(qmp, vcpu)?).then_some(vcpu));
            let off: Vec<Option<u32>> = wanted.iter().map(is_off).collect::<Result<_, _>>()?;
            Ok(off.into_iter().flatten().collect::<Vec<u32>>())
        };
        if self.wait(|qmp| Ok(offline(qmp)?.len() as u64))? || !self.runs {
            return Ok(());
        }
        let off = offline(self.qmp)?;
        let (s, off) = (if off.len() == 1 { "" } else { "s" }, off.into_iter().map(CpuId).collect::<CpuSet>());
        self.undone(&format!(
            "its guest has not brought vCPU{s} {off} online within {} s; in a Linux guest: \
             echo 1 > /sys/devices/system/cpu/cpuN/online",
            self.resize.patience.as_secs()
        ));
        Ok(())
    }

    pub(super) fn unplug_vcpus(&mut self) -> Result<(), QemuError> {
        if self.resize.unplug.is_empty() {
            return Ok(());
        }
        let threads = self.qmp.vcpu_threads(self.pid)?;
        if threads.len() > 1 && threads.iter().all(|vcpu| vcpu.thread_id == threads[0].thread_id) {
            // QEMU waits for the end of that thread, on that thread, and aborts.
            let problem = "one thread runs all its vCPUs (TCG): QEMU ends when one is taken away".to_owned();
            return Err(self.bad_input(problem));
        }
        for &vcpu in &self.resize.unplug {
            // Written down before: a kill would lose it.
            self.resized.added.taken_away += 1;
            self.tell();
            let why = match self.unplug(&vcpu_id(vcpu)) {
                Ok(None) => {
                    self.resized.added.vcpus.retain(|plugged| *plugged != vcpu);
                    self.tell();
                    continue;
                }
                Ok(Some(why)) => why,
                // Firmware that has not come to ACPI yet, or an operating system without it.
                Err(QemuError::Refused { message, .. }) => {
                    format!("its guest has not turned on ACPI's CPU hot-plug, or not yet (QEMU: {message})")
                }
                Err(error) => return Err(error),
            };
            self.resized.added.taken_away -= 1;
            self.tell();
            self.undone(&format!("vCPU {vcpu} stays: {why}"));
        }
        Ok(())
    }
}

/// Whether the guest's kernel runs on a vCPU. QMP does not say; the registers do.
fn is_online(qmp: &mut Qmp, vcpu: u32) -> Result<bool, QemuError> {
    let ask = json!({ "command-line": "info registers", "cpu-index": vcpu });
    let registers = qmp.execute("human-monitor-command", &ask)?;
    Ok(has_paging(registers.as_str().unwrap_or_default()))
}

fn has_paging(registers: &str) -> bool {
    let cr0 = registers.split_whitespace().find_map(|word| word.strip_prefix("CR0="));
    cr0.and_then(|digits| u64::from_str_radix(digits, 16).ok()).is_some_and(|cr0| cr0 & PAGING != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vcpu_that_waits_to_be_brought_up_has_no_paging() {
        // As QEMU 7.2 shows one that was just plugged in, and one that Linux runs on.
        assert!(!has_paging("EIP=0000fff0 EFL=00000002\nGDT= 0 0000ffff\nCR0=60000010 CR2=0 CR3=0 CR4=0"));
        assert!(has_paging("RIP=ffffffff81a17a0b\nCR0=80050033 CR2=0 CR3=0 CR4=0"));
        assert!(!has_paging(""));
    }
}

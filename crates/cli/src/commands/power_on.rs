//! Starts a VM in the background and keeps it: a new one, or one that is kept and does not run.
//!
//! **Rule.** The record says `starting` before QEMU is there, and `running` once the VM runs at its
//! home. A start that fails or is called off takes that back; one that is killed is taken back by
//! whoever looks next, or completed where the VM runs ([`vm::truth`]).

use crate::commands::run::{self, Output, Placed, Start};
use crate::failure::bad_input;
use crate::{backend, kept, output, switches};
use anyhow::Context;
use inventory::{Held, Kept, Proposal, Record};
use qemu::{QemuError, RuntimeDir};
use scheduler::growth::{self, Wanted};
use std::collections::BTreeMap;
use std::path::PathBuf;
use topology::Bytes;
use vm::backend::ReachedBy;
use vm::history::{Life, LifeEvent};
use vm::life::Step;
use vm::{Added, BackendError, Launch, NodeSize, Plan, VirtualNode, VirtualTopology, VmSpec};

/// A VM that is to be started.
pub(super) struct PowerOn {
    /// The VM that is kept; `None` where none of its name is.
    pub(super) held: Option<Held>,
    /// What starts now.
    pub(super) launch_spec: VmSpec,
    /// What it is from now on: the same, with the kernel.
    pub(super) spec_to_keep: VmSpec,
    /// Boots this kernel instead of the spec's.
    pub(super) kernel: Option<PathBuf>,
    /// What errors name: the spec's file, or the VM.
    pub(super) whose: String,
    /// What runs it.
    pub(super) by: ReachedBy,
}

/// Starts it, says where it is, and keeps it.
pub(super) fn power_on(directory: &RuntimeDir, wanted: PowerOn, json: bool) -> anyhow::Result<()> {
    let PowerOn { held, launch_spec, spec_to_keep, kernel, whose, by } = wanted;
    let backend = backend::of(directory, &by);
    let topology = held.as_ref().map(|held| its_topology(held, &launch_spec)).transpose()?.flatten();
    let lock = run::lock(directory)?;
    kept::look(directory)?;
    let placed = run::plan(&launch_spec, &whose, topology.as_ref().map(|topology| (topology, &[][..])))?;
    let named = run::free_name(&placed, &lock);
    let Placed { machine, plan, running, .. } = placed;
    let console = run::console(&launch_spec);
    let variables = Some(kept::inventory().variables_file(&launch_spec.name));
    let taps = vm::Taps::new();
    let mut launch = Launch { spec: launch_spec, plan, kernel, console, agent: false, taps, variables };
    // It may know better whose the name is.
    let accelerator = backend.check(&launch).map_err(|error| unfit(error, &whose))?;
    named?;
    switches::plug(directory, &by, &mut launch)?;
    // From here on a signal must take back what is reserved, written and started.
    let start = Start::watch()?;
    let reservation = lock.reserve(&[&launch.plan], &running)?;
    run::warn(&launch, &accelerator);
    run::warn_of_disk(&launch.spec);
    let held = begin(held, spec_to_keep, &launch.plan, machine.name, by)?;
    let mut vm = match backend.start(&launch, &start.call_off) {
        Ok(started) => started,
        Err(error) => {
            if let Err(unwritten) = held.call_back() {
                output::note(unwritten);
            }
            return Err(start.failure(&launch.spec.name, error));
        }
    };
    drop(reservation);
    run::notes(vm.notes());
    let completed = complete(held, &launch.plan);
    run::print(&vm.residence(&launch.plan)?, json, Output::Standard)?;
    completed
}

/// What cannot be started as it is written.
pub(super) fn unfit(error: BackendError, whose: &str) -> anyhow::Error {
    if error.is_bad_input() { bad_input(format!("{whose}: {error}")) } else { error.into() }
}

/// The virtual topology that a VM which is kept has for life; `None` before its first power-on, and
/// where it is to be sized anew.
fn its_topology(held: &Held, spec: &VmSpec) -> anyhow::Result<Option<VirtualTopology>> {
    let Record { topology, life, .. } = held.record();
    if life.state.has_process() {
        let pid = backend::pid(held.record()).unwrap_or(0);
        return Err(run::failure(QemuError::NameTaken { vm: spec.name.clone(), pid }));
    }
    held.may(Step::Start).map_err(kept::failure)?;
    let Some(topology) = topology.as_ref().filter(|_| !life.topology_anew) else { return Ok(None) };
    // What was plugged in is there from now on, unless the spec wants what was there before.
    let grown = topology.powered_on_with(&held.record().sizes());
    let fits = |topology: &VirtualTopology| topology.misfit(spec).is_none();
    match grown.misfit(spec) {
        None => Ok(Some(grown)),
        Some(_) if fits(topology) => Ok(Some(topology.clone())),
        Some(misfit) => match with_more(topology, spec).filter(fits) {
            Some(larger) => Ok(Some(larger)),
            None => Err(bad_input(format!(
                "VM {name}: {misfit}. `homenode vm resize-topology {name}` sizes it anew at its next \
                power-on; `homenode vm delete {name}` forgets it",
                name = spec.name
            ))),
        },
    }
}

/// The same nodes with what the spec wants at power-on, where it is more and they may have it.
fn with_more(topology: &VirtualTopology, spec: &VmSpec) -> Option<VirtualTopology> {
    let (vcpus, memory) = (Some(spec.vcpus), Some(spec.memory));
    let want = Wanted { vcpus, memory, nodes: None, block: Bytes::MIB, dimms: BTreeMap::new() };
    let growth = growth::grow(topology, &[], &want).ok()?;
    let size = |node: &VirtualNode| NodeSize {
        virtual_node: node.id,
        vcpus: node.present().chain(growth.plug.iter().copied().filter(|vcpu| node.vcpus.contains(vcpu))).collect(),
        memory: growth.memory.get(&node.id).copied().unwrap_or(node.memory),
    };
    Some(topology.powered_on_with(&topology.nodes.iter().map(size).collect::<Vec<_>>()))
}

/// Writes down that it is being started.
fn begin(held: Option<Held>, spec: VmSpec, plan: &Plan, host: String, by: ReachedBy) -> anyhow::Result<Held> {
    let placement = Kept { host, placement: plan.placement.clone(), added: Added::default() };
    let topology = plan.topology.clone();
    let now = kept::now();
    let begun = match held {
        Some(mut held) => held.begin(Step::Start, Proposal { spec, topology, placement }, now).map(|()| held),
        None => {
            let life = Life::starting(by, now);
            let record = Record { spec, topology: Some(topology), placement: Some(placement), life };
            kept::inventory().create(&record)
        }
    };
    begun.map_err(kept::failure)
}

/// Writes down that it runs.
fn complete(mut held: Held, plan: &Plan) -> anyhow::Result<()> {
    let homes = plan.placement.clients.iter().map(|client| client.home.clone()).collect();
    let written = held.complete(LifeEvent::Started { homes }, kept::now());
    written.with_context(|| {
        format!("VM {} runs, and that could not be written down; the next `homenode vm list` tries again", plan.vm)
    })
}

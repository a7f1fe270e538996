//! `homenode plan --emit`.

use crate::args::{EmitArgument, PlanArguments};
use crate::output;
use qemu::command_line::BootFiles;
use qemu::{Accelerator, ConsoleTo, Launch};
use scheduler::{Plan, VmSpec};
use stacks::emit::{Emission, Kind, emit};
use topology::Machine;

/// Prints the plan in the language of a stack.
pub(crate) fn print(
    argument: EmitArgument,
    machine: &Machine,
    spec: &VmSpec,
    plan: &Plan,
    arguments: &PlanArguments,
) -> anyhow::Result<()> {
    let kind = kind(argument);
    // Another machine than this one is taken to have hardware virtualization.
    let elsewhere = arguments.machine.on.is_some() || arguments.connect.connect.is_some();
    let accelerator = if elsewhere { Accelerator::Kvm } else { Accelerator::detect(spec.vcpus) };
    let boot = if kind.boots_files() { boot_files(spec, plan, &accelerator)? } else { BootFiles::default() };
    let emission = Emission { machine, spec, plan, boot: &boot, accelerator: &accelerator };
    let text = emit(kind, &emission)
        .map_err(|problem| crate::failure::bad_input(format!("{}: {problem}", arguments.spec.display())))?;
    output::print(text)
}

fn kind(argument: EmitArgument) -> Kind {
    match argument {
        EmitArgument::Qemu => Kind::Qemu,
        EmitArgument::Libvirt => Kind::Libvirt,
        EmitArgument::Proxmox => Kind::Proxmox,
        EmitArgument::Nova => Kind::Nova,
        EmitArgument::Kubevirt => Kind::Kubevirt,
        EmitArgument::CloudHypervisor => Kind::CloudHypervisor,
        EmitArgument::Systemd => Kind::Systemd,
    }
}

fn boot_files(spec: &VmSpec, plan: &Plan, accelerator: &Accelerator) -> anyhow::Result<BootFiles> {
    let (spec, plan) = (spec.clone(), plan.clone());
    let launch = Launch { spec, plan, kernel: None, console: ConsoleTo::Terminal, agent: false };
    Ok(qemu::boot_files(&launch, accelerator)?)
}

//! `homenode plan --emit`.

use crate::args::EmitArgument;
use crate::failure::bad_input;
use qemu::QemuError;
use qemu::command_line::BootFiles;
use stacks::emit::{Emission, Kind, emit};
use std::path::{Path, PathBuf};
use topology::Machine;
use vm::Accelerator;
use vm::spec::Console;
use vm::{ConsoleTo, Launch, MemoryPolicy, Plan, Shape, VmSpec};

/// What is planned: for a stack that cannot be told how a VM grows, the VM as it starts.
pub(crate) fn planned_shape(argument: Option<EmitArgument>, spec: &VmSpec) -> Shape {
    argument.map_or_else(|| spec.shape.clone(), |argument| kind(argument).planned(&spec.shape))
}

/// The plan in the language of a stack.
///
/// # Errors
/// Bad input: a file of the spec that this host lacks, where the plan is for this host; what the
/// stack cannot be told at all.
pub(crate) fn text(
    argument: EmitArgument,
    machine: &Machine,
    spec: &VmSpec,
    plan: &Plan,
    file: &Path,
    elsewhere: bool,
) -> anyhow::Result<String> {
    let kind = kind(argument);
    let place = if elsewhere { Place::Elsewhere } else { Place::Here };
    // Another machine than this one is taken to have hardware virtualization.
    let accelerator = match place {
        Place::Here => qemu::accelerator(spec.most_vcpus()),
        Place::Elsewhere => Accelerator::Kvm,
    };
    let plan = &for_kernel(plan, place);
    let in_file = |problem: String| format!("{}: {problem}", file.display());
    let boot = if kind.boots_files() {
        boot_files(spec, plan, &accelerator, place).map_err(|error| {
            let text = in_file(error.to_string());
            if error.is_bad_input() { bad_input(text) } else { anyhow::anyhow!(text) }
        })?
    } else {
        BootFiles::default()
    };
    let (spec, boot) = absolute(spec, &boot)?;
    let emission = Emission { machine, spec: &spec, plan, boot: &boot, accelerator: &accelerator };
    emit(kind, &emission).map_err(|problem| bad_input(in_file(problem.to_string())))
}

/// What a text of this stack for a VM of this name is called in a directory.
pub(crate) fn file_name(argument: EmitArgument, vm: &str) -> String {
    match argument {
        EmitArgument::Qemu | EmitArgument::Nova | EmitArgument::CloudHypervisor => format!("{vm}.sh"),
        EmitArgument::Libvirt => format!("{vm}.xml"),
        EmitArgument::Proxmox => format!("{vm}.conf"),
        EmitArgument::Kubevirt => format!("{vm}.yaml"),
        EmitArgument::Systemd => format!("homenode-{vm}.slice"),
    }
}

/// A text is read, and a VM started, in other directories than this one: every file with its whole
/// path.
fn absolute(spec: &VmSpec, boot: &BootFiles) -> anyhow::Result<(VmSpec, BootFiles)> {
    let (mut spec, mut boot) = (spec.clone(), boot.clone());
    let mut files: Vec<&mut PathBuf> = spec.disks.iter_mut().map(|disk| &mut disk.path).collect();
    if let Console::File { path } = &mut spec.console {
        files.push(path);
    }
    files.extend([&mut boot.kernel, &mut boot.initrd].into_iter().flatten());
    for file in files {
        *file = std::path::absolute(&file)?;
    }
    Ok((spec, boot))
}

/// Which machine the plan is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Here,
    Elsewhere,
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

/// A kernel without memory policies refuses every stack's binding: there the plan has none.
fn for_kernel(plan: &Plan, place: Place) -> Plan {
    let mut plan = plan.clone();
    if place == Place::Here && !Path::new("/sys/devices/system/node").is_dir() {
        plan.warnings.push("this host's kernel has no memory policies: no memory is bound".to_owned());
        for client in &mut plan.placement.clients {
            client.memory_policy = MemoryPolicy::Default;
        }
    }
    plan
}

/// What is booted. Files of a VM elsewhere lie there, and are not looked for here.
fn boot_files(spec: &VmSpec, plan: &Plan, accelerator: &Accelerator, place: Place) -> Result<BootFiles, QemuError> {
    let (spec, plan) = (spec.clone(), plan.clone());
    let launch = Launch {
        spec,
        plan,
        kernel: None,
        console: ConsoleTo::Terminal,
        agent: false,
        taps: vm::Taps::new(),
        variables: None,
    };
    match place {
        Place::Here => qemu::boot_files(&launch, accelerator),
        Place::Elsewhere => qemu::boot_files_elsewhere(&launch, accelerator),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_argument_is_a_kind_of_its_own() {
        let kinds: Vec<Kind> = EmitArgument::value_variants().iter().map(|&argument| kind(argument)).collect();
        for (index, kind) in kinds.iter().enumerate() {
            assert!(!kinds[..index].contains(kind), "{kind:?}");
        }
        assert_eq!(kinds.len(), 7);
    }
}

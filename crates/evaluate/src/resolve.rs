//! An experiment on a host: what will run there, with every size and every VM decided. Pure;
//! `--dry-run` prints it, `--resume` reads it back, so that a continued evaluation measures what
//! the first session measured.

use crate::experiment::{Configuration, Experiment, GuestSystem, NativeFiles, Runs, Vms};
use crate::point::Point;
use crate::switching;
use images::{OwnDisk, Recipe};
use linux::GUEST_ENVIRONMENT;
use network::Switch;
use scheduler::PlanError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use topology::{Bytes, CpuSet, Machine};
use vm::spec::{Network, SpecProblem};
use vm::{Plan, Shape, VmSpec};
use workloads::Section;
use workloads::choice::Choice;
use workloads::command;
use workloads::protocol::Join;
use workloads::workload::{ParameterFault, Settled, Site, Workload};

mod widths;

/// What of the controller's environment programs of this host have too.
const HANDED_ON: [&str; 3] = ["PATH", "LD_LIBRARY_PATH", "LANG"];

/// What of the host decides the sizes.
#[derive(Clone, Copy, Debug)]
pub struct Host<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// Memory that can be taken now.
    pub available: Bytes,
    /// Whether VMs run by software emulation.
    pub emulated: bool,
}

/// Plans VMs that run at the same time on the machine, or on the part of it that a configuration
/// uses; an error says why it cannot be.
pub type Planner<'a> = dyn Fn(&Machine, &[VmSpec]) -> Result<Vec<Plan>, PlanError> + 'a;

/// What will run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Resolved {
    /// The experiment.
    pub experiment: Experiment,
    /// Name of the machine.
    pub machine: String,
    /// Usable hardware threads of the machine.
    pub hardware_threads: u32,
    /// Whether VMs run by software emulation.
    pub emulated: bool,
    /// The workloads that are measured, with what was decided for this host.
    pub workloads: Vec<ResolvedWorkload>,
    /// What a reader of the tables has to know.
    pub notes: Vec<String>,
    /// In the order of the experiment.
    pub configurations: Vec<ResolvedConfiguration>,
    /// Whether the VMs of all configurations run all the time; otherwise only those of the one that
    /// is visited.
    pub keep_running: bool,
    /// What its VMs boot, where that is not the tiny guest alone.
    #[serde(default)]
    pub guest: Option<ResolvedGuest>,
}

/// A system that VMs boot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ResolvedGuest {
    /// A distribution's packages.
    Packages(Recipe),
    /// A disk image.
    Image(OwnDisk),
}

/// A workload without any `"auto"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResolvedWorkload {
    /// Its parameters.
    pub section: Section,
    /// The same in one line for people.
    pub about: String,
}

/// A configuration with its VMs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResolvedConfiguration {
    /// Its name.
    pub name: String,
    /// The VMs that run at the same time; none: on the host itself.
    pub vms: Vec<ResolvedVm>,
    /// What is measured.
    pub points: Vec<Point>,
    /// Whose files run on the host, where VMs boot a system of packages or an image.
    #[serde(default)]
    pub native_files: Option<NativeFiles>,
    /// The CPUs that may be used of the host; none: all. VMs have theirs in their plans.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSet>,
    /// The switches of its own that its VMs are plugged into, in the order in which they are made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub switches: Vec<Switch>,
    /// Whether one program spans all VMs.
    #[serde(default)]
    pub is_span: bool,
}

impl ResolvedConfiguration {
    /// Processes that work at the same time: VMs, or one agent on the host.
    pub fn participants(&self) -> u32 {
        self.vms.len().max(1) as u32
    }

    /// `native`, `1 VM x 8 vCPUs`, ...
    pub fn shape(&self) -> String {
        match self.vms.as_slice() {
            [] => match self.native_files {
                None => "on the host".to_owned(),
                Some(NativeFiles::OfGuest) => "on the host, the guest's programs".to_owned(),
                Some(NativeFiles::Host) => "on the host, its own programs".to_owned(),
            },
            [vm] => format!("1 VM x {} vCPUs", vm.spec.vcpus),
            [vm, ..] => {
                format!("{} VMs x {} vCPUs{}", self.vms.len(), vm.spec.vcpus, switching::plugged(&self.cards()))
            }
        }
    }

    fn cards(&self) -> Vec<&[Network]> {
        self.vms.iter().map(|vm| vm.spec.networks.as_slice()).collect()
    }

    /// What the guest of each VM is told of the others; `None` where they are not plugged in.
    pub(crate) fn joins(&self) -> Option<Vec<Join>> {
        switching::joins(&self.cards(), self.is_span)
    }
}

/// A VM and its home.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResolvedVm {
    /// The VM.
    pub spec: VmSpec,
    /// Its virtual nodes and their homes.
    pub plan: Plan,
}

/// An experiment that this host cannot run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// A VM cannot be planned.
    #[error("configuration \"{configuration}\": {reason}")]
    Plan {
        /// The configuration.
        configuration: String,
        /// Why.
        reason: Box<PlanError>,
    },
    /// A VM is impossible on any machine.
    #[error("configuration \"{configuration}\": {problem}")]
    Spec {
        /// The configuration.
        configuration: String,
        /// The field and what is wrong with it.
        problem: SpecProblem,
    },
    /// A configuration has nothing to measure.
    #[error("configuration \"{configuration}\": threads = {threads} gives nothing to measure: {reason}")]
    NoPoint {
        /// The configuration.
        configuration: String,
        /// The thread counts.
        threads: String,
        /// Why.
        reason: String,
    },
    /// A workload cannot be run here as its section says.
    #[error("{workload}.{fault}")]
    Workload {
        /// The workload.
        workload: &'static str,
        /// The field and what is wrong with it.
        fault: ParameterFault,
    },
}

/// Decides everything.
///
/// # Errors
/// The host cannot run the experiment.
pub fn resolve(experiment: &Experiment, host: &Host, planner: &Planner) -> Result<Resolved, ResolveError> {
    let hardware_threads = host.machine.usable_threads().count().max(1) as u32;
    let (workloads, mut notes) = settle(experiment, host)?;
    let threads = widths::counts(&experiment.threads, hardware_threads);
    let (mut configurations, mut too_narrow) = (Vec::new(), Vec::new());
    for (index, configuration) in experiment.configurations.iter().enumerate() {
        if configuration.modelled.only {
            continue;
        }
        let without_smt = (configuration.smt == Some(false)).then(|| host.machine.without_smt());
        let host = &Host { machine: without_smt.as_ref().unwrap_or(host.machine), ..*host };
        let vms = vms(experiment, configuration, index, host, &workloads, planner)?;
        let points = match widths::points(experiment, configuration, &vms, &threads, host.machine) {
            // Widths that nobody chose are no reason to measure nothing at all.
            Err(narrow @ ResolveError::NoPoint { .. }) if experiment.threads == Choice::Auto => {
                too_narrow.push(narrow);
                continue;
            }
            points => points?,
        };
        let native_files = experiment.guest.as_ref().map(GuestSystem::native_files);
        let name = configuration.name.clone();
        let switches = configuration.switches.as_ref().map(|switches| switches.made(&experiment.switches));
        let (switches, is_span) = (switches.unwrap_or_default(), configuration.ranks_per_vm.is_some());
        let cpus = without_smt.map(|machine| machine.usable_threads().map(|thread| thread.id).collect());
        configurations.push(ResolvedConfiguration { name, vms, points, native_files, cpus, switches, is_span });
    }
    let left_out = experiment.configurations.iter().filter(|configuration| configuration.modelled.only);
    let left_out: Vec<&str> = left_out.map(|configuration| configuration.name.as_str()).collect();
    if !left_out.is_empty() {
        notes.push(format!("Left out, only the model runs it (--on): {}.", left_out.join("; ")));
    }
    if configurations.is_empty()
        && let Some(narrow) = too_narrow.pop()
    {
        return Err(narrow);
    }
    notes.extend(too_narrow.iter().map(|narrow| format!("Left out, this host is too narrow: {narrow}.")));
    notes.extend(shape_notes(host, &configurations));
    let held: Bytes = configurations.iter().flat_map(|c| &c.vms).map(|vm| vm.spec.memory).sum();
    let keep_running = held.saturating_add(memory_of_each(&workloads, 1)).0 <= host.available.0 / 10 * 7;
    Ok(Resolved {
        experiment: experiment.clone(),
        machine: host.machine.name.clone(),
        hardware_threads,
        emulated: host.emulated && configurations.iter().any(|configuration| !configuration.vms.is_empty()),
        workloads,
        notes,
        configurations,
        keep_running,
        guest: None,
    })
}

impl Resolved {
    /// The same, with what its VMs boot.
    #[must_use]
    pub fn with_guest(mut self, guest: ResolvedGuest) -> Self {
        let whose = match self.experiment.guest.as_ref().map(GuestSystem::native_files) {
            Some(NativeFiles::Host) => "Natively the host's own programs run, in VMs others",
            Some(NativeFiles::OfGuest) | None => "Natively and in VMs the same files run",
        };
        let what = match &guest {
            ResolvedGuest::Packages(recipe) => packages(recipe),
            ResolvedGuest::Image(image) => format!("the disk image {}", image.disk.path.display()),
        };
        self.notes.push(format!("{whose}: {what}."));
        self.guest = Some(guest);
        self
    }

    /// Longest wait for a guest's first line, in seconds: what the experiment says, or what a guest
    /// of its kind takes on a slow and busy host. One with an init and a cloud-init of its own
    /// takes minutes under emulation.
    pub fn boot_seconds(&self) -> u32 {
        let image = matches!(self.guest, Some(ResolvedGuest::Image(_)));
        self.experiment.limits.boot_seconds.unwrap_or(match (image, self.emulated) {
            (false, _) => 120,
            (true, false) => 300,
            (true, true) => 900,
        })
    }

    /// A workload that is measured.
    pub fn workload(&self, name: &str) -> Option<&Section> {
        self.workloads.iter().map(|one| &one.section).find(|section| section.name() == name)
    }

    /// The parameters of a workload that is measured, as its own type.
    pub fn parameters<W: Workload>(&self) -> Option<&W> {
        self.workload(W::NAME).and_then(Section::get)
    }
}

/// `lammps 1.2-3 of bookworm (guest 0123456789abcdef)`.
fn packages(recipe: &Recipe) -> String {
    let version = |(name, version): (&String, &Option<String>)| match version {
        Some(version) => format!("{name} {version}"),
        None => name.clone(),
    };
    let packages: Vec<String> = recipe.packages.iter().map(version).collect();
    format!("{} of {} (guest {})", packages.join(", "), recipe.suite, recipe.key())
}

/// All workloads that are measured, and what to say about them.
fn settle(experiment: &Experiment, host: &Host) -> Result<(Vec<ResolvedWorkload>, Vec<String>), ResolveError> {
    let has_vms = experiment.configurations.iter().any(|configuration| configuration.runs == Runs::Vms);
    let environment = environment(experiment);
    let (machine, available, emulated) = (host.machine, host.available, host.emulated && has_vms);
    let site = Site { machine, available, emulated, environment: &environment };
    let (mut workloads, mut all_notes) = (Vec::new(), Vec::new());
    for (section, _) in experiment.parts() {
        let unusable = |fault| ResolveError::Workload { workload: section.name(), fault };
        let Settled { parameters: section, about, notes } = section.settle(&site).map_err(unusable)?;
        all_notes.extend(stands_for(experiment, &section));
        workloads.push(ResolvedWorkload { section, about });
        all_notes.extend(notes);
    }
    Ok((workloads, all_notes))
}

/// What a reader has to know of a program that runs in the place of an application's.
fn stands_for(experiment: &Experiment, section: &Section) -> Option<String> {
    let application = experiment.application.as_ref().filter(|_| section.name() == command::Section::NAME)?;
    let names = section.quantities().into_iter().map(|quantity| quantity.name);
    let names: Vec<String> = names.filter(|name| application.profiles.contains(name)).collect();
    Some(format!(
        "Times of {} are those of another program, which runs in its place ([command]): compare ratios with published \
         ones, not seconds.",
        names.join(", ")
    ))
}

/// What programs find in their environment: where programs and libraries are. Those of a guest of
/// packages lie elsewhere, and natively the same must be found.
fn environment(experiment: &Experiment) -> BTreeMap<String, String> {
    let of_host = || HANDED_ON.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)));
    match experiment.guest {
        None => of_host().collect(),
        Some(_) => GUEST_ENVIRONMENT.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
    }
}

/// Memory that one of so many participants needs for whichever workload it runs.
fn memory_of_each(workloads: &[ResolvedWorkload], participants: u32) -> Bytes {
    workloads.iter().map(|one| one.section.memory(participants)).max().unwrap_or_default()
}

fn vms(
    experiment: &Experiment,
    configuration: &Configuration,
    index: usize,
    host: &Host,
    workloads: &[ResolvedWorkload],
    planner: &Planner,
) -> Result<Vec<ResolvedVm>, ResolveError> {
    if configuration.runs == Runs::Native {
        return Ok(Vec::new());
    }
    let machine = host.machine;
    let homes: Vec<_> = machine
        .nodes
        .iter()
        .filter(|node| node.memory > Bytes(0) && node.allowed && !machine.usable_cpus(node.id).is_empty())
        .map(|node| node.id)
        .collect();
    let per_node = configuration.vms == Vms::PerNode;
    let count = match configuration.vms {
        Vms::Count(count) => count,
        Vms::PerNode => (homes.len() as u32).max(configuration.min_vms.unwrap_or(1)).max(1),
    };
    let hardware_threads = machine.usable_threads().count() as u32;
    let fixed = configuration.vcpus.fixed().map(|vcpus| vcpus.on(machine));
    let vcpus = fixed.unwrap_or((hardware_threads / count).max(1));
    let memory = configuration.memory.fixed().copied().unwrap_or_else(|| {
        let needed = memory_of_each(workloads, count);
        vm_memory(needed, virtual_nodes(configuration, homes.len(), count), host.available)
    });
    let spec = |vm: u32| {
        let mut policy = configuration.policy.clone();
        if per_node && policy.node_affinity.is_none() && !homes.is_empty() {
            policy.node_affinity = Some([homes[vm as usize % homes.len()]].into_iter().collect());
        }
        let name = format!("{}-{index}-{vm}", experiment.name);
        let card = configuration.card.clone().unwrap_or_default();
        let networks = configuration.switches.as_ref().map(|switches| switches.cards(&card, &name, vm));
        let networks = networks.unwrap_or_default();
        VmSpec { shape: Shape { name, vcpus, memory, policy, ..Shape::default() }, networks, ..VmSpec::default() }
    };
    let specs: Vec<VmSpec> = (0..count).map(spec).collect();
    let unusable = |problem| ResolveError::Spec { configuration: configuration.name.clone(), problem };
    specs.iter().try_for_each(VmSpec::check).map_err(unusable)?;
    let plans = planner(machine, &specs)
        .map_err(|reason| ResolveError::Plan { configuration: configuration.name.clone(), reason: Box::new(reason) })?;
    Ok(specs.into_iter().zip(plans).map(|(spec, plan)| ResolvedVm { spec, plan }).collect())
}

/// Most virtual nodes that a VM of this configuration can be expected to have.
fn virtual_nodes(configuration: &Configuration, nodes: usize, vms: u32) -> u64 {
    if let Some(fixed) = &configuration.policy.virtual_nodes {
        return fixed.len().max(1) as u64;
    }
    if configuration.policy.vnuma == Some(false) || configuration.vms == Vms::PerNode {
        return 1;
    }
    (nodes as u64).div_ceil(u64::from(vms)).max(1)
}

/// Memory of a VM whose workload needs so much: each virtual node can hold all of it, since one
/// thread may first-touch it all on its own node; where the host lacks that, room for it once. In
/// each case with room for the guest's kernel.
fn vm_memory(needed: Bytes, virtual_nodes: u64, available: Bytes) -> Bytes {
    let step = 64 * virtual_nodes;
    let round = |bytes: u64| Bytes::from_mib(Bytes(bytes).mib().next_multiple_of(step) + step);
    let needed = needed.0;
    let kernel = Bytes::from_mib(256).0;
    let roomy = round((needed + needed / 32) * virtual_nodes + kernel);
    if roomy.0 <= available.0 / 2 { roomy } else { round(needed + needed / 8 + kernel) }
}

fn shape_notes(host: &Host, configurations: &[ResolvedConfiguration]) -> Vec<String> {
    let has_vms = configurations.iter().any(|configuration| !configuration.vms.is_empty());
    let nodes = host.machine.nodes.iter().filter(|node| !host.machine.usable_cpus(node.id).is_empty()).count();
    let mut notes = Vec::new();
    if has_vms && host.emulated {
        notes.push(
            "VMs ran by SOFTWARE EMULATION (TCG): their ratios to native are not those of hardware virtualization."
                .to_owned(),
        );
    }
    if has_vms && nodes == 1 {
        notes.push(
            "This host has one NUMA node: there is no remote memory, and configurations differ only in how many VMs \
            share the node."
                .to_owned(),
        );
    }
    let mut warnings = BTreeMap::<&str, Vec<&str>>::new();
    for vm in configurations.iter().flat_map(|configuration| &configuration.vms) {
        for warning in &vm.plan.warnings {
            warnings.entry(warning).or_default().push(&vm.spec.name);
        }
    }
    notes.extend(warnings.into_iter().map(|(warning, vms)| format!("{}: {warning}", vms.join(", "))));
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vm_with_two_nodes_can_hold_its_arrays_on_either() {
        // N = 10^8: 2.4e9 B, with 1/32 2475000000; twice that and 256 MiB is 5218435456 B = 4976
        // MiB, in steps of 128 MiB: 4992 + 128.
        assert_eq!(vm_memory(Bytes(2_400_000_000), 2, Bytes(48 << 30)), Bytes::from_mib(5120));
        // Only 8 GiB: 2.7e9 B and 256 MiB is 2830 MiB, in steps: 2944 + 128.
        assert_eq!(vm_memory(Bytes(2_400_000_000), 2, Bytes(8 << 30)), Bytes::from_mib(3072));
    }
}

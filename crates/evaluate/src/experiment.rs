//! The experiment: what a user writes in `experiments/*.toml`. Plain data; nothing here looks at a
//! machine or opens a file.

use crate::applications;
use crate::modelled::settings::{Modelled, NativeOs};
use crate::published::Published;
use crate::switching::{Card, SwitchSection, Switches};
use crate::validation::statement::Statement;
use crate::vcpus::Vcpus;
use serde::{Deserialize, Serialize};
use simulator::workload::WorkloadProfile;
use std::path::PathBuf;
use topology::Bytes;
use vm::spec::{DiskFormat, Firmware, Guest, Policy};
use workloads::choice::Choice;
use workloads::command;
use workloads::kernel::Programs;
use workloads::workload::{Over, Pinning, Workload};
use workloads::{Kind, Section, WORKLOADS};

/// A workload, the configurations that it runs in, and the published figures to stand beside it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Short name: lower-case letters, digits and `-`. Part of the name of the results directory.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// What is measured: the name of a workload, [`NUMA_MATRIX`] or [`APPLICATION`].
    pub workload: String,
    /// The machine of its published figures, on which it is modelled where `--on` names none: a
    /// name that comes with homenode, or a machine file.
    #[serde(default)]
    pub machine: Option<String>,
    /// Profile of the kernels on the model: a name that comes with homenode, or a file. Default:
    /// one by the way of storing.
    #[serde(default)]
    pub profile: Option<String>,
    /// Applications, of `workload = "application"`.
    #[serde(default)]
    pub application: Option<applications::Section>,
    /// The native operating system on the model.
    #[serde(default)]
    pub native_os: NativeOs,
    /// Visits of each configuration at each thread count, in the order A B, B A, A B, ...; with
    /// `until`, the fewest.
    #[serde(default = "default_rounds")]
    pub rounds: u32,
    /// How well ratios are to be known, and how long that may take. Default: `rounds` is all.
    #[serde(default)]
    pub until: Option<Until>,
    /// Repetitions in one visit; the first is not counted, as in STREAM.
    #[serde(default = "default_repetitions")]
    pub repetitions: u32,
    /// Total threads over all VMs: a list, or `"auto"` for 1, 2, 4, ... and all hardware threads.
    #[serde(default)]
    pub threads: Choice<Vec<u32>>,
    /// Where threads run.
    #[serde(default = "default_pinning")]
    pub pinning: Pinning,
    /// The system that the workload runs in. Default: in VMs the tiny guest, natively the host's.
    #[serde(default)]
    pub guest: Option<GuestSystem>,
    /// All workloads that there are, with the parameters of their sections (`[stream]`, ...).
    #[serde(default = "default_sections")]
    pub sections: Vec<Section>,
    /// Time-outs and what counts as disturbed.
    #[serde(default)]
    pub limits: Limits,
    /// Virtual switches that VMs are plugged into.
    #[serde(default, rename = "switch", skip_serializing_if = "Vec::is_empty")]
    pub switches: Vec<SwitchSection>,
    /// In what the workload runs, in the order of the tables.
    #[serde(rename = "configuration")]
    pub configurations: Vec<Configuration>,
    /// Figures of others to stand beside ours.
    #[serde(default)]
    pub published: Vec<Published>,
    /// What the sources say in words.
    #[serde(default, rename = "statement")]
    pub statements: Vec<Statement>,
}

fn default_rounds() -> u32 {
    2
}
fn default_repetitions() -> u32 {
    10
}
fn default_sections() -> Vec<Section> {
    WORKLOADS.iter().map(|kind| kind.section()).collect()
}
fn default_pinning() -> Pinning {
    Pinning::Compact
}

/// `workload = "numa_matrix"`: latency and bandwidth of each (CPU node, memory node) pair.
pub const NUMA_MATRIX: &str = "numa_matrix";
/// What a NUMA matrix measures at each pair.
const OF_MATRIX: [&str; 2] = ["chase", "stream"];
/// `workload = "application"`: programs that run to their end, at each number of threads or
/// processes. The model runs their profiles; on a host kernels run in their place.
pub const APPLICATION: &str = "application";

impl Experiment {
    /// The workloads that are measured, and at which points; none of applications in whose place no
    /// kernel runs.
    pub fn parts(&self) -> Vec<(&Section, Over)> {
        if self.workload == NUMA_MATRIX {
            return OF_MATRIX.iter().filter_map(|name| Some((self.section(name)?, Over::NodePairs))).collect();
        }
        if self.is_application() {
            return self.stand_ins().map(|section| (section, section.over())).collect();
        }
        self.section(&self.workload).map(|section| (section, section.over())).into_iter().collect()
    }

    /// What runs on a host in place of an application's programs: kernels of `[kernels]`, or the
    /// program of `[command]`. One of them at most, of an experiment that was read.
    pub(crate) fn stand_ins(&self) -> impl Iterator<Item = &Section> {
        let has_kernels = !self.parameters::<Programs>().programs.is_empty();
        let has_command = self.parameters::<command::Section>() != command::Section::default();
        let named = [(Programs::NAME, has_kernels), (command::Section::NAME, has_command)];
        named.into_iter().filter(|(_, given)| *given).filter_map(|(name, _)| self.section(name))
    }

    /// The same without the program that stands on a host for an application's: the model runs the
    /// applications themselves.
    pub(crate) fn of_applications_themselves(&self) -> Self {
        let mut experiment = self.clone();
        if self.is_application() {
            experiment.guest = None;
            experiment.replace_section(Section::new(command::Section::default()));
        }
        experiment
    }

    /// Whether it is of programs that run to their end.
    pub fn is_application(&self) -> bool {
        self.workload == APPLICATION
    }

    /// The section of a workload.
    pub fn section(&self, workload: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name() == workload)
    }

    /// The section of a workload, as its own type; its defaults where the experiment has none.
    pub fn parameters<W: Workload>(&self) -> W {
        self.section(W::NAME).and_then(Section::get).cloned().unwrap_or_default()
    }

    /// The same configurations with the work of a profile: of an application, in the place of
    /// whatever is measured; of kernels, in that of STREAM's.
    #[must_use]
    pub fn with_profile(&self, profile: &WorkloadProfile) -> Self {
        let mut experiment = self.clone();
        if profile.application.is_some() {
            experiment.workload = APPLICATION.to_owned();
            experiment.application = Some(applications::Section {
                profiles: vec![profile.name.clone()],
                ..applications::Section::default()
            });
            experiment.replace_section(Section::new(Programs::default()));
        } else {
            experiment.profile = Some(profile.name.clone());
        }
        experiment
    }

    /// Puts another section in the place of the one of its workload.
    pub fn replace_section(&mut self, section: Section) {
        match self.sections.iter_mut().find(|other| other.name() == section.name()) {
            Some(other) => *other = section,
            None => self.sections.push(section),
        }
    }
}

/// What `workload` may be.
pub(crate) fn workload_names(kinds: &[Kind]) -> String {
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name).chain([NUMA_MATRIX, APPLICATION]).collect();
    names.join(", ")
}

/// The system that a workload runs in: a distribution's packages, or a disk image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestSystem {
    /// Packages, by the distribution's names.
    #[serde(default)]
    pub packages: Vec<String>,
    /// The distribution's release, by its codename. Default: the host's own.
    #[serde(default)]
    pub suite: Option<String>,
    /// In place of packages: a disk image with a system of its own.
    #[serde(default)]
    pub image: Option<PathBuf>,
    /// The image's format. Default: qcow2.
    #[serde(default)]
    pub format: Option<DiskFormat>,
    /// The firmware that the image boots by. Default: BIOS.
    #[serde(default)]
    pub firmware: Option<Firmware>,
    /// What runs natively. Default: the files of the packages; the host's where there is an image,
    /// whose files are out of reach.
    #[serde(default)]
    pub native: Option<NativeFiles>,
}

impl GuestSystem {
    /// The system itself.
    pub fn guest(&self) -> Guest {
        let Self { packages, suite, image, format, firmware, native: _ } = self.clone();
        Guest { packages, suite, image, format, firmware }
    }

    /// Whose files run natively.
    pub fn native_files(&self) -> NativeFiles {
        let default = if self.image.is_some() { NativeFiles::Host } else { NativeFiles::OfGuest };
        self.native.unwrap_or(default)
    }
}

/// Whose programs and libraries run natively.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NativeFiles {
    /// The guest's own: the same bytes as in VMs.
    OfGuest,
    /// The host's, which may be other versions.
    Host,
}

/// When rounds end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Until {
    /// Widest interval (95 %) of a ratio, from end to end, in per cent of it.
    pub interval_percent: f64,
    /// Longest time of measuring.
    pub at_most_minutes: f64,
}

/// Time-outs and what counts as disturbed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Longest wait for a guest's first line, in seconds. Default: by what it boots
    /// ([`crate::resolve::Resolved::boot_seconds`]).
    pub boot_seconds: Option<u32>,
    /// Longest wait for one answer of an agent, in seconds.
    pub repetition_seconds: u32,
    /// A repetition is rejected if other processes took more than this share of one CPU meanwhile,
    /// in per cent.
    pub other_cpu_percent: f64,
    /// How often the rejected repetitions of a visit are made again.
    pub repeat_disturbed: u32,
    /// Longest wait for a quiet machine before rejected repetitions are made again, in seconds.
    pub quiet_seconds: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            boot_seconds: None,
            repetition_seconds: 300,
            other_cpu_percent: 8.0,
            repeat_disturbed: 2,
            quiet_seconds: 5,
        }
    }
}

/// In what the workload runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Configuration {
    /// Its name in tables.
    pub name: String,
    /// On the host itself or in VMs.
    pub runs: Runs,
    /// VMs that run at the same time: a number, or `"per_node"`. Default: 1.
    #[serde(default)]
    pub vms: Vms,
    /// Fewest VMs with `vms = "per_node"`: a host with fewer nodes runs several VMs on a node.
    #[serde(default)]
    pub min_vms: Option<u32>,
    /// vCPUs of each VM, or `"auto"`: the host's hardware threads divided by the VMs.
    #[serde(default)]
    pub vcpus: Choice<Vcpus>,
    /// Memory of each VM, or `"auto"`: what the arrays need.
    #[serde(default)]
    pub memory: Choice<Bytes>,
    /// How the VMs are sized and placed.
    #[serde(default)]
    pub policy: Policy,
    /// The switches that its VMs are plugged into: how many, or which. On the model as on a host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switches: Option<Switches>,
    /// Its VMs' cards in switches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card: Option<Card>,
    /// Ranks in each VM of one program that spans them all, or `"auto"`: the threads divided by the
    /// VMs. Default: each VM runs the program for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks_per_vm: Option<Choice<u32>>,
    /// Whether both hardware threads of a core may work; default: true. With `false` natively and
    /// in VMs only the first of each core does. On the model as on a host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smt: Option<bool>,
    /// The machine that this configuration is modelled on, whatever `--on` says: a name that comes
    /// with homenode, or a machine file.
    #[serde(default)]
    pub machine: Option<String>,
    /// What the model alone needs to know.
    #[serde(default)]
    pub modelled: Modelled,
}

impl Configuration {
    /// Whether both hardware threads of a core work on the model.
    pub(crate) fn has_smt_on_the_model(&self) -> bool {
        self.modelled.smt.or(self.smt).unwrap_or(true)
    }
}

/// On the host itself or in VMs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Runs {
    /// On the host.
    Native,
    /// In VMs.
    Vms,
}

/// How many VMs run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vms {
    /// One on each NUMA node.
    PerNode,
    /// This many.
    Count(u32),
}

impl Default for Vms {
    fn default() -> Self {
        Self::Count(1)
    }
}

impl Serialize for Vms {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::PerNode => serializer.serialize_str("per_node"),
            Self::Count(count) => serializer.serialize_u32(*count),
        }
    }
}

impl<'de> Deserialize<'de> for Vms {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = toml::Value::deserialize(deserializer)?;
        let bad =
            || serde::de::Error::custom(format!("vms = {value} is not valid: write a number from 1, or \"per_node\""));
        match &value {
            toml::Value::String(text) if text == "per_node" => Ok(Self::PerNode),
            toml::Value::Integer(count) => u32::try_from(*count).map(Self::Count).map_err(|_| bad()),
            _ => Err(bad()),
        }
    }
}

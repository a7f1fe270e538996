//! The command line. Help, shell completions and the man page all come from here.

pub(crate) use crate::args_balance::{BalanceArguments, DoctorArguments, TopArguments, WhyArguments};
pub(crate) use crate::args_guest::GuestArguments;
pub(crate) use crate::args_libvirt::{
    CheckArguments, ConnectArguments, EmitArgument, FirmwareArgument, StartThrough, Via,
};
pub(crate) use crate::args_model::{
    AdviseArguments, CalibrateArguments, CompareArguments, MachineCommandArguments, ProfileArguments, ValidateArguments,
};
pub(crate) use crate::args_results::ResultsArguments;
pub(crate) use crate::args_switch::SwitchArguments;
pub(crate) use crate::args_vm::{VmArguments, VmCommand};
use clap::{Args, Parser, Subcommand, value_parser};
use std::path::PathBuf;

/// Gives every virtual machine on a Linux/KVM host its NUMA home, and proves what that was worth.
#[derive(Parser)]
#[command(
    name = "homenode",
    version,
    max_term_width = 110,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Show the machine: sockets, NUMA nodes, caches, cores, memory, distances
    Topology(TopologyArguments),
    /// Size a VM's virtual NUMA nodes and choose their homes; say why
    Plan(PlanArguments),
    /// Start a VM at its home and say where it really is
    Run(RunArguments),
    /// The life of VMs: list, start, stop, resize, suspend, resume, migrate, forget them
    Vm(VmArguments),
    /// Systems for guests, of a distribution's packages: build, list, show, remove them
    Guest(GuestArguments),
    /// Virtual switches between VMs: create, list, show, delete them
    Switch(SwitchArguments),
    /// Run an experiment natively and in VMs, or on a model; print its tables and write its report
    Evaluate(EvaluateArguments),
    /// What was measured and modelled before: list it, print its tables again, write them as files
    Results(ResultsArguments),
    /// Set measured runs side by side, with what differs between them
    Compare(CompareArguments),
    /// Check a machine file: what is missing or impossible in it
    Machine(MachineCommandArguments),
    /// Measure this host and write its machine file, so that it can be modelled
    Calibrate(CalibrateArguments),
    /// Run every published experiment on the model and print how wrong it is
    Validate(ValidateArguments),
    /// Fit a workload profile to a measured run, so that the model can say what the program would
    /// do on another machine
    Profile(ProfileArguments),
    /// Compare shapes of a VM on the model of a machine, and rank them
    Advise(AdviseArguments),
    /// Keep every VM of this host at its NUMA home
    Balance(BalanceArguments),
    /// Show nodes and VMs, refreshing in place
    Top(TopArguments),
    /// Say why a VM lives where it does, and what would move it
    Why(WhyArguments),
    /// Judge a libvirt domain or a running VM for this machine, worst first, each with its cure
    Check(CheckArguments),
    /// Look for pages, policies and affinities that disagree with a VM's home, and repair them
    Doctor(DoctorArguments),
    /// Print the help of a command, or with `words` what the words in tables and messages mean
    Help {
        /// A command, such as `vm list`; or `words`
        #[arg(value_name = "COMMAND")]
        topic: Vec<String>,
    },
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page (roff)
    #[command(hide = true)]
    Man,
}

/// Which machine.
#[derive(Args)]
pub(crate) struct MachineArguments {
    /// Another machine than this host: a name from machines/, a machine file (.toml), XML of hwloc
    /// or of libvirt's capabilities, a directory or an archive with a captured /sys, or a synthetic
    /// string such as 'pack:2 [numa] l3:2 core:4 pu:2'
    #[arg(long, value_name = "MACHINE")]
    pub(crate) on: Option<String>,
}

#[derive(Args)]
pub(crate) struct TopologyArguments {
    #[command(flatten)]
    pub(crate) machine: MachineArguments,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) connect: ConnectArguments,
    /// Pack what homenode reads of this host into FILE (.tar.gz), for a bug report
    #[arg(long, value_name = "FILE", conflicts_with_all = ["on", "connect", "json"])]
    pub(crate) capture: Option<PathBuf>,
    /// Overwrite FILE of --capture
    #[arg(long, requires = "capture")]
    pub(crate) force: bool,
}

#[derive(Args)]
pub(crate) struct PlanArguments {
    /// VM specs, and directories of them; several are planned together. With --emit proxmox also a
    /// VM that Proxmox VE has: its configuration (ID.conf) or its number
    #[arg(value_name = "VM.toml", required = true)]
    pub(crate) specs: Vec<PathBuf>,
    /// Another machine than this host, as for `homenode topology`, or a directory of machine files
    /// and captures; several: each VM goes where it fits best
    #[arg(long, value_name = "MACHINE")]
    pub(crate) on: Vec<String>,
    /// With --on: what runs there already, as `homenode top --json` printed it there, or as XML of
    /// its domains (virsh dumpxml: a file or a directory); once for each machine, in the same order
    #[arg(long, value_name = "FILE", requires = "on")]
    pub(crate) occupied: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) connect: ConnectArguments,
    /// Print the plan in the language of a stack, with what that stack cannot express in comments
    #[arg(long, value_name = "KIND", conflicts_with = "json")]
    pub(crate) emit: Option<EmitArgument>,
    /// With --emit: write a text for each VM into this new directory, those of several machines
    /// into a directory for each
    #[arg(long, value_name = "DIRECTORY", requires = "emit")]
    pub(crate) into: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct RunArguments {
    /// The VM spec
    #[arg(value_name = "VM.toml")]
    pub(crate) spec: PathBuf,
    /// Leave the VM running in the background, and return when it runs at its home
    #[arg(long)]
    pub(crate) daemonize: bool,
    /// Boot this kernel instead of the spec's
    #[arg(long, value_name = "FILE")]
    pub(crate) kernel: Option<PathBuf>,
    /// Boot the tiny guest, compare the NUMA topology that its kernel sees with the plan, power
    /// off; exit code 1 if they differ
    #[arg(long, conflicts_with = "daemonize")]
    pub(crate) check: bool,
    /// Print QEMU's command line and start nothing
    #[arg(long, conflicts_with_all = ["daemonize", "check"])]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) through: StartThrough,
    /// Print where the VM is as JSON
    #[arg(long, conflicts_with_all = ["check", "dry_run"])]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct EvaluateArguments {
    /// The experiment; or, with --resume or a command, left out
    #[arg(value_name = "EXPERIMENT.toml", required_unless_present_any = ["resume", "command"], conflicts_with = "resume")]
    pub(crate) experiment: Option<PathBuf>,
    /// Instead of an experiment: a command, whose wall time is measured natively, in one VM with
    /// vNUMA, in one without, and in a VM for each node. {threads} and {ranks} in it stand for
    /// numbers
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["experiment", "resume", "on"])]
    pub(crate) command: Vec<String>,
    /// With a command: it runs in a system of these packages, by the distribution's names, with
    /// commas between; natively and in VMs the same files. Files that it names by relative paths
    /// are copied to where it runs
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "command",
        conflicts_with_all = ["experiment", "resume", "on"])]
    pub(crate) packages: Vec<String>,
    /// With a command: VMs boot this disk image (qcow2), which is never written and has cloud-init;
    /// natively the host's own program runs
    #[arg(long, value_name = "FILE", requires = "command",
        conflicts_with_all = ["packages", "experiment", "resume", "on"])]
    pub(crate) image: Option<PathBuf>,
    /// With --image: the firmware that boots it
    #[arg(long, value_enum, default_value = "bios", requires = "image")]
    pub(crate) firmware: FirmwareArgument,
    /// With --packages: the distribution's release by its codename. Default: this host's own
    #[arg(long, value_name = "SUITE", requires = "packages")]
    pub(crate) suite: Option<String>,
    /// In place of the file's threads: these numbers, with commas between; also more than this host
    /// has hardware threads
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = value_parser!(u32).range(1..=8192),
        conflicts_with_all = ["resume", "on"])]
    pub(crate) threads: Vec<u32>,
    /// In place of the file's rounds
    #[arg(long, value_name = "NUMBER", value_parser = value_parser!(u32).range(1..=100),
        conflicts_with_all = ["resume", "on"])]
    pub(crate) rounds: Option<u32>,
    /// In place of the file's repetitions; the first of each visit never counts
    #[arg(long, value_name = "NUMBER", value_parser = value_parser!(u32).range(2..=i64::from(workloads::MAX_REPETITIONS)),
        conflicts_with_all = ["resume", "on"])]
    pub(crate) repetitions: Option<u32>,
    /// Measure nothing: compute the figures on the model of this machine, a name from machines/ or
    /// a machine file (.toml) with rates. Configurations that name a machine of their own keep it
    #[arg(long, value_name = "MACHINE", conflicts_with_all = ["resume", "dry_run"])]
    pub(crate) on: Option<String>,
    /// With --on: model this work in the experiment's configurations: a profile that `homenode
    /// profile` wrote, or the name of one that comes with homenode
    #[arg(long, value_name = "PROFILE")]
    pub(crate) profile: Option<String>,
    /// With --on: the results directory of a measured run of the same experiment, whose figures
    /// stand beside the modelled ones
    #[arg(long, value_name = "RESULTS")]
    pub(crate) beside: Option<PathBuf>,
    /// With --on: decides what is drawn where placements are too many to enumerate; the same seed
    /// gives the same figures. Default: 1
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,
    /// Continue an evaluation that was cut short, from its results directory
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) resume: Option<PathBuf>,
    /// Where results are written
    #[arg(long, value_name = "DIRECTORY", default_value = "results")]
    pub(crate) results: PathBuf,
    /// Say what would run, and for how long, and run nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print the tables as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

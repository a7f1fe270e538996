//! Arguments of the commands that are about the modelled machine.

use clap::{Args, Subcommand, ValueEnum};
use simulator::workload::Class;
use std::path::PathBuf;

#[derive(Args)]
pub(crate) struct MachineCommandArguments {
    #[command(subcommand)]
    pub(crate) command: MachineCommand,
}

#[derive(Subcommand)]
pub(crate) enum MachineCommand {
    /// List the machines that come with homenode
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Say what is missing, impossible, doubtful or assumed in a machine file; exit code 2 if it
    /// cannot be modelled
    Check {
        /// A machine file, or the name of a machine that comes with homenode
        #[arg(value_name = "FILE|NAME")]
        machine: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args)]
pub(crate) struct CalibrateArguments {
    /// Where the machine file is written; default: the host's name with .toml, in this directory
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Overwrite FILE if it exists
    #[arg(long)]
    pub(crate) force: bool,
    /// Small arrays and few repetitions: seconds instead of minutes, and a rougher result
    #[arg(long)]
    pub(crate) quick: bool,
    /// Fit what messages between VMs cost to a measured scan: the results of
    /// experiments/network-switches.toml
    #[arg(long, value_name = "RESULTS")]
    pub(crate) network: Option<PathBuf>,
    /// Print the rates and the residuals of the fit as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What binds a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClassArgument {
    /// Its cores: it works in caches
    Compute,
    /// Memory bandwidth: it streams, and computes before or after
    Bandwidth,
    /// It streams, and computes on each line meanwhile
    Overlap,
    /// Single misses, each of which waits for the one before
    Latency,
    /// It streams, beside a serial part that no thread shortens
    Serial,
}

impl From<ClassArgument> for Class {
    fn from(argument: ClassArgument) -> Self {
        match argument {
            ClassArgument::Compute => Self::Compute,
            ClassArgument::Bandwidth => Self::Bandwidth,
            ClassArgument::Overlap => Self::Overlap,
            ClassArgument::Latency => Self::Latency,
            ClassArgument::Serial => Self::Serial,
        }
    }
}

#[derive(Args)]
pub(crate) struct ProfileArguments {
    /// Results directory of a measured run (results/<time>-<name>) with a native configuration at
    /// several numbers of threads
    #[arg(value_name = "RESULTS")]
    pub(crate) results: PathBuf,
    /// The machine file that `homenode calibrate` wrote where the run was measured. Default: the
    /// host's name with .toml, in this directory
    #[arg(long, value_name = "MACHINE")]
    pub(crate) on: Option<String>,
    /// The figure to fit, where the run has several: a time, or a rate of work
    #[arg(long, value_name = "NAME")]
    pub(crate) figure: Option<String>,
    /// What binds the program, where you know. Default: what fits the scan
    #[arg(long, value_name = "CLASS")]
    pub(crate) class: Option<ClassArgument>,
    /// Fit on these numbers of threads; the others test the profile. Default: all that leave each
    /// core with one busy thread
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) fit_threads: Vec<u32>,
    /// Write the profile into FILE (.toml)
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Overwrite FILE if it exists
    #[arg(long, requires = "output")]
    pub(crate) force: bool,
    /// Print the profile and its residuals as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct CompareArguments {
    /// Results directories of measured runs (results/<time>-<name>); the others are compared with
    /// the first
    #[arg(value_name = "RESULTS", required = true, num_args = 2..)]
    pub(crate) results: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct ValidateArguments {
    /// Print every figure, not only the errors by group
    #[arg(long)]
    pub(crate) cells: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct AdviseArguments {
    /// The VM spec
    #[arg(value_name = "VM.toml")]
    pub(crate) spec: PathBuf,
    /// The machine: one with rates, by its name (homenode machine list) or its file
    #[arg(long, value_name = "MACHINE")]
    pub(crate) on: String,
    /// What the VM will run: the name of a workload profile that comes with homenode, or its file
    #[arg(long, value_name = "PROFILE")]
    pub(crate) workload: String,
    /// Threads or processes of the workload; default: one for each vCPU
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<u32>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

//! Arguments of the commands that are about the modelled machine.

use clap::{Args, Subcommand};
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
    /// Print the rates and the residuals of the fit as JSON
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

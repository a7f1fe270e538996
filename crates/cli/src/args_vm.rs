//! Arguments of `homenode vm`.

use clap::{Args, Subcommand};

#[derive(Args)]
pub(crate) struct VmArguments {
    #[command(subcommand)]
    pub(crate) command: VmCommand,
}

#[derive(Subcommand)]
pub(crate) enum VmCommand {
    /// List the VMs that homenode started in the background
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Attach this terminal to a VM's console; Ctrl-] leaves
    Console {
        /// Name of the VM
        name: String,
    },
    /// Stop a VM: power it down, and end it if it does not
    Stop {
        /// Name of the VM
        name: String,
        /// Do not ask the guest
        #[arg(long)]
        force: bool,
    },
}

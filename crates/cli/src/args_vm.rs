//! Arguments of `homenode vm`.

use crate::args_migrate::{MigrateArguments, ReceiveArguments};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use topology::{Bytes, NodeSet};

#[derive(Args)]
pub(crate) struct VmArguments {
    #[command(subcommand)]
    pub(crate) command: VmCommand,
}

#[derive(Subcommand)]
pub(crate) enum VmCommand {
    /// List the VMs that homenode keeps, in every state
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show all that is known of a VM: its virtual topology, where it lives, its life so far
    Show {
        /// Name of the VM
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Start a VM that is kept and does not run, with the virtual topology that it had
    Start {
        /// Name of the VM
        name: String,
        /// Print where the VM is as JSON
        #[arg(long)]
        json: bool,
    },
    /// Attach this terminal to a VM's console; Ctrl-] leaves
    Console {
        /// Name of the VM
        name: String,
    },
    /// Stop the vCPUs of a VM; its memory stays where it is
    Pause {
        /// Name of the VM
        name: String,
    },
    /// Let the vCPUs of a VM go on that is paused
    Continue {
        /// Name of the VM
        name: String,
    },
    /// Reset a VM, as its reset button would
    Reset {
        /// Name of the VM
        name: String,
    },
    /// Add vCPUs and memory to a VM while it runs, or take them away; of one that is stopped, for
    /// its next power-on
    Set(SetArguments),
    /// Say what a fresh sizing would change in a VM's virtual topology, and do it at its next
    /// power-on
    ResizeTopology {
        /// Name of the VM
        name: String,
        /// Keep the topology that it has after all
        #[arg(long)]
        cancel: bool,
    },
    /// Forget a VM that does not run: its virtual topology and its life; its disks stay
    Delete {
        /// Name of the VM
        name: String,
        /// End it first where it runs, forget its memory where it is suspended
        #[arg(long)]
        force: bool,
    },
    /// Move a VM to another host, or to another home on this one, while it runs
    Migrate(MigrateArguments),
    /// Receive a VM; `homenode vm migrate` starts it
    #[command(hide = true)]
    Receive(ReceiveArguments),
    /// Write a VM into a file and end its process; `vm resume` lets it go on
    Suspend(SuspendArguments),
    /// Let a VM go on that is suspended, at homes that are planned anew, here or on another host
    Resume(ResumeArguments),
    /// Stop a VM: power it down, and end it if it does not
    Stop {
        /// Name of the VM
        name: String,
        /// Do not ask the guest; where it is suspended, forget its memory
        #[arg(long)]
        force: bool,
    },
}

#[derive(Args)]
pub(crate) struct SuspendArguments {
    /// Name of the VM
    pub(crate) name: String,
    /// Write this file instead of one beside the VM's record
    #[arg(long, value_name = "FILE")]
    pub(crate) to: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct ResumeArguments {
    /// Name of the VM, or a file that a VM was suspended in, also on another host
    #[arg(value_name = "NAME|FILE")]
    pub(crate) vm: String,
    /// Read this file instead of the one that it was suspended in: where that was moved
    #[arg(long, value_name = "FILE")]
    pub(crate) from: Option<PathBuf>,
    /// Print where it would live and why, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct SetArguments {
    /// Name of the VM
    pub(crate) name: String,
    /// vCPUs in all, up to `max_vcpus` of its spec
    #[arg(long, value_name = "N", required_unless_present = "memory")]
    pub(crate) vcpus: Option<u32>,
    /// Memory in all, up to `max_memory` of its spec, for example "24 GiB"
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<Bytes>,
    /// Virtual nodes that may change, for example "0,2". Default: those that keep it even
    #[arg(long, value_name = "LIST")]
    pub(crate) nodes: Option<NodeSet>,
    /// Only say what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

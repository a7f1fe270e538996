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
        /// Also the domains of this libvirt; those of the system and of this user are listed anyway
        #[arg(long, value_name = "URI")]
        connect: Option<String>,
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
    /// Start a VM that does not run, with the virtual topology that it had
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
    /// Let a paused VM go on
    Continue {
        /// Name of the VM
        name: String,
    },
    /// Reset a VM, as its reset button would
    Reset {
        /// Name of the VM
        name: String,
    },
    /// Add vCPUs and memory to a VM while it runs, or take them away; a VM that is stopped has them
    /// from its next power-on on
    Set(SetArguments),
    /// Say what a fresh sizing would change in a VM's virtual topology, and do it at its next
    /// power-on
    ResizeTopology {
        /// Name of the VM
        name: String,
        /// Take that back: it keeps the topology that it has
        #[arg(long)]
        cancel: bool,
    },
    /// Keep a domain of libvirt's no longer, and leave it as it is, running and defined
    Forget {
        /// Name of the VM
        name: String,
    },
    /// Forget a VM that does not run: its virtual topology, its life, and the definition that
    /// homenode made for it; its disks stay
    Delete {
        /// Name of the VM
        name: String,
        /// Also one that runs: ENDS it first; or is suspended: its memory is lost
        #[arg(long)]
        force: bool,
    },
    /// Keep a domain of libvirt's that somebody else made, as it is
    Adopt(AdoptArguments),
    /// Move one client of a VM that runs to another node of this host: its vCPUs, then its memory
    Move(MoveArguments),
    /// Move a VM to another host, or to another home on this one, while it runs
    Migrate(MigrateArguments),
    /// Receive a VM; `homenode vm migrate` starts it
    #[command(hide = true)]
    Receive(ReceiveArguments),
    /// Write a VM into a file and end its process; `vm resume` lets it go on
    Suspend(SuspendArguments),
    /// Let a suspended VM go on, here or on another host; its homes are planned anew
    Resume(ResumeArguments),
    /// Stop a VM: power it down, and end it if it does not
    Stop {
        /// Name of the VM
        name: String,
        /// End it without asking its guest; also one that is suspended: its memory is lost
        #[arg(long)]
        force: bool,
    },
}

#[derive(Args)]
pub(crate) struct AdoptArguments {
    /// Name or UUID of the domain
    pub(crate) name: String,
    /// The libvirt of this host that has it [default: what virsh takes]
    #[arg(long, value_name = "URI")]
    pub(crate) connect: Option<String>,
}

#[derive(Args)]
pub(crate) struct MoveArguments {
    /// The VM: its name, UUID or process number
    pub(crate) name: String,
    /// The client, as `homenode top` and `homenode why` number them: a virtual node
    #[arg(long, value_name = "N")]
    pub(crate) client: u32,
    /// The node of this host
    #[arg(long, value_name = "NODE")]
    pub(crate) to: u32,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
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
    /// Name of the VM; or the file that it is in, also on a host that does not know it
    #[arg(value_name = "NAME|FILE")]
    pub(crate) vm: String,
    /// The file that it is in, if that was moved
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
#[command(group = clap::ArgGroup::new("size").args(["vcpus", "memory"]).required(true).multiple(true))]
pub(crate) struct SetArguments {
    /// Name of the VM
    pub(crate) name: String,
    /// vCPUs in all, up to `max_vcpus` of its spec
    #[arg(long, value_name = "N")]
    pub(crate) vcpus: Option<u32>,
    /// Memory in all, up to `max_memory` of its spec, for example "24 GiB"
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<Bytes>,
    /// Only these virtual nodes may change, for example "0,2". Default: all, and they stay even
    #[arg(long, value_name = "LIST")]
    pub(crate) nodes: Option<NodeSet>,
    /// Only say what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

//! Arguments of `homenode switch`.

use clap::{Args, Subcommand};
use network::{Delay, InterfaceName, Rate, SwitchKind, SwitchName};
use std::path::PathBuf;

#[derive(Args)]
pub(crate) struct SwitchArguments {
    #[command(subcommand)]
    pub(crate) command: SwitchCommand,
}

#[derive(Subcommand)]
pub(crate) enum SwitchCommand {
    /// Make a switch for VMs, which stays until it is deleted or the host stops
    Create(CreateArguments),
    /// List the switches
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what is plugged into a switch, and how much went through
    Show {
        /// Name of the switch
        switch: SwitchName,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a switch that nothing is plugged into
    Delete {
        /// Name of the switch
        switch: SwitchName,
    },
    /// Keep switches, for whoever holds standard input: homenode starts this itself
    #[command(hide = true)]
    Keep {
        /// Where standard input listens
        path: Option<PathBuf>,
    },
}

#[derive(Args)]
pub(crate) struct CreateArguments {
    /// Name of the switch: 1 to 15 small letters, digits and hyphens
    pub(crate) name: SwitchName,
    /// What moves its frames: the kernel, in a namespace of homenode's own, or vde_switch, a
    /// program of yours that needs no right and is joined to nothing else
    #[arg(long, value_name = "kernel|vde", default_value = "kernel")]
    pub(crate) kind: SwitchKind,
    /// Join it to another switch, as by a physical link; several times for several
    #[arg(long, value_name = "SWITCH")]
    pub(crate) uplink: Vec<SwitchName>,
    /// Join it to a bridge of the host's own network; needs root
    #[arg(long, value_name = "BRIDGE")]
    pub(crate) bridge: Vec<InterfaceName>,
    /// Join it to a card of the host that the host itself does not use; needs root
    #[arg(long, value_name = "CARD")]
    pub(crate) card: Vec<InterfaceName>,
    /// Bits a second of the links, each way, such as '1 Gbit/s'. Default: as fast as memory
    #[arg(long, requires = "uplink", allow_hyphen_values = true)]
    pub(crate) rate: Option<Rate>,
    /// Time that a frame takes over the links, such as '50 us'. Default: none of ours
    #[arg(long, requires = "uplink", allow_hyphen_values = true)]
    pub(crate) delay: Option<Delay>,
}

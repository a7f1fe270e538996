//! Whose VMs a command looks at: one set of arguments for all that look.

use clap::Args;
use std::path::PathBuf;

/// A source of VMs; without any of these, this host.
///
/// Each argument names all that it does not go with, though it `requires` another that names it
/// too: clap does not ask for an argument that conflicts with one that is there.
#[derive(Args, Clone, Default, PartialEq)]
#[group(skip)]
pub(crate) struct SourceArguments {
    /// Another host, by libvirt's own URI: qemu+ssh://host/system (docs/connect.md)
    #[arg(long, value_name = "URI", conflicts_with_all = ["on", "replay"])]
    pub(crate) connect: Option<String>,
    /// A modelled machine, with rates: a name from machines/ or a machine file; --trace says which
    /// VMs come and go on it
    #[arg(long, value_name = "MACHINE", requires = "trace", conflicts_with_all = ["connect", "replay"])]
    pub(crate) on: Option<String>,
    /// With --on: the VMs that come and go and what they want, a trace (docs/balance.md)
    #[arg(long, value_name = "FILE", requires = "on", conflicts_with_all = ["connect", "replay"])]
    pub(crate) trace: Option<PathBuf>,
    /// A recording that `homenode balance --record` wrote
    #[arg(long, value_name = "FILE")]
    pub(crate) replay: Option<PathBuf>,
}

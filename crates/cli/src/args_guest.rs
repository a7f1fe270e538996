//! Arguments of `homenode guest`.

use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Args)]
pub(crate) struct GuestArguments {
    #[command(subcommand)]
    pub(crate) command: GuestCommand,
}

#[derive(Subcommand)]
pub(crate) enum GuestCommand {
    /// Build the guest of a VM spec, or of packages; one that is built already is only named
    Build(BuildArguments),
    /// List the guests that are built
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what a guest is made of, and where it lies
    Show {
        /// Name of the guest, or how it begins
        guest: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Run a command of a guest natively, on this host: with the guest's files, without the guest
    Native {
        /// Name of the guest, or how it begins
        guest: String,
        /// The command, after `--`
        #[arg(last = true, required = true, value_name = "COMMAND")]
        command: Vec<OsString>,
    },
    /// Remove a guest that was built
    Delete {
        /// Name of the guest, or how it begins
        guest: String,
        /// Also where a VM that is kept boots it
        #[arg(long)]
        force: bool,
    },
}

#[derive(Args)]
#[command(group = clap::ArgGroup::new("what").args(["spec", "packages"]).required(true))]
pub(crate) struct BuildArguments {
    /// A VM spec with a table [guest]
    #[arg(value_name = "VM.toml")]
    pub(crate) spec: Option<PathBuf>,
    /// Packages by the distribution's names, with commas between
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) packages: Vec<String>,
    /// The distribution's release by its codename. Default: this host's own
    #[arg(long, value_name = "SUITE", requires = "packages")]
    pub(crate) suite: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

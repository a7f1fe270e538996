//! Arguments of `homenode vm migrate` and of the program that it starts on the other host.

use clap::Args;
use std::time::Duration;
use topology::Bytes;
use vm::sending::MOST_CONNECTIONS;

#[derive(Args)]
pub(crate) struct MigrateArguments {
    /// Name of the VM
    pub(crate) name: String,
    /// Where to: a host as ssh knows it, with a homenode of its own; or `unix:`, another home on
    /// this host. For a VM that libvirt runs: a host (`qemu+ssh://HOST/system`), or a libvirt URI
    #[arg(long, value_name = "HOST")]
    pub(crate) to: Option<String>,
    /// Send nothing: say what would be sent, how long it would take, and where the VM would live
    #[arg(long, conflicts_with = "resolve")]
    pub(crate) dry_run: bool,
    /// Disks of the same path and size are the same disks on both hosts
    #[arg(long)]
    pub(crate) shared_storage: bool,
    /// Send at most so much in a second, for example "500 MiB". Default: as much as the link takes
    #[arg(long, value_name = "SIZE", value_parser = bandwidth)]
    pub(crate) bandwidth: Option<Bytes>,
    /// For how long the guest may stand still, in milliseconds
    #[arg(
        long,
        value_name = "MILLISECONDS",
        default_value = "300",
        value_parser = clap::value_parser!(u64).range(1..=60_000)
    )]
    pub(crate) downtime: u64,
    /// Do not slow down a guest that writes its memory faster than it can be sent
    #[arg(long)]
    pub(crate) no_auto_converge: bool,
    /// Let the guest go once all its memory was sent once, and the rest follow: for one that writes
    /// faster than the link. Until all is there it is lost if either host fails
    #[arg(long)]
    pub(crate) postcopy: bool,
    /// How many connections carry the memory, from 1 to 8: over ssh each is as fast as one CPU
    /// ciphers
    #[arg(
        long,
        value_name = "NUMBER",
        default_value = "1",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_CONNECTIONS))
    )]
    pub(crate) connections: u32,
    /// Call it off if it takes longer; the VM then goes on here
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
    /// After a migration that was cut short: find out on which host the guest is, and let it go on
    /// there
    #[arg(
        long,
        conflicts_with_all = [
            "to", "shared_storage", "bandwidth", "downtime", "no_auto_converge", "postcopy", "connections", "timeout",
        ]
    )]
    pub(crate) resolve: bool,
    /// With --resolve, if the other host is gone for good: say yourself where the guest runs
    #[arg(long, value_name = "WHERE", conflicts_with = "to", value_enum)]
    pub(crate) it_runs: Option<ItRuns>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Where a guest runs, as somebody says who has seen to it.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum ItRuns {
    /// On this host: the other one will never run it
    Here,
    /// On the other host: what is left of it here is removed
    There,
}

#[derive(Args)]
pub(crate) struct ReceiveArguments {
    /// Carries the guest of this VM
    #[arg(long, value_name = "NAME", conflicts_with = "outcome")]
    pub(crate) data: Option<String>,
    /// Carries one of several connections of it: which
    #[arg(long, value_name = "NUMBER", requires = "data")]
    pub(crate) connection: Option<u8>,
    /// Carries memory that follows the guest of this receipt
    #[arg(long, value_name = "RECEIPT", requires = "vm", conflicts_with_all = ["data", "outcome"])]
    pub(crate) memory: Option<String>,
    /// Says what became of this receipt
    #[arg(long, value_name = "RECEIPT", requires = "vm")]
    pub(crate) outcome: Option<String>,
    /// Name of its VM
    #[arg(long, value_name = "NAME")]
    pub(crate) vm: Option<String>,
}

fn seconds(text: &str) -> Result<Duration, clap::Error> {
    let number: Option<f64> = text.parse().ok().filter(|&seconds| (0.1..=1e7).contains(&seconds));
    let message = "seconds, from 0.1 to 10000000";
    number
        .map(Duration::from_secs_f64)
        .ok_or_else(|| clap::Error::raw(clap::error::ErrorKind::ValueValidation, message))
}

/// For QEMU a bandwidth of 0 is none that it keeps to.
fn bandwidth(text: &str) -> anyhow::Result<Bytes> {
    let bandwidth: Bytes = text.parse()?;
    anyhow::ensure!(bandwidth > Bytes(0), "nothing would be sent; leave it out to take all of the link");
    Ok(bandwidth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bandwidth_of_nothing_is_not_taken_for_no_limit() {
        assert_eq!(bandwidth("500 MiB").unwrap(), Bytes::from_mib(500));
        for bad in ["0 MiB", "0GiB", "500", "fast"] {
            assert!(bandwidth(bad).is_err(), "{bad}");
        }
    }
}

//! Arguments of the commands that keep VMs at home.

use crate::args_source::SourceArguments;
use anyhow::bail;
use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser};
use daemon::{DaemonError, SavedFile};
use std::path::PathBuf;

/// Where the balancer keeps its memory.
#[derive(Args, Clone)]
pub(crate) struct StateArguments {
    /// The balancer's state [default: balance.json in the runtime directory; looking also finds
    /// that of the system's service]
    #[arg(long, value_name = "FILE", value_parser = PathBufValueParser::new().try_map(state_file))]
    pub(crate) state: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct BalanceArguments {
    /// Work for one period (after a first look, for rates), then exit
    #[arg(long)]
    pub(crate) once: bool,
    /// Print what would be done and why; change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Thresholds, and rules for single VMs (docs/balance.md, examples/balance.toml)
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) policy: Option<PathBuf>,
    /// Write every observation and decision to FILE, as JSON lines
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// With --dry-run: another host, by libvirt's own URI: qemu+ssh://host/system (docs/connect.md)
    #[arg(long, value_name = "URI", requires = "dry_run",
          conflicts_with_all = ["on", "trace", "replay", "release", "state"])]
    pub(crate) connect: Option<String>,
    /// Print what the policy would have decided on a recording; neither looks at this host nor
    /// changes it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["once", "record", "release", "state"])]
    pub(crate) replay: Option<PathBuf>,
    /// With --trace: the modelled machine, one with rates: a name from machines/ or a machine file
    #[arg(long, value_name = "MACHINE", requires = "trace",
          conflicts_with_all = ["once", "record", "replay", "release", "state"])]
    pub(crate) on: Option<String>,
    /// Say what the policy would have done with these VMs on a modelled machine (docs/balance.md);
    /// a trace, or a recording of --record. Neither looks at this host nor changes it
    #[arg(long, value_name = "FILE", requires = "on",
          conflicts_with_all = ["once", "record", "replay", "release", "state"])]
    pub(crate) trace: Option<PathBuf>,
    /// With --trace: other policies on the same trace: autonuma, esxi, numad, numad-one-shot, pins
    #[arg(long, value_name = "NAMES", requires = "trace", value_delimiter = ',',
          conflicts_with_all = ["connect", "once", "record", "replay", "release", "state"])]
    pub(crate) against: Vec<String>,
    /// Undo the affinities that a balancer set, then exit
    #[arg(long, conflicts_with_all = ["once", "dry_run", "record", "policy"])]
    pub(crate) release: bool,
    #[command(flatten)]
    pub(crate) state: StateArguments,
    /// Print JSON, one line an event
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Clone)]
pub(crate) struct TopArguments {
    /// Look for one interval, print, and exit; so it is too with --json and where the output is no
    /// terminal
    #[arg(long)]
    pub(crate) once: bool,
    /// Seconds between looks
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = interval)]
    pub(crate) interval: f64,
    /// Print every look as rows of CSV (docs/top.md)
    #[arg(long, conflicts_with_all = ["once", "json"])]
    pub(crate) batch: bool,
    /// With --batch: so many looks, then end
    #[arg(long, value_name = "N", requires = "batch", conflicts_with_all = ["once", "json"],
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    #[command(flatten)]
    pub(crate) source: SourceArguments,
    #[command(flatten)]
    pub(crate) state: StateArguments,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct WhyArguments {
    /// The VM: its name, UUID or process number
    #[arg(value_name = "VM")]
    pub(crate) vm: String,
    #[command(flatten)]
    pub(crate) source: SourceArguments,
    /// Judge by this policy [default: that of the balancer that runs, else the defaults]
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) policy: Option<PathBuf>,
    /// Seconds to watch the host for rates
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub(crate) interval: f64,
    #[command(flatten)]
    pub(crate) state: StateArguments,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct DoctorArguments {
    /// Only this VM: its name, UUID or process number
    #[arg(value_name = "VM")]
    pub(crate) vm: Option<String>,
    /// Repair what can be repaired, and look again; on this host
    #[arg(long, conflicts_with_all = ["connect", "on", "trace", "replay"])]
    pub(crate) fix: bool,
    /// Only say what this host's QEMU can do: what differs between its versions
    #[arg(long, conflicts_with_all = ["vm", "fix", "connect", "on", "trace", "replay"])]
    pub(crate) qemu: bool,
    /// Only say which kinds of network this host has for this user, and what each needs and costs
    #[arg(long, conflicts_with_all = ["vm", "fix", "qemu", "connect", "on", "trace", "replay"])]
    pub(crate) network: bool,
    /// Only the table of the VMs
    #[arg(long, conflicts_with_all = ["json", "qemu", "network"])]
    pub(crate) summary: bool,
    /// Findings that somebody decided to live with (docs/check.md): not counted, and not repaired
    #[arg(long, value_name = "FILE.toml", conflicts_with_all = ["qemu", "network"])]
    pub(crate) accepted: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) source: SourceArguments,
    /// Seconds to watch the host for rates
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub(crate) interval: f64,
    #[command(flatten)]
    pub(crate) state: StateArguments,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

fn state_file(path: PathBuf) -> Result<PathBuf, DaemonError> {
    SavedFile::check(&path).map(|()| path)
}

fn interval(text: &str) -> anyhow::Result<f64> {
    match text.parse() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => bail!("expected seconds from 0.1 to 3600"),
    }
}

#[cfg(test)]
mod tests {
    use crate::args::Arguments;
    use clap::Parser;
    use clap::error::ErrorKind;

    /// What goes together is tried with a value for each argument that takes one.
    fn refused(line: &str) -> Option<ErrorKind> {
        Arguments::try_parse_from(["homenode"].into_iter().chain(line.split(' '))).err().map(|error| error.kind())
    }

    #[test]
    fn what_does_not_go_together_is_refused_though_something_that_is_required_is_missing() {
        let there = ["--connect u:///s", "--on m", "--trace t", "--replay r"];
        let alone = ["--release", "--once", "--record f", "--state f"];
        let mut lines: Vec<String> = Vec::new();
        for of_model in ["--on m", "--trace t", "--against pins", "--on m --trace t", "--on m --trace t --against pins"]
        {
            lines.extend(alone.map(|other| format!("balance {of_model} {other}")));
            lines.extend(
                ["--replay r", "--connect u:///s"].map(|other| format!("balance --dry-run {of_model} {other}")),
            );
        }
        for command in ["top", "why vm", "doctor"] {
            let other = |one: &str, other: &str| one < other && !(one == "--on m" && other == "--trace t");
            let pairs = there.iter().flat_map(|one| there.iter().map(move |two| (*one, *two)));
            lines.extend(pairs.filter(|(one, two)| other(one, two)).map(|(one, two)| format!("{command} {one} {two}")));
        }
        lines.extend(["--fix", "--qemu"].iter().flat_map(|does| there.map(|other| format!("doctor {does} {other}"))));
        lines.extend(["--once", "--json"].map(|other| format!("top --count 3 {other}")));
        for line in &lines {
            assert_eq!(refused(line), Some(ErrorKind::ArgumentConflict), "{line}");
        }
        for line in ["balance --on m", "balance --trace t", "balance --against pins", "top --on m", "doctor --trace t"]
        {
            assert_eq!(refused(line), Some(ErrorKind::MissingRequiredArgument), "{line}");
        }
        let fine = "balance --on m --trace t --against pins --dry-run";
        assert_eq!((refused(fine), refused("top --on m --trace t --once")), (None, None));
    }
}

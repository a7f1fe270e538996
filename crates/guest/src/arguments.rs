//! The command line of `homenode-guest` outside a guest's init.

use anyhow::{Context, bail};
use workloads::stream::{Stores, StreamJob};
use workloads::workload::{Pinning, Threads};

/// What `--help` prints.
pub(crate) const HELP: &str = "\
homenode's agent: measures memory, natively and in guests

Usage: homenode-guest --native            serve homenode over standard input and output (JSON lines)
       homenode-guest --in-guest          serve homenode over the virtio-serial port of this guest
       homenode-guest --hello             print the machine that this program sees, as JSON
       homenode-guest --stream [OPTIONS]  run STREAM here and print its table

Options of --stream:
  --elements N       elements of each of the three arrays [20000000]
  --threads N        [1]
  --repetitions N    the first does not count [10]
  --stores KIND      ordinary | streaming [ordinary]
  --pinning KIND     none | compact | scatter | one_per_llc [none]
  --cpu-node N       threads run on this NUMA node only
  --memory-node N    memory is bound to this NUMA node

As process 1 it is init of a tiny guest and takes no arguments.
";

/// What the program is asked to be.
#[derive(Debug, PartialEq)]
pub(crate) enum Mode {
    Help,
    Native,
    InGuest,
    Hello,
    /// The job, and its repetitions.
    Stream(StreamJob, u32),
}

/// Reads the arguments after the program's name.
pub(crate) fn parse(arguments: impl IntoIterator<Item = String>) -> anyhow::Result<Mode> {
    let mut arguments = arguments.into_iter();
    let mode = match arguments.next().as_deref() {
        Some("--stream") => return parse_stream(arguments),
        Some("--native") => Mode::Native,
        Some("--in-guest") => Mode::InGuest,
        Some("--hello") => Mode::Hello,
        Some("--help" | "-h") => Mode::Help,
        Some(other) => bail!("unknown argument `{other}`; valid are --native, --in-guest, --hello, --stream, --help"),
        None => bail!("nothing to do; valid are --native, --in-guest, --hello, --stream, --help"),
    };
    match arguments.next() {
        Some(extra) => bail!("unexpected argument `{extra}`"),
        None => Ok(mode),
    }
}

fn parse_stream(mut arguments: impl Iterator<Item = String>) -> anyhow::Result<Mode> {
    let threads = Threads { count: 1, pinning: Pinning::None, cpu_node: None, memory_node: None };
    let mut job = StreamJob { elements: 20_000_000, stores: Stores::Ordinary, threads };
    let mut repetitions = 10;
    while let Some(option) = arguments.next() {
        let value = arguments.next().with_context(|| format!("`{option}` needs a value"))?;
        match option.as_str() {
            "--elements" => job.elements = number(&option, &value)?,
            "--threads" => job.threads.count = number(&option, &value)?,
            "--repetitions" => repetitions = number(&option, &value)?,
            "--stores" => job.stores = word(&option, &value, "ordinary, streaming")?,
            "--pinning" => job.threads.pinning = word(&option, &value, "none, compact, scatter, one_per_llc")?,
            "--cpu-node" => job.threads.cpu_node = Some(number(&option, &value)?),
            "--memory-node" => job.threads.memory_node = Some(number(&option, &value)?),
            _ => bail!("unknown option `{option}` of --stream; see --help"),
        }
    }
    Ok(Mode::Stream(job, repetitions))
}

fn number<T: std::str::FromStr>(option: &str, value: &str) -> anyhow::Result<T> {
    value.parse().ok().with_context(|| format!("`{option} {value}`: a whole number is needed"))
}

/// The words are those of the protocol.
fn word<T: serde::de::DeserializeOwned>(option: &str, value: &str, valid: &str) -> anyhow::Result<T> {
    serde_json::from_value(value.into()).ok().with_context(|| format!("`{option} {value}`: valid are {valid}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> anyhow::Result<Mode> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn a_stream_job_is_read() {
        let line = "--stream --elements 1000 --threads 4 --repetitions 3 --stores streaming --pinning one_per_llc \
            --cpu-node 1";
        let Mode::Stream(job, repetitions) = parse_line(line).unwrap() else { panic!("not a stream job") };
        assert_eq!((job.elements, job.threads.count, repetitions), (1000, 4, 3));
        assert_eq!((job.stores, job.threads.pinning), (Stores::Streaming, Pinning::OnePerLlc));
        assert_eq!((job.threads.cpu_node, job.threads.memory_node), (Some(1), None));
    }

    #[test]
    fn what_is_wrong_is_named_with_what_would_be_valid() {
        for (line, said) in [
            ("", "--native"),
            ("--natively", "--natively"),
            ("--native now", "now"),
            ("--stream --threads", "--threads"),
            ("--stream --threads two", "two"),
            ("--stream --stores fast", "ordinary, streaming"),
            ("--stream --size 3", "--size"),
        ] {
            let error = format!("{:#}", parse_line(line).unwrap_err());
            assert!(error.contains(said), "{line}: {error}");
        }
    }
}

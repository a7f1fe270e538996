//! `homenode-guest --stream`: STREAM's own table, from a shell.

use crate::host::ThisMachine;
use anyhow::bail;
use std::fmt::Write;
use topology::Machine;
use workloads::stream::{Kernel, Stream, StreamJob};
use workloads::workload::{Verification, Workload};

/// Runs the job on this machine and prints its table.
pub(crate) fn run(job: &StreamJob, repetitions: u32) -> anyhow::Result<()> {
    print!("{}", table(job, repetitions, &topology::read::live()?)?);
    Ok(())
}

/// The table; an error if the result is wrong.
pub(crate) fn table(stream: &StreamJob, count: u32, machine: &Machine) -> anyhow::Result<String> {
    let mut job = Stream::prepare(stream, count, &ThisMachine { machine })?;
    let mut repetitions = Vec::new();
    for _ in 0..count {
        repetitions.push(job.repetition()?.phases);
    }
    let outcome = job.finish()?;
    if let Verification::Wrong { reason } = outcome.verification {
        bail!("the result is wrong: {reason}; these figures count for nothing");
    }
    let mut text = format!(
        "Kernel  Best MB/s  Median MB/s  Min s      Max s     ({} elements, {} threads on CPUs {})\n",
        stream.elements,
        stream.threads.count,
        outcome.thread_cpus.join(" ")
    );
    for kernel in Kernel::ALL {
        let mut seconds: Vec<f64> = repetitions.iter().skip(1).map(|seconds| seconds[kernel as usize]).collect();
        seconds.sort_by(f64::total_cmp);
        let (Some(&best), Some(&worst)) = (seconds.first(), seconds.last()) else { continue };
        let rate = |seconds| kernel.mb_per_second(stream.elements, seconds);
        let median = seconds[seconds.len() / 2];
        writeln!(text, "{:<6} {:>10.1} {:>12.1}  {best:.6}   {worst:.6}", kernel.name(), rate(best), rate(median))?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use workloads::stream::Stores;
    use workloads::workload::{Pinning, Threads};

    #[test]
    fn the_table_has_a_line_for_each_kernel() {
        let threads = Threads { count: 2, pinning: Pinning::None, cpu_node: None, memory_node: None };
        let job = StreamJob { elements: 100_000, stores: Stores::Ordinary, threads };
        let table = table(&job, 3, &topology::read::live().unwrap()).unwrap();
        for kernel in Kernel::ALL {
            assert!(table.lines().any(|line| line.starts_with(kernel.name())), "{table}");
        }
    }
}

//! `homenode-guest --stream`: STREAM's own table, from a shell.

use crate::job::Job;
use anyhow::ensure;
use std::fmt::Write;
use topology::Machine;
use workloads::protocol::{Figures, FromAgent, StreamJob, Workload};
use workloads::stream::Kernel;

/// Runs the job on this machine and prints its table.
pub(crate) fn run(job: &StreamJob) -> anyhow::Result<()> {
    print!("{}", table(job, &topology::read::live()?)?);
    Ok(())
}

/// The table; an error if the result is wrong.
pub(crate) fn table(stream: &StreamJob, machine: &Machine) -> anyhow::Result<String> {
    let mut job = Job::prepare(0, &Workload::Stream(stream.clone()), machine)?;
    let mut repetitions = Vec::new();
    for _ in 0..stream.repetitions {
        if let FromAgent::Repetition { figures: Figures::Stream { seconds }, .. } = job.repeat()? {
            repetitions.push(seconds);
        }
    }
    let FromAgent::Done { verified, error, thread_cpus, .. } = job.conclude()? else {
        anyhow::bail!("the job ended without a result");
    };
    ensure!(verified, "the result is wrong: relative error {error:e}; these figures count for nothing");
    let mut text = format!(
        "Kernel  Best MB/s  Median MB/s  Min s      Max s     ({} elements, {} threads on CPUs {})\n",
        stream.elements,
        stream.threads,
        thread_cpus.join(" ")
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
    use workloads::protocol::{Pinning, Stores};

    #[test]
    fn the_table_has_a_line_for_each_kernel() {
        let job = StreamJob {
            elements: 100_000,
            threads: 2,
            repetitions: 3,
            stores: Stores::Ordinary,
            pinning: Pinning::None,
            cpu_node: None,
            memory_node: None,
        };
        let table = table(&job, &topology::read::live().unwrap()).unwrap();
        for kernel in Kernel::ALL {
            assert!(table.lines().any(|line| line.starts_with(kernel.name())), "{table}");
        }
    }
}

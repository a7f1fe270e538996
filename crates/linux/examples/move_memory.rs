//! How fast memory of another process is moved between nodes 0 and 1, beside `migratepages`
//! (package numactl) on the same memory.
//!
//! ```text
//! move_memory MIB ROUNDS [LIMIT_MIB_PER_SECOND]
//! ```
//!
//! A child holds the memory. In each round both move it there and back, one after the other, and
//! who begins alternates. Prints the medians in MiB a second; with a limit, the rate that was kept.
//! `THREADS=n` in the environment sets how many threads move at once (1). Pages are as
//! /sys/kernel/mm/transparent_hugepage/enabled says.

use linux::moving::{Move, Pace, Surroundings, carry_out};
use linux::sys::{MemoryBinding, bind_memory};
use linux::vm::{Given, Region, RegionEvidence, RegionKind};
use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use topology::{Bytes, NodeId};

const HUGE: usize = 2 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["hold", mib] => hold(mib.parse()?),
        [mib, rounds] => compare(mib.parse()?, rounds.parse()?),
        [mib, rounds, limit] => limited(mib.parse()?, rounds.parse()?, Bytes::from_mib(limit.parse()?)),
        _ => Err("usage: move_memory MIB ROUNDS [LIMIT_MIB_PER_SECOND]".into()),
    }
}

/// The child: holds memory on node 0, says where, and ends with its parent.
fn hold(mib: usize) -> Result<(), Box<dyn Error>> {
    let length = mib << 20;
    let mut memory = vec![0u8; length + HUGE];
    let first = memory.as_ptr().align_offset(HUGE);
    bind_memory(&memory[first..first + length], &MemoryBinding::Bind("0".parse()?))?;
    memory[first..first + length].iter_mut().for_each(|byte| *byte = 1);
    println!("{}", memory.as_ptr() as usize + first);
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

struct Holder {
    child: Child,
    region: Region,
    threads: usize,
}

impl Holder {
    fn start(mib: u64) -> Result<Self, Box<dyn Error>> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child =
            command.args(["hold", &mib.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        let start: u64 = line.trim().parse()?;
        let region = Region {
            backend: None,
            addresses: start..start + (mib << 20),
            kind: RegionKind::Anonymous,
            path: String::new(),
            page_size: None,
            evidence: RegionEvidence::Size,
            given: Given::All,
        };
        let threads = std::env::var("THREADS").map_or(Ok(1), |text| text.parse())?;
        Ok(Self { child, region, threads })
    }

    fn ours(&self, from: u32, to: u32, pace: &mut Pace) -> Result<f64, Box<dyn Error>> {
        let regions = std::slice::from_ref(&self.region);
        let (from, to) = (NodeId(from), NodeId(to));
        let order =
            Move { pid: self.child.id(), regions, from, to, at_most: Bytes(u64::MAX), begin: 0, threads: self.threads };
        let start = Instant::now();
        let done = carry_out(&order, pace, &mut Anything)?;
        let seconds = start.elapsed().as_secs_f64();
        if done.moved != self.region.size() {
            return Err(format!("only {} moved: {:?}", done.moved, done.because).into());
        }
        Ok(self.region.size().0 as f64 / f64::from(1 << 20) / seconds)
    }

    fn theirs(&self, from: u32, to: u32) -> Result<f64, Box<dyn Error>> {
        let words = [self.child.id().to_string(), from.to_string(), to.to_string()];
        let start = Instant::now();
        let status = Command::new("migratepages").args(words).status()?;
        let seconds = start.elapsed().as_secs_f64();
        if !status.success() {
            return Err(format!("migratepages: {status}").into());
        }
        Ok(self.region.size().0 as f64 / f64::from(1 << 20) / seconds)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // It ends with its input; what its status is does not matter.
        let _ = self.child.wait();
    }
}

struct Anything;

impl Surroundings for Anything {
    fn is_there(&mut self) -> bool {
        true
    }

    fn room(&mut self, _: NodeId, _: Bytes) -> Option<Bytes> {
        None
    }
}

fn compare(mib: u64, rounds: usize) -> Result<(), Box<dyn Error>> {
    let holder = Holder::start(mib)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..2 * rounds {
        let (from, to) = if round % 2 == 0 { (0, 1) } else { (1, 0) };
        if round % 4 < 2 {
            ours.push(holder.ours(from, to, &mut Pace::new(None))?);
            theirs.push(holder.theirs(to, from)?);
        } else {
            theirs.push(holder.theirs(from, to)?);
            ours.push(holder.ours(to, from, &mut Pace::new(None))?);
        }
        // Both went there and back: bring it to where the next round begins.
        if round + 1 < 2 * rounds {
            holder.ours(from, to, &mut Pace::new(None))?;
        }
    }
    println!(
        "{mib} MiB: homenode {:.0} MiB/s, migratepages {:.0} MiB/s (medians of {})",
        median(&mut ours),
        median(&mut theirs),
        ours.len()
    );
    Ok(())
}

fn limited(mib: u64, rounds: usize, limit: Bytes) -> Result<(), Box<dyn Error>> {
    let holder = Holder::start(mib)?;
    let mut pace = Pace::new(Some(limit));
    let mut rates = Vec::new();
    for round in 0..rounds as u32 {
        rates.push(holder.ours(round % 2, 1 - round % 2, &mut pace)?);
    }
    println!("{mib} MiB at most {} MiB/s: {:.2} MiB/s (median of {rounds})", limit.mib(), median(&mut rates));
    Ok(())
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

//! How long a process that is only looked at is held up: `stall_time MIB SECONDS ROUNDS`.
//!
//! A child takes the place of a vCPU: it holds MIB of small pages, writes to them without pause,
//! and faults new pages in; from time to time it maps and unmaps memory, as other threads of QEMU
//! do. It says the longest of each in each second, less the time that it waited for a CPU. In each
//! round this process first reads its own `maps` without pause; then the child is looked at without
//! pause (1024 of its pages, `status`, `schedstat`); then its `maps` are read without pause; then
//! memory of another process is moved between nodes 0 and 1, where there are two. Prints medians
//! and maxima.

use linux::counters::ThreadTime;
use linux::moving::{Move, Pace, Surroundings, carry_out};
use linux::vm::{Given, Region, RegionEvidence, RegionKind};
use linux::{Root, residence};
use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use topology::{Bytes, NodeId};

const PAGE: usize = 4096;
/// Memory that the worker maps, faults in page by page, and gives back.
const FRESH_PAGES: usize = 2048;
/// Memory of the other process, which is moved.
const OTHER_MIB: usize = 256;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["work", mib] => work(mib.parse()?),
        ["hold", mib] => hold(mib.parse()?),
        [mib, seconds, rounds] => compare(mib.parse()?, seconds.parse()?, rounds.parse()?),
        _ => Err("usage: stall_time MIB SECONDS ROUNDS".into()),
    }
}

/// Memory that is touched, and where it is.
fn touched(mib: usize) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut memory = vec![0u8; mib << 20];
    memory.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
    println!("{}", memory.as_ptr() as usize);
    std::io::stdout().flush()?;
    Ok(memory)
}

fn hold(mib: usize) -> Result<(), Box<dyn Error>> {
    let memory = touched(mib)?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    drop(memory);
    Ok(())
}

/// Turns, until nobody reads what they took.
fn work(mib: usize) -> Result<(), Box<dyn Error>> {
    let mut memory = touched(mib)?;
    let pages = memory.len() / PAGE;
    let account = std::fs::File::open("/proc/thread-self/schedstat")?;
    let waited =
        || -> Result<u64, Box<dyn Error>> { Ok(ThreadTime::read_again(&account)?.ok_or("no account")?.waited_ns) };
    let timed = |act: &mut dyn FnMut()| -> Result<Duration, Box<dyn Error>> {
        let (start, waited_before) = (Instant::now(), waited()?);
        act();
        let waited = Duration::from_nanos(waited()? - waited_before);
        Ok(start.elapsed().saturating_sub(waited))
    };
    let mut at = 0usize;
    let mut fresh = Vec::new();
    loop {
        let second = Instant::now();
        let (mut touching, mut mapping) = (Duration::ZERO, Duration::ZERO);
        while second.elapsed() < Duration::from_secs(1) {
            mapping = mapping.max(timed(&mut || fresh = std::hint::black_box(vec![0u8; FRESH_PAGES * PAGE]))?);
            for faults in fresh.chunks_mut(16 * PAGE) {
                let turn = timed(&mut || {
                    for _ in 0..64 {
                        at = (at + 7919) % pages; // a prime: neighbours are far apart
                        memory[at * PAGE] = memory[at * PAGE].wrapping_add(1);
                    }
                    faults.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
                })?;
                touching = touching.max(turn);
            }
            mapping = mapping.max(timed(&mut || fresh = Vec::new())?);
        }
        if writeln!(std::io::stdout(), "{} {}", touching.as_micros(), mapping.as_micros()).is_err() {
            return Ok(());
        }
    }
}

struct Worker {
    child: Child,
    out: BufReader<ChildStdout>,
    start: u64,
    mib: u64,
}

impl Worker {
    fn start(what: &str, mib: u64) -> Result<Self, Box<dyn Error>> {
        let mut command = Command::new(std::env::current_exe()?);
        // A mapping of its own for each large allocation, however many were freed before.
        command.args([what, &mib.to_string()]).env("MALLOC_MMAP_THRESHOLD_", "65536");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut out = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut line = String::new();
        out.read_line(&mut line)?;
        Ok(Self { child, out, start: line.trim().parse()?, mib })
    }

    /// The next second's longest turn of touching memory and longest mapping, in milliseconds.
    fn longest(&mut self) -> Result<[f64; 2], Box<dyn Error>> {
        let mut line = String::new();
        self.out.read_line(&mut line)?;
        let (touching, mapping) = line.trim().split_once(' ').ok_or("the worker ended")?;
        Ok([touching.parse::<f64>()? / 1e3, mapping.parse::<f64>()? / 1e3])
    }

    fn region(&self) -> Region {
        let start = self.start.next_multiple_of(PAGE as u64);
        Region {
            backend: None,
            addresses: start..start + (self.mib << 20) - PAGE as u64,
            kind: RegionKind::Anonymous,
            path: String::new(),
            page_size: None,
            evidence: RegionEvidence::Size,
            given: Given::All,
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
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

/// What a look reads of a process; `maps` belongs to the rare ones, and is read without pause by
/// itself.
fn read_maps(worker: &Worker, _: u64) -> Result<(), Box<dyn Error>> {
    std::hint::black_box(std::fs::read(Root::default().process(worker.child.id(), "maps"))?);
    Ok(())
}

/// What every look reads, and the samples of the pages, which not every look takes.
fn look(worker: &Worker, turn: u64) -> Result<(), Box<dyn Error>> {
    let (root, pid) = (Root::default(), worker.child.id());
    let region = worker.region().addresses;
    std::hint::black_box(residence::sample(pid, std::slice::from_ref(&region), 1024, turn)?);
    std::hint::black_box(ThreadTime::read(&root, pid, pid)?);
    for file in ["status", "cgroup"] {
        std::hint::black_box(std::fs::read(root.process(pid, file))?);
    }
    Ok(())
}

fn compare(mib: u64, seconds: u64, rounds: usize) -> Result<(), Box<dyn Error>> {
    let mut worker = Worker::start("work", mib)?;
    let other = Worker::start("hold", OTHER_MIB as u64)?;
    let two_nodes = Root::default().join("sys/devices/system/node/node1").exists();
    let [mut alone, mut looked_at, mut mapped, mut beside] = [const { Vec::new() }; 4];
    let (mut looks, mut maps, mut moves) = (0, 0, 0);
    for _ in 0..rounds {
        // The same work on this process: what CPUs and the kernel's other locks cost is in both.
        during(&mut worker, seconds, &mut alone, |_, _| {
            std::hint::black_box(std::fs::read("/proc/self/maps")?);
            Ok(())
        })?;
        looks += during(&mut worker, seconds, &mut looked_at, look)?;
        maps += during(&mut worker, seconds, &mut mapped, read_maps)?;
        if two_nodes {
            moves += during(&mut worker, seconds, &mut beside, |_, turn| there_and_back(&other, turn))?;
        }
    }
    print("not looked at", &mut alone);
    print(&format!("looked at {looks} times"), &mut looked_at);
    print(&format!("its maps read {maps} times"), &mut mapped);
    if two_nodes {
        print(&format!("beside {moves} moves of {OTHER_MIB} MiB"), &mut beside);
    }
    Ok(())
}

fn there_and_back(other: &Worker, turn: u64) -> Result<(), Box<dyn Error>> {
    let region = other.region();
    let (from, to) = if turn.is_multiple_of(2) { (NodeId(0), NodeId(1)) } else { (NodeId(1), NodeId(0)) };
    let (pid, regions) = (other.child.id(), std::slice::from_ref(&region));
    let order = Move { pid, regions, from, to, at_most: Bytes(u64::MAX), begin: 0, threads: 1 };
    carry_out(&order, &mut Pace::new(None), &mut Anything)?;
    Ok(())
}

/// Acts without pause for some of the worker's seconds, and adds what it said of each. The number
/// of acts.
fn during(
    worker: &mut Worker,
    seconds: u64,
    longest: &mut Vec<[f64; 2]>,
    act: impl Fn(&Worker, u64) -> Result<(), Box<dyn Error>>,
) -> Result<u64, Box<dyn Error>> {
    // The end of the second that is under way.
    worker.longest()?;
    let start = Instant::now();
    let mut acts = 0;
    // The worker's seconds are a little longer than one.
    while start.elapsed().as_secs_f64() < seconds as f64 * 1.02 + 0.05 {
        act(worker, acts)?;
        acts += 1;
    }
    for _ in 0..seconds {
        longest.push(worker.longest()?);
    }
    // An odd number of moves left the other memory on node 1.
    if !acts.is_multiple_of(2) {
        act(worker, acts)?;
    }
    Ok(acts)
}

fn print(what: &str, longest: &mut [[f64; 2]]) {
    for (place, kind) in ["touching memory", "mapping and unmapping"].iter().enumerate() {
        let mut times: Vec<f64> = longest.iter().map(|times| times[place]).collect();
        times.sort_by(f64::total_cmp);
        let (median, most) = (times[times.len() / 2], times[times.len() - 1]);
        println!(
            "{what}: {kind}: longest of a second: median {median:.3} ms, at most {most:.3} ms ({} s)",
            times.len()
        );
    }
}

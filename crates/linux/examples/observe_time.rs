//! Times looks at this host with the VMs that run on it: `observe_time [LOOKS] [MILLISECONDS
//! BETWEEN]`. Prints VMs and vCPU threads; the first looks of a balancer, which examines new VMs a
//! few at a time, until all are (of five balancers), and one that examines all at once; the others:
//! median, 99th percentile, slowest, and CPU time; looks as `plan` and `doctor` take them; and the
//! resident memory of this process at its largest.

use linux::counters::ThreadTime;
use linux::{HostOptions, LinuxHost, Root};
use scheduler::Observe;
use std::error::Error;
use std::time::{Duration, Instant};

/// Looks of a balancer that just began.
const BEGINNINGS: usize = 5;
/// Looks of `plan` and `doctor`.
const WHOLE_LOOKS: usize = 9;

fn main() -> Result<(), Box<dyn Error>> {
    let number = |nth: usize, usual: u64| std::env::args().nth(nth).map_or(Ok(usual), |text| text.parse());
    let (looks, pause) = (number(1, 200)?.max(1), Duration::from_millis(number(2, 5)?));
    let (mut beginnings, mut used) = (Vec::new(), Vec::new());
    let mut begin = |host: &mut LinuxHost| -> Result<(), Box<dyn Error>> {
        let before = cpu_ms()?;
        beginnings.push(timed(host)?);
        used.push(cpu_ms()? - before);
        Ok(())
    };
    for _ in 0..BEGINNINGS {
        let options = HostOptions { newcomers_within: Some(linux::NEWCOMERS_WITHIN), ..HostOptions::default() };
        let mut host = LinuxHost::new(options)?;
        begin(&mut host)?;
        while host.unexamined() > 0 {
            std::thread::sleep(pause);
            begin(&mut host)?;
        }
    }
    let mut host = LinuxHost::new(HostOptions::default())?;
    let at_once = timed(&mut host)?;
    let mut times = Vec::new();
    let before = cpu_ms()?;
    for _ in 0..looks {
        times.push(timed(&mut host)?);
        std::thread::sleep(pause);
    }
    let cpu = cpu_ms()? - before;
    let mut whole = Vec::new();
    for _ in 0..WHOLE_LOOKS {
        let start = Instant::now();
        std::hint::black_box(LinuxHost::new(HostOptions::default())?.examine()?);
        whole.push(start.elapsed().as_secs_f64() * 1e3);
    }
    whole.sort_by(f64::total_cmp);
    let threads: usize = host.vms().map(|vm| vm.threads.vcpus.len()).sum();
    beginnings.sort_by(f64::total_cmp);
    used.sort_by(f64::total_cmp);
    times.sort_by(f64::total_cmp);
    let at = |times: &[f64], share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
    println!("{} VMs, {threads} vCPU threads, {looks} looks", host.vms().count());
    let each = beginnings.len() as f64 / BEGINNINGS as f64;
    println!(
        "first looks, {each:.1} until all are examined: median {:.2} ms, slowest {:.2} ms, CPU time {:.2} ms at most; \
        all at once {at_once:.2} ms",
        at(&beginnings, 0.5),
        at(&beginnings, 1.0),
        at(&used, 1.0)
    );
    println!(
        "looks: median {:.2} ms, 99 % within {:.2} ms, slowest {:.2} ms; CPU time {:.3} ms each",
        at(&times, 0.5),
        at(&times, 0.99),
        at(&times, 1.0),
        cpu / looks as f64
    );
    println!(
        "looks of one who begins and examines everything: median {:.1} ms, slowest {:.1} ms",
        at(&whole, 0.5),
        at(&whole, 1.0)
    );
    let status = std::fs::read_to_string("/proc/self/status")?;
    let largest = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default().trim();
    println!("resident memory at most: {largest}");
    Ok(())
}

fn timed(host: &mut LinuxHost) -> Result<f64, Box<dyn Error>> {
    let start = Instant::now();
    std::hint::black_box(host.observe()?);
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

/// CPU time of this process, which has one thread. The kernel adds to it when the thread gives its
/// CPU away.
fn cpu_ms() -> Result<f64, Box<dyn Error>> {
    std::thread::sleep(Duration::from_millis(1));
    let own = std::process::id();
    Ok(ThreadTime::read(&Root::default(), own, own)?.ran_ns as f64 / 1e6)
}

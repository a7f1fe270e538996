//! Times looks at this host that count memory traffic beside looks that do not, in turn:
//! `count_time [ROUNDS] [DOMAINS]`, with the VMs that run. Prints for each kind the median, the
//! 99th percentile and the slowest of its looks, in milliseconds. A balancer's look counts for 8 ms
//! at most and leaves what remains to the next; `perf, all` reads every counter in every look.
//!
//! A machine that counts nothing is measured with stand-ins: three software events of each vCPU
//! thread, which cost the same reads, and a made-up tree of resctrl in memory with so many
//! last-level caches (2). What the kernel does to read a cache's counter, a call to a CPU under it,
//! is not in the latter.

use linux::{HostOptions, LinuxHost, TrafficFrom, TrafficOptions};
use scheduler::Observe;
use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let number = |nth: usize, usual: u32| std::env::args().nth(nth).map_or(Ok(usual), |text| text.parse());
    let (rounds, domains) = (number(1, 100)?.max(1), number(2, 2)?);
    let tree = tempfile::Builder::new().tempdir_in("/dev/shm")?;
    let mount = tree.path();
    fs::create_dir_all(mount.join("info/L3_MON"))?;
    fs::create_dir_all(mount.join("mon_groups"))?;
    fs::write(mount.join("info/L3_MON/mon_features"), "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes\n")?;
    fs::write(mount.join("info/L3_MON/num_rmids"), "4096\n")?;
    // As a balancer looks, if it must not take long.
    let host = |from: TrafficFrom, hurries: bool| {
        let traffic = TrafficOptions { from, may_create: true, mount: Some(mount.to_owned()), stand_in: true };
        let newcomers_within = hurries.then_some(linux::NEWCOMERS_WITHIN);
        let mut host = LinuxHost::new(HostOptions { traffic, newcomers_within, ..HostOptions::default() })?;
        host.examine_all(Duration::from_millis(5))?;
        Ok::<LinuxHost, Box<dyn Error>>(host)
    };
    let mut kinds = [
        ("not counted", host(TrafficFrom::Off, true)?, Vec::new()),
        ("perf", host(TrafficFrom::Perf, true)?, Vec::new()),
        ("perf, all", host(TrafficFrom::Perf, false)?, Vec::new()),
        ("resctrl", host(TrafficFrom::Resctrl, true)?, Vec::new()),
    ];
    show_counters(mount, domains)?;
    let (mut clients, mut counted) = (0, 0);
    let mut notes = BTreeMap::new();
    for _ in 0..rounds {
        for (name, host, times) in &mut kinds {
            let start = Instant::now();
            let seen = host.observe()?;
            times.push(start.elapsed().as_secs_f64() * 1e3);
            clients = seen.vms.iter().map(|vm| vm.clients.len()).sum();
            let read = seen.vms.iter().flat_map(|vm| &vm.clients).filter(|client| client.cache_occupancy.is_some());
            counted = read.count().max(counted);
            notes.insert(*name, seen.traffic_meter.map(|meter| meter.notes).unwrap_or_default());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let threads: usize = kinds[0].1.vms().map(|vm| vm.threads.vcpus.len()).sum();
    println!(
        "{clients} clients, {threads} vCPU threads; {counted} clients counted in one look by resctrl, {domains} caches"
    );
    for (name, _, times) in &mut kinds {
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
        // What was not counted was not timed either.
        let missed = notes.remove(name).unwrap_or_default().join("; ");
        let missed = if missed.is_empty() { missed } else { format!(" ({missed})") };
        println!(
            "{name:12} median {:6.2} ms, 99 % within {:6.2} ms, slowest {:6.2} ms{missed}",
            at(0.5),
            at(0.99),
            at(1.0)
        );
    }
    // What the kernel takes away with a group.
    fs::remove_dir_all(mount)?;
    Ok(())
}

/// What the kernel shows in groups that were made.
fn show_counters(mount: &Path, domains: u32) -> std::io::Result<()> {
    for group in fs::read_dir(mount.join("mon_groups"))? {
        for domain in 0..domains {
            let directory = group.as_ref().map_or_else(|_| mount.to_owned(), fs::DirEntry::path);
            let directory = directory.join(format!("mon_data/mon_L3_{domain:02}"));
            fs::create_dir_all(&directory)?;
            for file in ["llc_occupancy", "mbm_total_bytes", "mbm_local_bytes"] {
                fs::write(directory.join(file), "123456789\n")?;
            }
        }
    }
    Ok(())
}

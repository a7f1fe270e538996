//! How much of a process's memory is mapped by pages larger than the smallest: transparent huge
//! pages, and those of a pool (`/proc/PID/smaps_rollup`).

use std::fs;

/// Less memory than this is that of a program, not of what it works on: nothing is said of it.
const LEAST_KIB: u64 = 16 << 10;

/// The share of a process's resident memory; `None` where the kernel does not say, and of a process
/// with little memory.
pub fn share(pid: u32) -> Option<f64> {
    share_in(&fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?)
}

fn share_in(text: &str) -> Option<f64> {
    let kib = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.and_then(|value| value.trim().strip_suffix(" kB")?.parse::<u64>().ok())
    };
    let sum = |names: &[&str]| names.iter().filter_map(|name| kib(name)).fold(0, u64::saturating_add);
    // Pages of a pool are not part of what is resident.
    let pool = sum(&["Shared_Hugetlb", "Private_Hugetlb"]);
    let large = sum(&["AnonHugePages", "ShmemPmdMapped", "FilePmdMapped"]).saturating_add(pool);
    let all = kib("Rss")?.saturating_add(pool);
    (all >= LEAST_KIB).then(|| large as f64 / all as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "5562a1c00000-7ffd [rollup]\nRss:               65536 kB\nPss:               60000 kB\n\
        AnonHugePages:     16384 kB\nShmemPmdMapped:        0 kB\nFilePmdMapped:         0 kB\n\
        Shared_Hugetlb:        0 kB\nPrivate_Hugetlb:   65536 kB\n";

    #[test]
    fn transparent_ones_and_those_of_a_pool_count() {
        // 64 MiB resident and 64 MiB of a pool; 16 MiB of the former, all of the latter are large.
        assert_eq!(share_in(TEXT), Some(80.0 / 128.0));
        assert_eq!(share_in("Rss:  4096 kB\nAnonHugePages:  4096 kB\n"), None);
        assert_eq!(share_in("Pss:  4096 kB\n"), None);
    }

    #[test]
    fn of_this_process_it_is_a_share() {
        let held = vec![1u8; 64 << 20];
        let share = share(std::process::id()).expect("64 MiB and more");
        assert!((0.0..=1.0).contains(&share) && held[held.len() - 1] == 1, "{share}");
    }
}

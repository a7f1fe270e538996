//! The host's clocks.

/// Time since boot in nanoseconds, sleep included (`CLOCK_BOOTTIME`); it never goes back.
pub fn since_boot_ns() -> u64 {
    now_ns(libc::CLOCK_BOOTTIME)
}

/// CPU time of the calling thread in nanoseconds, that in the kernel included.
pub fn thread_cpu_ns() -> u64 {
    now_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn now_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes, and both clocks exist since Linux 2.6.39, so that the
    // call cannot fail.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    (time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on() {
        let before = since_boot_ns();
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(since_boot_ns() - before >= 2_000_000);
    }
}

//! How much memory the host has now.

use std::io;

/// `MemTotal` of `/proc/meminfo` in bytes, without the work of that file (sysinfo(2)). It changes
/// where memory goes or comes.
pub fn total_memory() -> io::Result<u64> {
    // SAFETY: all-zero bytes are a valid `sysinfo`: it has numbers only.
    let mut info: libc::sysinfo = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one `sysinfo`, which lives through the call.
    super::checked(libc::c_long::from(unsafe { libc::sysinfo(&raw mut info) }))?;
    Ok(info.totalram.saturating_mul(u64::from(info.mem_unit)))
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_is_what_meminfo_says() {
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
        let total = meminfo.lines().next().unwrap().split_whitespace().nth(1).unwrap();
        assert_eq!(super::total_memory().unwrap().to_string(), (total.parse::<u64>().unwrap() * 1024).to_string());
    }
}

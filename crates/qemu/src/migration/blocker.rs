//! Why QEMU does not send a VM, in plain words: pure.
//!
//! **Rule.** QEMU's own words (`blocked-reasons` of `query-migrate`) stand behind ours, and alone
//! where they are none that we know: a newer QEMU has others.
//!
//! **Example.** `non-migratable device: 0000:00:01.0/nvme`: "the device 0000:00:01.0/nvme cannot be
//! sent: the VM must be started without it".

/// Words of QEMU, and what they mean.
const KNOWN: [(&str, &str); 6] = [
    ("vfio", "a device of this host is passed through to it"),
    ("invtsc", "its CPU model promises the clock rate of this host (invtsc)"),
    ("virtfs", "a directory of this host is shared with it and in use (9p): unmount it in the guest"),
    ("vhost-user", "a program of this host serves one of its devices (vhost-user) and cannot be sent with it"),
    ("ivshmem", "it shares memory with other VMs of this host (ivshmem)"),
    ("used by node", "the format of one of its disks cannot be sent"),
];

/// What stands before the name of a device that cannot be sent.
const DEVICE: [&str; 2] = ["non-migratable device: ", "State blocked by non-migratable device "];

/// What keeps a VM from being sent.
pub(crate) fn blocker(words: &str) -> String {
    if let Some(device) = DEVICE.iter().find_map(|before| words.strip_prefix(before)) {
        let device = device.trim_matches('\'');
        return format!("the device {device} cannot be sent: the VM must be started without it");
    }
    let lower = words.to_lowercase();
    match KNOWN.iter().find(|(known, _)| lower.contains(known)) {
        Some((_, plain)) => format!("{plain} (QEMU: {words})"),
        None => words.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers of QEMU 7.2.22 and 10.0.2, but the first three: those stand in its source
    /// (hw/vfio/migration.c, target/i386/kvm/kvm.c, hw/9pfs/9p.c).
    #[test]
    fn what_qemu_says_is_said_plainly() {
        for (words, plain) in [
            ("VFIO device doesn't support migration", "a device of this host is passed through"),
            ("State blocked by non-migratable CPU device (invtsc flag)", "clock rate of this host (invtsc)"),
            ("Migration is disabled when VirtFS export path '/x' is mounted in the guest using mount_tag 'y'", "9p"),
            (
                "Migration is disabled when using feature 'peer mode' in device 'ivshmem'",
                "shares memory with other VMs",
            ),
            (
                "The vvfat (rw) format used by node 'v' does not support live migration",
                "the format of one of its disks",
            ),
            ("non-migratable device: 0000:00:01.0/nvme", "the device 0000:00:01.0/nvme cannot be sent: the VM must be"),
            ("words of a newer QEMU", "words of a newer QEMU"),
        ] {
            let said = blocker(words);
            assert!(said.contains(plain), "{said}");
            assert!(said.contains(words) || words.starts_with("non-migratable device"), "{said}");
        }
    }
}

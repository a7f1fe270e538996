//! Why no agent answers in a guest of somebody's own disk image: what its console says, and what to
//! do.

/// What a console shows of a boot that has not brought the agent, the plainest first, and what
/// mends it.
const SIGNS: [(&[&str], &str); 5] = [
    (
        &["No bootable device", "not a bootable disk", "grub rescue>", "Missing operating system"],
        ": the image does not boot here. It needs a boot loader for BIOS; for one that UEFI boots write firmware = \
         \"uefi\"",
    ),
    (
        &["UEFI Interactive Shell", "No bootable option or device was found"],
        ": UEFI finds nothing to start on the image. It needs an EFI system partition with EFI/BOOT/BOOTX64.EFI; one \
         with a boot loader for BIOS alone needs firmware = \"bios\"",
    ),
    (
        &["Kernel panic", "end Kernel panic", "Entering emergency mode", "(initramfs)"],
        ": the image's kernel starts and its system does not; look at the console's last lines",
    ),
    (
        &["homenode-agent", "homenode-seed", "homenode.sh", "Failed to run bootcmd"],
        ": the image boots and cloud-init was told of the agent, which does not answer; the image needs systemd and \
        tar",
    ),
    (
        &["login:"],
        ": the image boots, and no agent came. It comes by cloud-init from a disk with the label cidata: the image \
         needs cloud-init with the data source NoCloud, and systemd",
    ),
];
/// Where the console shows none of them.
const STILL_BOOTS: &str = ": the image may still be booting; raise limits.boot_seconds. If its console shows nothing, \
                           it needs a boot loader for its firmware and console=ttyS0 on its kernel's command line";

/// What may mend a guest whose console ends so.
pub(crate) fn advice(console: &[String]) -> &'static str {
    let shows = |signs: &&[&str]| console.iter().any(|line| signs.iter().any(|sign| line.contains(sign)));
    SIGNS.iter().find(|(signs, _)| shows(signs)).map_or(STILL_BOOTS, |(_, advice)| advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_console_says_why_no_agent_answers() {
        let of = |lines: &[&str]| advice(&lines.iter().map(|&line| line.to_owned()).collect::<Vec<_>>());
        assert!(of(&["Booting from Hard Disk...", "No bootable device."]).contains("boot loader for BIOS"));
        assert!(of(&["UEFI Interactive Shell v2.2", "EDK II"]).contains("EFI/BOOT/BOOTX64.EFI"));
        assert!(of(&["Kernel panic - not syncing: VFS"]).contains("its system does not"));
        assert!(of(&["Debian GNU/Linux 12 localhost ttyS0", "localhost login: "]).contains("cidata"));
        assert!(of(&["[FAILED] homenode-agent.service", "guest login: "]).contains("does not answer"));
        assert!(of(&["[ 12.3] systemd[1]: Starting"]).contains("limits.boot_seconds"));
    }
}

//! Size of the huge pages that a region has, told without walking its page tables.

use super::regions::{Region, RegionKind};
use crate::root::Root;
use ::vm::qemu::CommandLine;
use topology::Bytes;

/// Mounted hugetlbfs: path and size of a page.
#[derive(Debug, Default)]
pub(super) struct Mounts {
    mounts: Vec<(String, Bytes)>,
    usual: Bytes,
    /// Their devices: major and minor number.
    devices: Vec<(u32, u32)>,
}

impl Mounts {
    /// Those of the host.
    pub(super) fn read(root: &Root) -> Self {
        let meminfo = root.text("proc/meminfo").unwrap_or_default();
        let usual = meminfo.lines().find_map(|line| line.strip_prefix("Hugepagesize:"));
        let usual = usual.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        let usual = usual.map_or(Bytes::from_mib(2), Bytes::from_kib);
        let mounts = parse(&root.text("proc/mounts").unwrap_or_default(), usual);
        // A service sees fewer mounts than init does.
        let infos = ["proc/self/mountinfo", "proc/1/mountinfo"].map(|file| root.text(file).unwrap_or_default());
        Self { mounts, usual, devices: devices(&infos.concat()) }
    }

    /// Whether a device, as `maps` writes it (`00:2f`), is a pool of huge pages.
    pub(super) fn is_pool(&self, device: &str) -> bool {
        device_number(device, 16).is_some_and(|device| self.devices.contains(&device))
    }

    fn of(&self, path: &str) -> Option<Bytes> {
        let within = |mount: &&(String, Bytes)| path.strip_prefix(&mount.0).is_some_and(|rest| rest.starts_with('/'));
        self.mounts.iter().filter(within).max_by_key(|(path, _)| path.len()).map(|(_, size)| *size)
    }
}

/// `hugetlbfs /dev/hugepages1G hugetlbfs rw,pagesize=1024M 0 0`.
fn parse(mounts: &str, usual: Bytes) -> Vec<(String, Bytes)> {
    let mount = |line: &str| {
        let mut words = line.split_whitespace();
        let (path, kind, options) = (words.nth(1)?, words.next()?, words.next()?);
        let size = options.split(',').find_map(|option| option.strip_prefix("pagesize="));
        let size = size.and_then(|text| ::vm::qemu::memory_size(text, Bytes(1))).unwrap_or(usual);
        (kind == "hugetlbfs").then(|| (path.to_owned(), size))
    };
    mounts.lines().filter_map(mount).collect()
}

/// `31 23 0:29 / /dev/hugepages rw,relatime shared:15 - hugetlbfs hugetlbfs rw,pagesize=2M`.
fn devices(mountinfo: &str) -> Vec<(u32, u32)> {
    let pool = |line: &str| {
        let (mount, kind) = line.split_once(" - ")?;
        let device = mount.split(' ').nth(2)?;
        device_number(device, 10).filter(|_| kind.starts_with("hugetlbfs "))
    };
    mountinfo.lines().filter_map(pool).collect()
}

fn device_number(text: &str, radix: u32) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(':')?;
    Some((u32::from_str_radix(major, radix).ok()?, u32::from_str_radix(minor, radix).ok()?))
}

/// Fills in the page size of a region of huge pages, and its kind where only the mount tells.
pub(super) fn size(region: &mut Region, command: &CommandLine, mounts: &Mounts) {
    let mounted = mounts.of(&region.path);
    if mounted.is_some() {
        region.kind = RegionKind::HugePages;
    }
    if region.kind == RegionKind::HugePages {
        let given = region.backend.as_deref().and_then(|id| command.backend(id)?.huge_page_size);
        region.page_size = given.or(mounted).or(Some(mounts.usual));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_mount_says_the_size() {
        let text = "proc /proc proc rw 0 0\nhugetlbfs /dev/hugepages hugetlbfs rw,relatime,pagesize=2M 0 0\n\
                    hugetlbfs /dev/hugepages/big hugetlbfs rw,pagesize=1024M 0 0\nhugetlbfs /plain hugetlbfs rw 0 0\n";
        let mounts = Mounts { mounts: parse(text, Bytes::from_mib(2)), usual: Bytes::from_mib(2), devices: Vec::new() };
        assert_eq!(mounts.of("/dev/hugepages/big/qemu_back_mem.m.x (deleted)"), Some(Bytes(1 << 30)));
        assert_eq!(mounts.of("/dev/hugepages/x"), Some(Bytes::from_mib(2)));
        assert_eq!(mounts.of("/plain/x"), Some(Bytes::from_mib(2)));
        assert_eq!(mounts.of("/dev/hugepagesX/x"), None);
    }

    #[test]
    fn pools_are_known_by_their_devices() {
        let text = "23 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                    31 23 0:47 / /dev/hugepages rw,relatime shared:15 - hugetlbfs hugetlbfs rw,pagesize=2M\n";
        let mounts = Mounts { devices: devices(text), ..Mounts::default() };
        assert!(mounts.is_pool("00:2f") && !mounts.is_pool("08:01") && !mounts.is_pool("x"));
    }
}

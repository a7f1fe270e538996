//! The tiny guest: a distribution kernel, the few modules it needs and `homenode-guest` as init,
//! packed into an initramfs in memory. `scripts/guest-image` makes the files.

use crate::{Accelerator, TcgThreads};
use cpio::newc;
use std::io::Write;
use std::path::{Path, PathBuf};

/// What can go wrong with the tiny guest's files.
#[derive(Debug, thiserror::Error)]
pub enum TinyGuestError {
    /// No directory holds them.
    #[error("the tiny guest is missing; run `scripts/guest-image` (or `make`). Looked in: {}", list(.searched))]
    Missing {
        /// Where it was looked for.
        searched: Vec<PathBuf>,
    },
    /// A file that is needed cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The kernel that was asked for is not one.
    #[error("{} is not a kernel for x86: it is neither an ELF file (vmlinux) nor a bzImage (vmlinuz)", path.display())]
    NotAKernel {
        /// The file.
        path: PathBuf,
    },
    /// A file does not fit the archive.
    #[error("cannot pack {} into the initramfs: {source}", path.display())]
    Pack {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

fn list(paths: &[PathBuf]) -> String {
    let texts: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    texts.join(", ")
}

/// Where the tiny guest's files are.
#[derive(Clone, Debug)]
pub struct TinyGuest {
    directory: PathBuf,
    kernel: PathBuf,
    agent_program: PathBuf,
}

/// `console` and `panic=-1`: a guest that dies says so and ends QEMU at once (with `-no-reboot`).
/// `skew_tick=1`: without it large guests crawl under TCG. The rest saves boot time: no
/// mitigations, no address randomisation, no timer or TSC check, no wait for entropy.
const COMMAND_LINE: &str =
    "console=ttyS0 panic=-1 quiet mitigations=off nokaslr no_timer_check tsc=reliable random.trust_cpu=on skew_tick=1";
const PROGRAM: &str = "homenode-guest";
const REGULAR_FILE: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

impl TinyGuest {
    /// Finds the files; `kernel` replaces the kernel that came with them. Looked for in
    /// `$HOMENODE_GUEST_DIR`, beside the executable (`../guest`, as in a build tree) and where
    /// packages install them.
    pub fn locate(kernel: Option<&Path>) -> Result<TinyGuest, TinyGuestError> {
        let searched = directories();
        let found = searched.iter().find(|directory| {
            directory.join(PROGRAM).is_file() && (kernel.is_some() || directory.join("vmlinux").is_file())
        });
        let Some(directory) = found.cloned() else { return Err(TinyGuestError::Missing { searched }) };
        TinyGuest::in_directory(directory, kernel)
    }

    /// The tiny guest whose files are in `directory`.
    pub fn in_directory(directory: PathBuf, kernel: Option<&Path>) -> Result<TinyGuest, TinyGuestError> {
        let kernel = kernel.map_or_else(|| directory.join("vmlinux"), Path::to_owned);
        check_kernel(&kernel)?;
        let agent_program = directory.join(PROGRAM);
        Ok(TinyGuest { directory, kernel, agent_program })
    }

    /// The kernel for `-kernel`.
    pub fn kernel(&self) -> &Path {
        &self.kernel
    }

    /// `homenode-guest`: init of the guest, and the native agent.
    pub fn agent_program(&self) -> &Path {
        &self.agent_program
    }

    /// The kernel's command line for `-append`. Where TCG gives each vCPU a host thread, the kernel
    /// boots on the first vCPU alone and init brings up the others: at boot Linux patches its own
    /// code, and QEMU 7.2 may leave another vCPU with the breakpoint of a patch for ever. One boot
    /// of two vCPUs was seen to hang in a way that fits; more vCPUs hang more often.
    pub fn command_line(&self, accelerator: &Accelerator) -> String {
        let on_one_vcpu = matches!(accelerator, Accelerator::Tcg { threads: TcgThreads::Multi, .. });
        format!("{COMMAND_LINE}{}", if on_one_vcpu { " maxcpus=1" } else { "" })
    }

    /// The initramfs for `-initrd`: init, modules, a console. Not compressed: unpacking takes
    /// longer than reading under TCG.
    pub fn initramfs(&self) -> Result<Vec<u8>, TinyGuestError> {
        let mut archive = Archive::default();
        for directory in ["dev", "proc", "sys", "modules", "bin", "tmp"] {
            archive.add(directory, DIRECTORY | 0o755, &[])?;
        }
        // The kernel opens it for init before devtmpfs is mounted.
        archive.add_node("dev/console", CHARACTER_DEVICE | 0o600, 5, 1)?;
        archive.add("init", REGULAR_FILE | 0o755, &read(&self.agent_program)?)?;
        let modules = self.directory.join("modules");
        let order = modules.join("order");
        // A kernel with everything built in has no modules.
        if order.is_file() {
            let names = read(&order)?;
            archive.add("modules/order", REGULAR_FILE | 0o644, &names)?;
            for name in String::from_utf8_lossy(&names).lines() {
                archive.add(&format!("modules/{name}"), REGULAR_FILE | 0o644, &read(&modules.join(name))?)?;
            }
        }
        // Optional (`scripts/guest-image --shell`): gives the guest's console a shell.
        let busybox = self.directory.join("busybox");
        if busybox.is_file() {
            archive.add("bin/busybox", REGULAR_FILE | 0o755, &read(&busybox)?)?;
        }
        archive.finish()
    }
}

fn directories() -> Vec<PathBuf> {
    let mut directories: Vec<PathBuf> = std::env::var_os("HOMENODE_GUEST_DIR").map(PathBuf::from).into_iter().collect();
    if let Some(beside) = std::env::current_exe().ok().and_then(|program| program.parent().map(Path::to_owned)) {
        // target/debug/homenode, and target/debug/deps/TEST one level further down.
        directories.extend(["../guest", "../../guest", "../lib/homenode/guest"].map(|relative| beside.join(relative)));
    }
    directories.push(PathBuf::from("/usr/lib/homenode/guest"));
    directories
}

fn read(path: &Path) -> Result<Vec<u8>, TinyGuestError> {
    topology::input::bytes(path, topology::input::LONGEST_FILE)
        .map_err(|source| TinyGuestError::Read { path: path.to_owned(), source })
}

/// QEMU says little about a file that it cannot boot, so look at it first.
fn check_kernel(path: &Path) -> Result<(), TinyGuestError> {
    use std::io::Read;
    let mut start = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(0x206).read_to_end(&mut start));
    read.map_err(|source| TinyGuestError::Read { path: path.to_owned(), source })?;
    // Documentation/x86/boot.rst: the magic `HdrS` at 0x202.
    let is_kernel = start.starts_with(b"\x7fELF") || start.get(0x202..0x206) == Some(b"HdrS");
    if is_kernel { Ok(()) } else { Err(TinyGuestError::NotAKernel { path: path.to_owned() }) }
}

/// A newc archive (Documentation/driver-api/early-userspace/buffer-format.rst) that grows in
/// memory.
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    fn add(&mut self, name: &str, mode: u32, content: &[u8]) -> Result<(), TinyGuestError> {
        let entry = self.entry(name, mode);
        self.write(entry, name, content)
    }

    fn add_node(&mut self, name: &str, mode: u32, major: u32, minor: u32) -> Result<(), TinyGuestError> {
        let entry = self.entry(name, mode).rdev_major(major).rdev_minor(minor);
        self.write(entry, name, &[])
    }

    fn entry(&mut self, name: &str, mode: u32) -> newc::Builder {
        // Distinct inode numbers: the kernel links files that share one.
        self.entries += 1;
        newc::Builder::new(name).mode(mode).ino(self.entries)
    }

    fn write(&mut self, entry: newc::Builder, name: &str, content: &[u8]) -> Result<(), TinyGuestError> {
        let pack = |source| TinyGuestError::Pack { path: PathBuf::from(name), source };
        let size = u32::try_from(content.len()).map_err(|_| pack(std::io::Error::other("it is 4 GiB or more")))?;
        let mut writer = entry.write(&mut self.bytes, size);
        writer.write_all(content).map_err(pack)?;
        writer.finish().map_err(pack)?;
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<u8>, TinyGuestError> {
        newc::trailer(&mut self.bytes)
            .map_err(|source| TinyGuestError::Pack { path: PathBuf::from("its trailer"), source })?;
        Ok(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made_up(modules: &[&str]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &[u8]| std::fs::write(directory.path().join(name), content).unwrap();
        file("vmlinux", b"\x7fELF...");
        file(PROGRAM, b"the program");
        std::fs::create_dir(directory.path().join("modules")).unwrap();
        for name in modules {
            file(&format!("modules/{name}"), name.as_bytes());
        }
        file("modules/order", modules.join("\n").as_bytes());
        directory
    }

    #[test]
    fn the_initramfs_holds_init_the_modules_and_a_console() {
        let directory = made_up(&["virtio.ko", "virtio_pci.ko"]);
        let guest = TinyGuest::in_directory(directory.path().to_owned(), None).unwrap();
        let archive = guest.initramfs().unwrap();
        let mut rest = archive.as_slice();
        let mut names = Vec::new();
        loop {
            let mut reader = newc::Reader::new(rest).unwrap();
            if reader.entry().is_trailer() {
                break;
            }
            let name = reader.entry().name().to_owned();
            let mut content = Vec::new();
            std::io::Read::read_to_end(&mut reader, &mut content).unwrap();
            match name.as_str() {
                "init" => {
                    assert_eq!(content, b"the program");
                    assert_eq!(reader.entry().mode(), 0o100_755);
                }
                "dev/console" => {
                    assert_eq!((reader.entry().rdev_major(), reader.entry().rdev_minor()), (5, 1));
                }
                "modules/virtio_pci.ko" => assert_eq!(content, b"virtio_pci.ko"),
                _ => {}
            }
            names.push(name);
            rest = reader.finish().unwrap();
        }
        for name in ["dev", "proc", "sys", "init", "dev/console", "modules/order", "modules/virtio.ko"] {
            assert!(names.iter().any(|other| other == name), "{name} in {names:?}");
        }
    }

    #[test]
    fn a_module_that_is_listed_but_missing_is_named() {
        let directory = made_up(&["virtio.ko"]);
        std::fs::remove_file(directory.path().join("modules/virtio.ko")).unwrap();
        let guest = TinyGuest::in_directory(directory.path().to_owned(), None).unwrap();
        assert!(guest.initramfs().unwrap_err().to_string().contains("virtio.ko"));
    }

    #[test]
    fn a_kernel_that_is_none_is_refused() {
        let directory = made_up(&[]);
        let text = directory.path().join("notes.txt");
        std::fs::write(&text, "not a kernel").unwrap();
        let error = TinyGuest::in_directory(directory.path().to_owned(), Some(&text)).unwrap_err().to_string();
        assert!(error.contains("notes.txt") && error.contains("vmlinuz"), "{error}");
        let absent = directory.path().join("absent");
        let error = TinyGuest::in_directory(directory.path().to_owned(), Some(&absent)).unwrap_err().to_string();
        assert!(error.contains("absent"), "{error}");
    }
}

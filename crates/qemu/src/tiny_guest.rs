//! The tiny guest: a distribution kernel, and an initramfs with the few modules it needs and
//! `homenode-guest` as init. `scripts/guest-image` makes the files.

use std::path::{Path, PathBuf};
use vm::{Accelerator, TcgThreads};

/// What can go wrong with the tiny guest's files.
#[derive(Debug, thiserror::Error)]
pub enum TinyGuestError {
    /// No directory holds them.
    #[error("the tiny guest is missing; run `scripts/guest-image` (or `make`). Looked in: {}{}", list(.searched),
        not_believed(.untrusted))]
    Missing {
        /// Where it was looked for.
        searched: Vec<PathBuf>,
        /// Where its files are, and another user could change them: each with how.
        untrusted: Vec<String>,
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
}

fn list(paths: &[PathBuf]) -> String {
    let texts: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    texts.join(", ")
}

fn not_believed(places: &[String]) -> String {
    places.iter().map(|place| format!(". Not believed: {place}")).collect()
}

/// Where the tiny guest's files are.
#[derive(Clone, Debug)]
pub struct TinyGuest {
    kernel: PathBuf,
    initramfs: PathBuf,
    agent_program: PathBuf,
}

/// `console` and `panic=-1`: a guest that dies says so and ends QEMU at once (with `-no-reboot`).
/// `skew_tick=1`: without it large guests crawl under TCG. The rest saves boot time: no
/// mitigations, no address randomisation, no timer or TSC check, no wait for entropy.
const COMMAND_LINE: &str =
    "console=ttyS0 panic=-1 quiet mitigations=off nokaslr no_timer_check tsc=reliable random.trust_cpu=on skew_tick=1";
const PROGRAM: &str = "homenode-guest";
const INITRAMFS: &str = "initramfs";
const KERNEL: &str = "vmlinux";

impl TinyGuest {
    /// Finds the files; `kernel` replaces the kernel that came with them. Looked for in
    /// `$HOMENODE_GUEST_DIR`, beside the executable (`../guest`, as in a build tree) and where
    /// packages install them. Where nobody named the place, its files and all directories above are
    /// root's or this user's: what is in them runs natively, as this user.
    pub fn locate(kernel: Option<&Path>) -> Result<TinyGuest, TinyGuestError> {
        let named: Vec<PathBuf> = std::env::var_os("HOMENODE_GUEST_DIR").map(PathBuf::from).into_iter().collect();
        let is_there =
            |directory: &PathBuf| is_complete(directory) && (kernel.is_some() || directory.join(KERNEL).is_file());
        if let Some(directory) = named.iter().find(|directory| is_there(directory)) {
            return TinyGuest::in_directory(directory, kernel);
        }
        let (unnamed, mut untrusted) = (unnamed_directories(), Vec::new());
        for directory in unnamed.iter().filter(|directory| is_there(directory)) {
            match check_files_are_ours(directory) {
                Ok(()) => return TinyGuest::in_directory(directory, kernel),
                Err(error) => untrusted.push(format!("{}: {error}", directory.display())),
            }
        }
        Err(TinyGuestError::Missing { searched: [named, unnamed].concat(), untrusted })
    }

    /// The tiny guest whose files are in `directory`.
    pub fn in_directory(directory: &Path, kernel: Option<&Path>) -> Result<TinyGuest, TinyGuestError> {
        if !is_complete(directory) {
            return Err(TinyGuestError::Missing { searched: vec![directory.to_owned()], untrusted: Vec::new() });
        }
        let kernel = kernel.map_or_else(|| directory.join(KERNEL), Path::to_owned);
        check_kernel(&kernel)?;
        let (initramfs, agent_program) = (directory.join(INITRAMFS), directory.join(PROGRAM));
        Ok(TinyGuest { kernel, initramfs, agent_program })
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

    /// The words behind it that send init to the VM's first disk (`guest`'s `disk_root`), and name
    /// the guest.
    pub fn first_disk_words(name: &str) -> String {
        format!(" homenode.root=/dev/vda homenode.name={name}")
    }

    /// The initramfs for `-initrd`: init, modules, a console. The same for every VM, made once by
    /// `scripts/guest-image`: a file of each VM's own would have to lie somewhere, and to go.
    pub fn initramfs(&self) -> &Path {
        &self.initramfs
    }
}

fn is_complete(directory: &Path) -> bool {
    [PROGRAM, INITRAMFS].iter().all(|name| directory.join(name).is_file())
}

fn check_files_are_ours(directory: &Path) -> std::io::Result<()> {
    let files = [PROGRAM, INITRAMFS, KERNEL].map(|name| directory.join(name));
    files.iter().filter(|file| file.exists()).try_for_each(|file| linux::named_file::check_only_ours(file))
}

/// Where the files are that nobody named.
fn unnamed_directories() -> Vec<PathBuf> {
    let mut directories = Vec::new();
    if let Some(beside) = std::env::current_exe().ok().and_then(|program| program.parent().map(Path::to_owned)) {
        // target/debug/homenode, and target/debug/deps/TEST one level further down.
        directories.extend(["../guest", "../../guest", "../lib/homenode/guest"].map(|relative| beside.join(relative)));
    }
    directories.push(PathBuf::from("/usr/lib/homenode/guest"));
    directories
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

#[cfg(test)]
mod tests {
    use super::*;

    fn made_up(files: &[&str]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        files.iter().for_each(|name| std::fs::write(directory.path().join(name), b"\x7fELF...").unwrap());
        directory
    }

    #[test]
    fn an_initramfs_that_is_not_there_is_named_with_its_script() {
        let directory = made_up(&["vmlinux", PROGRAM]);
        let error = TinyGuest::in_directory(directory.path(), None).unwrap_err().to_string();
        assert!(
            error.contains(&directory.path().display().to_string()) && error.contains("scripts/guest-image"),
            "{error}"
        );
    }

    #[test]
    fn a_kernel_that_is_none_is_refused() {
        let directory = made_up(&["vmlinux", PROGRAM, INITRAMFS]);
        let text = directory.path().join("notes.txt");
        std::fs::write(&text, "not a kernel").unwrap();
        let error = TinyGuest::in_directory(directory.path(), Some(&text)).unwrap_err().to_string();
        assert!(error.contains("notes.txt") && error.contains("vmlinuz"), "{error}");
        let absent = directory.path().join("absent");
        let error = TinyGuest::in_directory(directory.path(), Some(&absent)).unwrap_err().to_string();
        assert!(error.contains("absent"), "{error}");
    }
}

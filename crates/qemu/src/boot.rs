//! What a VM boots: files that are there and can be read.

use crate::attached::Prepared;
use crate::command_line::BootFiles;
use crate::user::QemuUser;
use crate::{QemuError, TinyGuest, TinyGuestError};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use vm::Accelerator;
use vm::spec::{Boot, GuestRoot};
use vm::{ConsoleTo, Launch, VmSpec};

/// Files to boot, the spec with its disks as QEMU opens them, and the descriptors that some of
/// their paths stand for.
#[derive(Debug)]
pub(crate) struct Handed {
    pub(crate) spec: VmSpec,
    pub(crate) files: BootFiles,
    pub(crate) open: Vec<OwnedFd>,
}

/// What `launch` boots, so that its QEMU can read it: a kernel or an initrd that its user may not
/// read (in the directory of whoever starts it, say) is handed over as a file in memory. They are
/// read once, and the guest gets them whole. A disk stays what it is, and must be open to it; one
/// that this process has in memory is handed over as it is.
pub(crate) fn for_qemu(launch: &Launch, prepared: &Prepared) -> Result<Handed, QemuError> {
    let mut files = resolve(launch, &prepared.host.accelerator, &prepared.user)?;
    let mut open = Vec::new();
    for (field, file) in [("boot.kernel", &mut files.kernel), ("boot.initrd", &mut files.initrd)] {
        let Some(path) = file else { continue };
        // A path to a descriptor of ours leads QEMU's user nowhere, though it seems to be open.
        if !path.starts_with("/proc") && prepared.user.opens(path, false).is_ok() {
            continue;
        }
        let hand_over = || linux::sys::memory_file(c"homenode-boot", &std::fs::read(&*path)?);
        let handed = hand_over().map_err(QemuError::file(launch, field, path))?;
        *path = of_descriptor(&handed);
        open.push(handed);
    }
    let mut spec = launch.spec.clone();
    for (index, disk) in spec.disks.iter_mut().enumerate().filter(|(_, disk)| is_in_memory(&disk.path)) {
        let handed = File::open(&disk.path).map_err(QemuError::file(launch, &disk_field(index), &disk.path))?;
        let handed = OwnedFd::from(handed);
        disk.path = of_descriptor(&handed);
        open.push(handed);
    }
    if let Some(firmware) = &prepared.firmware {
        let (flash, variables) = firmware.flash(launch)?;
        files.flash = Some(flash);
        open.push(variables);
    }
    Ok(Handed { spec, files, open })
}

/// Where QEMU finds what it inherits.
fn of_descriptor(handed: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", handed.as_raw_fd()))
}

/// Whether a path leads to a descriptor of this process.
fn is_in_memory(path: &Path) -> bool {
    path.starts_with(format!("/proc/{}/fd", std::process::id()))
}

fn disk_field(index: usize) -> String {
    format!("disk[{index}].path")
}

/// Finds what `launch` boots. Every file that the spec names must be readable, and every disk open
/// to QEMU's user.
pub(crate) fn resolve(launch: &Launch, accelerator: &Accelerator, user: &QemuUser) -> Result<BootFiles, QemuError> {
    check_disks(launch, user)?;
    match &launch.spec.boot {
        Boot::TinyGuest { kernel, .. } => {
            let field = if launch.kernel.is_some() { "--kernel" } else { "boot.kernel" };
            let kernel = launch.kernel.as_deref().or(kernel.as_deref());
            kernel.map_or(Ok(()), |kernel| readable(launch, field, kernel))?;
            tiny_guest(launch, accelerator, kernel)
        }
        Boot::Kernel { kernel, initrd, command_line } => {
            let kernel = launch.kernel.as_ref().unwrap_or(kernel);
            readable(launch, "boot.kernel", kernel)?;
            initrd.as_ref().map_or(Ok(()), |initrd| readable(launch, "boot.initrd", initrd))?;
            Ok(of_kernel(kernel, initrd.as_deref(), command_line))
        }
        Boot::Disk { .. } => disk(launch),
        Boot::Definition => Err(of_definition(launch)),
    }
}

/// What `launch` boots on another machine. Files of the spec lie there and are not looked for;
/// those of the tiny guest lie here.
pub(crate) fn elsewhere(launch: &Launch, accelerator: &Accelerator) -> Result<BootFiles, QemuError> {
    match &launch.spec.boot {
        Boot::TinyGuest { kernel, .. } => tiny_guest(launch, accelerator, kernel.as_deref()),
        Boot::Kernel { kernel, initrd, command_line } => Ok(of_kernel(kernel, initrd.as_deref(), command_line)),
        Boot::Disk { .. } => Ok(BootFiles::default()),
        Boot::Definition => Err(of_definition(launch)),
    }
}

fn of_definition(launch: &Launch) -> QemuError {
    let problem =
        "boot.from = \"definition\": only a VM of libvirt's that was adopted boots so; name a disk or a kernel";
    QemuError::Spec { vm: launch.spec.name.clone(), problem: problem.to_owned() }
}

fn of_kernel(kernel: &Path, initrd: Option<&Path>, command_line: &str) -> BootFiles {
    let command_line = format!("console=ttyS0 {command_line}").trim_end().to_owned();
    BootFiles { kernel: Some(kernel.to_owned()), initrd: initrd.map(Path::to_owned), command_line, flash: None }
}

fn disk(launch: &Launch) -> Result<BootFiles, QemuError> {
    let problem = if launch.spec.disks.is_empty() {
        "boot.from = \"disk\", but the spec has no [[disk]]; name one, or boot a kernel"
    } else if launch.kernel.is_some() {
        "--kernel does not go with boot.from = \"disk\": the firmware boots that disk's own kernel"
    } else {
        return Ok(BootFiles::default());
    };
    Err(QemuError::Spec { vm: launch.spec.name.clone(), problem: problem.to_owned() })
}

fn tiny_guest(launch: &Launch, accelerator: &Accelerator, kernel: Option<&Path>) -> Result<BootFiles, QemuError> {
    let vm = &launch.spec.name;
    let fail = |error: TinyGuestError| {
        let (vm, problem) = (vm.clone(), error.to_string());
        match error {
            TinyGuestError::NotAKernel { .. } => QemuError::Spec { vm, problem },
            _ => QemuError::TinyGuest { vm, problem },
        }
    };
    let guest = TinyGuest::locate(kernel).map_err(fail)?;
    Ok(BootFiles {
        kernel: Some(guest.kernel().to_owned()),
        initrd: Some(guest.initramfs().to_owned()),
        command_line: guest.command_line(accelerator) + &root_words(launch),
        flash: None,
    })
}

/// What stands behind the tiny guest's own words on the kernel's command line.
fn root_words(launch: &Launch) -> String {
    match &launch.spec.boot {
        Boot::TinyGuest { root: GuestRoot::FirstDisk, .. } => TinyGuest::first_disk_words(&launch.spec.name),
        _ => String::new(),
    }
}

fn check_disks(launch: &Launch, user: &QemuUser) -> Result<(), QemuError> {
    for (index, disk) in launch.spec.disks.iter().enumerate() {
        let field = disk_field(index);
        readable(launch, &field, &disk.path)?;
        if is_in_memory(&disk.path) {
            continue;
        }
        let write = !disk.read_only && !disk.snapshot;
        user.opens(&disk.path, write).map_err(QemuError::file(launch, &field, &disk.path))?;
    }
    Ok(())
}

fn readable(launch: &Launch, field: &str, path: &Path) -> Result<(), QemuError> {
    // To open a named pipe would wait for whoever writes into it.
    let checked = path.metadata().and_then(|metadata| {
        let kind = metadata.file_type();
        if kind.is_fifo() || kind.is_socket() {
            return Err(std::io::Error::other("it is a pipe or a socket: name a file or a block device"));
        }
        if kind.is_dir() { Err(std::io::ErrorKind::IsADirectory.into()) } else { File::open(path).map(drop) }
    });
    checked.map_err(QemuError::file(launch, field, path))
}

/// Whether the console's file can be written: QEMU would say it in words of its own, and only after
/// the memory is filled.
pub(crate) fn check_console(launch: &Launch) -> Result<(), QemuError> {
    let ConsoleTo::File(path) = &launch.console else { return Ok(()) };
    open_console(path).map(drop).map_err(QemuError::file(launch, "console.path", path))
}

/// Opens the file of a console, to append to it: what it holds is the guest's to say, so that for
/// root it must be root's own, and no link of another user's may lead to it.
pub(crate) fn open_console(path: &Path) -> std::io::Result<File> {
    linux::named_file::append(path, &[])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use vm::ConsoleTo;

    fn launch(boot: Boot) -> Launch {
        let mut spec = samples::spec("a", 1, 64);
        spec.boot = boot;
        let plan = samples::plan("a", 1, 1, 64);
        Launch::new(spec, plan)
    }

    fn resolved(launch: &Launch) -> Result<BootFiles, QemuError> {
        resolve(launch, &Accelerator::Kvm, &QemuUser::Ourselves(None))
    }

    #[test]
    fn a_kernel_that_is_not_there_is_bad_input_and_named() {
        let boot = Boot::Kernel { kernel: "/no/kernel".into(), initrd: None, command_line: String::new() };
        let error = resolved(&launch(boot)).unwrap_err();
        assert!(error.is_bad_input());
        assert!(error.to_string().starts_with("VM a: boot.kernel = /no/kernel: No such file"), "{error}");
    }

    #[test]
    fn a_guest_on_its_first_disk_is_told_of_it_and_of_its_name() {
        let told = |root| root_words(&launch(Boot::TinyGuest { kernel: None, root }));
        assert_eq!(told(GuestRoot::FirstDisk), " homenode.root=/dev/vda homenode.name=a");
        assert_eq!(told(GuestRoot::Initramfs), "");
    }

    #[test]
    fn a_directory_is_no_kernel() {
        let boot = Boot::Kernel { kernel: "/".into(), initrd: None, command_line: String::new() };
        assert!(resolved(&launch(boot)).unwrap_err().to_string().contains("directory"));
    }

    #[test]
    fn a_pipe_is_no_kernel_and_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let boot = Boot::Kernel { kernel: path, initrd: None, command_line: String::new() };
        let error = resolved(&launch(boot)).unwrap_err();
        assert!(error.is_bad_input() && error.to_string().contains("it is a pipe"), "{error}");
    }

    #[test]
    fn a_console_that_cannot_be_written_is_named() {
        let mut launch = launch(Boot::default());
        launch.console = ConsoleTo::File("/no/such/console".into());
        let error = check_console(&launch).unwrap_err();
        assert!(error.is_bad_input(), "{error}");
        assert!(error.to_string().starts_with("VM a: console.path = /no/such/console: No such file"), "{error}");
        let directory = tempfile::tempdir().unwrap();
        launch.console = ConsoleTo::File(directory.path().join("console"));
        assert!(check_console(&launch).is_ok());
        // To open a pipe would wait for whoever reads it.
        launch.console = ConsoleTo::File(directory.path().join("pipe"));
        assert!(std::process::Command::new("mkfifo").arg(directory.path().join("pipe")).status().unwrap().success());
        assert!(check_console(&launch).unwrap_err().to_string().contains("it is a pipe"));
    }

    /// What a guest writes was appended to any file of root's that another user's link led to.
    #[test]
    fn a_console_goes_through_no_link_and_for_root_into_no_file_of_another() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("crontab"), directory.path().join("console"));
        std::fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(open_console(&link).unwrap_err().to_string().contains("it is a link"));
        if linux::sys::effective_user_id() != 0 {
            return eprintln!("SKIPPED the second half of a_console_goes_through_no_link: it needs root");
        }
        std::os::unix::fs::chown(&file, Some(54_321), None).unwrap();
        assert!(open_console(&file).unwrap_err().to_string().contains("belongs to user 54321"));
    }

    #[test]
    fn a_disk_boot_needs_a_disk_and_no_kernel() {
        let mut launch = launch(Boot::BIOS_DISK);
        assert!(resolved(&launch).unwrap_err().to_string().contains("no [[disk]]"));
        launch.spec.disks = vec![vm::spec::Disk {
            path: "/dev/null".into(),
            format: vm::spec::DiskFormat::Raw,
            snapshot: false,
            read_only: true,
        }];
        assert_eq!(resolved(&launch).unwrap(), BootFiles::default());
        launch.kernel = Some("/k".into());
        assert!(resolved(&launch).unwrap_err().to_string().contains("--kernel"));
    }

    #[test]
    fn the_console_comes_first_on_the_kernels_line() {
        let boot = Boot::Kernel { kernel: "/dev/null".into(), initrd: None, command_line: "root=/dev/vda".into() };
        assert_eq!(resolved(&launch(boot)).unwrap().command_line, "console=ttyS0 root=/dev/vda");
    }
}

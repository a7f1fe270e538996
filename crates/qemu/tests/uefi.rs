//! UEFI under real QEMU. What boots is a script on a FAT disk, which the firmware's own shell runs:
//! it shows a variable, writes it, and powers off.

use crate::common::{Place, machine, no_qemu, start, unique};
use scheduler::Occupancy;
use std::io::{Cursor, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use topology::Bytes;
use vm::spec::{Boot, Firmware};
use vm::{ConsoleTo, Launch, Vm, VmSpec};

/// A start takes 13 s, five of which the shell waits for a key, and many times that on a busy host.
const PATIENCE: Duration = Duration::from_secs(400);
const SCRIPT: &str = "setvar Starts -guid 70d1f8b2-3c1c-4b52-9a6e-5f0c4f6d7a01\r\n\
                      setvar Starts -guid 70d1f8b2-3c1c-4b52-9a6e-5f0c4f6d7a01 -bs -rt -nv =0xa7\r\n\
                      echo written\r\n\
                      reset -s\r\n";

/// Whether there is no QEMU or no firmware; says then that `test` is skipped.
fn missing(test: &str, launch: &Launch) -> bool {
    if no_qemu(test) {
        return true;
    }
    match qemu::command_by_hand(launch) {
        Err(error) if error.to_string().contains("package ovmf") => eprintln!("SKIPPED {test}: {error}"),
        _ => return false,
    }
    true
}

/// A disk that is one FAT file system with the script.
fn disk(directory: &Path) -> PathBuf {
    let mut image = vec![0; 2 << 20];
    fatfs::format_volume(Cursor::new(&mut image), fatfs::FormatVolumeOptions::new()).expect("a volume");
    let volume = fatfs::FileSystem::new(Cursor::new(&mut image), fatfs::FsOptions::new()).expect("a volume");
    let mut script = volume.root_dir().create_file("startup.nsh").expect("a file");
    script.write_all(SCRIPT.as_bytes()).expect("it is written");
    drop(script);
    volume.unmount().expect("all is written");
    let path = directory.join("esp.img");
    std::fs::write(&path, image).expect("a disk image");
    // The QEMU of a root runs as another user.
    for (path, mode) in [(directory, 0o755), (&path, 0o644)] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("a mode");
    }
    path
}

fn launch(disk: &Path, variables: Option<PathBuf>) -> Launch {
    let text = format!(
        "name = \"{}\"\nvcpus = 1\nmemory = \"128 MiB\"\nboot = {{ from = \"disk\", firmware = \"uefi\" }}\n\
         [[disk]]\npath = '{}'\nformat = \"raw\"\nread_only = true\n",
        unique("test-uefi"),
        disk.display()
    );
    let spec = VmSpec::from_toml(&text, "test").expect("a spec");
    let plan = scheduler::plan(&machine(), &Occupancy::default(), &spec).expect("a plan");
    let taps = vm::Taps::new();
    Launch { spec, plan, kernel: None, console: ConsoleTo::Kept, agent: false, taps, variables }
}

/// What is on the console once the guest has powered off.
fn console_of_a_life(launch: &Launch) -> String {
    let mut vm = start(launch).expect("a VM");
    let deadline = Instant::now() + PATIENCE;
    while vm.exited().is_none() {
        assert!(Instant::now() < deadline, "it does not power off:\n{}", vm.console_tail(40).join("\n"));
        std::thread::sleep(Duration::from_millis(50));
    }
    vm.console_tail(100).join("\n")
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn uefi_boots_a_disk_and_its_variables_are_there_at_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    let kept = directory.path().join("variables.fd");
    let launch = launch(&disk(directory.path()), Some(kept.clone()));
    if missing("uefi_boots_a_disk_and_its_variables_are_there_at_the_next_start", &launch) {
        return;
    }
    let shown = "0001 Bytes";
    let first = console_of_a_life(&launch);
    assert!(first.contains("\nwritten") && !first.contains(shown), "{first}");
    let length = std::fs::metadata(&kept).unwrap().len();
    let second = console_of_a_life(&launch);
    assert!(second.contains("\nwritten") && second.contains(shown), "{second}");
    assert_eq!(std::fs::metadata(&kept).unwrap().len(), length);
}

#[test]
fn flash_goes_with_a_guest_that_is_saved() {
    let mut place = Place::new("test-saved-uefi");
    place.launch.spec.boot = Boot::Disk { firmware: Firmware::Uefi };
    let variables = place.directory.path().join("variables.fd");
    place.launch.variables = Some(variables.clone());
    if missing("flash_goes_with_a_guest_that_is_saved", &place.launch) {
        return;
    }
    let mut vm = place.start();
    vm.pause().unwrap();
    let manifest = place.manifest(vm.as_mut());
    let [code, kept] = manifest.run_by.flash_sizes[..] else { panic!("{:?}", manifest.run_by) };
    assert_eq!(Bytes(std::fs::metadata(&variables).unwrap().len()), kept);
    assert!(code > kept, "{code:?} {kept:?}");
    let guest = crate::saved::save(vm.as_mut()).unwrap();
    vm.stop(Duration::ZERO).unwrap();

    // On another host the file is not there.
    std::fs::remove_file(&variables).unwrap();
    let mut vm = place.resume(&manifest, &guest, true).expect("it goes on");
    assert_eq!(place.manifest(vm.as_mut()), manifest);
    assert_eq!(Bytes(std::fs::metadata(&variables).unwrap().len()), kept);
    vm.stop(Duration::ZERO).unwrap();

    let bios = Launch { spec: VmSpec { boot: Boot::BIOS_DISK, ..place.launch.spec.clone() }, ..place.launch.clone() };
    place.launch = bios;
    let error = place.resume(&manifest, &guest, true).err().unwrap().to_string();
    assert!(error.contains("flash of its UEFI firmware"), "{error}");
}

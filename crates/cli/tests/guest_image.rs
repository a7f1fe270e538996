//! Guests of a disk image: what is refused, what is booted, and what is said of one that brings no
//! agent; and a cloud image, made here, in which a command is measured.

use crate::common::{lacks, open_directory, tiny_guest, unique};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// A directory with an experiment and a VM spec of the image `disk.qcow2`.
struct World {
    directory: TempDir,
}

impl World {
    fn new(boot_seconds: u32) -> Self {
        let world = Self { directory: open_directory() };
        let name = unique("image");
        let guest = "[guest]\nimage = \"disk.qcow2\"\n";
        let spec = format!("name = \"{name}\"\nvcpus = 1\nmemory = \"256 MiB\"\n{guest}");
        fs::write(world.at("vm.toml"), spec).expect("a spec");
        let experiment = format!(
            "name = \"{name}\"\ntitle = \"In an image\"\nworkload = \"command\"\nthreads = [1]\n\
             pinning = \"none\"\nrepetitions = 2\n{guest}[command]\n\
             shell = \"cat marker; . /etc/os-release; echo release $VERSION_ID\"\nfiles = [\"marker\"]\n\
             memory = \"768 MiB\"\n[[command.figure]]\nname = \"release\"\nunit = \"1\"\n\
             regex = '^release ([0-9]+)'\n[command.verify]\npattern = '^brought$'\n\
             [limits]\nboot_seconds = {boot_seconds}\nother_cpu_percent = 10000\n\
             [[configuration]]\nname = \"1 VM\"\nruns = \"vms\"\n"
        );
        fs::write(world.at("image.toml"), experiment).expect("an experiment");
        fs::write(world.at("marker"), "brought\n").expect("a file");
        world
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn homenode(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_homenode"))
            .args(arguments)
            .env("HOMENODE_CACHE_DIR", self.at("cache"))
            .env("HOMENODE_STATE_DIR", self.at("state"))
            .current_dir(self.directory.path())
            .output()
            .expect("homenode")
    }

    /// What it says where it ends with this code.
    fn fails(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.homenode(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        said
    }

    fn said(&self, arguments: &[&str]) -> String {
        let output = self.homenode(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }
}

fn empty_qcow2(path: &Path) {
    let made = Command::new("qemu-img").args(["create", "-q", "-f", "qcow2"]).arg(path).arg("8M").status();
    assert!(made.expect("qemu-img").success());
}

/// A disk whose boot sector hands back to BIOS (`int 0x18`): there is nothing to boot.
fn qcow2_that_gives_up(path: &Path) {
    let mut content = vec![0; 8 << 20];
    content[..2].copy_from_slice(&[0xcd, 0x18]);
    content[510..512].copy_from_slice(&[0x55, 0xaa]);
    let raw = path.with_extension("raw");
    fs::write(&raw, content).expect("a disk");
    let mut convert = Command::new("qemu-img");
    let made = convert.args(["convert", "-f", "raw", "-O", "qcow2"]).args([&raw, path]).status();
    assert!(made.expect("qemu-img").success());
}

#[test]
fn an_image_for_uefi_alone_is_refused_where_bios_is_to_boot_it() {
    let test = "an_image_for_uefi_alone_is_refused_where_bios_is_to_boot_it";
    if lacks(test, "qemu-img") || lacks(test, "qemu-system-x86_64") || tiny_guest(test).is_none() {
        return;
    }
    let world = World::new(5);
    empty_qcow2(&world.at("disk.qcow2"));
    let by_option = ["evaluate", "--image", "disk.qcow2", "--", "true"];
    for arguments in [&["evaluate", "image.toml"][..], &["run", "vm.toml"], &["guest", "build", "vm.toml"], &by_option]
    {
        let refused = world.fails(2, arguments);
        assert!(refused.contains("it has no boot sector") && refused.contains("firmware = \"uefi\""), "{refused}");
    }
    let text = fs::read_to_string(world.at("vm.toml")).expect("a spec");
    fs::write(world.at("vm.toml"), text.replace("[guest]", "[guest]\nfirmware = \"uefi\"")).expect("a spec");
    world.said(&["guest", "build", "vm.toml"]);
    let output = world.homenode(&["run", "--dry-run", "vm.toml"]);
    let said = String::from_utf8_lossy(if output.status.success() { &output.stdout } else { &output.stderr });
    if said.contains("package ovmf") {
        assert_eq!(output.status.code(), Some(2), "{said}");
        return eprintln!("SKIPPED the second half of {test}: {said}");
    }
    assert!(said.contains("if=pflash,unit=0") && said.contains("if=pflash,unit=1"), "{said}");
}

#[test]
fn what_is_no_image_is_named_and_nothing_is_made() {
    let world = World::new(5);
    let absent = world.fails(2, &["evaluate", "image.toml"]);
    assert!(absent.contains("guest.image: ") && absent.contains("No such file"), "{absent}");
    fs::write(world.at("disk.qcow2"), "some text").expect("a file");
    for arguments in [&["evaluate", "image.toml"][..], &["run", "vm.toml"], &["guest", "build", "vm.toml"]] {
        let refused = world.fails(2, arguments);
        assert!(refused.contains("disk.qcow2: it is no disk image that boots"), "{refused}");
    }
    let refused = world.fails(2, &["evaluate", "--image", "disk.qcow2", "--", "true"]);
    assert!(refused.contains("it is no disk image that boots"), "{refused}");
    let write = |text: String| fs::write(world.at("other.toml"), text).expect("an experiment");
    let text = fs::read_to_string(world.at("image.toml")).expect("an experiment");
    write(text.replace("[guest]", "[guest]\npackages = [\"hpcc\"]"));
    assert!(world.fails(2, &["evaluate", "other.toml"]).contains("does not go with `image`"));
    write(text.replace("[guest]", "[guest]\nnative = \"of_guest\""));
    assert!(world.fails(2, &["evaluate", "other.toml"]).contains("\"host\" beside `image`"));
    assert!(!world.at("cache").exists() && !world.at("results").exists());
}

#[test]
fn a_vm_boots_its_image_which_stays_as_it_is_and_the_seed_behind_it() {
    let test = "a_vm_boots_its_image_which_stays_as_it_is_and_the_seed_behind_it";
    if lacks(test, "qemu-img") || tiny_guest(test).is_none() {
        return;
    }
    let world = World::new(5);
    qcow2_that_gives_up(&world.at("disk.qcow2"));
    let refused = world.fails(2, &["run", "--dry-run", "vm.toml"]);
    assert!(refused.contains("homenode guest build vm.toml"), "{refused}");
    assert!(world.said(&["guest", "build", "vm.toml"]).contains("cache/images/seed-"));
    let command = world.said(&["run", "--dry-run", "vm.toml"]);
    let image = command.find("disk.qcow2,format=qcow2,snapshot=on").expect("the image");
    let seed = command.find("cache/images/seed-").expect("the seed");
    assert!(image < seed && command.contains("bootindex=0") && command.contains("readonly=on"), "{command}");
    assert!(!command.contains("-kernel"), "{command}");
}

#[test]
fn an_image_that_does_not_boot_shows_its_console_and_what_it_needs() {
    let test = "an_image_that_does_not_boot_shows_its_console_and_what_it_needs";
    if lacks(test, "qemu-img") || lacks(test, "qemu-system-x86_64") || tiny_guest(test).is_none() {
        return;
    }
    let world = World::new(10);
    qcow2_that_gives_up(&world.at("disk.qcow2"));
    let failed = world.fails(1, &["evaluate", "image.toml"]);
    for part in ["no first line within 10 s", "boot loader for BIOS", "No bootable device", "--resume"] {
        assert!(failed.contains(part), "{part} is not in {failed}");
    }
    let results = fs::read_dir(world.at("results")).expect("results").flatten().next().expect("one run").path();
    assert!(results.join("disk.qcow2").is_symlink(), "the copy of the experiment finds the image");
    fs::remove_file(world.at("disk.qcow2")).expect("it is there");
    let refused = world.fails(2, &["evaluate", "--resume", &results.display().to_string()]);
    assert!(refused.contains("not the one that it was measured with") && refused.contains("No such file"), "{refused}");
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn a_command_is_measured_in_a_cloud_image() {
    let test = "a_command_is_measured_in_a_cloud_image";
    if ["mmdebstrap", "fakeroot", "apt-get", "qemu-img", "qemu-system-x86_64"].iter().any(|tool| lacks(test, tool))
        || tiny_guest(test).is_none()
    {
        return;
    }
    // Made once; later runs find it.
    let image = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("cloud/cloud.qcow2");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/cloud-image");
    assert!(Command::new(script).arg(&image).status().expect("the script").success());
    let before = fs::metadata(&image).and_then(|seen| seen.modified()).expect("the image");
    let world = World::new(900);
    if fs::hard_link(&image, world.at("disk.qcow2")).is_err() {
        fs::copy(&image, world.at("disk.qcow2")).expect("a copy");
    }
    let said = world.said(&["evaluate", "--json", "image.toml"]);
    let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let cell = &said["configurations"][0]["cells"][0];
    assert_eq!((cell["state"].as_str(), cell["verified"].as_bool()), (Some("measured"), Some(true)), "{said}");
    assert_eq!(fs::metadata(&image).and_then(|seen| seen.modified()).expect("the image"), before);
}

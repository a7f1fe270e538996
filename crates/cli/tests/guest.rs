//! Guests of packages: what the commands say and leave, with programs that stand in for those that
//! build; and a real one, built, booted and run natively.

use crate::common::{lacks, open_directory, tiny_guest, unique, write_script};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// A cache of its own, a spec, and programs before those of the system.
struct World {
    directory: TempDir,
    vm: String,
    cache: PathBuf,
}

impl World {
    fn new(packages: &str) -> Self {
        let directory = open_directory();
        let cache = directory.path().join("cache");
        let world = Self { directory, vm: unique("guest"), cache };
        fs::create_dir(world.at("programs")).expect("a directory");
        let vm = &world.vm;
        let spec = format!("name = \"{vm}\"\nvcpus = 1\nmemory = \"512 MiB\"\n[guest]\npackages = [\"{packages}\"]\n");
        fs::write(world.at("vm.toml"), spec).expect("a spec");
        world
    }

    /// Programs that build nothing in no time.
    fn with_fakes(packages: &str) -> Self {
        let world = Self::new(packages);
        for (name, text) in [
            ("apt-cache", "for word; do printf '%s:\\n  Candidate: 1.0\\n' \"$word\"; done"),
            ("apt-get", ". /etc/os-release; echo \"http://mirror.example/debian|$VERSION_CODENAME|main|x|\""),
            ("mmdebstrap", "for word; do case $word in */archive.tar) : > \"$word\" ;; esac; done"),
            (
                "fakeroot",
                "case \" $* \" in *' tar '*) : > \"$2\" ;; esac
                for word; do case $word in */root.ext4) : > \"$word\" ;; esac; done",
            ),
            ("mke2fs", ""),
            ("bwrap", "shift 1; while [ \"$1\" != -- ]; do shift; done; shift; exec \"$@\""),
        ] {
            write_script(&world.at("programs").join(name), text);
        }
        world
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn homenode(&self, arguments: &[&str]) -> Output {
        let path = format!("{}:{}", self.at("programs").display(), std::env::var("PATH").unwrap_or_default());
        Command::new(env!("CARGO_BIN_EXE_homenode"))
            .args(arguments)
            .env("PATH", path)
            .env("HOMENODE_CACHE_DIR", &self.cache)
            .env("HOMENODE_STATE_DIR", self.at("state"))
            .current_dir(self.directory.path())
            .output()
            .expect("homenode")
    }

    /// What it prints where it succeeds.
    fn said(&self, arguments: &[&str]) -> String {
        let output = self.homenode(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    /// What it says where that is bad input.
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.homenode(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        said
    }
}

/// The name of the only guest that is built.
fn only_guest(listed: &str) -> String {
    let json: serde_json::Value = serde_json::from_str(listed).expect("JSON");
    let guests = json["guests"].as_array().expect("guests");
    assert_eq!(guests.len(), 1, "{listed}");
    guests[0]["name"].as_str().expect("a name").to_owned()
}

#[test]
fn a_guest_is_built_named_booted_from_a_disk_and_removed() {
    let world = World::with_fakes("lammps");
    let refused = world.refused(&["run", "--dry-run", "vm.toml"]);
    assert!(refused.contains("lammps") && refused.contains("homenode guest build vm.toml"), "{refused}");
    assert!(world.said(&["guest", "build", "vm.toml"]).contains("lammps 1.0"));
    let name = only_guest(&world.said(&["guest", "list", "--json"]));
    if tiny_guest("a_guest_is_built_named_booted_from_a_disk_and_removed").is_some() {
        let command = world.said(&["run", "--dry-run", "vm.toml"]);
        let drive =
            format!("{}/cache/images/{name}/root.ext4,format=raw,snapshot=on", world.directory.path().display());
        assert!(command.contains(&drive) && command.contains("homenode.root=/dev/vda"), "{command}");
    }
    assert_eq!(world.said(&["guest", "native", &name[..6], "--", "echo", "natively"]), "natively\n");
    world.said(&["guest", "delete", &name[..6]]);
    // The file of the lock stays: who waits for it has it open.
    let left =
        fs::read_dir(world.at("cache/images")).expect("the cache").map(|left| left.expect("an entry").file_name());
    assert_eq!(left.collect::<Vec<_>>(), [".lock"]);
}

#[test]
fn a_guest_that_cannot_be_had_is_named_and_leaves_nothing() {
    let world = World::with_fakes("lammps");
    write_script(&world.at("programs/apt-cache"), "echo 'lammps:'");
    let refused = world.refused(&["run", "vm.toml"]);
    assert!(refused.contains("vm.toml: guest.packages[0]: apt knows no package lammps"), "{refused}");
    let refused = world.refused(&["guest", "build", "--packages", "hpcc,LAMMPS"]);
    assert!(refused.contains("--packages: guest.packages[1]") && refused.contains("lower-case"), "{refused}");
    let refused = world.refused(&["guest", "native", "abc", "--", "true"]);
    assert!(refused.contains("no image is called abc"), "{refused}");
    fs::write(world.at("plain.toml"), "name = \"x\"\nvcpus = 1\nmemory = \"512 MiB\"\n").expect("a spec");
    assert!(world.refused(&["guest", "build", "plain.toml"]).contains("guest: there is no such table"));
    assert!(!world.at("cache").exists());
}

#[test]
fn an_experiment_in_a_guest_says_what_it_would_build_and_refuses_what_it_cannot() {
    let world = World::with_fakes("lammps");
    fs::write(world.at("in.lj"), "").expect("a file");
    let command = ["evaluate", "--packages", "lammps", "--dry-run", "--json", "--", "lmp", "-in", "./in.lj", "/usr/x"];
    let said: serde_json::Value = serde_json::from_str(&world.said(&command)).expect("JSON");
    let resolved = &said["resolved"];
    assert_eq!(resolved["guest"]["packages"]["lammps"], "1.0");
    assert_eq!(resolved["configurations"][0]["native_files"], "of_guest");
    let section = resolved["workloads"][0]["section"]["parameters"].clone();
    assert_eq!(section["argv"], serde_json::json!(["lmp", "-in", "in.lj", "/usr/x"]));
    assert!(section["files"][0].as_str().expect("a file").ends_with("/in.lj"), "{section}");
    assert!(section["environment"]["PATH"].as_str().expect("a path").starts_with("/usr/local/sbin"), "{section}");
    assert!(world.said(&["evaluate", "--packages", "lammps", "--dry-run", "--", "lmp"]).contains("is not built yet"));
    assert!(!world.at("cache").exists());
    write_script(&world.at("programs/apt-cache"), "echo 'lammps:'");
    let refused = world.refused(&["evaluate", "--packages", "lammps", "--", "lmp"]);
    assert!(refused.contains("guest.packages[0]: apt knows no package lammps"), "{refused}");
    assert!(world.refused(&["evaluate", "--packages", "lammps", "vm.toml"]).contains("cannot be used with"));
    assert!(!world.at("results").exists());
}

/// Where guests that tests build are kept from one run to the next, so that only the first takes
/// minutes. `None` where other users, as whom QEMU runs, have no way there.
fn kept_cache() -> Option<PathBuf> {
    let cache = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("guests");
    fs::create_dir_all(&cache).expect("a directory");
    let is_open = |directory: &Path| directory.metadata().is_ok_and(|seen| seen.permissions().mode() & 0o001 != 0);
    cache.ancestors().all(is_open).then_some(cache)
}

/// The experiment that comes with homenode, of a size for software emulation: 4000 atoms, whose
/// energy after 100 steps is this (the same natively and in guests on three hosts).
fn small_lammps() -> String {
    let text = include_str!("../../../experiments/lammps.toml");
    let (text, _) = text.split_once("# What a hypervisor without vNUMA").expect("the last configuration");
    let change = |text: String, (from, to): (&str, &str)| {
        assert!(text.contains(from), "{from} is not in the experiment");
        text.replacen(from, to, 1)
    };
    let name = format!("name = \"{}\"", unique("lammps"));
    [
        ("name = \"lammps\"", name.as_str()),
        ("\"20\"", "\"10\""),
        ("expected = -4.6223613", "expected = -4.6226965"),
        ("threads = \"auto\"", "threads = [1]"),
        ("repetitions = 4", "repetitions = 2"),
        ("rounds = 2", "rounds = 1"),
        ("repeat_disturbed = 1", "repeat_disturbed = 0\nother_cpu_percent = 10000"),
    ]
    .into_iter()
    .fold(text.to_owned(), change)
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn lammps_gives_its_check_value_natively_and_in_a_guest() {
    let test = "lammps_gives_its_check_value_natively_and_in_a_guest";
    if ["mmdebstrap", "fakeroot", "bwrap", "apt-get", "qemu-system-x86_64"].iter().any(|tool| lacks(test, tool))
        || tiny_guest(test).is_none()
    {
        return;
    }
    let mut world = World::new("lammps");
    if let Some(cache) = kept_cache() {
        world.cache = cache;
    }
    fs::write(world.at("lammps.toml"), small_lammps()).expect("an experiment");
    fs::create_dir(world.at("inputs")).expect("a directory");
    let input = include_str!("../../../experiments/inputs/lammps.in");
    fs::write(world.at("inputs/lammps.in"), input).expect("its input");
    let said: serde_json::Value =
        serde_json::from_str(&world.said(&["evaluate", "--json", "lammps.toml"])).expect("JSON");
    let configurations = said["configurations"].as_array().expect("configurations");
    assert_eq!(configurations.len(), 2, "{said}");
    for cell in configurations.iter().map(|one| &one["cells"][0]) {
        assert_eq!((cell["state"].as_str(), cell["verified"].as_bool()), (Some("measured"), Some(true)), "{cell}");
    }
    assert_eq!(configurations[0]["shape"], "on the host, the guest's programs");
}

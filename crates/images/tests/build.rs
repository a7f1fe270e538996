//! Images are built by fakes of the programs that build them: what is asked of them, and what is
//! there when one fails.

use images::{Image, Images, ImagesError, Progress, Recipe, Tools};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A cache, and a directory of programs that stand in for the real ones.
struct World {
    directory: TempDir,
}

/// Writes the archive that it is asked for: its arguments. `apt` has one source of this host's
/// suite.
const MMDEBSTRAP: &str =
    r#"for word; do case $word in */archive.tar) archive=$word ;; esac; done; printf '%s\n' "$@" > "$archive""#;
/// Unpacks: makes what the archive would hold. Writes the root: makes it.
const FAKEROOT: &str = r#"
for word; do last=$word; done
case " $* " in
  *" tar "*) mkdir "$last/bin"; cp "$(dirname "$last")/archive.tar" "$last/asked"; : > "$(dirname "$last")/owners" ;;
  *" mke2fs "*) for word; do case $word in */root.ext4) echo ext4 > "$word" ;; esac; done ;;
esac"#;
const APT_GET: &str = r#". /etc/os-release; echo "http://mirror.example/debian|$VERSION_CODENAME|main|x|""#;

impl World {
    fn new() -> Self {
        let world = Self { directory: tempfile::tempdir().expect("it can be had") };
        for (program, does) in
            [("mmdebstrap", MMDEBSTRAP), ("fakeroot", FAKEROOT), ("apt-get", APT_GET), ("tar", ""), ("mke2fs", "")]
        {
            world.program(program, does);
        }
        world
    }

    fn programs(&self) -> PathBuf {
        self.directory.path().join("programs")
    }

    /// Another program writes it: a file that this process has open for writing may still be open
    /// in a child that another test starts at this moment, and cannot be run until then (ETXTBSY).
    fn program(&self, name: &str, does: &str) {
        fs::create_dir_all(self.programs()).expect("it can be had");
        let draft = self.directory.path().join("draft");
        fs::write(&draft, format!("#!/bin/sh\n{does}\n")).expect("it can be had");
        let install = Command::new("install").args(["-m", "755"]).arg(draft).arg(self.programs().join(name)).status();
        assert!(install.expect("it can be had").success(), "{name} cannot be written");
    }

    fn tools(&self) -> Tools {
        Tools::at(format!("{}:/usr/bin:/bin", self.programs().display()))
    }

    fn images(&self) -> Images {
        Images::at(self.directory.path().join("cache/images"))
    }

    fn build(&self, recipe: &Recipe) -> Result<Image, ImagesError> {
        self.images().build(recipe, &self.tools(), &mut |_| ())
    }

    /// What is in the cache, but for the file of the lock, which stays.
    fn left(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.images().path()) else { return Vec::new() };
        let names = entries.flatten().map(|entry| entry.file_name().into_string().expect("it can be had"));
        names.filter(|name| name != ".lock").collect()
    }
}

fn recipe(package: &str) -> Recipe {
    let packages = [(package.to_owned(), Some("1.2-3".to_owned()))].into();
    Recipe::new("bookworm".into(), "amd64".into(), packages)
}

#[test]
fn an_image_is_built_once_and_is_what_was_asked_for() {
    let world = World::new();
    let mut told = Vec::new();
    let image = world
        .images()
        .build(&recipe("lammps"), &world.tools(), &mut |progress| told.push(progress))
        .expect("it can be had");
    assert_eq!(told, [Progress::Installs, Progress::Unpacks, Progress::WritesRoot]);
    assert_eq!(
        (image.recipe.clone(), fs::read_to_string(image.root()).expect("it can be had")),
        (recipe("lammps"), "ext4\n".into())
    );
    let asked = fs::read_to_string(image.tree().join("asked")).expect("it can be had");
    let has = |wanted: &str| asked.lines().any(|line| line == wanted);
    assert!(
        has("--include=lammps") && has("bookworm") && has("deb http://mirror.example/debian bookworm main"),
        "{asked}"
    );
    assert_eq!(fs::metadata(image.tree()).expect("it can be had").permissions().mode() & 0o777, 0o700);
    // Nothing of the building is left, and nothing is built a second time.
    let names: Vec<_> = fs::read_dir(image.root().parent().expect("it can be had"))
        .expect("it can be had")
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    assert_eq!(names.len(), 3, "{names:?}");
    world.program("mmdebstrap", "exit 1");
    assert_eq!(world.build(&recipe("lammps")).expect("it can be had").name, image.name);
    assert_eq!(world.left(), std::slice::from_ref(&image.name));
    world.images().delete(&image).expect("it can be had");
    assert!(world.left().is_empty() && world.images().all().expect("it can be had").is_empty());
}

#[test]
fn whatever_fails_is_named_and_leaves_nothing() {
    for (program, does, bad_input, said) in [
        ("mmdebstrap", "echo 'E: Unable to locate package lamps'; exit 25", true, "bookworm has no package lamps"),
        (
            "mmdebstrap",
            "echo \"E: The repository 'x bookworm Release' does not have a Release file.\"; exit 25",
            true,
            "no suite bookworm",
        ),
        ("mmdebstrap", "echo 'E: no network'; exit 25", false, "E: no network"),
        ("fakeroot", "echo 'tar: lib: No space left on device' >&2; exit 2", false, "HOMENODE_CACHE_DIR"),
        ("fakeroot", "kill -9 $$", false, "fakeroot failed"),
    ] {
        let world = World::new();
        world.program(program, does);
        let error = world.build(&recipe("lammps")).expect_err("it fails");
        assert_eq!((error.is_bad_input(), world.left()), (bad_input, Vec::new()), "{error}");
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[test]
fn a_tool_that_is_missing_is_named_before_anything_is_made() {
    let world = World::new();
    fs::remove_file(world.programs().join("mmdebstrap")).expect("it can be had");
    let tools = Tools::at(world.programs());
    let error = world.images().build(&recipe("lammps"), &tools, &mut |_| ()).expect_err("it fails");
    assert!(error.is_bad_input() && error.to_string().contains("install the package mmdebstrap"), "{error}");
    assert!(!world.images().path().exists());
}

#[test]
fn what_a_killed_builder_left_goes_with_the_next_build() {
    let world = World::new();
    let killed = world.images().path().join(format!("{}.unfinished", recipe("hpcc").key()));
    fs::create_dir_all(killed.join("tree/bin")).expect("it can be had");
    assert!(world.images().all().expect("it can be had").is_empty(), "it is no image");
    let image = world.build(&recipe("lammps")).expect("it can be had");
    assert_eq!(world.left(), [image.name]);
}

#[test]
fn an_image_is_named_by_the_beginning_of_its_name() {
    let world = World::new();
    let (one, other) =
        (world.build(&recipe("lammps")).expect("it can be had"), world.build(&recipe("hpcc")).expect("it can be had"));
    assert_ne!(one.name, other.name);
    assert_eq!(world.images().named(&one.name[..12]).expect("it can be had").name, one.name);
    for wrong in ["", "nothing"] {
        let error = world.images().named(wrong).expect_err("it fails");
        assert!(error.is_bad_input() && error.to_string().contains(&other.name), "{error}");
    }
}

#[test]
fn a_program_of_an_image_runs_in_its_tree() {
    let world = World::new();
    world.program("bwrap", "printf '%s\\n' \"$@\"");
    let image = world.build(&recipe("lammps")).expect("it can be had");
    let bound = [(PathBuf::from("/opt/agent"), PathBuf::from("/run/agent"))];
    let words = ["lmp".into(), "-in".into(), "in.lj".into()];
    let output = image.native(&world.tools(), &bound, &words).expect("it can be had").output().expect("it can be had");
    let said = String::from_utf8(output.stdout).expect("it can be had");
    let has = |wanted: &[&str]| {
        let said: Vec<&str> = said.lines().collect();
        assert!(said.windows(wanted.len()).any(|words| words == wanted), "{said:?}: {wanted:?}");
    };
    has(&["--ro-bind", image.tree().to_str().expect("it can be had"), "/"]);
    has(&["--ro-bind", "/opt/agent", "/run/agent"]);
    has(&["--", "lmp", "-in", "in.lj"]);
    assert!(Path::new(&image.tree()).is_dir());
}

//! From a recipe to an image.

use crate::apt::sources_of;
use crate::store::remove;
use crate::{CACHE_VARIABLE, Image, Images, ImagesError, Recipe, Tools};
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// What a guest can write beyond what its packages take, in MiB. It takes no space until it is
/// written, and then that of the VM's own temporary file.
const FREE_MIB: u64 = 4096;
/// Lines that are shown of a program that failed.
const LAST_WORDS: usize = 12;
/// What is left out of every image: nobody reads it in a guest. Examples and inputs of some codes
/// are documentation, which stays.
const LEFT_OUT: [&str; 3] = ["/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*"];
/// Packages whose postinst wants that directory, such as Java's, fail without it.
const MAN_DIRECTORY: &str = "mkdir -p \"$1/usr/share/man/man1\"";

/// How far a build is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Another homenode builds or deletes.
    Waits,
    /// Packages are fetched and installed: the longest part.
    Installs,
    /// They are unpacked.
    Unpacks,
    /// The root file system is written.
    WritesRoot,
}

impl Images {
    /// The image of a recipe: the one that is there, or a new one.
    ///
    /// # Errors
    /// It cannot be built; nothing of it is left.
    pub fn build(&self, recipe: &Recipe, tools: &Tools, told: &mut dyn FnMut(Progress)) -> Result<Image, ImagesError> {
        if let Some(image) = self.of(recipe)? {
            return Ok(image);
        }
        for (program, package) in
            [("mmdebstrap", "mmdebstrap"), ("fakeroot", "fakeroot"), ("tar", "tar"), ("mke2fs", "e2fsprogs")]
        {
            tools.need(program, package)?;
        }
        let sources = sources_of(&recipe.suite, tools)?;
        let _lock = self.lock(&mut || told(Progress::Waits))?;
        // Whoever had the lock may have built just that.
        if let Some(image) = self.of(recipe)? {
            return Ok(image);
        }
        let place = self.unfinished(&recipe.key());
        let building = Building { recipe, tools, place: &place };
        let built = building.all(&sources, told).and_then(|()| self.finish(recipe));
        if built.is_err() {
            // What cannot be removed now is removed by the next build.
            let _ = remove(&place);
        }
        built
    }
}

struct Building<'a> {
    recipe: &'a Recipe,
    tools: &'a Tools,
    place: &'a Path,
}

impl Building<'_> {
    fn all(&self, sources: &[String], told: &mut dyn FnMut(Progress)) -> Result<(), ImagesError> {
        self.make_directory(self.place, 0o755)?;
        told(Progress::Installs);
        self.install(sources)?;
        told(Progress::Unpacks);
        self.unpack()?;
        told(Progress::WritesRoot);
        self.write_root()?;
        for left in ["archive.tar", "owners", "log"] {
            let path = self.place.join(left);
            fs::remove_file(&path).map_err(ImagesError::io(format!("remove {}", path.display())))?;
        }
        Ok(())
    }

    fn install(&self, sources: &[String]) -> Result<(), ImagesError> {
        let packages: Vec<&str> = self.recipe.packages.keys().map(String::as_str).collect();
        let mut arguments: Vec<OsString> = [
            "--mode=auto".to_owned(),
            "--variant=minbase".to_owned(),
            "--format=tar".to_owned(),
            format!("--architectures={}", self.recipe.architecture),
            format!("--include={}", packages.join(",")),
            "--aptopt=APT::Install-Recommends \"false\"".to_owned(),
            format!("--essential-hook={MAN_DIRECTORY}"),
        ]
        .map(OsString::from)
        .into();
        arguments.extend(LEFT_OUT.map(|path| format!("--dpkgopt=path-exclude={path}").into()));
        arguments.push(self.recipe.suite.clone().into());
        arguments.push(self.place.join("archive.tar").into());
        arguments.extend(sources.iter().map(OsString::from));
        self.work("mmdebstrap", &arguments)
    }

    /// On disk all belongs to us; who owns it in the guest is kept in `owners`.
    fn unpack(&self) -> Result<(), ImagesError> {
        let tree = self.place.join("tree");
        // Programs in there that change their user are for nobody else on this host.
        self.make_directory(&tree, 0o700)?;
        let arguments = [
            OsString::from("-s"),
            self.place.join("owners").into(),
            "--".into(),
            "tar".into(),
            "--extract".into(),
            "--preserve-permissions".into(),
            "--numeric-owner".into(),
            // The guest's kernel makes devices; the host's name and name servers are the host's.
            "--exclude=./dev/*".into(),
            "--exclude=./etc/hostname".into(),
            "--exclude=./etc/resolv.conf".into(),
            "--file".into(),
            self.place.join("archive.tar").into(),
            "--directory".into(),
            tree.into(),
        ];
        self.work("fakeroot", &arguments)
    }

    fn write_root(&self) -> Result<(), ImagesError> {
        let (root, tree) = (self.place.join("root.ext4"), self.place.join("tree"));
        let size = disk_usage(&tree).map_err(ImagesError::io(format!("read {}", tree.display())))?;
        // What the file system itself takes, a tenth.
        let mib = size.div_ceil(1 << 20) * 11 / 10 + FREE_MIB;
        let arguments = [
            OsString::from("-i"),
            self.place.join("owners").into(),
            "--".into(),
            "mke2fs".into(),
            "-q".into(),
            "-t".into(),
            "ext4".into(),
            // Writes are thrown away: nothing is to be repaired, nothing kept for root.
            "-O".into(),
            "^has_journal".into(),
            "-m".into(),
            "0".into(),
            "-d".into(),
            tree.clone().into(),
            root.into(),
            format!("{mib}M").into(),
        ];
        self.work("fakeroot", &arguments)?;
        fs::set_permissions(&tree, fs::Permissions::from_mode(0o700))
            .map_err(ImagesError::io(format!("close {}", tree.display())))
    }

    fn work(&self, program: &'static str, arguments: &[OsString]) -> Result<(), ImagesError> {
        let log = self.place.join("log");
        if self.tools.work(program, arguments, &log)? {
            return Ok(());
        }
        Err(self.why(program, &fs::read(&log).unwrap_or_default()))
    }

    /// What a program that failed said, as an error.
    fn why(&self, program: &'static str, log: &[u8]) -> ImagesError {
        let log = String::from_utf8_lossy(log);
        if log.contains("No space left on device") || log.contains("not enough free space") {
            let directory = self.place.parent().unwrap_or(self.place).to_owned();
            return ImagesError::NoSpace { directory, variable: CACHE_VARIABLE };
        }
        let refused = |field: &str, problem: String| ImagesError::Guest { field: field.to_owned(), problem };
        let suite = &self.recipe.suite;
        let after = |words: &str| log.lines().find_map(|line| line.split_once(words)).map(|(_, rest)| rest.trim());
        if let Some(package) = after("E: Unable to locate package ") {
            return refused("guest.packages", format!("{suite} has no package {package}"));
        }
        if log.lines().any(|line| line.ends_with("does not have a Release file.")) {
            let problem = format!("the sources of this host's apt have no suite {suite}: write a release's codename");
            return refused("guest.suite", problem);
        }
        let said: Vec<String> =
            log.lines().map(|line| topology::input::one_line(line, 200)).filter(|line| !line.is_empty()).collect();
        let words = said[said.len().saturating_sub(LAST_WORDS)..].to_vec();
        ImagesError::Failed { program, image: self.recipe.summary(), words }
    }

    fn make_directory(&self, path: &Path, mode: u32) -> Result<(), ImagesError> {
        DirBuilder::new().mode(mode).create(path).map_err(ImagesError::io(format!("make {}", path.display())))
    }
}

/// Bytes on disk of all that is below a directory.
fn disk_usage(directory: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    let mut left: Vec<PathBuf> = vec![directory.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            let seen = entry.metadata()?;
            bytes += seen.blocks() * 512;
            if seen.is_dir() {
                left.push(entry.path());
            }
        }
    }
    Ok(bytes)
}

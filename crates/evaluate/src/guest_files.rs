//! Programs of this host in the tiny guest, under the same paths: without an image, and byte for
//! byte what runs natively.
//!
//! A program brings the libraries that its loader would take here (`ldd` says which), a script its
//! interpreter, a directory all that is in it. All of it becomes a second archive behind the tiny
//! guest's initramfs: the kernel unpacks one after the other
//! (Documentation/driver-api/early-userspace/buffer-format.rst). What a program opens by name at
//! run time (plug-ins, data) nobody can see from outside: `needs` of the section says it.
//!
//! Example: `/bin/sleep` brings `/lib/x86_64-linux-gnu/libc.so.6`, its loader
//! `/lib64/ld-linux-x86-64.so.2` and the loader's cache `/etc/ld.so.cache`.

mod archive;
mod libraries;

pub use archive::{Entry, archive};

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Most bytes that a guest gets: they lie in its memory.
const MOST_BYTES: u64 = 2 << 30;
/// Where the loader looks up libraries that are in none of its standard directories.
const LOADER_CACHE: &str = "/etc/ld.so.cache";

/// Why files cannot be brought into a guest.
#[derive(Debug, thiserror::Error)]
pub enum GuestFilesError {
    /// A file is not there, or cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A program is not in PATH.
    #[error("{name}: there is no such program in PATH")]
    NotInPath {
        /// Its name.
        name: String,
    },
    /// A library of a program is not there.
    #[error("{}: its library {library} is not on this host, so that it runs neither here nor in a \
        guest", program.display())]
    NoLibrary {
        /// The program.
        program: PathBuf,
        /// The library.
        library: String,
    },
    /// `ldd` cannot be run.
    #[error("{}: `ldd` cannot say which libraries it needs: {reason}", program.display())]
    NoLdd {
        /// The program.
        program: PathBuf,
        /// Why.
        reason: String,
    },
    /// Too much for the memory of a guest.
    #[error("{}: with it more than {} GiB would be brought into the guest; name less in \
        `needs`", path.display(), MOST_BYTES >> 30)]
    TooMuch {
        /// The file that is over the limit.
        path: PathBuf,
    },
}

/// What a guest gets, by its path.
#[derive(Debug, Default)]
pub struct GuestFiles {
    files: BTreeMap<PathBuf, u64>,
    looked_at: BTreeSet<PathBuf>,
    bytes: u64,
    /// Where they are in the guest, in front of their paths.
    below: PathBuf,
}

impl GuestFiles {
    /// What these programs, files and directories need. A name without `/` is looked for in
    /// `path`, a list of directories as in the environment variable.
    ///
    /// # Errors
    /// Something is not there.
    pub fn of(wanted: &[PathBuf], path: &str) -> Result<Self, GuestFilesError> {
        let mut files = Self::default();
        for wanted in wanted {
            files.add(&in_path(wanted, path)?, path)?;
        }
        Ok(files)
    }

    /// These files alone, for a guest of packages: below [`linux::GUEST_FILES`].
    ///
    /// # Errors
    /// One is not there, or no regular file.
    pub fn alone(wanted: &[PathBuf]) -> Result<Self, GuestFilesError> {
        let mut files = Self { below: linux::GUEST_FILES.into(), ..Self::default() };
        for path in wanted {
            let failed = |source| GuestFilesError::Read { path: path.clone(), source };
            let metadata = path.metadata().map_err(failed)?;
            if !metadata.is_file() {
                return Err(failed(std::io::Error::other("it is no regular file")));
            }
            files.take(path, metadata.len())?;
        }
        Ok(files)
    }

    /// Where a file is in the guest.
    pub fn in_guest(&self, path: &Path) -> PathBuf {
        Path::new("/").join(&self.below).join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Paths of all files, absolute.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.keys().map(PathBuf::as_path)
    }

    /// How much it is.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The archive of all of it.
    ///
    /// # Errors
    /// A file cannot be read any more.
    pub fn archive(&self) -> Result<Vec<u8>, GuestFilesError> {
        archive(&self.entries()?).map_err(|source| GuestFilesError::Read { path: PathBuf::from("archive"), source })
    }

    /// All of it, with what is in it.
    ///
    /// # Errors
    /// A file cannot be read any more.
    pub fn entries(&self) -> Result<Vec<Entry>, GuestFilesError> {
        let entry = |path: &PathBuf| {
            let failed = |source| GuestFilesError::Read { path: path.clone(), source };
            let metadata = path.metadata().map_err(failed)?;
            let is_program = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o111 != 0;
            Ok(Entry { path: self.in_guest(path), is_program, content: std::fs::read(path).map_err(failed)? })
        };
        self.files.keys().map(entry).collect()
    }

    fn take(&mut self, path: &Path, bytes: u64) -> Result<(), GuestFilesError> {
        self.bytes += bytes;
        if self.bytes > MOST_BYTES {
            return Err(GuestFilesError::TooMuch { path: path.to_owned() });
        }
        self.files.insert(path.to_owned(), bytes);
        Ok(())
    }

    fn add(&mut self, path: &Path, search: &str) -> Result<(), GuestFilesError> {
        if !self.looked_at.insert(path.to_owned()) {
            return Ok(());
        }
        let failed = |source| GuestFilesError::Read { path: path.to_owned(), source };
        let metadata = path.metadata().map_err(failed)?;
        if metadata.is_dir() {
            // A link to a directory above would lead round and round.
            let real = path.canonicalize().map_err(failed)?;
            if real != path && !self.looked_at.insert(real) {
                return Ok(());
            }
            let entries = std::fs::read_dir(path).map_err(failed)?;
            for entry in entries {
                let entry = entry.map_err(failed)?.path();
                // A link that leads nowhere is of no use in the guest either.
                if entry.exists() {
                    self.add(&entry, search)?;
                }
            }
            return Ok(());
        }
        if !metadata.is_file() {
            // Sockets, pipes and devices of the host mean nothing in a guest.
            return Ok(());
        }
        self.take(path, metadata.len())?;
        let mut start = Vec::new();
        let read = std::fs::File::open(path).and_then(|file| file.take(256).read_to_end(&mut start));
        read.map_err(failed)?;
        if let Some(interpreter) = libraries::interpreter(&start) {
            return self.add(&in_path(&interpreter, search)?, search);
        }
        if !start.starts_with(b"\x7fELF") {
            return Ok(());
        }
        let libraries = libraries::of(path)?;
        if !libraries.is_empty() && Path::new(LOADER_CACHE).exists() {
            self.add(Path::new(LOADER_CACHE), search)?;
        }
        libraries.iter().try_for_each(|library| self.add(library, search))
    }
}

/// The absolute path of a program or file.
fn in_path(wanted: &Path, path: &str) -> Result<PathBuf, GuestFilesError> {
    if wanted.components().count() > 1 || wanted.is_absolute() {
        return std::path::absolute(wanted).map_err(|source| GuestFilesError::Read { path: wanted.to_owned(), source });
    }
    let found = path.split(':').map(|directory| Path::new(directory).join(wanted)).find(|found| found.is_file());
    found.ok_or_else(|| GuestFilesError::NotInPath { name: wanted.display().to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(wanted: &[&str]) -> Result<GuestFiles, GuestFilesError> {
        let wanted: Vec<PathBuf> = wanted.iter().map(PathBuf::from).collect();
        GuestFiles::of(&wanted, "/usr/bin:/bin")
    }

    #[test]
    fn a_program_brings_its_libraries_and_its_loader() {
        let files = of(&["sleep"]).unwrap();
        let paths: Vec<String> = files.paths().map(|path| path.display().to_string()).collect();
        assert!(paths.iter().any(|path| path.ends_with("/sleep")), "{paths:?}");
        for part in ["/libc.so", "/ld-linux"] {
            assert!(paths.iter().any(|path| path.contains(part)), "{part} is not in {paths:?}");
        }
        assert!(files.archive().unwrap().len() as u64 > files.bytes());
    }

    #[test]
    fn a_script_brings_its_interpreter_and_a_directory_all_that_is_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("deep").join("run");
        std::fs::create_dir(directory.path().join("deep")).unwrap();
        std::fs::write(&script, "#!/bin/sh\necho\n").unwrap();
        std::os::unix::fs::symlink("nowhere", directory.path().join("dangling")).unwrap();
        std::os::unix::fs::symlink("..", directory.path().join("deep").join("loop")).unwrap();
        let files = GuestFiles::of(&[directory.path().to_owned()], "/bin").unwrap();
        let paths: Vec<&Path> = files.paths().collect();
        assert!(paths.contains(&script.as_path()) && paths.contains(&Path::new("/bin/sh")), "{paths:?}");
        assert_eq!(paths.iter().filter(|path| path.ends_with("run")).count(), 1, "{paths:?}");
    }

    #[test]
    fn for_a_guest_of_packages_files_come_alone_and_lie_apart() {
        let files = GuestFiles::alone(&["/bin/sh".into()]).unwrap();
        assert_eq!(files.paths().collect::<Vec<_>>(), [Path::new("/bin/sh")]);
        assert_eq!(files.in_guest(Path::new("/bin/sh")), Path::new("/run/homenode-files/bin/sh"));
        let archive = files.archive().unwrap();
        assert!(archive.windows(26).any(|bytes| bytes == b"run/homenode-files/bin/sh\0"));
        assert!(GuestFiles::alone(&["/bin".into()]).unwrap_err().to_string().contains("no regular file"));
    }

    #[test]
    fn what_is_not_there_is_named() {
        let error = of(&["no-such-solver"]).unwrap_err().to_string();
        assert!(error.contains("no-such-solver") && error.contains("PATH"), "{error}");
        let error = of(&["/no/such/solver"]).unwrap_err().to_string();
        assert!(error.contains("/no/such/solver"), "{error}");
    }
}

//! The images of a user, on disk.

use crate::{ImagesError, Recipe};
use linux::lock_file::{LockFile, LockFileError};
use linux::named_file;
use linux::sys::effective_user_id;
use std::fs::{self, DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use topology::{Bytes, input};

/// Names another cache than the default.
pub const CACHE_VARIABLE: &str = "HOMENODE_CACHE_DIR";

/// How an image ends that is being built, or deleted.
const UNFINISHED: &str = ".unfinished";
const RECIPE: &str = "recipe.json";
const ROOT: &str = "root.ext4";
const TREE: &str = "tree";
const LONGEST_RECIPE: u64 = 1 << 20;
/// The file whose lock is the right to build and delete. Not the directory: all may open that.
const LOCK: &str = ".lock";
/// How long somebody may build before the next one gives up waiting: far longer than any build.
const LONGEST_BUILD: Duration = Duration::from_secs(2 * 3600);

/// The images of a user.
///
/// They are in `$HOMENODE_CACHE_DIR/images`; without it in `/var/cache/homenode/images` for root,
/// whose guests are run by other users, and in `$XDG_CACHE_HOME/homenode/images`
/// (`~/.cache/homenode/images`) for everyone else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images(PathBuf);

/// An image that is there.
#[derive(Clone, Debug)]
pub struct Image {
    /// Its key, which is the name of its directory.
    pub name: String,
    /// What it is made of.
    pub recipe: Recipe,
    /// When it was built.
    pub built: SystemTime,
    /// What its root file system takes on disk.
    pub size: Bytes,
    directory: PathBuf,
}

impl Image {
    /// The root file system, an ext4 without partitions.
    pub fn root(&self) -> PathBuf {
        self.directory.join(ROOT)
    }

    /// The same files, for programs that run on the host.
    pub fn tree(&self) -> PathBuf {
        self.directory.join(TREE)
    }
}

impl Images {
    /// Those of this user; nothing is made.
    pub fn of_this_user() -> Self {
        let variable =
            |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| !path.as_os_str().is_empty());
        let absolute = |name: &str| variable(name).filter(|path| path.is_absolute());
        let home = || absolute("HOME").map(|home| home.join(".cache"));
        let of_user = || absolute("XDG_CACHE_HOME").or_else(home).unwrap_or_else(std::env::temp_dir).join("homenode");
        let cache = variable(CACHE_VARIABLE).unwrap_or_else(|| match effective_user_id() {
            0 => PathBuf::from("/var/cache/homenode"),
            _ => of_user(),
        });
        Self(cache.join("images"))
    }

    /// Those in this directory.
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// Their directory; it may not be there.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// All that are there, by name.
    ///
    /// # Errors
    /// The directory is there and cannot be read.
    pub fn all(&self) -> Result<Vec<Image>, ImagesError> {
        self.names()?.iter().map(|name| self.image(name)).collect()
    }

    /// The image of a recipe; `None` where it is not built.
    ///
    /// # Errors
    /// It is there and cannot be read.
    pub fn of(&self, recipe: &Recipe) -> Result<Option<Image>, ImagesError> {
        let name = recipe.key();
        if self.0.join(&name).is_dir() { self.image(&name).map(Some) } else { Ok(None) }
    }

    /// Where a seed disk of this content is kept, by its checksum.
    pub fn seed(&self, seed: &[u8]) -> PathBuf {
        self.0.join(format!("seed-{:016x}.img", twox_hash::XxHash3_128::oneshot(seed) >> 64))
    }

    /// Writes a seed disk where it is not there. It stays: a VM that is kept boots from it again.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn keep_seed(&self, seed: &[u8]) -> Result<PathBuf, ImagesError> {
        let path = self.seed(seed);
        if !path.is_file() {
            let make = DirBuilder::new().recursive(true).mode(0o755).create(&self.0);
            make.map_err(ImagesError::io(format!("make {}", self.0.display())))?;
            named_file::replace(&path, seed).map_err(|error| match error.kind() {
                ErrorKind::StorageFull => ImagesError::NoSpace { directory: self.0.clone(), variable: CACHE_VARIABLE },
                _ => ImagesError::Io { action: format!("write {}", path.display()), source: error },
            })?;
        }
        Ok(path)
    }

    /// The image whose name begins so.
    ///
    /// # Errors
    /// There is none, or several.
    pub fn named(&self, beginning: &str) -> Result<Image, ImagesError> {
        let names = self.names()?;
        let mut found = names.iter().filter(|name| !beginning.is_empty() && name.starts_with(beginning));
        match (found.next(), found.next()) {
            (Some(name), None) => self.image(name),
            _ => Err(ImagesError::NoSuchImage { name: beginning.to_owned(), names }),
        }
    }

    /// Removes an image. A guest that runs keeps what it has open.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn delete(&self, image: &Image) -> Result<(), ImagesError> {
        let lock = self.lock(&mut || ())?;
        let unfinished = self.unfinished(&image.name);
        remove(&unfinished)?;
        let rename = fs::rename(&image.directory, &unfinished);
        rename.map_err(ImagesError::io(format!("rename {}", image.directory.display())))?;
        remove(&unfinished)?;
        drop(lock);
        Ok(())
    }

    /// The only one who builds or deletes here, as long as the value lives; `waits` is called once
    /// where another has it. What a killed homenode left is gone afterwards.
    ///
    /// # Errors
    /// Another has it for longer than a build takes; there can be no lock.
    pub(crate) fn lock(&self, waits: &mut dyn FnMut()) -> Result<LockFile, ImagesError> {
        let make = DirBuilder::new().recursive(true).mode(0o755).create(&self.0);
        make.map_err(ImagesError::io(format!("make {}", self.0.display())))?;
        let path = self.0.join(LOCK);
        let lock = match LockFile::take(&path, Duration::ZERO) {
            Err(LockFileError::Held { .. }) => {
                waits();
                LockFile::take(&path, LONGEST_BUILD)?
            }
            taken => taken?,
        };
        for left in self.entries()?.iter().filter(|name| name.ends_with(UNFINISHED)) {
            remove(&self.0.join(left))?;
        }
        Ok(lock)
    }

    /// Where an image is built before it gets its name.
    pub(crate) fn unfinished(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}{UNFINISHED}"))
    }

    /// Writes down what was built at its unfinished place, and gives it its name.
    pub(crate) fn finish(&self, recipe: &Recipe) -> Result<Image, ImagesError> {
        let (name, unfinished) = (recipe.key(), self.unfinished(&recipe.key()));
        let text = serde_json::to_vec_pretty(recipe)
            .map_err(|error| ImagesError::Io { action: "write a recipe".to_owned(), source: error.into() })?;
        let path = unfinished.join(RECIPE);
        named_file::replace(&path, &text).map_err(ImagesError::io(format!("write {}", path.display())))?;
        let root = unfinished.join(ROOT);
        let synced = File::open(&root).and_then(|file| file.sync_all());
        synced.map_err(ImagesError::io(format!("write {}", root.display())))?;
        let place = self.0.join(&name);
        fs::rename(&unfinished, &place).map_err(ImagesError::io(format!("rename {}", unfinished.display())))?;
        self.image(&name)
    }

    fn image(&self, name: &str) -> Result<Image, ImagesError> {
        let directory = self.0.join(name);
        let path = directory.join(RECIPE);
        let fail = |path: &Path| ImagesError::io(format!("read {}", path.display()));
        let text = named_file::read(&path, LONGEST_RECIPE, &[]).map_err(fail(&path))?;
        let recipe = serde_json::from_slice(&text).map_err(|error| ImagesError::Io {
            action: format!(
                "read {}: it is no recipe of this homenode; delete {}",
                path.display(),
                directory.display()
            ),
            source: error.into(),
        })?;
        let root = directory.join(ROOT);
        let seen = root.metadata().map_err(fail(&root))?;
        let built = seen.modified().map_err(fail(&root))?;
        let size = Bytes(std::os::unix::fs::MetadataExt::blocks(&seen) * 512);
        Ok(Image { name: name.to_owned(), recipe, built, size, directory })
    }

    fn names(&self) -> Result<Vec<String>, ImagesError> {
        let is_key = |name: &String| name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        Ok(self.entries()?.into_iter().filter(is_key).collect())
    }

    fn entries(&self) -> Result<Vec<String>, ImagesError> {
        match input::entries(&self.0, |_| true) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            read => {
                let paths = read.map_err(ImagesError::io(format!("read {}", self.0.display())))?;
                let name = |path: &PathBuf| path.file_name()?.to_str().map(str::to_owned);
                let mut names: Vec<String> = paths.iter().filter_map(name).collect();
                names.sort_unstable();
                Ok(names)
            }
        }
    }
}

/// Removes a directory of ours with all that is in it, also what its own modes would protect.
pub(crate) fn remove(directory: &Path) -> Result<(), ImagesError> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(ImagesError::io(format!("remove {}", directory.display()))),
    }
}

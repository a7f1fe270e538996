//! A directory of texts that is there as a whole, or not at all.
//!
//! **Problem.** Who writes 40 texts one by one and stops at the 20th leaves a directory that looks
//! finished. Who writes over what is there destroys what somebody kept.
//!
//! **Rule.** The directory must not exist, or be empty. The texts are written into one beside it,
//! under a name that nobody else draws, and that takes the name that was asked for at the end.
//!
//! **Properties.** No file that was there is changed. What fails leaves nothing behind.

use crate::failure::{bad_input, unwritable};
use linux::{named_file, unique};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Refuses a name under which there is anything but an empty directory, and one where no directory
/// can be made: before the work, not after it. `option`: how the user named it.
///
/// # Errors
/// Bad input, with what would help.
pub(crate) fn check(option: &str, directory: &Path) -> anyhow::Result<()> {
    let refused = |why: String| Err(bad_input(format!("{option} {}: {why}", directory.display())));
    if let Err(error) = named_file::check_links(directory) {
        return refused(error.to_string());
    }
    match fs::read_dir(directory).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => refused("there are files in it, and none is written over; name another directory".to_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => match parent(directory) {
            parent if parent.is_dir() => Ok(()),
            parent => refused(format!("there is no directory {}", parent.display())),
        },
        Err(error) if error.kind() == ErrorKind::NotADirectory => {
            refused("it is a file; name a directory that does not exist yet".to_owned())
        }
        Err(error) => refused(error.to_string()),
    }
}

/// Writes all of these texts or none, by path inside of the directory.
///
/// # Errors
/// As [`check`], and what the file system says.
pub(crate) fn write(option: &str, directory: &Path, texts: &[(PathBuf, String)]) -> anyhow::Result<()> {
    check(option, directory)?;
    let fail = |error| unwritable(format_args!("{option} {}: cannot be written", directory.display()), &error);
    let begun = Begun::beside(directory).map_err(fail)?;
    begun.fill(texts).and_then(|()| fs::rename(&begun.0, directory)).map_err(fail)
}

fn parent(directory: &Path) -> PathBuf {
    let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// A directory that is removed with what is in it, unless it has got another name.
struct Begun(PathBuf);

impl Begun {
    fn beside(directory: &Path) -> io::Result<Self> {
        let begun = parent(directory).join(format!(".homenode-{}", unique::word()?));
        fs::create_dir(&begun)?;
        Ok(Self(begun))
    }

    fn fill(&self, texts: &[(PathBuf, String)]) -> io::Result<()> {
        for (name, text) in texts {
            let path = self.0.join(name);
            fs::create_dir_all(path.parent().unwrap_or(&self.0))?;
            fs::write(&path, text)?;
        }
        Ok(())
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        // After the rename there is none of that name.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::BadInput;

    #[test]
    fn all_is_written_or_nothing() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let texts = |names: &[&str]| names.iter().map(|name| (name.into(), (*name).to_owned())).collect::<Vec<_>>();
        write("--into", &at("new"), &texts(&["a", "b/c"])).unwrap();
        assert_eq!(fs::read_to_string(at("new/b/c")).unwrap(), "b/c");
        fs::create_dir(at("empty")).unwrap();
        write("--into", &at("empty"), &texts(&["a"])).unwrap();
        for (name, why) in [("new", "there are files in it"), ("new/a", "it is a file"), ("no/new", "no directory")] {
            let error = write("--into", &at(name), &texts(&["z"])).unwrap_err();
            assert!(error.is::<BadInput>() && error.to_string().contains(why), "{error}");
        }
        // The second cannot be written: its directory is a file.
        assert!(write("--into", &at("half"), &texts(&["a", "a/b"])).is_err());
        let mut left: Vec<_> = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["empty", "new"]);
        assert!(!at("new/z").exists());
    }
}

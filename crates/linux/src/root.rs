//! Where `/proc` and `/sys` are: on this host, or in a captured tree of another one.

use crate::error::{LinuxError, read_text};
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};

/// The directory under which `proc` and `sys` lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root(PathBuf);

impl Default for Root {
    fn default() -> Self {
        Self(PathBuf::from("/"))
    }
}

impl Root {
    /// A captured tree.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Whether it is this host, whose threads and pages can also be asked by system calls.
    pub fn is_live(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// The directory itself.
    pub fn directory(&self) -> &Path {
        &self.0
    }

    /// A path below it; `path` may begin with a slash.
    pub fn join(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    /// A file of a process.
    pub fn process(&self, pid: u32, file: &str) -> PathBuf {
        self.join(&format!("proc/{pid}/{file}"))
    }

    /// A file of a thread.
    pub fn thread(&self, pid: u32, thread_id: u32, file: &str) -> PathBuf {
        self.join(&format!("proc/{pid}/task/{thread_id}/{file}"))
    }

    /// The text of a file below it.
    pub(crate) fn text(&self, path: &str) -> Result<String, LinuxError> {
        read_text(&self.join(path))
    }

    /// The number in a file below it that holds nothing else; `None` where there is none.
    pub(crate) fn number(&self, path: &str) -> Option<u64> {
        self.text(path).ok()?.trim().parse().ok()
    }
}

/// The numbers that entries of a directory have as names, rising, each with its inode. Other
/// entries are left out.
///
/// The inode of a process tells it from a later one with its number, for nothing: the kernel makes
/// a new one for each. It may also make a new one for the same process.
pub(crate) fn numbered_inodes(path: &Path) -> Result<Vec<(u32, u64)>, LinuxError> {
    let unread = |source| LinuxError::read(path, source);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).map_err(unread)? {
        let entry = entry.map_err(unread)?;
        if let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
            found.push((number, entry.ino()));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// The same, the numbers alone.
pub(crate) fn numbered_entries(path: &Path) -> Result<Vec<u32>, LinuxError> {
    Ok(numbered_inodes(path)?.into_iter().map(|(number, _)| number).collect())
}

#[cfg(test)]
pub(crate) mod testing {
    use super::Root;
    use std::fs;

    /// A root with these files.
    pub(crate) fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let root = Root::at(directory.path());
        (directory, root)
    }
}

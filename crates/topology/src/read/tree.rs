//! The files of `/sys` and `/proc`: from a directory, or as captured. Whatever is read can be
//! recorded on the way, so that a capture holds exactly what reading needs, and no second list of
//! files exists.

use super::error::ReadError;
use crate::input::excerpt;
use crate::{Id, IdSet};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::PathBuf;

/// Captured files by path (`sys/devices/system/cpu/online`); `None` is a name that exists and is
/// not read.
pub(super) type Files = BTreeMap<String, Option<String>>;

/// The most of one file that is looked at. The longest that is read, a list of CPUs, stays under 64
/// KiB.
pub(super) const LONGEST_FILE: u64 = 1 << 20;

/// Most files are shorter, and read at once: the kernel gives them no length, so that a reader
/// without room would begin with 32 bytes.
const ONE_READ: usize = 4096;

enum Source {
    /// A directory that holds `sys` and `proc`.
    Root(PathBuf),
    /// A directory that is itself a `/sys`.
    Sys(PathBuf),
    Captured(Files),
}

/// A tree of files, addressed by paths below its root: `sys/...`, `proc/...`, and where cpusets are
/// mounted.
pub(super) struct Tree {
    source: Source,
    place: String,
    record: Option<RefCell<Files>>,
}

impl Tree {
    /// The tree in a directory.
    pub(super) fn in_directory(root: PathBuf) -> Self {
        let place = root.display().to_string();
        let is_sys = !root.join("sys").exists() && root.join("devices/system").exists();
        let source = if is_sys { Source::Sys(root) } else { Source::Root(root) };
        Self { source, place, record: None }
    }

    /// A captured tree.
    pub(super) fn captured(files: Files, place: String) -> Self {
        Self { source: Source::Captured(files), place, record: None }
    }

    /// The same tree, recording all that is read from now on.
    pub(super) fn recording(mut self) -> Self {
        self.record = Some(RefCell::default());
        self
    }

    /// What was recorded.
    pub(super) fn into_record(self) -> Files {
        self.record.map(RefCell::into_inner).unwrap_or_default()
    }

    /// What errors call this tree.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    fn path_of(&self, path: &str) -> Option<PathBuf> {
        match &self.source {
            Source::Root(root) => Some(root.join(path)),
            Source::Sys(sys) => path.strip_prefix("sys/").map(|path| sys.join(path)),
            Source::Captured(_) => None,
        }
    }

    /// Notes a file that was looked at; `None`: that its name is there.
    pub(super) fn remember(&self, path: &str, text: Option<&str>) {
        if let Some(record) = &self.record {
            let entry = record.borrow_mut().entry(path.to_owned()).or_default().take();
            record.borrow_mut().insert(path.to_owned(), text.map(str::to_owned).or(entry));
        }
    }

    fn load(&self, path: &str, most: u64) -> Option<String> {
        if let Source::Captured(files) = &self.source {
            return files.get(path)?.clone();
        }
        let mut bytes = Vec::with_capacity(ONE_READ);
        fs::File::open(self.path_of(path)?).ok()?.take(most).read_to_end(&mut bytes).ok()?;
        // Some captures pad each file with zeros.
        Some(String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned())
    }

    /// A file's text; `None` where there is none or it cannot be read (an offline CPU's files
    /// answer with an error).
    pub(super) fn read(&self, path: &str) -> Option<String> {
        let text = self.load(path, LONGEST_FILE)?;
        self.remember(path, Some(&text));
        Some(text)
    }

    /// The lines of a file whose key, before the colon, is one of `keys`; only they are recorded.
    /// Looks at the first `most` bytes.
    pub(super) fn lines(&self, path: &str, keys: &[&str], most: u64) -> Option<Vec<(String, String)>> {
        let split =
            |line: &str| line.split_once(':').map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()));
        // A node's meminfo starts each line with `Node 0 `.
        let key_of = |key: &str| key.rsplit(' ').next().unwrap_or(key).to_owned();
        let wanted = |line: &str| {
            split(line).is_some_and(|(key, _)| keys.contains(&key.as_str()) || keys.contains(&key_of(&key).as_str()))
        };
        let kept = self.lines_kept(path, most, |line| wanted(line).then(|| line.to_owned()))?;
        let named = |key: String| if keys.contains(&key.as_str()) { key } else { key_of(&key) };
        Some(kept.iter().filter_map(|line| split(line)).map(|(key, value)| (named(key), value)).collect())
    }

    /// What `keep` makes of the lines of a file; only that is recorded. Looks at the first `most`
    /// bytes.
    pub(super) fn lines_kept(
        &self,
        path: &str,
        most: u64,
        keep: impl Fn(&str) -> Option<String>,
    ) -> Option<Vec<String>> {
        let kept: Vec<String> = self.load(path, most)?.lines().filter_map(keep).collect();
        self.remember(path, Some(&(kept.join("\n") + "\n")));
        Some(kept)
    }

    /// Names in a directory that are `prefix` and a number, with the number, in rising order of it.
    pub(super) fn numbered(&self, directory: &str, prefix: &str) -> Vec<u32> {
        let mut numbers: Vec<u32> =
            self.names(directory).iter().filter_map(|name| name.strip_prefix(prefix)?.parse().ok()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        for number in &numbers {
            self.remember(&format!("{directory}/{prefix}{number}"), None);
        }
        numbers
    }

    /// All names in a directory, unordered; empty where there is none.
    pub(super) fn names(&self, directory: &str) -> Vec<String> {
        if let Source::Captured(files) = &self.source {
            return captured_names(files, directory);
        }
        let entries = self.path_of(directory).and_then(|path| fs::read_dir(path).ok()).into_iter().flatten();
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
    }

    /// A number in a file.
    pub(super) fn number<N: std::str::FromStr>(&self, path: &str, expected: &str) -> Result<Option<N>, ReadError> {
        let parse = |text: String| text.trim().parse().map_err(|_| self.error(path, &text, expected));
        self.read(path).map(parse).transpose()
    }

    /// A set of ids in a file, in list format.
    pub(super) fn list<T: Id>(&self, path: &str) -> Result<Option<IdSet<T>>, ReadError> {
        let parse = |text: String| {
            text.parse().map_err(|_| self.error(path, &text, "a list of numbers and ranges such as `0-3,8`"))
        };
        self.read(path).map(parse).transpose()
    }

    /// A set of ids from the first of `lists` that exists, or else from a file with a bit mask
    /// (kernels before 2.6.26).
    pub(super) fn list_or_mask<T: Id>(&self, lists: &[String], mask: &str) -> Result<Option<IdSet<T>>, ReadError> {
        for path in lists {
            if let Some(set) = self.list(path)? {
                return Ok(Some(set));
            }
        }
        let parse = |text: String| {
            super::masks::ids(&text).ok_or_else(|| self.error(mask, &text, "a bit mask such as `00000000,0000000f`"))
        };
        self.read(mask).map(parse).transpose()
    }

    /// The error for a file that does not say what it should.
    pub(super) fn error(&self, file: &str, value: &str, expected: &str) -> ReadError {
        ReadError::File {
            place: self.place.clone(),
            file: file.to_owned(),
            value: excerpt(value),
            expected: expected.to_owned(),
        }
    }
}

fn captured_names(files: &Files, directory: &str) -> Vec<String> {
    let start = format!("{directory}/");
    let below = files.range(start.clone()..).map(|(path, _)| path).take_while(|path| path.starts_with(&start));
    let mut names: Vec<String> =
        below.filter_map(|path| path[start.len()..].split('/').next()).map(str::to_owned).collect();
    names.dedup();
    names
}

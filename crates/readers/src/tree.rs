//! Several files in one input, for readers of trees such as `/proc`.
//!
//! A line `@ PATH` begins a file, whose contents are all that follows up to the next such line; a
//! line `@ PATH -> TARGET` is a link. Paths that lead out of the tree are left out.
//!
//! ```text
//! @ proc/7/cmdline
//! qemu-system-x86_64
//! @ proc/7/fd/9 -> anon_inode:kvm-vm
//! ```

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Component, Path};

/// Most files that are taken: each is a few system calls.
const MOST_FILES: usize = 512;
/// Longest path.
const LONGEST_PATH: usize = 200;
/// What a line with a path begins with.
const MARK: &[u8] = b"@ ";
/// What stands between a link and its target.
const ARROW: &str = " -> ";

/// The files of an input, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree<'a> {
    /// Path and contents.
    pub files: Vec<(&'a str, &'a [u8])>,
    /// Path and target.
    pub links: Vec<(&'a str, &'a str)>,
}

impl<'a> Tree<'a> {
    /// Reads an input. What stands before the first path belongs to no file.
    pub fn of(input: &'a [u8]) -> Self {
        let mut tree = Self::default();
        let (mut path, mut began, mut at) = (None, 0, 0);
        for line in input.split_inclusive(|&byte| byte == b'\n') {
            if let Some(named) = line.strip_prefix(MARK) {
                tree.take(path, &input[began..at]);
                path = std::str::from_utf8(named).ok().map(|named| named.trim_end_matches('\n'));
                began = at + line.len();
            }
            at += line.len();
        }
        tree.take(path, &input[began..]);
        tree
    }

    fn take(&mut self, path: Option<&'a str>, contents: &'a [u8]) {
        let Some(path) = path.filter(|_| self.files.len() + self.links.len() < MOST_FILES) else { return };
        match path.split_once(ARROW) {
            Some((path, target)) if is_within(path) => self.links.push((path, target)),
            None if is_within(path) => self.files.push((path, contents)),
            _ => {}
        }
    }

    /// Writes the files below a directory. What cannot be (a file inside a file) is left out.
    pub fn write(&self, directory: &Path) {
        let place = |path: &str| -> io::Result<_> {
            let path = directory.join(path);
            fs::create_dir_all(path.parent().unwrap_or(directory))?;
            Ok(path)
        };
        for (path, contents) in &self.files {
            let _left_out = place(path).and_then(|path| fs::write(path, contents));
        }
        for (path, target) in &self.links {
            let _left_out = place(path).and_then(|path| symlink(target, path));
        }
    }
}

/// Whether a path leads to something below the directory that it is joined to. Links are made after
/// all files, so that none is written through.
fn is_within(path: &str) -> bool {
    let normal = |part: Component<'_>| matches!(part, Component::Normal(name) if name.as_bytes().len() < 100);
    !path.is_empty() && path.len() <= LONGEST_PATH && Path::new(path).components().all(normal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_links_are_written_and_nothing_outside() {
        let input = b"none's\n@ a/b\none\ntwo@ x\n@ a/l -> /nowhere\n@ ../c\nx\n@ /d\n@ e\n";
        let tree = Tree::of(input);
        assert_eq!(tree.files, [("a/b", &b"one\ntwo@ x\n"[..]), ("e", b"")]);
        assert_eq!(tree.links, [("a/l", "/nowhere")]);
        let outside = tempfile::tempdir().expect("a directory");
        let inside = outside.path().join("in");
        tree.write(&inside);
        assert_eq!(fs::read(inside.join("a/b")).expect("a file"), b"one\ntwo@ x\n");
        assert_eq!(fs::read_link(inside.join("a/l")).expect("a link"), Path::new("/nowhere"));
        assert_eq!(fs::read_dir(outside.path()).expect("a directory").count(), 1);
    }
}

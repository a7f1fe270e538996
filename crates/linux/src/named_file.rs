//! Files at places that a user names: written whole or not at all, and read with limits.
//!
//! **Problem.** homenode runs as root too. At the place that root names there may be a device, or a
//! pipe that nobody reads; and whoever may write to a directory on the way can put a link or a file
//! of his own there, so that root overwrites, or believes, something else than it named.
//!
//! **Rule.** Only regular files are read, replaced or appended to, and none through a link as the
//! last part of its name; what was looked at is looked at again once it is open. A new file is made
//! beside its place, under a name that was free, and then gets its name. For root also: links on
//! the way are root's own, and a file that is there is root's own. What root will *believe* later
//! ([`check_way`]) has, besides, no directory on the way that somebody else may change.
//!
//! **Properties.** Nothing that is no regular file is ever replaced, truncated or waited for. A
//! file is there whole or not at all.
//!
//! **Example.** `homenode balance --state /dev/null` as root: "it is a device, not a file", and
//! `/dev/null` stays what it is.

use crate::sys::{OPEN_NO_LINK, OPEN_NO_WAIT, effective_group_id, effective_user_id};
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use topology::input;

/// Links on a way, at most: what the kernel itself follows (path_resolution(7)).
const MOST_LINKS: usize = 40;
/// Nobody but its owner may write a file, and everybody may read it.
const MODE: u32 = 0o644;
/// The bit of a directory in which only its owner may rename or remove a file.
const STICKY: u32 = 0o1000;
/// The bits that let others than the owner write.
const OTHERS_WRITE: u32 = 0o022;

/// The bytes of a regular file, at most `most`. It must belong to root, to us, or to one of
/// `believed`.
///
/// # Errors
/// It is no such file, has more bytes, or cannot be read.
pub fn read(path: &Path, most: u64, believed: &[u32]) -> io::Result<Vec<u8>> {
    input::limited(open(path, believed)?, most)
}

/// A regular file, to be read. It must belong to root, to us, or to one of `believed`.
///
/// # Errors
/// It is no such file, or cannot be opened.
pub fn open(path: &Path, believed: &[u32]) -> io::Result<File> {
    check_kind(&path.symlink_metadata()?)?;
    let file = File::options().read(true).custom_flags(OPEN_NO_LINK | OPEN_NO_WAIT).open(path)?;
    let seen = file.metadata()?;
    check_kind(&seen)?;
    let owner = seen.uid();
    if owner != 0 && owner != effective_user_id() && !believed.contains(&owner) {
        return refused(format!("it belongs to user {owner}, who is neither root nor you"));
    }
    Ok(file)
}

/// Opens a regular file to append to it; it is made if it is not there. For root it must be root's,
/// or of one of `believed`.
///
/// # Errors
/// What is there is something else or, for root, somebody else's; or it cannot be opened.
pub fn append(path: &Path, believed: &[u32]) -> io::Result<File> {
    check_links(path)?;
    check_there(path, believed)?;
    let flags = OPEN_NO_LINK | OPEN_NO_WAIT;
    let file = File::options().append(true).create(true).mode(MODE).custom_flags(flags).open(path)?;
    check_ours(&file.metadata()?, believed)?;
    Ok(file)
}

/// Checks that nobody but root and the users `believed` can change what is at `path`, nor where it
/// leads: for what root will believe. For other users there is nothing to check: what they can do
/// by being led elsewhere is theirs already.
///
/// # Errors
/// Another user can; the directory is named.
pub fn check_way(path: &Path, believed: &[u32]) -> io::Result<()> {
    if effective_user_id() == 0 { walk(path, believed, others_may_change) } else { Ok(()) }
}

/// Checks, for every user, that nobody but root and this user can change the file at `path`, nor
/// where it leads: for a program that will be run without having been named.
///
/// # Errors
/// Another user can, or it is not there; the directory is named.
pub fn check_only_ours(path: &Path) -> io::Result<()> {
    let (us, our_group) = (effective_user_id(), effective_group_id());
    // A group of one's own may write: many systems give each user one, and a umask of 002.
    let may_change = |seen: &Metadata| {
        let others = if [0, our_group].contains(&seen.gid()) { 0o002 } else { OTHERS_WRITE };
        ![0, us].contains(&seen.uid()) || seen.mode() & others != 0
    };
    walk(path, &[us], |directory, _| {
        may_change(directory) && !(directory.uid() == 0 && directory.mode() & STICKY != 0)
    })?;
    let seen = path.metadata()?;
    match may_change(&seen) && !(seen.is_dir() && seen.mode() & STICKY != 0) {
        false => Ok(()),
        true => refused(format!("another user may change it (user {}, mode {:o})", seen.uid(), seen.mode() & 0o7777)),
    }
}

/// Checks that no other user leads root elsewhere by a link; other users may follow what they like.
///
/// # Errors
/// A link on the way, or at its end, is another user's.
pub fn check_links(path: &Path) -> io::Result<()> {
    if effective_user_id() == 0 { walk(path, &[], |_, _| false) } else { Ok(()) }
}

/// Whether others than root and `believed` may put something else into a directory. In one with the
/// sticky bit they may add files, and not replace one of root's.
fn others_may_change(directory: &Metadata, believed: &[u32]) -> bool {
    let owned = directory.uid() == 0 || believed.contains(&directory.uid());
    let by_all = if directory.gid() == 0 { OTHERS_WRITE & 0o002 } else { OTHERS_WRITE };
    !owned || (directory.mode() & by_all != 0 && directory.mode() & STICKY == 0)
}

/// Follows a name part by part as the kernel does, to where it ends or nothing is there.
fn walk(path: &Path, believed: &[u32], is_open: impl Fn(&Metadata, &[u32]) -> bool) -> io::Result<()> {
    let parts =
        |path: &Path| path.components().rev().map(|part| part.as_os_str().to_owned()).collect::<Vec<OsString>>();
    let (mut at, mut left, mut links) = (PathBuf::from("/"), parts(&std::path::absolute(path)?), 0);
    while let Some(part) = left.pop() {
        match Path::new(&part).components().next() {
            Some(Component::RootDir) => at = PathBuf::from("/"),
            Some(Component::ParentDir) => _ = at.pop(),
            Some(Component::Normal(_)) => at.push(&part),
            _ => continue,
        }
        let seen = match at.symlink_metadata() {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(()),
            seen => seen?,
        };
        let (owner, name) = (seen.uid(), at.display());
        if seen.is_symlink() {
            links += 1;
            if links > MOST_LINKS || (owner != 0 && !believed.contains(&owner)) {
                return refused(format!("{name} on the way is a link of user {owner}"));
            }
            left.extend(parts(&fs::read_link(&at)?));
            at.pop();
        } else if seen.is_dir() && is_open(&seen, believed) {
            let mode = seen.mode() & 0o7777;
            return refused(format!(
                "others than root may change the directory {name} (of user {owner}, mode {mode:o}); name a place that \
                is root's alone"
            ));
        }
    }
    Ok(())
}

/// Whether what is at `path`, if anything, may be replaced or appended to.
fn check_there(path: &Path, believed: &[u32]) -> io::Result<()> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        seen => check_ours(&seen?, believed),
    }
}

/// As [`check_kind`]; and for root, that it is root's or of one of `believed`, under this name
/// alone: another name of it may be one that nobody meant.
fn check_ours(seen: &Metadata, believed: &[u32]) -> io::Result<()> {
    check_kind(seen)?;
    match (effective_user_id(), seen.uid(), seen.nlink()) {
        (0, owner, _) if owner != 0 && !believed.contains(&owner) => {
            refused(format!("it belongs to user {owner}; remove it, or give another name"))
        }
        (0, _, links) if links > 1 => refused(format!("it is one file under {links} names; give another name")),
        _ => Ok(()),
    }
}

/// That it is a regular file.
fn check_kind(seen: &Metadata) -> io::Result<()> {
    let kind = seen.file_type();
    let what = if kind.is_file() {
        return Ok(());
    } else if kind.is_symlink() {
        "a link; name what it leads to"
    } else if kind.is_dir() {
        "a directory; name a file"
    } else if kind.is_fifo() || kind.is_socket() {
        "a pipe or a socket, not a file"
    } else {
        "a device, not a file"
    };
    refused(format!("it is {what}"))
}

fn refused<T>(why: String) -> io::Result<T> {
    // As the kernel says it of names that cannot be used.
    Err(io::Error::new(ErrorKind::InvalidInput, why))
}

/// Checks that a file may be made, or replaced, at `path`: before the work, not after it.
///
/// # Errors
/// What is there is no regular file or, for root, somebody else's; or none can be made there.
pub fn check_place(path: &Path) -> io::Result<()> {
    NewFile::beside(path, &own_ending(), &[]).map(drop)
}

/// Writes a file whole or not at all.
///
/// # Errors
/// As [`check_place`].
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut new = NewFile::beside(path, &own_ending(), &[])?;
    new.file.write_all(content).and_then(|()| new.file.sync_all())?;
    new.take_place().map(drop)
}

fn own_ending() -> String {
    std::process::id().to_string()
}

/// A file that is made beside its place. Dropped before it has its name, it is removed.
#[derive(Debug)]
pub struct NewFile {
    /// To be written.
    pub file: File,
    beside: PathBuf,
    path: PathBuf,
    believed: Vec<u32>,
}

impl NewFile {
    /// Makes `PATH.ENDING`. What an earlier homenode left of that name, killed, is removed. The
    /// file at `path` that is replaced must, for root, be root's or of one of `believed`.
    ///
    /// # Errors
    /// As [`check_place`].
    pub fn beside(path: &Path, ending: &str, believed: &[u32]) -> io::Result<Self> {
        check_links(path)?;
        check_there(path, believed)?;
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".");
        name.push(ending);
        let beside = path.with_file_name(name);
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = File::options();
        let file = options.write(true).create_new(true).mode(MODE).custom_flags(OPEN_NO_LINK).open(&beside)?;
        Ok(Self { file, beside, path: path.to_owned(), believed: believed.to_vec() })
    }

    /// Gives it its name, in place of the file that has it.
    ///
    /// # Errors
    /// It cannot be renamed, or what has its name now is no file.
    pub fn take_place(self) -> io::Result<File> {
        check_there(&self.path, &self.believed)?;
        fs::rename(&self.beside, &self.path)?;
        self.file.try_clone()
    }

    /// Gives it its name if that is still free.
    ///
    /// # Errors
    /// It is not (`AlreadyExists`), or the directory cannot be written.
    pub fn take_free_place(self) -> io::Result<File> {
        // A link refuses a name that is taken; a rename does not.
        fs::hard_link(&self.beside, &self.path)?;
        self.file.try_clone()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // After a rename there is none of that name.
        let _ = fs::remove_file(&self.beside);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use std::process::Command;

    /// A user that is nobody's here.
    const SOMEBODY: u32 = 54_321;

    fn why<T: std::fmt::Debug>(refused: io::Result<T>) -> String {
        refused.expect_err("refused").to_string()
    }

    fn names(directory: &Path) -> Vec<OsString> {
        let mut names: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }

    #[test]
    fn only_regular_files_are_read_replaced_and_appended_to() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("file"), "old").unwrap();
        symlink(at("file"), at("link")).unwrap();
        fs::create_dir(at("directory")).unwrap();
        let made = |command: &mut Command| command.status().is_ok_and(|status| status.success());
        let mut odd = vec![("link", "a link"), ("directory", "a directory")];
        // To open a pipe that nobody writes would take for ever.
        if made(Command::new("mkfifo").arg(at("pipe"))) {
            odd.push(("pipe", "a pipe"));
        }
        if made(Command::new("mknod").arg(at("device")).args(["c", "1", "3"])) {
            odd.push(("device", "a device"));
        } else {
            eprintln!("SKIPPED a device in only_regular_files_are_read_replaced_and_appended_to: mknod needs root");
        }
        let before = names(directory.path());
        for (name, words) in odd {
            for said in [
                why(read(&at(name), 10, &[])),
                why(append(&at(name), &[])),
                why(replace(&at(name), b"new")),
                why(check_place(&at(name))),
            ] {
                assert!(said.contains(words), "{name}: {said}");
            }
        }
        assert_eq!(names(directory.path()), before);
        assert_eq!(read(&at("file"), 10, &[]).unwrap(), b"old");
        assert!(why(read(&at("file"), 2, &[])).contains("more than 2 B"));
    }

    /// With the program in /tmp/bin, root ran /tmp/guest/homenode-guest of whoever made it.
    #[test]
    fn a_program_that_another_user_may_change_is_not_run() {
        let directory = tempfile::tempdir().unwrap();
        let tree = directory.path().join("guest");
        fs::create_dir(&tree).unwrap();
        let program = tree.join("program");
        fs::write(&program, "").unwrap();
        let set = |path: &Path, mode: u32| fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        set(&tree, 0o755);
        set(&program, 0o755);
        check_only_ours(&program).unwrap();
        // A umask of 002, as where each user has a group.
        set(&tree, 0o775);
        check_only_ours(&program).unwrap();
        for (path, mode) in [(&tree, 0o777), (&program, 0o757)] {
            set(path, mode);
            assert!(check_only_ours(&program).is_err(), "{} {mode:o}", path.display());
            set(path, 0o755);
        }
        assert!(check_only_ours(&tree.join("none")).is_err());
        if effective_user_id() != 0 {
            return eprintln!("SKIPPED another user in a_program_that_another_user_may_change_is_not_run: needs root");
        }
        for path in [&tree, &program] {
            chown(path, Some(SOMEBODY), None).unwrap();
            assert!(check_only_ours(&program).is_err(), "{}", path.display());
            chown(path, Some(0), None).unwrap();
        }
        let link = directory.path().join("link");
        symlink(&tree, &link).unwrap();
        check_only_ours(&link.join("program")).unwrap();
        std::os::unix::fs::lchown(&link, Some(SOMEBODY), None).unwrap();
        assert!(check_only_ours(&link.join("program")).is_err());
    }

    #[test]
    fn a_file_is_whole_or_not_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        drop(NewFile::beside(&path, "new", &[]).unwrap());
        assert_eq!(names(directory.path()), Vec::<OsString>::new());
        // What a killed homenode left, and what somebody else put there.
        let kept = directory.path().join("kept");
        fs::write(&kept, "kept").unwrap();
        symlink(&kept, directory.path().join("file.new")).unwrap();
        let mut new = NewFile::beside(&path, "new", &[]).unwrap();
        new.file.write_all(b"one").unwrap();
        new.take_free_place().unwrap();
        let taken = NewFile::beside(&path, "new", &[]).unwrap().take_free_place().unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
        assert_eq!((fs::read(&path).unwrap(), fs::read(&kept).unwrap()), (b"one".into(), b"kept".into()));
        replace(&path, b"two").unwrap();
        append(&path, &[]).unwrap().write_all(b"three").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"twothree");
        assert_eq!(path.metadata().unwrap().mode() & 0o777, MODE);
        assert_eq!(names(directory.path()), ["file", "kept"]);
    }

    #[test]
    fn nobody_leads_root_elsewhere() {
        if effective_user_id() != 0 {
            return eprintln!("SKIPPED nobody_leads_root_elsewhere: only root can make another user's files");
        }
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir(at("shared")).unwrap();
        fs::set_permissions(at("shared"), fs::Permissions::from_mode(0o1777)).unwrap();
        fs::create_dir(at("theirs")).unwrap();
        fs::write(at("ours"), "ours").unwrap();
        fs::write(at("shared/theirs"), "theirs").unwrap();
        symlink(at("ours"), at("shared/link")).unwrap();
        symlink(directory.path(), at("shared/way")).unwrap();
        symlink(at("shared"), at("own-way")).unwrap();
        for name in ["theirs", "shared/theirs"] {
            chown(at(name), Some(SOMEBODY), Some(SOMEBODY)).unwrap();
        }
        for name in ["shared/link", "shared/way"] {
            std::os::unix::fs::lchown(at(name), Some(SOMEBODY), Some(SOMEBODY)).unwrap();
        }
        // A link of theirs on the way, a file of theirs, and a second name of a file of ours.
        fs::hard_link(at("ours"), at("shared/second")).unwrap();
        for (name, words) in [
            ("shared/way/ours", "a link of user 54321"),
            ("own-way/way/new", "a link of user 54321"),
            ("shared/theirs", "belongs to user 54321"),
            ("shared/second", "one file under 2 names"),
        ] {
            for said in [why(append(&at(name), &[])), why(replace(&at(name), b"root was here"))] {
                assert!(said.contains(words), "{name}: {said}");
            }
        }
        assert_eq!(fs::read(at("ours")).unwrap(), b"ours");
        assert!(why(read(&at("shared/theirs"), 10, &[])).contains("belongs to user 54321"));
        assert_eq!(read(&at("shared/theirs"), 10, &[SOMEBODY]).unwrap(), b"theirs");
        append(&at("shared/theirs"), &[SOMEBODY]).unwrap();
        // What root believes is not kept where they may change it.
        assert!(why(check_way(&at("theirs/state"), &[])).contains("others than root may change the directory"));
        check_way(&at("theirs/state"), &[SOMEBODY]).unwrap();
        check_way(&at("shared/state"), &[]).unwrap();
        fs::set_permissions(at("shared"), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(why(check_way(&at("own-way/state"), &[])).contains("mode 777"));
        check_way(&at("no/such/place"), &[]).unwrap();
        // Round in circles.
        symlink(at("round"), at("round")).unwrap();
        assert!(check_way(&at("round/state"), &[]).is_err());
    }
}

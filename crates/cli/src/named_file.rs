//! Files that a user names for a result: whole or not at all, and not over another file unless the
//! user says so.

use crate::failure::{bad_input, unwritable};
use linux::named_file::{self, NewFile};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Refuses a name that is taken, and one where no file can be made: before the work, not after it.
///
/// # Errors
/// Bad input, with what would help; `option` is how the user named the file.
pub(crate) fn check(option: &str, path: &Path, force: bool) -> anyhow::Result<()> {
    let refused = |why: String| Err(bad_input(format!("{option} {}: {why}", path.display())));
    if path.is_dir() {
        return refused("it is a directory; name a file".to_owned());
    }
    if let Err(error) = named_file::check_links(path) {
        return refused(error.to_string());
    }
    if is_device_of_ours(path) {
        return Ok(());
    }
    if path.metadata().is_ok_and(|found| found.file_type().is_fifo()) {
        return refused("it is a pipe, and who reads it could let homenode wait for ever; name a file".to_owned());
    }
    if path.exists() && !force {
        return refused(format!("it exists; give --force to overwrite it, or {option} with another name"));
    }
    match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) if !parent.is_dir() => return refused(format!("there is no directory {}", parent.display())),
        _ => {}
    }
    named_file::check_place(path).or_else(|error| refused(format!("no file can be made there: {error}")))
}

/// Writes the whole file or none: it gets its name when it is complete.
///
/// # Errors
/// It cannot be written, or another program took its name meanwhile.
pub(crate) fn write(path: &Path, content: &[u8], force: bool) -> anyhow::Result<()> {
    let fail = |error| unwritable(format_args!("{}: cannot be written", path.display()), &error);
    if is_device_of_ours(path) {
        return File::options().write(true).open(path).and_then(|mut to| to.write_all(content)).map_err(fail);
    }
    if force {
        return named_file::replace(path, content).map_err(fail);
    }
    let write = || {
        let mut new = NewFile::beside(path, &std::process::id().to_string(), &[])?;
        new.file.write_all(content).and_then(|()| new.file.sync_all())?;
        new.take_free_place().map(drop)
    };
    write().map_err(fail)
}

/// A device like `/dev/full`: it is written to, not replaced. Another user's terminal could stop
/// whoever writes to it.
fn is_device_of_ours(path: &Path) -> bool {
    let is_ours = |owner| owner == 0 || owner == linux::sys::effective_user_id();
    fs::metadata(path).is_ok_and(|found| found.file_type().is_char_device() && is_ours(found.uid()))
}

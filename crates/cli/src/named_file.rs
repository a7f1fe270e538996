//! Files that a user names for a result: whole or not at all, and not over another file unless the
//! user says so.

use crate::failure::{bad_input, unwritable};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Refuses a name that is taken, and one where no file can be made: before the work, not after it.
///
/// # Errors
/// Bad input, with what would help; `option` is how the user named the file.
pub(crate) fn check(option: &str, path: &Path, force: bool) -> anyhow::Result<()> {
    let refused = |why: String| Err(bad_input(format!("{option} {}: {why}", path.display())));
    if path.is_dir() {
        return refused("it is a directory; name a file".to_owned());
    }
    if is_special(path) {
        return Ok(());
    }
    if path.exists() && !force {
        return refused(format!("it exists; give --force to overwrite it, or {option} with another name"));
    }
    match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) if !parent.is_dir() => return refused(format!("there is no directory {}", parent.display())),
        _ => {}
    }
    let tried = partial(path);
    let made = File::create_new(&tried).and_then(|_| fs::remove_file(&tried));
    made.or_else(|error| refused(format!("no file can be made there: {error}")))
}

/// Writes the whole file or none: it gets its name when it is complete.
///
/// # Errors
/// It cannot be written, or another program took its name meanwhile.
pub(crate) fn write(path: &Path, content: &[u8], force: bool) -> anyhow::Result<()> {
    let fail = |error| unwritable(format_args!("{}: cannot be written", path.display()), &error);
    if is_special(path) {
        return File::options().write(true).open(path).and_then(|mut to| to.write_all(content)).map_err(fail);
    }
    let partial = partial(path);
    let mut file = File::create_new(&partial).map_err(fail)?;
    let written = file.write_all(content).and_then(|()| file.sync_all()).and_then(|()| {
        // A link refuses a name that another has taken meanwhile; a rename does not.
        if force { fs::rename(&partial, path) } else { fs::hard_link(&partial, path) }
    });
    let _ = fs::remove_file(&partial);
    written.map_err(fail)
}

/// A device or a pipe: it is written to, not replaced.
fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// The file until it is whole.
fn partial(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    path.with_file_name(name)
}

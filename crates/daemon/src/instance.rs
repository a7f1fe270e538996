//! One balancer at a time: a lock that ends with the process, however it ends.

use crate::DaemonError;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::Path;

/// The right to balance this host, for as long as the value lives.
#[derive(Debug)]
pub struct Instance(#[allow(dead_code, reason = "closing it releases the lock")] File);

impl Instance {
    /// Takes the lock file at `path`, made if it is not there, and writes our process number into it.
    ///
    /// # Errors
    /// [`DaemonError::Running`] with the number of the process that has it; the file cannot be used.
    pub fn take(path: &Path) -> Result<Self, DaemonError> {
        let fail = |source| DaemonError::file(path, "lock the balancer's file", source);
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(fail)?;
        if !linux::sys::try_lock(&file).map_err(fail)? {
            return Err(DaemonError::Running { pid: written_pid(&mut file) });
        }
        file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(fail)?;
        Ok(Self(file))
    }
}

/// The process that holds the lock file at `path`; `None` where nobody does.
pub fn holder(path: &Path) -> Option<Option<u32>> {
    let mut file = File::open(path).ok()?;
    let free = linux::sys::try_lock(&file).ok()?;
    (!free).then(|| written_pid(&mut file))
}

fn written_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_refused_with_the_number_of_the_first_and_the_third_comes_after_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        assert_eq!(holder(&path), None);
        let first = Instance::take(&path).unwrap();
        let refused = Instance::take(&path).unwrap_err();
        assert!(matches!(refused, DaemonError::Running { pid } if pid == Some(std::process::id())), "{refused}");
        assert!(refused.to_string().contains(&format!("process {}", std::process::id())));
        assert_eq!(holder(&path), Some(Some(std::process::id())));
        drop(first);
        assert_eq!(holder(&path), None);
        Instance::take(&path).unwrap();
    }
}

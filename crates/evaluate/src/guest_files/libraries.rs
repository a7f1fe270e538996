//! What a program needs to start: its libraries and its loader, or its interpreter.

use super::GuestFilesError;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The interpreter of a script (`#!`), from its first bytes.
pub(super) fn interpreter(start: &[u8]) -> Option<PathBuf> {
    let line = start.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_whitespace();
    let first = words.next()?;
    // `#!/usr/bin/env python3`: env looks in PATH, and is needed too; the program matters more.
    let by_env = Path::new(first).file_name().is_some_and(|name| name == "env");
    let named = words.find(|word| !word.starts_with('-')).filter(|_| by_env);
    Some(PathBuf::from(named.unwrap_or(first)))
}

/// Libraries and loader of an ELF file, as `ldd` finds them here; none of a static program.
pub(super) fn of(program: &Path) -> Result<Vec<PathBuf>, GuestFilesError> {
    let failed = |reason: String| GuestFilesError::NoLdd { program: program.to_owned(), reason };
    let output = Command::new("ldd").arg(program).env("LC_ALL", "C").output();
    let output = output.map_err(|error| failed(format!("{error} (it is in the package libc-bin)")))?;
    // A static program, or one of another system: ldd says so and fails.
    let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    if said.contains("not a dynamic executable") || said.contains("statically linked") {
        return Ok(Vec::new());
    }
    if !output.status.success() {
        return Err(failed(said.lines().next().unwrap_or_default().to_owned()));
    }
    let found = read(&said);
    found.map_err(|NotFound(library)| GuestFilesError::NoLibrary { program: program.to_owned(), library })
}

/// A library that `ldd` did not find.
#[derive(Debug, PartialEq, Eq)]
struct NotFound(String);

/// Paths in what `ldd` prints.
fn read(said: &str) -> Result<Vec<PathBuf>, NotFound> {
    let mut libraries = Vec::new();
    for line in said.lines() {
        let line = line.trim();
        if let Some(library) = line.strip_suffix("=> not found") {
            return Err(NotFound(library.trim().to_owned()));
        }
        let path = line.split_once(" => ").map_or(line, |(_, path)| path);
        let path = path.rsplit_once(" (").map_or(path, |(path, _)| path).trim();
        if path.starts_with('/') {
            libraries.push(PathBuf::from(path));
        }
    }
    Ok(libraries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ldd_prints_is_read() {
        let said = "\tlinux-vdso.so.1 (0x00007ffc)\n\tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 \
            (0x00007f)\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let paths: Vec<PathBuf> =
            ["/lib/x86_64-linux-gnu/libm.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from).into();
        assert_eq!(read(said), Ok(paths));
        assert_eq!(read("\tlibfftw3.so.3 => not found\n"), Err(NotFound("libfftw3.so.3".to_owned())));
    }

    #[test]
    fn a_script_names_its_interpreter() {
        let of = |text: &str| interpreter(text.as_bytes()).map(|path| path.display().to_string());
        assert_eq!(of("#!/bin/sh -e\necho"), Some("/bin/sh".to_owned()));
        assert_eq!(of("#! /usr/bin/env -S python3 -u\n"), Some("python3".to_owned()));
        assert_eq!((of("\x7fELF"), of("#!")), (None, None));
    }
}

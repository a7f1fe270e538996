//! Finding QEMU.

use crate::QemuError;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Names another QEMU than the first `qemu-system-x86_64` of `PATH`.
pub const BINARY_VARIABLE: &str = "HOMENODE_QEMU";
const NAME: &str = "qemu-system-x86_64";

/// The QEMU that would be started.
pub fn locate(vm: &str) -> Result<PathBuf, QemuError> {
    let named = std::env::var_os(BINARY_VARIABLE).filter(|value| !value.is_empty());
    let search = std::env::var_os("PATH").unwrap_or_default();
    find(vm, named.as_deref().map(Path::new), std::env::split_paths(&search))
}

fn find(vm: &str, named: Option<&Path>, search: impl Iterator<Item = PathBuf>) -> Result<PathBuf, QemuError> {
    let fail = |binary: &Path, problem: &str| QemuError::NoQemu {
        vm: vm.to_owned(),
        binary: binary.display().to_string(),
        problem: problem.to_owned(),
    };
    match named {
        Some(path) if path.components().count() > 1 => {
            if is_program(path) {
                Ok(path.to_owned())
            } else {
                Err(fail(path, "is not a program that can be run"))
            }
        }
        other => {
            let name = other.unwrap_or(Path::new(NAME));
            let found = search.map(|directory| directory.join(name)).find(|path| is_program(path));
            found.ok_or_else(|| fail(name, "is in no directory of PATH"))
        }
    }
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_qemu_is_named_with_its_package() {
        let error = find("a", None, std::iter::once("/no/bin".into())).unwrap_err().to_string();
        assert!(error.contains("`qemu-system-x86_64` is in no directory of PATH"), "{error}");
        assert!(error.contains("Debian package qemu-system-x86"), "{error}");
        let error = find("a", Some(Path::new("/no/qemu")), std::iter::empty()).unwrap_err().to_string();
        assert!(error.contains("`/no/qemu` is not a program"), "{error}");
    }

    #[test]
    fn a_name_is_searched_and_a_path_is_taken() {
        let bin = || ["/no", "/bin"].map(PathBuf::from).into_iter();
        assert_eq!(find("a", Some(Path::new("sh")), bin()).unwrap(), Path::new("/bin/sh"));
        assert_eq!(find("a", Some(Path::new("/bin/sh")), bin()).unwrap(), Path::new("/bin/sh"));
    }
}

//! Which VMs are planned, and on which machines: files, names, and directories of them.

use crate::args::MachineArguments;
use crate::failure::bad_input;
use crate::{machine_choice, vm_spec_file};
use scheduler::VmSpec;
use std::path::{Path, PathBuf};
use topology::Machine;

/// How names of machine files end.
const MACHINE_ENDINGS: [&str; 5] = [".toml", ".xml", ".tar", ".tar.gz", ".tgz"];

/// The VM specs of these files; of a directory, all of its `.toml` files by name.
///
/// # Errors
/// Bad input: one that cannot be read or used, a directory without any.
pub(crate) fn specs(paths: &[PathBuf]) -> anyhow::Result<Vec<(PathBuf, VmSpec)>> {
    let mut found = Vec::new();
    for path in paths {
        if path.is_dir() {
            let is_spec = |file: &Path| file.is_file() && ends(file, &[".toml"]);
            found.extend(entries(path, is_spec, "no VM spec (.toml) is in this directory")?);
        } else {
            found.push(path.clone());
        }
    }
    found.into_iter().map(|path| vm_spec_file::read(&path).map(|spec| (path, spec))).collect()
}

/// The machines that these choices name; a directory that is no captured /sys holds machines: files and captures.
///
/// # Errors
/// Bad input: one that cannot be read, a directory without any.
pub(crate) fn machines(choices: &[String]) -> anyhow::Result<Vec<Machine>> {
    let mut found = Vec::new();
    for choice in choices {
        let path = Path::new(choice);
        if path.is_dir() && !is_capture(path) {
            let is_machine = |file: &Path| is_capture(file) || file.is_file() && ends(file, &MACHINE_ENDINGS);
            let none =
                "no machine is in this directory: neither a machine file (.toml), XML, an archive, nor a captured /sys";
            found.extend(entries(path, is_machine, none)?.into_iter().map(|file| file.display().to_string()));
        } else {
            found.push(choice.clone());
        }
    }
    found.into_iter().map(|choice| machine_choice::machine(&MachineArguments { on: Some(choice) })).collect()
}

/// Whether a directory holds a captured /sys.
fn is_capture(path: &Path) -> bool {
    path.join("sys").is_dir()
}

fn ends(path: &Path, endings: &[&str]) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    endings.iter().any(|ending| name.ends_with(ending))
}

fn entries(directory: &Path, wanted: impl Fn(&Path) -> bool, none: &str) -> anyhow::Result<Vec<PathBuf>> {
    let fail = |why: String| bad_input(format!("{}: {why}", directory.display()));
    let found =
        topology::input::entries(directory, wanted).map_err(|error| fail(format!("cannot be read: {error}")))?;
    if found.is_empty() { Err(fail(none.to_owned())) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_stands_for_what_is_in_it() {
        let place = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(place.path().join(name), text).unwrap();
        for name in ["b.toml", "a.toml"] {
            write(name, &format!("name = \"{}\"\nvcpus = 1\nmemory = \"1 GiB\"\n", &name[..1]));
        }
        write("notes.txt", "nothing");
        let paths = [place.path().to_owned(), place.path().join("a.toml")];
        let names: Vec<String> = specs(&paths).unwrap().into_iter().map(|(_, spec)| spec.name).collect();
        assert_eq!(names, ["a", "b", "a"]);
        let empty = tempfile::tempdir().unwrap();
        let error = machines(&[empty.path().display().to_string()]).unwrap_err().to_string();
        assert!(error.contains("no machine is in this directory"), "{error}");
        let known = machines(&["hp-dl380-g6".to_owned(), "pack:1 core:2 pu:1".to_owned()]).unwrap();
        assert_eq!(known.len(), 2);
    }
}

//! Which VMs are planned, and on which machines: files, names, and directories of them.

use crate::args::MachineArguments;
use crate::failure::bad_input;
use crate::{machine_choice, vm_spec_file};
use scheduler::Occupancy;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use topology::Machine;
use vm::VmSpec;

/// How names of machine files end.
const MACHINE_ENDINGS: [&str; 5] = [".toml", ".xml", ".tar", ".tar.gz", ".tgz"];

/// The VM specs of these files; of a directory, all of its `.toml` files by name. A file that is
/// given several times is as many VMs of this kind: `web #1`, `web #2`.
///
/// # Errors
/// Bad input: one that cannot be read or used, a directory without any, two files with VMs of the
/// same name.
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
    let read = |path: PathBuf| vm_spec_file::read(&path).map(|spec| (path, spec));
    let mut specs = found.into_iter().map(read).collect::<anyhow::Result<Vec<_>>>()?;
    one_file_a_name(&specs)?;
    number_alike(&mut specs, |(_, spec)| &mut spec.shape.name);
    Ok(specs)
}

/// VMs are told apart by their names.
fn one_file_a_name(specs: &[(PathBuf, VmSpec)]) -> anyhow::Result<()> {
    let is_same = |one: &Path, other: &Path| one.canonicalize().ok() == other.canonicalize().ok();
    for (index, (path, spec)) in specs.iter().enumerate() {
        let another = specs[..index].iter().find(|(other, known)| known.name == spec.name && !is_same(other, path));
        if let Some((other, _)) = another {
            return Err(bad_input(format!(
                "{}: name = {:?}: so is the VM in {} called: give each its own name (one file several times is several \
                VMs of its kind)",
                path.display(),
                spec.name,
                other.display()
            )));
        }
    }
    Ok(())
}

/// What stands between the name of a kind of VM and the number of one of them.
const BEFORE_NUMBER: &str = " #";

/// Writes `web-1` for what was numbered `web #1`, and more before the number where a VM has that
/// name already.
pub(crate) fn number_with(specs: &mut [VmSpec], between: &str) {
    let taken: Vec<String> = specs.iter().map(|spec| spec.name.clone()).collect();
    for spec in specs {
        let Some((kind, number)) = spec.name.rsplit_once(BEFORE_NUMBER) else { continue };
        let mut name = format!("{kind}{between}{number}");
        while taken.contains(&name) {
            name = name.replacen(kind, &format!("{kind}{between}"), 1);
        }
        spec.shape.name = name;
    }
}

/// The directory of a machine's texts: its name as far as file names may have it, and its number
/// where another one has the same then.
pub(crate) fn directory_name(hosts: &[(Machine, Occupancy)], index: usize) -> PathBuf {
    let plain = |name: &str| -> String {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let name = name.replace(BEFORE_NUMBER, "-");
        let kept: String = name.chars().map(|c| if is_plain(c) { c } else { '-' }).collect();
        kept.trim_start_matches('.').to_owned()
    };
    let own = plain(&hosts[index].0.name);
    let is_alone = hosts.iter().filter(|(machine, _)| plain(&machine.name) == own).count() == 1;
    PathBuf::from(if is_alone && !own.is_empty() { own } else { format!("{own}-{}", index + 1) })
}

/// Makes names that occur several times `NAME #1`, `NAME #2`.
fn number_alike<T>(all: &mut [T], name: impl Fn(&mut T) -> &mut String) {
    let mut times = BTreeMap::<String, usize>::new();
    for one in all.iter_mut() {
        *times.entry(name(one).clone()).or_default() += 1;
    }
    let mut numbers = BTreeMap::<String, usize>::new();
    for one in all.iter_mut() {
        let name = name(one);
        if times[name] > 1 {
            let number = numbers.entry(name.clone()).or_default();
            *number += 1;
            *name = format!("{name}{BEFORE_NUMBER}{number}");
        }
    }
}

/// The machines that these choices name; a directory that is no captured /sys holds machines: files
/// and captures. Machines of the same name are as many machines: `dl380 #1`, `dl380 #2`.
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
    let machine = |choice| machine_choice::machine(&MachineArguments { on: Some(choice) });
    let mut machines = found.into_iter().map(machine).collect::<anyhow::Result<Vec<Machine>>>()?;
    number_alike(&mut machines, |machine| &mut machine.name);
    Ok(machines)
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
        let names: Vec<String> = specs(&paths).unwrap().into_iter().map(|(_, spec)| spec.shape.name).collect();
        assert_eq!(names, ["a #1", "b", "a #2"], "a file that is given twice is two VMs");
        let empty = tempfile::tempdir().unwrap();
        let error = machines(&[empty.path().display().to_string()]).unwrap_err().to_string();
        assert!(error.contains("no machine is in this directory"), "{error}");
        let known = machines(&["hp-dl380-g6", "pack:1 core:2 pu:1", "hp-dl380-g6"].map(str::to_owned)).unwrap();
        let names: Vec<&str> = known.iter().map(|machine| machine.name.as_str()).collect();
        assert_eq!(names, ["hp-dl380-g6 #1", "pack:1 core:2 pu:1", "hp-dl380-g6 #2"]);
        write("other.toml", "name = \"a\"\nvcpus = 1\nmemory = \"1 GiB\"\n");
        let error = specs(&paths).unwrap_err().to_string();
        assert!(error.contains("other.toml: name = \"a\": so is the VM in") && error.contains("a.toml"), "{error}");
    }
}

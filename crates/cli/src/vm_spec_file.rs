//! Reads a VM spec file.

use crate::failure::bad_input;
use anyhow::Context;
use std::path::{Path, PathBuf};
use topology::input;
use vm::VmSpec;
use vm::spec::{Boot, Console};

/// Reads and checks the VM spec at `path`; relative paths in it are made relative to its own
/// directory.
///
/// # Errors
/// Bad input where the file cannot be read or is not a usable spec.
pub(crate) fn read(path: &Path) -> anyhow::Result<VmSpec> {
    let text = input::text(path, input::LONGEST_TEXT)
        .map_err(|error| bad_input(format!("{}: cannot read the VM spec: {error}", path.display())))?;
    let mut spec = VmSpec::from_toml(&text, &path.display().to_string()).map_err(bad_input)?;
    if spec.boot == Boot::Definition {
        return Err(bad_input(format!(
            "{}: boot.from = \"definition\": only a VM of libvirt's that was adopted boots so; write \"disk\", \"kernel\" \
            or \"tiny_guest\"",
            path.display()
        )));
    }
    resolve(&mut spec, path.parent().unwrap_or(Path::new("")));
    Ok(spec)
}

/// Makes every path of the spec absolute, with `kernel` in place of its own where one is given: for
/// a VM that is started again from anywhere.
///
/// # Errors
/// The current directory is gone.
pub(crate) fn absolute(mut spec: VmSpec, kernel: Option<&Path>) -> anyhow::Result<VmSpec> {
    match (&mut spec.boot, kernel) {
        (Boot::TinyGuest { kernel: own, .. }, Some(kernel)) => *own = Some(kernel.to_owned()),
        (Boot::Kernel { kernel: own, .. }, Some(kernel)) => kernel.clone_into(own),
        _ => {}
    }
    let current = std::env::current_dir().context("the current directory cannot be found")?;
    resolve(&mut spec, &current);
    Ok(spec)
}

/// Sets every relative path of the spec below `directory`.
fn resolve(spec: &mut VmSpec, directory: &Path) {
    let at = |path: &mut PathBuf| *path = directory.join(&path);
    match &mut spec.boot {
        Boot::TinyGuest { kernel, .. } => kernel.iter_mut().for_each(at),
        Boot::Kernel { kernel, initrd, .. } => {
            at(kernel);
            initrd.iter_mut().for_each(at);
        }
        Boot::Disk { .. } | Boot::Definition => {}
    }
    spec.guest.iter_mut().filter_map(|guest| guest.image.as_mut()).for_each(at);
    spec.disks.iter_mut().for_each(|disk| at(&mut disk.path));
    if let Console::File { path } = &mut spec.console {
        at(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn relative_paths_are_below_the_directory_of_the_spec() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("vm.toml");
        let text = "name = \"vm\"\nvcpus = 1\nmemory = \"1 GiB\"\n[boot]\nfrom = \"kernel\"\nkernel = \
            \"bzImage\"\ninitrd = \"/initrd\"\n[[disk]]\npath = \"d.img\"\nformat = \"raw\"\n[console]\nto = \
            \"file\"\npath = \"console.log\"\n";
        fs::write(&path, text).expect("a spec");
        let spec = read(&path).expect("valid");
        let below = |name: &str| directory.path().join(name);
        let Boot::Kernel { kernel, initrd, .. } = spec.boot else { panic!("{:?}", spec.boot) };
        assert_eq!((kernel, initrd), (below("bzImage"), Some(PathBuf::from("/initrd"))));
        assert_eq!(spec.disks[0].path, below("d.img"));
        assert_eq!(spec.console, Console::File { path: below("console.log") });
    }
}

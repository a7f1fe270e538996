//! UEFI firmware: which one this host has, and the variables of a VM.
//!
//! **Problem.** Distributions keep OVMF under other names and in other formats, several builds of
//! it beside each other; some need what a VM of ours does not have.
//!
//! **Rule.** QEMU's own descriptors say it (docs/interop/firmware.json of QEMU): the first one, by
//! the names of the files, that fits our machine, needs no Secure Boot, and has variables in a file
//! of their own. A VM has a copy of those, which QEMU gets as an open descriptor: its user may not
//! open it.

use crate::QemuError;
use crate::command_line::{Flash, Variables};
use linux::sys::{OPEN_NO_LINK, effective_user_id};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use vm::Launch;
use vm::spec::{DiskFormat, Firmware};

/// Where descriptors are; a file in a later directory hides one of the same name in an earlier one.
const DIRECTORIES: [&str; 2] = ["/usr/share/qemu/firmware", "/etc/qemu/firmware"];
/// A file of a descriptor is a few hundred bytes.
const LONGEST_DESCRIPTOR: u64 = 1 << 16;
/// Largest flash that a PC has room for below 4 GiB.
const LARGEST_FLASH: u64 = 16 << 20;
/// How the machine types begin that are `q35`.
const MACHINE: &str = "pc-q35-";
const ARCHITECTURE: &str = "x86_64";
/// What firmware may need or do that our machine has not, or that a guest's unsigned kernel would
/// not pass.
const UNFIT: [&str; 2] = ["requires-smm", "enrolled-keys"];

/// A UEFI firmware of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Uefi {
    code: FlashFile,
    /// Variables as they are before the first start.
    template: FlashFile,
}

/// A file of flash memory.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct FlashFile {
    filename: PathBuf,
    format: DiskFormat,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Descriptor {
    interface_types: Vec<String>,
    mapping: Mapping,
    targets: Vec<Target>,
    features: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", tag = "device")]
enum Mapping {
    #[serde(rename_all = "kebab-case")]
    Flash {
        executable: FlashFile,
        /// One whose variables are in memory only, or in the file of the code, has none.
        #[serde(default)]
        nvram_template: Option<FlashFile>,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Target {
    architecture: String,
    machines: Vec<String>,
}

/// The firmware that `launch` boots by; `None`: BIOS, which QEMU brings.
///
/// # Errors
/// This host has none that fits.
pub(crate) fn of(launch: &Launch) -> Result<Option<Uefi>, QemuError> {
    match launch.spec.boot.firmware() {
        Firmware::Bios => Ok(None),
        Firmware::Uefi => find(&directories()).map(Some).map_err(|problem| QemuError::Spec {
            vm: launch.spec.name.clone(),
            problem: format!("boot.firmware = \"uefi\": {problem}"),
        }),
    }
}

/// The firmware of this host for a text that somebody else starts; `None` where there is none.
pub(crate) fn of_this_host() -> Option<Uefi> {
    find(&directories()).ok()
}

/// What root starts believes no file of a user's.
fn directories() -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value: &OsString| !value.is_empty()).map(PathBuf::from);
    let home = || variable("HOME").map(|home| home.join(".config"));
    let own = if effective_user_id() == 0 { None } else { variable("XDG_CONFIG_HOME").or_else(home) };
    DIRECTORIES.into_iter().map(PathBuf::from).chain(own.map(|own| own.join("qemu/firmware"))).collect()
}

/// Why there is no firmware.
#[derive(Debug, thiserror::Error)]
#[error(
    "{what} in {}: install the Debian package ovmf (elsewhere edk2-ovmf), or write firmware = \"bios\" for a disk \
     that BIOS boots", listed(.directories)
)]
struct NoFirmware {
    what: &'static str,
    directories: Vec<PathBuf>,
}

fn listed(directories: &[PathBuf]) -> String {
    directories.iter().map(|directory| directory.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// The first by name that fits and whose files are there.
fn find(directories: &[PathBuf]) -> Result<Uefi, NoFirmware> {
    let mut files = BTreeMap::new();
    for directory in directories {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|ending| ending == "json") {
                files.insert(entry.file_name(), entry.path());
            }
        }
    }
    let what = if files.is_empty() {
        "no UEFI firmware is described"
    } else {
        "no UEFI firmware for q35 without Secure Boot, with variables in a file of their own, is described"
    };
    let usable = |path: &PathBuf| {
        let found = fitting(&bytes(path, LONGEST_DESCRIPTOR).ok()?)?;
        [&found.code, &found.template].iter().all(|file| file.filename.is_file()).then_some(found)
    };
    files.values().find_map(usable).ok_or_else(|| NoFirmware { what, directories: directories.to_vec() })
}

/// What a descriptor describes, if that fits. An empty file hides one of the same name.
fn fitting(text: &[u8]) -> Option<Uefi> {
    let Descriptor { interface_types, mapping, targets, features } = serde_json::from_slice(text).ok()?;
    let ours = |target: &Target| {
        target.architecture == ARCHITECTURE && target.machines.iter().any(|machine| machine.starts_with(MACHINE))
    };
    let unfit = features.iter().any(|feature| UNFIT.contains(&feature.as_str()));
    let fits = interface_types.iter().any(|kind| kind == "uefi") && targets.iter().any(ours) && !unfit;
    match mapping {
        Mapping::Flash { executable, nvram_template: Some(template) } if fits => {
            Some(Uefi { code: executable, template })
        }
        Mapping::Flash { .. } | Mapping::Other => None,
    }
}

impl Uefi {
    /// Flash for a VM of ours, and the descriptor of its variables.
    ///
    /// # Errors
    /// The file of its variables cannot be made or written, or fits another firmware.
    pub(crate) fn flash(&self, launch: &Launch) -> Result<(Flash, OwnedFd), QemuError> {
        let template = &self.template.filename;
        let in_place = |path| QemuError::file(launch, "boot.firmware", path);
        let fresh = self.fresh().map_err(in_place(template))?;
        let variables = match &launch.variables {
            None => linux::sys::memory_file(c"homenode-uefi-variables", &fresh).map_err(in_place(template)),
            Some(path) => kept(path, &fresh).map_err(in_place(path)),
        }?;
        Ok((self.with(Variables::Descriptor(variables.as_raw_fd())), variables))
    }

    /// Flash for somebody else's command.
    pub(crate) fn by_hand(&self) -> Flash {
        self.with(Variables::ThrownAway(self.template.filename.clone()))
    }

    fn with(&self, variables: Variables) -> Flash {
        let Self { code, template } = self;
        let (code_format, variables_format) = (code.format, template.format);
        Flash { code: code.filename.clone(), code_format, variables, variables_format }
    }

    fn fresh(&self) -> io::Result<Vec<u8>> {
        bytes(&self.template.filename, LARGEST_FLASH)
    }
}

/// What a distribution installed, and where its links lead.
fn bytes(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    linux::named_file::read(&path.canonicalize()?, most, &[])
}

/// The variables that a VM has; `fresh` before its first start.
fn kept(path: &Path, fresh: &[u8]) -> io::Result<OwnedFd> {
    let open = || File::options().read(true).write(true).custom_flags(OPEN_NO_LINK).open(path);
    let file = match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            linux::named_file::replace(path, fresh)?;
            open()?
        }
        opened => opened?,
    };
    let length = file.metadata()?.len();
    if length != fresh.len() as u64 {
        return Err(io::Error::other(format!(
            "it has {length} bytes, and variables of this host's UEFI firmware have {}: they are of another \
             firmware. Without that file the VM begins with new ones",
            fresh.len()
        )));
    }
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use std::collections::BTreeSet;
    use vm::ConsoleTo;
    use vm::spec::Boot;

    /// A descriptor as Debian's and Fedora's are.
    fn descriptor(place: &Path, code: &str, features: &str, more: &str) -> String {
        let file = |name: &str| format!(r#"{{ "filename": "{}", "format": "raw" }}"#, place.join(name).display());
        format!(
            r#"{{ "description": "x", "interface-types": ["uefi"],
                 "mapping": {{ "device": "flash", "executable": {}, "nvram-template": {} }},
                 "targets": [{{ "architecture": "x86_64", "machines": ["pc-i440fx-*", "pc-q35-*"] }}],
                 "features": [{features}], "tags": []{more} }}"#,
            file(code),
            file("vars.fd")
        )
    }

    /// Two directories, the first of distributions, and files of flash.
    fn host() -> (tempfile::TempDir, [PathBuf; 2]) {
        let place = tempfile::tempdir().unwrap();
        let directories = ["share", "etc"].map(|name| place.path().join(name));
        directories.iter().for_each(|directory| fs::create_dir(directory).unwrap());
        for name in ["secure.fd", "plain.fd", "own.fd", "vars.fd"] {
            fs::write(place.path().join(name), [name.len() as u8; 64]).unwrap();
        }
        (place, directories)
    }

    #[test]
    fn the_first_that_fits_is_taken_and_a_hidden_one_is_not() {
        let (place, directories) = host();
        let write = |directory: &Path, name: &str, text: String| fs::write(directory.join(name), text).unwrap();
        let code = || find(&directories).map(|found| found.code.filename.file_name().unwrap().to_owned());
        let [share, etc] = &directories;
        let none = code().unwrap_err().to_string();
        assert!(none.contains("Debian package ovmf") && none.contains(&share.display().to_string()), "{none}");
        // Signatures are checked, or the machine must have SMM.
        for (name, feature) in [("10.json", r#""enrolled-keys""#), ("20.json", r#""amd-sev", "requires-smm""#)] {
            write(share, name, descriptor(place.path(), "secure.fd", feature, ""));
        }
        write(share, "30.json", "no JSON".to_owned());
        write(share, "40.json", descriptor(place.path(), "absent.fd", "", ""));
        write(share, "README", descriptor(place.path(), "own.fd", "", ""));
        let none = code().unwrap_err().to_string();
        assert!(none.contains("without Secure Boot"), "{none}");
        write(share, "60.json", descriptor(place.path(), "plain.fd", r#""acpi-s3""#, r#", "new": 1"#));
        write(share, "70.json", descriptor(place.path(), "own.fd", "", ""));
        assert_eq!(code().unwrap(), "plain.fd");
        // An empty file hides it.
        write(etc, "60.json", String::new());
        assert_eq!(code().unwrap(), "own.fd");
        write(etc, "05.json", descriptor(place.path(), "plain.fd", "", ""));
        assert_eq!(code().unwrap(), "plain.fd");
    }

    #[test]
    fn other_machines_and_other_ways_of_firmware_do_not_fit() {
        let text = descriptor(Path::new("/f"), "plain.fd", "", "");
        assert!(fitting(text.as_bytes()).is_some());
        for (one, other) in [
            ("\"uefi\"", "\"bios\""),
            ("x86_64", "aarch64"),
            ("pc-q35-*", "microvm"),
            ("\"device\": \"flash\"", "\"device\": \"memory\""),
            ("nvram-template", "no-template"),
            ("raw", "vmdk"),
        ] {
            assert!(text.contains(one), "{one}");
            assert_eq!(fitting(text.replace(one, other).as_bytes()), None, "{other}");
        }
    }

    fn uefi(place: &Path) -> Uefi {
        let file = |name: &str| FlashFile { filename: place.join(name), format: DiskFormat::Raw };
        Uefi { code: file("plain.fd"), template: file("vars.fd") }
    }

    fn launch(variables: Option<PathBuf>) -> Launch {
        let mut spec = samples::spec("a", 1, 64);
        spec.boot = Boot::Disk { firmware: Firmware::Uefi };
        let (plan, taps) = (samples::plan("a", 1, 1, 64), vm::Taps::new());
        Launch { spec, plan, kernel: None, console: ConsoleTo::Kept, agent: false, taps, variables }
    }

    #[test]
    fn variables_are_made_once_and_stay_and_those_of_other_firmware_are_refused() {
        let (place, _) = host();
        let path = place.path().join("kept.fd");
        let opened = || uefi(place.path()).flash(&launch(Some(path.clone())));
        let read = |descriptor: OwnedFd| {
            let mut content = Vec::new();
            io::Read::read_to_end(&mut File::from(descriptor), &mut content).map(|_| content).unwrap()
        };
        assert_eq!(read(opened().unwrap().1), [7; 64]);
        fs::write(&path, [9; 64]).unwrap();
        assert_eq!(read(opened().unwrap().1), [9; 64]);
        fs::write(&path, [9; 32]).unwrap();
        let error = opened().unwrap_err();
        assert!(error.is_bad_input() && error.to_string().contains("it has 32 bytes"), "{error}");
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(place.path().join("vars.fd"), &path).unwrap();
        assert!(opened().is_err(), "through a link");
    }

    #[test]
    fn variables_of_a_vm_that_is_not_kept_are_in_no_file() {
        let (place, _) = host();
        let names = || {
            let entries = fs::read_dir(place.path()).unwrap();
            entries.map(|entry| entry.unwrap().file_name()).collect::<BTreeSet<_>>()
        };
        let before = names();
        let (flash, variables) = uefi(place.path()).flash(&launch(None)).unwrap();
        assert_eq!(flash.variables, Variables::Descriptor(variables.as_raw_fd()));
        assert_eq!(names(), before);
        File::from(variables).set_len(0).unwrap();
        assert_eq!(fs::read(place.path().join("vars.fd")).unwrap(), [7; 64]);
    }
}

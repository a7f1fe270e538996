//! A domain goes into a file of libvirt's, and on from it.
//!
//! **Problem.** libvirt ends QEMU itself once its file is whole, and goes on from the file with the
//! CPUs and nodes that the domain had, which may be taken by now, or be another host's.
//!
//! **Rule.** `virsh save` writes; whoever asked keeps what must be known of the file beside it
//! (`suspended::beside`). Before `virsh restore` the file is compared with that, and the machine
//! that is in it with the manifest; only then libvirt reads it, with XML whose homes are the new
//! plan's. The guest waits in its QEMU until the start may no longer be called off.
//!
//! **Properties.** libvirt marks its file as whole when it is synced ([`is_whole`]), and ends QEMU
//! after that: a kill at any moment leaves the domain, or its file.

use crate::connection::STDIN;
use crate::run_by::run_by;
use crate::start::qemu_version;
use crate::{Connection, LibvirtError, job};
use stacks::domain::{parse, rehomed};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::Ordering;
use vm::backend::{ErrorKind, GuestBytes, Saved, Transfer};
use vm::manifest::Verdict;
use vm::{Added, BackendError, CallOff, Launch, Manifest, VirtualTopology, VmSpec};

/// What libvirt's file begins with once it is whole (its `QEMU_SAVE_MAGIC`; until then
/// `LibvirtQemudPart`).
const WHOLE: [u8; 16] = *b"LibvirtQemudSave";

/// Whether libvirt has written this file to its end.
pub fn is_whole(file: &Path) -> bool {
    let mut begins = [0u8; WHOLE.len()];
    File::open(file).and_then(|mut file| file.read_exact(&mut begins)).is_ok_and(|()| begins == WHOLE)
}

/// Writes a domain whose vCPUs wait into a file. Its QEMU ends.
pub(crate) fn save(
    (connection, uuid, vm): (&Connection, &str, &str),
    into: &GuestBytes<'_>,
    told: &mut dyn FnMut(Transfer),
) -> Result<(), BackendError> {
    let (path, called_off) = into.file(vm)?;
    let command = words(&["save", "--domain", uuid, "--file", &path.display().to_string()]);
    let saved = job::run(connection, uuid, (command, None), &mut |transfer| {
        transfer.into_iter().for_each(&mut *told);
        !called_off.load(Ordering::Relaxed)
    });
    saved.map(drop).map_err(|error| match error {
        LibvirtError::Refused { libvirt, words, .. } if words.contains("ermission denied") => {
            let problem = format!(
                "{libvirt}: {words}; libvirt writes the file itself: name a place with --to where it may, \
                below /var/lib/libvirt for one"
            );
            BackendError::new(ErrorKind::BadInput, problem)
        }
        error => error.into(),
    })
}

fn words(command: &[&str]) -> Vec<String> {
    command.iter().map(|&word| word.to_owned()).collect()
}

/// The XML that a file of libvirt's has.
fn saved_xml(connection: &Connection, file: &Path) -> Result<String, LibvirtError> {
    let file = file.display().to_string();
    connection.ask(&["save-image-dumpxml", "--security-info", "--file", &file])
}

impl crate::Domains {
    /// The manifest of the guest in a file that libvirt has written to its end.
    ///
    /// # Errors
    /// libvirt cannot read it, or it holds another VM.
    pub fn manifest_of(
        &self,
        file: &Path,
        (spec, topology, added): (&VmSpec, &VirtualTopology, &Added),
    ) -> Result<Manifest, BackendError> {
        let xml = saved_xml(self.connection(), file)?;
        check_name(&xml, file, &spec.name)?;
        let run_by = run_by(&xml, spec, qemu_version(self.connection())?)?;
        Ok(Manifest::of(spec, topology, added, run_by))
    }
}

fn check_name(xml: &str, file: &Path, name: &str) -> Result<stacks::domain::Domain, BackendError> {
    let file = file.display().to_string();
    let domain = parse(xml, &file).map_err(|error| BackendError::new(ErrorKind::BadInput, error))?;
    if domain.name == name {
        return Ok(domain);
    }
    let problem = format!("{file}: libvirt's file holds domain {:?}, not {name:?}", domain.name);
    Err(BackendError::new(ErrorKind::BadInput, problem))
}

/// A domain that was restored.
pub(crate) struct Restored {
    pub(crate) uuid: String,
    /// Its `<domain type=...>`.
    pub(crate) kind: String,
    /// What its owner should know, as sentences.
    pub(crate) notes: Vec<String>,
}

/// Has libvirt read a domain from its file, at the homes of the launch's plan. Its vCPUs wait.
/// `from_now_on` is told from when on there may be a QEMU.
pub(crate) fn restore(
    connection: &Connection,
    launch: &Launch,
    saved: &mut Saved<'_>,
    call_off: &CallOff,
    from_now_on: impl FnOnce(&str),
) -> Result<Restored, BackendError> {
    let name = &launch.spec.name;
    let (path, _) = saved.from.file(name)?;
    (saved.was_right)()?;
    let xml = saved_xml(connection, path)?;
    let stacks::domain::Domain { uuid, kind, .. } = check_name(&xml, path, name)?;
    let uuid = uuid.unwrap_or_default();
    let notes = agrees(connection, &xml, launch, saved.manifest)?;
    let xml = rehomed(&xml, &path.display().to_string(), &launch.plan);
    let xml = xml.map_err(|error| BackendError::new(ErrorKind::BadInput, error))?;
    if call_off.is_called_off() {
        return Err(called_off(name));
    }
    from_now_on(&uuid);
    let command = words(&["restore", "--file", &path.display().to_string(), "--xml", STDIN, "--paused"]);
    // It is called off by ending its QEMU.
    let restored = job::run(connection, &uuid, (command, Some(xml)), &mut |transfer| {
        transfer.into_iter().for_each(&mut *saved.told);
        true
    });
    match restored {
        _ if call_off.is_called_off() => Err(called_off(name)),
        restored => Ok(restored.map(|_| Restored { uuid, kind, notes })?),
    }
}

pub(crate) fn called_off(vm: &str) -> BackendError {
    BackendError::new(ErrorKind::CalledOff, format!("VM {vm}: it was called off; its file stays as it was"))
}

/// Compares the machine in the file, as this host would build it, with the one that the guest
/// knows.
fn agrees(
    connection: &Connection,
    xml: &str,
    launch: &Launch,
    manifest: &Manifest,
) -> Result<Vec<String>, BackendError> {
    let (spec, topology) = (&launch.spec, &launch.plan.topology);
    let here = Manifest::of(spec, topology, &manifest.added, run_by(xml, spec, qemu_version(connection)?)?);
    let differences = manifest.differences(&here);
    let (refuse, warn): (Vec<_>, Vec<_>) = differences.iter().partition(|found| found.verdict == Verdict::Refuses);
    if refuse.is_empty() {
        return Ok(warn.iter().map(ToString::to_string).collect());
    }
    let sentences: Vec<String> = refuse.iter().map(|found| format!("  {found}")).collect();
    let problem = format!("VM {}: its guest cannot go on here:\n{}", spec.name, sentences.join("\n"));
    Err(BackendError::new(ErrorKind::BadInput, problem))
}

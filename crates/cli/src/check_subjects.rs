//! What `homenode check` is to judge: definitions in files, in directories, of libvirt and of
//! Proxmox VE, and VMs that run.

use crate::args::CheckArguments;
use crate::balancer_host::open;
use crate::failure::{self, BadInput, bad_input};
use crate::{nearest, remote_host, source, vm_choice};
use anyhow::Context;
use libvirt::{Connection, LibvirtError};
use linux::LinuxHost;
use scheduler::{Observation, VmKey};
use serde::Serialize;
use stacks::check::Definition;
use stacks::domain::LONGEST_TEXT;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long libvirt may take: a VM can be judged without it.
const LIBVIRT: Duration = Duration::from_secs(10);
/// How long a VM that runs is watched for rates.
const RATES: Duration = Duration::from_secs(1);
/// Where Proxmox VE has the configurations of a host's VMs.
const OF_PROXMOX: &str = "/etc/pve/qemu-server";

/// Endings of files; everything else without a slash is a VM.
const FILE_ENDINGS: [&str; 5] = [".xml", ".conf", ".yaml", ".yml", ".json"];

/// What is judged.
pub(crate) enum Subject {
    /// A definition, and where it comes from.
    Definition { text: String, source: String },
    /// A QEMU without libvirt.
    Process(VmKey),
}

/// What was named and cannot be judged.
#[derive(Debug, Serialize)]
pub(crate) struct Unread {
    /// A file, or what was named.
    pub(crate) source: String,
    /// Why, with its name.
    pub(crate) problem: String,
    /// Whether another input would help.
    #[serde(skip)]
    pub(crate) is_bad_input: bool,
}

/// Everything that was named: what can be judged, and what cannot. One bad file does not hide the
/// others.
#[derive(Default)]
pub(crate) struct Subjects {
    pub(crate) read: Vec<Subject>,
    pub(crate) unread: Vec<Unread>,
}

impl Subjects {
    fn add(&mut self, source: &str, subject: anyhow::Result<Subject>) {
        match subject {
            Ok(subject) => self.read.push(subject),
            Err(error) => self.unread.push(Unread::new(source, &error)),
        }
    }
}

impl Unread {
    pub(crate) fn new(source: &str, error: &anyhow::Error) -> Self {
        let is_bad_input = error.chain().any(|cause| cause.is::<BadInput>());
        Self { source: source.to_owned(), problem: failure::text(error), is_bad_input }
    }
}

/// This host, looked at once, when the first VM is asked for that is no file.
#[derive(Default)]
pub(crate) struct Here(Option<(LinuxHost, Observation)>);

impl Here {
    /// The host as it is.
    pub(crate) fn look(&mut self) -> anyhow::Result<&(LinuxHost, Observation)> {
        let seen = match self.0.take() {
            Some(seen) => seen,
            None => {
                let mut host = open(None, false)?;
                let observation = source::examine(&mut host, RATES)?;
                (host, observation)
            }
        };
        Ok(self.0.insert(seen))
    }
}

/// Everything that the arguments name.
///
/// # Errors
/// libvirt does not say which domains it has.
pub(crate) fn subjects(arguments: &CheckArguments, here: &mut Here) -> anyhow::Result<Subjects> {
    let connection = Connection::new(arguments.connect.connect.as_deref());
    if arguments.all {
        return all(&connection);
    }
    let mut subjects = Subjects::default();
    for what in &arguments.what {
        let path = Path::new(what);
        let is_file = what.contains('/') || FILE_ENDINGS.iter().any(|ending| what.ends_with(ending));
        match what.as_str() {
            "-" => subjects.add(what, definition("standard input", std::io::stdin().lock())),
            _ if path.is_dir() => match directory(path) {
                Ok(files) => files.iter().for_each(|path| subjects.add(&path.display().to_string(), file(path))),
                Err(error) => subjects.unread.push(Unread::new(what, &error)),
            },
            _ if is_file => subjects.add(what, file(path)),
            name if arguments.connect.connect.is_some() => {
                let text = connection.domain_xml(name).map_err(|error| unknown_there(&connection, name, error));
                let source = format!("{name}.xml");
                subjects.add(what, text.map(|text| Subject::Definition { text, source }));
            }
            name => subjects.add(what, vm(name, here)),
        }
    }
    Ok(subjects)
}

/// Why libvirt has no text of a domain; where it has no such domain, with the nearest that it has.
fn unknown_there(connection: &Connection, name: &str, error: LibvirtError) -> anyhow::Error {
    if !error.is_no_such_domain() {
        return remote_host::failure(error);
    }
    let domains = connection.domains().unwrap_or_default();
    let nearest = nearest::sentence(name, domains.iter().map(|domain| domain.name.as_str()));
    bad_input(format!("{name}: {error}{nearest}"))
}

fn all(connection: &Connection) -> anyhow::Result<Subjects> {
    let domains = connection.domains().map_err(remote_host::failure)?;
    let uuids: Vec<&str> = domains.iter().map(|domain| domain.uuid.as_str()).collect();
    let texts = connection.domain_xmls(&uuids).map_err(remote_host::failure)?;
    let mut subjects = Subjects::default();
    for (domain, text) in domains.iter().zip(texts) {
        let source = format!("{}.xml", domain.name);
        let text = text.map_err(remote_host::failure);
        subjects.add(&domain.name, text.map(|text| Subject::Definition { text, source }));
    }
    Ok(subjects)
}

/// The files with definitions in a directory, by name.
fn directory(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let is_one = |file: &Path| file.extension().is_some_and(|ending| ending == "xml" || ending == "conf");
    let files = topology::input::entries(path, is_one)
        .map_err(|error| bad_input(format!("{}: cannot be read: {error}", path.display())))?;
    if files.is_empty() {
        let valid = "expected files with libvirt domains (*.xml) or Proxmox VE configurations (*.conf) in it";
        return Err(bad_input(format!("{}: is a directory without definitions: {valid}", path.display())));
    }
    Ok(files)
}

fn file(path: &Path) -> anyhow::Result<Subject> {
    named(path).map(|(text, source)| Subject::Definition { text, source })
}

/// The text of a file, and how it is called.
fn named(path: &Path) -> anyhow::Result<(String, String)> {
    let name = path.display();
    let valid =
        "expected a file with a libvirt domain, as `virsh dumpxml` prints it, or a Proxmox VE configuration (ID.conf)";
    let opened = File::open(path).map_err(|error| bad_input(format!("{name}: cannot be read: {error}: {valid}")))?;
    text_of(&name.to_string(), opened)
}

fn definition(name: &str, from: impl Read) -> anyhow::Result<Subject> {
    text_of(name, from).map(|(text, source)| Subject::Definition { text, source })
}

/// A text of at most the length that a domain has.
fn text_of(name: &str, from: impl Read) -> anyhow::Result<(String, String)> {
    let bytes = topology::input::limited(from, LONGEST_TEXT as u64)
        .map_err(|error| bad_input(format!("{name}: cannot be read: {error}")))?;
    let text = String::from_utf8(bytes).map_err(|_| bad_input(format!("{name}: is no text (UTF-8)")))?;
    if text.trim().is_empty() {
        return Err(bad_input(format!("{name}: is empty: expected a libvirt domain, as `virsh dumpxml` prints it")));
    }
    Ok((text, name.to_owned()))
}

/// A VM that runs here; or one that does not run, of libvirt or of Proxmox VE.
fn vm(choice: &str, here: &mut Here) -> anyhow::Result<Subject> {
    let (host, observation) = here.look()?;
    let key = match vm_choice::choose(observation, choice) {
        Ok(key) => key,
        Err(unknown) => return defined(choice, &unknown),
    };
    let vm = host.vms().find(|vm| vm.key == key).context("the VM ended")?;
    if let Some(path) = vm.origin.id.as_deref().and_then(of_proxmox).filter(|path| path.is_file()) {
        return file(&path);
    }
    if vm.origin.manager.is_libvirt() {
        match dumped(vm.uuid.as_deref().unwrap_or(choice)) {
            Ok(text) => return Ok(Subject::Definition { text, source: format!("{}.xml", vm.key.name) }),
            Err(why) => crate::output::note(format_args!("{choice}: judged by its process, since {why}")),
        }
    }
    Ok(Subject::Process(key))
}

fn dumped(name: &str) -> Result<String, LibvirtError> {
    Connection::new(None).with_limit(LIBVIRT).ask(&["dumpxml", "--domain", name])
}

/// The configuration of a VM of Proxmox VE, named by its number; it need not be there.
fn of_proxmox(choice: &str) -> Option<PathBuf> {
    choice.parse::<u32>().is_ok().then(|| Path::new(OF_PROXMOX).join(format!("{choice}.conf")))
}

/// The Proxmox VE configuration that a choice names by its file (`.conf`) or its number; `None`
/// where it names none.
pub(crate) fn proxmox_definition(choice: &Path) -> Option<anyhow::Result<Definition>> {
    let by_number = of_proxmox(&choice.to_string_lossy()).filter(|_| !choice.exists());
    let is_one = choice.extension().is_some_and(|ending| ending == "conf");
    let path = by_number.or_else(|| is_one.then(|| choice.to_owned()))?;
    Some(named(&path).and_then(|(text, source)| Definition::read(text, source).map_err(bad_input)))
}

/// A VM that does not run: of Proxmox VE, or of libvirt. Where neither knows it, what was asked is
/// said.
fn defined(choice: &str, unknown: &anyhow::Error) -> anyhow::Result<Subject> {
    let of_proxmox = of_proxmox(choice);
    if let Some(path) = of_proxmox.as_ref().filter(|path| path.is_file()) {
        return file(path);
    }
    let why = match dumped(choice) {
        Ok(text) => return Ok(Subject::Definition { text, source: format!("{choice}.xml") }),
        Err(why) => why,
    };
    if Path::new(choice).is_file() {
        return Err(bad_input(format!("{unknown:#}. There is a file of this name: give it as ./{choice}")));
    }
    let proxmox = of_proxmox.map(|path| format!("Proxmox VE has no {} here; ", path.display())).unwrap_or_default();
    // Where libvirt does not answer it has just said so.
    let domains = if why.is_no_such_domain() {
        Connection::new(None).with_limit(LIBVIRT).domains().unwrap_or_default()
    } else {
        Vec::new()
    };
    let nearest = nearest::sentence(choice, domains.iter().map(|domain| domain.name.as_str()));
    Err(bad_input(format!("{unknown:#}. Of VMs that do not run: {proxmox}{why}{nearest}")))
}

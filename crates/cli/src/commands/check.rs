//! `homenode check`.

use crate::args::CheckArguments;
use crate::balancer_host::{observe, open, uuid_of};
use crate::check_view::{self, Report};
use crate::failure::bad_input;
use crate::text::count;
use crate::{machine_choice, output, shaped_vm, vm_choice};
use anyhow::{Context, bail};
use judge::{Finding, ShapedVm};
use libvirt::Connection;
use linux::LinuxHost;
use linux::vm::RunningVm;
use scheduler::{Observe, Occupancy};
use stacks::check::CheckedDomain;
use stacks::domain::LONGEST_TEXT;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;
use topology::Machine;
use vm::Manager;

/// How long libvirt may take: a VM can be judged without it.
const LIBVIRT: Duration = Duration::from_secs(10);

/// What is judged.
enum Subject {
    /// A domain's XML, and where it comes from.
    Domain { text: String, source: String },
    /// A QEMU without libvirt.
    Process { vm: Box<ShapedVm>, pid: u32 },
}

/// Runs the command.
pub(crate) fn run(arguments: &CheckArguments) -> anyhow::Result<()> {
    let machine = machine_choice::machine(&arguments.machine)?;
    let subject = subject(&arguments.what)?;
    let occupancy = occupancy(&machine, arguments, &subject)?;
    match subject {
        Subject::Domain { text, source } => {
            let checked = CheckedDomain::new(&machine, &occupancy, &text, &source).map_err(bad_input)?;
            if arguments.cured {
                return cured(&checked, &machine, &occupancy, &source);
            }
            show(arguments, &machine, &checked.vm, &source, &checked.findings)
        }
        Subject::Process { vm, pid } if arguments.cured => Err(bad_input(format!(
            "--cured: {} is a QEMU that libvirt does not manage (process {pid}): it has no domain to print. `homenode check {pid}` prints the options and commands",
            vm.name
        ))),
        Subject::Process { vm, pid } => {
            let findings = judge::definition(&machine, &occupancy, &vm).findings;
            show(arguments, &machine, &vm, &format!("process {pid}"), &findings)
        }
    }
}

fn show(
    arguments: &CheckArguments,
    machine: &Machine,
    vm: &ShapedVm,
    source: &str,
    findings: &[Finding],
) -> anyhow::Result<()> {
    let wrong = judge::wrong(findings);
    if arguments.json {
        let (machine, vm) = (machine.name.as_str(), vm.name.as_str());
        output::json("check", &Report { machine, vm, source, wrong, findings })?;
    } else {
        output::print(check_view::text(vm, &machine.name, source, findings))?;
    }
    if wrong > 0 {
        bail!("{source}: {}", check_view::tally(findings));
    }
    Ok(())
}

/// Prints the domain with the cures of all problems.
fn cured(checked: &CheckedDomain, machine: &Machine, occupancy: &Occupancy, source: &str) -> anyhow::Result<()> {
    output::exact(&checked.cured)?;
    let after = CheckedDomain::new(machine, occupancy, &checked.cured, source).map_err(bad_input)?;
    let left: Vec<&str> = after
        .findings
        .iter()
        .filter(|finding| finding.severity > judge::Severity::Note)
        .map(|finding| finding.sentence.as_str())
        .collect();
    if !left.is_empty() {
        bail!(
            "{source}: {} left that no change of the domain mends: {}",
            count(left.len(), "finding"),
            left.join("; ")
        );
    }
    Ok(())
}

/// A file by its name: with a slash, ending in `.xml`, or `-` for standard input. Everything else is a VM.
fn subject(what: &str) -> anyhow::Result<Subject> {
    if what == "-" {
        let text = limited(what, std::io::stdin().lock())?;
        return Ok(Subject::Domain { text, source: "standard input".to_owned() });
    }
    if what.contains('/') || what.ends_with(".xml") {
        return file(what);
    }
    vm(what)
}

fn file(name: &str) -> anyhow::Result<Subject> {
    let valid = "expected a file with a libvirt domain, as `virsh dumpxml` prints it";
    let path = Path::new(name);
    if path.is_dir() {
        return Err(bad_input(format!("{name}: is a directory: {valid}")));
    }
    let opened = File::open(path).map_err(|error| bad_input(format!("{name}: cannot be read: {error}: {valid}")))?;
    Ok(Subject::Domain { text: limited(name, opened)?, source: name.to_owned() })
}

/// A text of at most the length that a domain has.
fn limited(name: &str, from: impl Read) -> anyhow::Result<String> {
    let bytes = topology::input::limited(from, LONGEST_TEXT as u64)
        .map_err(|error| bad_input(format!("{name}: cannot be read: {error}")))?;
    let text = String::from_utf8(bytes).map_err(|_| bad_input(format!("{name}: is no text (UTF-8)")))?;
    if text.trim().is_empty() {
        return Err(bad_input(format!("{name}: is empty: expected a libvirt domain, as `virsh dumpxml` prints it")));
    }
    Ok(text)
}

/// A VM that runs here; or a domain that libvirt has and that does not run.
fn vm(choice: &str) -> anyhow::Result<Subject> {
    let mut host = open(None, false)?;
    let observation = observe(&mut host)?;
    let key = match vm_choice::choose(&observation, choice, uuid_of) {
        Ok(key) => key,
        Err(error) => return defined(choice).ok_or_else(|| no_vm(choice, error)),
    };
    let vm = host.vms().find(|vm| vm.key == key).context("the VM ended")?;
    let managed = matches!(vm.origin.manager, Manager::Libvirt | Manager::Openstack | Manager::Kubevirt);
    if managed {
        match dumped(vm.uuid.as_deref().unwrap_or(choice)) {
            Ok(text) => return Ok(Subject::Domain { text, source: format!("{}.xml", vm.key.name) }),
            Err(why) => eprintln!("homenode: {choice}: judged by its process, since {why}"),
        }
    }
    process(&host, vm)
}

fn process(host: &LinuxHost, vm: &RunningVm) -> anyhow::Result<Subject> {
    let pid = vm.key.pid;
    let arguments = linux::process::command_line(pid).with_context(|| format!("{}: it ended", vm.key.name))?;
    let shaped = shaped_vm::shaped(host.machine(), vm, &arguments);
    Ok(Subject::Process { vm: Box::new(shaped), pid })
}

fn dumped(name: &str) -> Result<String, libvirt::LibvirtError> {
    Connection::new(None).with_limit(LIBVIRT).ask(&["dumpxml", "--domain", name])
}

fn defined(choice: &str) -> Option<Subject> {
    let text = dumped(choice).ok()?;
    Some(Subject::Domain { text, source: format!("{choice}.xml") })
}

fn no_vm(choice: &str, error: anyhow::Error) -> anyhow::Error {
    if Path::new(choice).is_file() {
        return bad_input(format!("{error:#}. There is a file of this name: give it as ./{choice}"));
    }
    error
}

/// What the other VMs of this host hold; nothing on another machine.
fn occupancy(machine: &Machine, arguments: &CheckArguments, subject: &Subject) -> anyhow::Result<Occupancy> {
    if arguments.machine.on.is_some() {
        return Ok(Occupancy::default());
    }
    let mut running = linux::examine_this_host().context("the running VMs cannot be read")?;
    let name = match subject {
        Subject::Domain { text, source } => stacks::domain::parse(text, source).map_err(bad_input)?.name,
        Subject::Process { vm, .. } => vm.name.clone(),
    };
    let itself = |pid: u32, other: &str| match subject {
        Subject::Process { pid: own, .. } => pid == *own,
        Subject::Domain { .. } => other == name,
    };
    running.vms.retain(|vm| !itself(vm.vm.pid, &vm.vm.name));
    Ok(Occupancy::of_observation(&running, machine))
}

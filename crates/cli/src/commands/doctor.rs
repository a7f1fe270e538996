//! `homenode doctor`.

use crate::accepted_file::{AcceptedFile, AcceptedReport};
use crate::args::DoctorArguments;
use crate::args_source::SourceArguments;
use crate::balancer_host::open;
use crate::commands::{doctor_network, doctor_qemu};
use crate::doctor_view::{self, Detail, View};
use crate::failure::NotAllSeen;
use crate::findings_view::{Reach, tally};
use crate::source::Remembered;
use crate::{output, source, vm_choice};
use anyhow::{Context, bail};
use jiff::Zoned;
use judge::{Finding, Known, Mending};
use linux::LinuxHost;
use scheduler::balance::Homes;
use scheduler::{Observation, Observe, VmKey};
use std::time::Duration;
use topology::Machine;

/// Runs the command.
pub(crate) fn run(arguments: &DoctorArguments) -> anyhow::Result<()> {
    if arguments.qemu {
        return doctor_qemu::run(arguments.json);
    }
    if arguments.network {
        return doctor_network::run(arguments.json);
    }
    let decisions = arguments.accepted.as_deref().map(AcceptedFile::read).transpose()?;
    if arguments.source != SourceArguments::default() {
        return elsewhere(arguments, decisions.as_ref());
    }
    let mut host = open(None, arguments.fix)?;
    let mut observation = source::examine(&mut host, Duration::from_secs_f64(arguments.interval))?;
    let only = arguments.vm.as_deref().map(|choice| vm_choice::choose(&observation, choice)).transpose()?;
    let remembered = Remembered::of_this_host(&arguments.state);
    let homes = |host: &LinuxHost, observation: &Observation| {
        let mut observation = observation.clone();
        remembered.rule(&mut observation);
        remembered.homes(host.machine(), &observation)
    };
    let asked = homes(&host, &observation);
    // Homes are asked for once: what a repair does to loads and memory on its way is no reason to
    // choose others.
    let judge = |host: &LinuxHost, observation: &Observation| -> Vec<Finding> {
        let managed = host.vms().filter(|vm| only.as_ref().is_none_or(|only| vm.key == *only));
        let mut now = if observation.vms.iter().all(|seen| asked.keys().any(|(vm, _)| *vm == seen.vm)) {
            Homes::new()
        } else {
            homes(host, observation)
        };
        now.extend(asked.clone());
        let known = Known { homes: now, believed: libvirt::pins(managed) };
        let mut findings = findings(host.machine(), observation, only.as_ref(), &known);
        // What somebody decided to live with is not repaired.
        accept(decisions.as_ref(), &mut findings, observation, only.as_ref());
        findings
    };
    let mut mending = Mending::default();
    if arguments.fix {
        mending = judge::mend(&mut host, judge).context("this host cannot be read")?;
        observation = host.examine().context("this host cannot be read")?;
    }
    let mut findings = judge(&host, &observation);
    let accepted = accept(decisions.as_ref(), &mut findings, &observation, only.as_ref());
    show(&View::new(&observation, findings, accepted, mending, only.as_ref()), arguments)
}

/// Marks what somebody decided to live with.
fn accept(
    decisions: Option<&AcceptedFile>,
    findings: &mut [Finding],
    seen: &Observation,
    only: Option<&VmKey>,
) -> Option<AcceptedReport> {
    let all = seen.vms.iter().map(|seen| &seen.vm).filter(|vm| only.is_none_or(|only| *vm == only));
    let looked_at: Vec<&str> = all.map(|vm| vm.name.as_str()).collect();
    decisions.map(|decisions| decisions.apply(findings, &looked_at, Zoned::now().date()))
}

fn findings(machine: &Machine, observation: &Observation, only: Option<&VmKey>, known: &Known) -> Vec<Finding> {
    match only {
        Some(only) => judge::running_vm(machine, observation, only, known),
        None => judge::host(machine, observation, known),
    }
}

fn show(view: &View, arguments: &DoctorArguments) -> anyhow::Result<()> {
    let reach = if arguments.source == SourceArguments::default() { Reach::Here } else { Reach::There };
    let detail = match (arguments.summary, &arguments.vm) {
        (true, _) => Detail::Summary,
        (false, None) => Detail::NeedsDoing,
        (false, Some(_)) => Detail::Notes,
    };
    match arguments.json {
        true => output::json("doctor", view)?,
        false => output::print(doctor_view::text(view, detail, reach))?,
    }
    if let Some(worse) = &view.worse {
        bail!("{worse}");
    }
    match (view.wrong, view.unseen.len()) {
        (0, 0) => Ok(()),
        (0, _) => Err(NotAllSeen("nothing is wrong with what could").into()),
        _ => bail!("{} {}", tally(&view.findings), if arguments.fix { "left after the repair" } else { "found" }),
    }
}

/// Another host, a recording, a model: only looked at, and nobody there believes anything of pins.
fn elsewhere(arguments: &DoctorArguments, decisions: Option<&AcceptedFile>) -> anyhow::Result<()> {
    let mut source = source::open(&arguments.source)?;
    let mut observation = source.examine(Duration::from_secs_f64(arguments.interval))?;
    let only = arguments.vm.as_deref().map(|choice| vm_choice::choose(&observation, choice)).transpose()?;
    let remembered = source.remembered(&arguments.state);
    remembered.rule(&mut observation);
    let known = Known { homes: remembered.homes(source.machine(), &observation), ..Known::default() };
    let mut findings = findings(source.machine(), &observation, only.as_ref(), &known);
    findings.iter_mut().for_each(Finding::keep_to_other_hosts);
    let accepted = accept(decisions, &mut findings, &observation, only.as_ref());
    show(&View::new(&observation, findings, accepted, Mending::default(), only.as_ref()), arguments)
}

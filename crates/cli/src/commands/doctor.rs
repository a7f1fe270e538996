//! `homenode doctor`.

use crate::args::DoctorArguments;
use crate::args_source::SourceArguments;
use crate::balancer_host::open;
use crate::doctor_view::{self, View};
use crate::findings_view::tally;
use crate::{balancer_place, output, source, vm_choice};
use anyhow::{Context, bail};
use judge::{Finding, Homes, Known, Mending};
use linux::LinuxHost;
use scheduler::{Observation, Observe};

/// Runs the command.
pub(crate) fn run(arguments: &DoctorArguments) -> anyhow::Result<()> {
    if arguments.source != SourceArguments::default() {
        return elsewhere(arguments);
    }
    let mut host = open(None, arguments.fix)?;
    let mut observation = host.examine().context("this host cannot be read")?;
    let only = arguments.vm.as_deref().map(|choice| vm_choice::choose(&observation, choice)).transpose()?;
    let homes = homes(arguments);
    let judge = |host: &LinuxHost, observation: &Observation| -> Vec<Finding> {
        let asked = host.vms().filter(|vm| only.as_ref().is_none_or(|only| vm.key == *only));
        let known = Known { homes: homes.clone(), believed: libvirt::pins(asked) };
        match &only {
            Some(only) => judge::running_vm(host.machine(), observation, only, &known),
            None => judge::host(host.machine(), observation, &known),
        }
    };
    let mut mending = Mending::default();
    if arguments.fix {
        mending = judge::mend(&mut host, judge).context("this host cannot be read")?;
        observation = host.examine().context("this host cannot be read")?;
    }
    let findings = judge(&host, &observation);
    // What was not seen of other VMs is no matter of this one.
    observation.unseen.retain(|sentence| only.as_ref().is_none_or(|only| sentence.contains(&only.name)));
    let view = View {
        vms: if only.is_some() { 1 } else { observation.vms.len() },
        repairs: mending.tried,
        worse: mending.worse,
        unseen: observation.unseen,
        wrong: judge::wrong(&findings),
        findings,
    };
    show(&view, arguments, only.is_some())
}

fn show(view: &View, arguments: &DoctorArguments, only: bool) -> anyhow::Result<()> {
    match arguments.json {
        true => output::json("doctor", view)?,
        false => output::print(doctor_view::text(view, only))?,
    }
    if let Some(worse) = &view.worse {
        bail!("{worse}");
    }
    match (view.wrong, view.unseen.len()) {
        (0, 0) => Ok(()),
        (0, _) => bail!("not everything could be looked at: nothing is wrong with what could"),
        _ => bail!("{} {}", tally(&view.findings), if arguments.fix { "left after the repair" } else { "found" }),
    }
}

/// Another host, a recording, a model: only looked at, and nobody there believes anything of pins.
fn elsewhere(arguments: &DoctorArguments) -> anyhow::Result<()> {
    let mut source = source::open(&arguments.source)?;
    let mut observation = source.examine()?;
    let only = arguments.vm.as_deref().map(|choice| vm_choice::choose(&observation, choice)).transpose()?;
    let balance = source.remembered(&arguments.state).unwrap_or_default().balance;
    let homes = balance.homes().map(|(vm, client, home)| ((vm.clone(), client), home.clone())).collect();
    let known = Known { homes, ..Known::default() };
    let findings = match &only {
        Some(only) => judge::running_vm(source.machine(), &observation, only, &known),
        None => judge::host(source.machine(), &observation, &known),
    };
    observation.unseen.retain(|sentence| only.as_ref().is_none_or(|only| sentence.contains(&only.name)));
    let view = View {
        vms: if only.is_some() { 1 } else { observation.vms.len() },
        repairs: Vec::new(),
        worse: None,
        unseen: observation.unseen,
        wrong: judge::wrong(&findings),
        findings,
    };
    show(&view, arguments, only.is_some())
}

/// Homes that a balancer decided.
fn homes(arguments: &DoctorArguments) -> Homes {
    let Some(seen) = balancer_place::look(&arguments.state) else { return Homes::new() };
    seen.saved.balance.homes().map(|(vm, client, home)| ((vm.clone(), client), home.clone())).collect()
}

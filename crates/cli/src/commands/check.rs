//! `homenode check`.

use crate::args::CheckArguments;
use crate::args_balance::StateArguments;
use crate::check_subjects::{Here, Subject, subjects};
use crate::check_view::{self, Checked, Report, assumed};
use crate::commands::check_cured::{self, Job};
use crate::failure::bad_input;
use crate::findings_view::tally;
use crate::source::Remembered;
use crate::text::count;
use crate::{balancer_place, machine_choice, output, own_pages};
use anyhow::{Context, bail};
use judge::{Finding, Known, ShapedVm};
use scheduler::Occupancy;
use stacks::check::Definition;
use topology::Machine;

/// Runs the command.
pub(crate) fn run(arguments: &CheckArguments) -> anyhow::Result<()> {
    let mut machine = machine_choice::machine_or_host(&arguments.machine, &arguments.connect)?;
    let mut here = Here::default();
    let (mut definitions, mut running) = (Vec::new(), Vec::new());
    for subject in subjects(arguments, &mut here)? {
        match subject {
            Subject::Definition { text, source } => {
                definitions.push(Definition::read(text, source).map_err(bad_input)?)
            }
            Subject::Process(vm) => running.push(vm),
        }
    }
    let shaped: Vec<ShapedVm> = definitions.iter().map(Definition::shaped).cloned().collect();
    let others = others(&mut machine, arguments, &shaped, &mut here)?;
    if let Some(directory) = &arguments.cured_into {
        let processes = running.iter().map(|vm| vm.name.as_str()).collect();
        let (definitions, unread) = (&definitions[..], Vec::new());
        return Job { machine: &machine, others: &others, definitions, processes, unread }.cure_into(directory);
    }
    let beside = judge::together(&machine, &others, &shaped);
    if arguments.cured {
        return match (&definitions[..], &running[..]) {
            ([one], []) => check_cured::print(arguments, one, &machine, &beside[0].others),
            ([], [vm]) => Err(bad_input(format!(
                "--cured: {} is a QEMU that libvirt does not manage (process {}): it has no domain to print. `homenode \
                check {}` prints the options and commands",
                vm.name, vm.pid, vm.pid
            ))),
            _ => Err(bad_input(
                "--cured: prints one domain: name one; --cured-into DIRECTORY cures all that are named together",
            )),
        };
    }
    let (mut vms, mut findings) = (Vec::new(), Vec::<Finding>::new());
    for ((definition, vm), beside) in definitions.iter().zip(&shaped).zip(beside) {
        let found = definition.check(&machine, &beside.others).map_err(bad_input)?;
        vms.push(Checked::new(vm, definition.source().to_owned(), beside.homes, &found));
        findings.extend(found);
    }
    for vm in running {
        let (host, observation) = here.look()?;
        let remembered = Remembered::of_this_host(&StateArguments { state: None });
        let known = Known { homes: remembered.homes(&machine, observation), ..Known::default() };
        let found = judge::running_vm(&machine, observation, &vm, &known);
        let seen = observation.vms.iter().find(|seen| seen.vm == vm);
        let seen = seen.with_context(|| format!("{}: it ended", vm.name))?;
        let shaped = ShapedVm::of_running(scheduler::Observe::machine(host), seen, &known);
        let homes = known.homes.iter().filter(|((of, _), _)| *of == vm).filter_map(|(_, home)| home.should.clone());
        let homes = homes.reduce(|one, other| one.union(&other)).unwrap_or_default();
        vms.push(Checked::new(&shaped, format!("process {}", vm.pid), homes, &found));
        findings.extend(found);
    }
    show(arguments, &machine, &others, vms, findings)
}

fn show(
    arguments: &CheckArguments,
    machine: &Machine,
    others: &Occupancy,
    vms: Vec<Checked>,
    mut findings: Vec<Finding>,
) -> anyhow::Result<()> {
    findings.sort_by(Finding::order);
    let wrong = judge::wrong(&findings);
    let what = match &vms[..] {
        [one] => one.source.clone(),
        several => count(several.len(), "VM"),
    };
    let nodes = assumed(machine, others);
    let report = Report { machine: &machine.name, nodes, vms, wrong, findings: &findings };
    match arguments.json {
        true => output::json("check", &report)?,
        false => output::print(check_view::text(&report))?,
    }
    if wrong > 0 {
        bail!("{what}: {}", tally(&findings));
    }
    Ok(())
}

/// What VMs of this host hold, or will when they have started, that are not judged themselves;
/// nothing on another machine. Huge pages of those that are count as free.
fn others(
    machine: &mut Machine,
    arguments: &CheckArguments,
    judged: &[ShapedVm],
    here: &mut Here,
) -> anyhow::Result<Occupancy> {
    if arguments.machine.on.is_some() || arguments.connect.connect.is_some() {
        return Ok(Occupancy::default());
    }
    let (_, running) = here.look()?;
    let is_judged = |name: &str| judged.iter().any(|judged| judged.name == name);
    own_pages::give_back(machine, running, is_judged);
    Ok(balancer_place::occupancy_without(running, machine, is_judged))
}

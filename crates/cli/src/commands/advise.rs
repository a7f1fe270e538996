//! `homenode advise`.

use crate::args::AdviseArguments;
use crate::failure::bad_input;
use crate::output;
use crate::{advise_view, machine_choice, vm_spec_file};
use anyhow::Context;
use evaluate::profiles;
use evaluate::validation::report::validate;
use topology::read::Described;

/// Runs the command.
pub(crate) fn run(arguments: &AdviseArguments) -> anyhow::Result<()> {
    let spec = vm_spec_file::read(&arguments.spec)?;
    let (machine, rates) = machine_choice::described(&arguments.on)?;
    let room = machine.usable_threads().count();
    if spec.vcpus as usize > room {
        return Err(bad_input(format!(
            "{}: vcpus = {}: {} has {room} hardware threads, and the model runs one vCPU on each: ask for {room} or \
            fewer",
            arguments.spec.display(),
            spec.vcpus,
            machine.name
        )));
    }
    let profile = profiles::find(&arguments.workload).map_err(|error| bad_input(format!("--workload {error}")))?;
    if arguments.threads.is_some_and(|threads| threads == 0 || threads > spec.vcpus) {
        let threads = arguments.threads.unwrap_or_default();
        return Err(bad_input(format!("--threads {threads}: the VM has {} vCPUs: give 1 to {0}", spec.vcpus)));
    }
    let cells = validate().context("the published experiments cannot be run on the model")?.cells;
    let described = Described { machine, rates: Some(rates) };
    let advice = evaluate::advise::advise(&spec, &described, &profile, arguments.threads, &cells)
        .map_err(|error| bad_input(format!("{}: {error}", arguments.spec.display())))?;
    if arguments.json {
        output::json("advise", &advice)?;
    } else {
        output::print(advise_view::view(&spec, &advice))?;
    }
    Ok(())
}

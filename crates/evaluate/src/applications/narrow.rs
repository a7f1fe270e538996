//! An experiment of applications is written for the machine of its published figures. On a host
//! with fewer hardware threads, or less memory, it runs as far as the host goes. Without SMT there
//! is nothing to turn off.

use crate::experiment::{Configuration, Experiment};
use crate::vcpus::Vcpus;
use topology::{Bytes, Machine};
use workloads::choice::Choice;

/// Who chose the numbers of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Widths {
    /// The experiment's file: they are those of its published figures.
    OfTheFile,
    /// Whoever runs it, for this host: more threads than it has are measured too.
    Asked,
}

/// The experiment without what the host is too small for, and what was left out, for people.
pub fn narrowed(
    experiment: &Experiment,
    machine: &Machine,
    available: Bytes,
    widths: Widths,
) -> (Experiment, Vec<String>) {
    let mut narrow = experiment.clone();
    let mut notes = Vec::from_iter(leave_out_without_smt(&mut narrow, machine));
    if !experiment.is_application() {
        return (narrow, notes);
    }
    let has = machine.usable_threads().count() as u32;
    let fits = |configuration: &Configuration| {
        let wide = matches!(configuration.vcpus.fixed(), Some(Vcpus::Count(count)) if *count > has);
        let large = configuration.memory.fixed().is_some_and(|memory| memory.0 > available.0 / 10 * 9);
        configuration.modelled.only || !(wide || large)
    };
    let left_out = narrow.configurations.iter().filter(|configuration| !fits(configuration));
    let names: Vec<&str> = left_out.map(|configuration| configuration.name.as_str()).collect();
    if !names.is_empty() {
        notes.push(format!(
            "Left out: {}. This host is too small: it has {has} hardware threads, and {available} of memory is \
            available.",
            names.join("; ")
        ));
    }
    narrow.configurations.retain(fits);
    if widths == Widths::OfTheFile
        && let Choice::Fixed(counts) = &experiment.threads
    {
        let few: Vec<u32> = counts.iter().copied().filter(|&count| count <= has).collect();
        if few.len() < counts.len() {
            let runs =
                if few.is_empty() { "1, 2, 4, ... and all of them are measured" } else { "more are not measured" };
            notes.push(format!("threads = {counts:?}: this host has {has} hardware threads; {runs}."));
        }
        narrow.threads = if few.is_empty() { Choice::Auto } else { Choice::Fixed(few) };
    }
    (narrow, notes)
}

/// Leaves out configurations that use one hardware thread a core on a machine that has no others:
/// they would be others again.
fn leave_out_without_smt(experiment: &mut Experiment, machine: &Machine) -> Option<String> {
    let is_of_one = |configuration: &Configuration| configuration.smt == Some(false);
    let all = &experiment.configurations;
    if machine.threads_per_core() > 1 || all.iter().all(is_of_one) {
        return None;
    }
    let names: Vec<&str> = all.iter().filter(|one| is_of_one(one)).map(|one| one.name.as_str()).collect();
    let note = (!names.is_empty()).then(|| {
        format!(
            "Left out: {}. This host has one hardware thread a core: there is no SMT to turn off.",
            names.join("; ")
        )
    });
    experiment.configurations.retain(|configuration| !is_of_one(configuration));
    note
}

//! What a reader of modelled figures has to know.

use super::predict::PredictedConfiguration;
use crate::experiment::{APPLICATION, Experiment};
use std::collections::BTreeMap;

/// That nothing was measured, and where published figures are of another machine.
pub(crate) fn notes(
    experiment: &Experiment,
    configurations: &[PredictedConfiguration],
    on: Option<&str>,
) -> Vec<String> {
    let mut notes = vec!["MODELLED: nothing here was measured; every modelled figure carries the mark ≈.".to_owned()];
    let mut foreign: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for configuration in configurations.iter().filter(|configuration| !configuration.is_published_machine) {
        let has_published = experiment.published.iter().any(|one| one.configuration == configuration.name);
        if has_published {
            foreign.entry(&configuration.machine).or_default().push(&configuration.name);
        }
    }
    for (machine, names) in foreign {
        let whose = match names.len() == configurations.len() {
            true => String::new(),
            false => format!("{}: ", names.join(", ")),
        };
        notes.push(format!("{whose}the published figures are not of {machine}, so that no error is given for them."));
    }
    if let Some(on) = on.filter(|on| configurations.iter().all(|one| one.machine != *on)) {
        notes.push(format!("Each configuration names a machine of its own, and none is {on}: --on changes nothing."));
    }
    notes.extend(cores_of_another(experiment, configurations));
    notes
}

/// Messages between VMs on a machine whose network is not known.
pub(crate) fn lent_network(machine: &str, own: &str) -> String {
    format!(
        "Messages between VMs cost on {machine} what they cost on {own}: its machine file has no [rates.network] \
         (homenode calibrate --network measures it)."
    )
}

/// A profile that was fitted to one machine has its cores in it.
fn cores_of_another(experiment: &Experiment, configurations: &[PredictedConfiguration]) -> Option<String> {
    let own = experiment.machine.as_ref()?;
    let what = match experiment.workload.as_str() {
        APPLICATION => "time of computing",
        "stream" if experiment.profile.is_some() => "lines in flight of a core",
        _ => return None,
    };
    let mut on_another = configurations.iter().filter(|one| !one.is_published_machine).map(|one| one.machine.as_str());
    let machine = on_another.next()?;
    Some(format!(
        "The profile was fitted to {own}, and its {what} stays that of {own}'s cores on {machine} too: compare \
        configurations, not machines."
    ))
}

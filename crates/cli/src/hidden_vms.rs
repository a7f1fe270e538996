//! What commands that count VMs say where VMs may run that nobody saw: other users' processes may
//! be hidden. A list with gaps is never the whole list, and has an exit code of its own.

use crate::failure::NotAllSeen;
use crate::output;
use scheduler::Observation;

/// What hides VMs, as sentences.
pub(crate) fn sentences(observation: &Observation) -> Vec<String> {
    observation.unseen.iter().filter(|unseen| unseen.hides_vms).map(|unseen| unseen.what.clone()).collect()
}

/// Says on standard error what hides VMs; whether anything does.
pub(crate) fn say(observation: &Observation) -> bool {
    let sentences = sentences(observation);
    sentences.iter().for_each(|what| output::note(format_args!("not seen: {what}")));
    !sentences.is_empty()
}

/// Ends a command whose answer was given.
///
/// # Errors
/// VMs may run that were not seen.
pub(crate) fn end(any: bool) -> anyhow::Result<()> {
    if any { Err(NotAllSeen("VMs may run that are not in this answer").into()) } else { Ok(()) }
}

//! Which VM a user means: by name, UUID or process number.

use crate::failure::bad_input;
use scheduler::{Observation, VmKey, VmObservation};

/// The VM of the observation that `choice` names.
///
/// # Errors
/// Bad input: none, or several; with those that run.
pub(crate) fn choose(observation: &Observation, choice: &str) -> anyhow::Result<VmKey> {
    let keys: Vec<&VmKey> = observation.vms.iter().map(|seen| &seen.vm).collect();
    let mut found: Vec<&VmKey> = keys.iter().copied().filter(|vm| vm.name == choice).collect();
    if found.is_empty() {
        let by_uuid = |seen: &VmObservation| seen.uuid.as_ref().is_some_and(|uuid| uuid.eq_ignore_ascii_case(choice));
        let by_process = |seen: &VmObservation| seen.vm.pid > 0 && choice.parse() == Ok(seen.vm.pid);
        found = observation.vms.iter().filter(|seen| by_process(seen) || by_uuid(seen)).map(|seen| &seen.vm).collect();
    }
    match found[..] {
        [vm] => Ok(vm.clone()),
        [] => {
            Err(bad_input(format!("{choice}: no VM of this name, UUID or process number runs here. {}", listed(&keys))))
        }
        _ => Err(bad_input(format!(
            "{choice}: {} VMs have this name: give the process number. {}",
            found.len(),
            listed(&found)
        ))),
    }
}

fn listed(vms: &[&VmKey]) -> String {
    if vms.is_empty() {
        return "No VM runs that this user can see".to_owned();
    }
    let words = |vm: &&VmKey| match vm.pid {
        0 => vm.name.clone(),
        pid => format!("{} (process {pid})", vm.name),
    };
    let each: Vec<String> = vms.iter().map(words).collect();
    format!("Running: {}", each.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observation(vms: &[(&str, u32)]) -> Observation {
        let seen = |&(name, pid): &(&str, u32)| {
            VmObservation::of_clients(VmKey { name: name.into(), pid, started: 1 }, Vec::new())
        };
        Observation { vms: vms.iter().map(seen).collect(), ..Observation::default() }
    }

    #[test]
    fn a_vm_is_found_by_each_of_its_names() {
        let mut observation = observation(&[("web", 7), ("db", 8), ("9", 10)]);
        observation.vms[1].uuid = Some("ABC".to_owned());
        let pid = |choice| choose(&observation, choice).map(|vm| vm.pid);
        assert_eq!(pid("web").unwrap(), 7);
        assert_eq!(pid("7").unwrap(), 7);
        assert_eq!(pid("abc").unwrap(), 8);
        assert_eq!(pid("9").unwrap(), 10, "a name that is a number is a name first");
        let error = pid("nothing").unwrap_err().to_string();
        assert!(error.contains("web (process 7), db (process 8)"), "{error}");
    }

    #[test]
    fn two_of_the_same_name_are_told_apart_by_process() {
        let observation = observation(&[("web", 7), ("web", 8)]);
        let error = choose(&observation, "web").unwrap_err().to_string();
        assert!(error.contains("web (process 7), web (process 8)"), "{error}");
        assert_eq!(choose(&observation, "8").unwrap().pid, 8);
    }
}

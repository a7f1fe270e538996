//! Which VM a user means: by name, Proxmox's number (VMID), UUID or process number.
//!
//! Anybody can give a process any name and UUID. So what root, libvirt and whoever asks call a VM
//! counts first, then numbers of processes, and what strangers call theirs last. A VMID is looked
//! for before a process number: who gives one means the VM of that number.

use crate::failure::bad_input;
use crate::nearest;
use scheduler::{Observation, VmKey, VmObservation};

/// The VM of the observation that `choice` names.
///
/// # Errors
/// Bad input: none, or several; with those that run.
pub(crate) fn choose(observation: &Observation, choice: &str) -> anyhow::Result<VmKey> {
    let by_name = |seen: &VmObservation| seen.vm.name == choice;
    let by_uuid = |seen: &VmObservation| seen.uuid.as_ref().is_some_and(|uuid| uuid.eq_ignore_ascii_case(choice));
    let by_process = |seen: &VmObservation| seen.vm.pid > 0 && choice.parse() == Ok(seen.vm.pid);
    let of = |wanted: &dyn Fn(&VmObservation) -> bool| -> Vec<&VmObservation> {
        observation.vms.iter().filter(|seen| wanted(seen)).collect()
    };
    let by_number = |seen: &VmObservation| seen.manager_id.as_deref() == Some(choice);
    let ways: [&dyn Fn(&VmObservation) -> bool; 5] = [
        &|seen| !seen.stranger && by_name(seen),
        &|seen| !seen.stranger && by_number(seen),
        &|seen| by_process(seen) || !seen.stranger && by_uuid(seen),
        &by_name,
        &by_uuid,
    ];
    let found = ways.iter().map(|wanted| of(wanted)).find(|found| !found.is_empty()).unwrap_or_default();
    match found[..] {
        [seen] => Ok(seen.vm.clone()),
        [] => Err(bad_input(format!(
            "{choice}: no VM of this name, VMID, UUID or process number runs here. {}",
            offered(choice, &of(&|_| true))
        ))),
        _ => Err(bad_input(format!(
            "{choice}: {} VMs have this name: give the process number. {}",
            found.len(),
            listed(&found)
        ))),
    }
}

/// Those that are meant most likely, of all that run.
fn offered(choice: &str, vms: &[&VmObservation]) -> String {
    if vms.is_empty() {
        return "No VM runs that this user can see".to_owned();
    }
    let nearest = nearest::names(choice, vms.iter().map(|seen| seen.vm.name.as_str()));
    let of = |name: &&str| vms.iter().find(|seen| seen.vm.name == **name).copied();
    let shown: Vec<&VmObservation> = nearest.iter().filter_map(of).collect();
    if shown.len() == vms.len() {
        return listed(vms);
    }
    let more = vms.len() - shown.len();
    let run = if more == 1 { "runs" } else { "run" };
    let named = listed(&shown).replacen("Running", "Nearest", 1);
    format!("{named}; {more} more {run} (`homenode top`)")
}

fn listed(vms: &[&VmObservation]) -> String {
    let number = |seen: &VmObservation| seen.manager_id.as_ref().map_or_else(String::new, |id| format!("VMID {id}, "));
    let words = |seen: &&VmObservation| match (seen.vm.pid, seen.owner_uid) {
        (0, _) => seen.vm.name.clone(),
        (pid, None) => format!("{} ({}process {pid})", seen.vm.name, number(seen)),
        (pid, Some(owner)) => format!("{} ({}process {pid} of user {owner})", seen.vm.name, number(seen)),
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
    fn of_many_the_nearest_three_are_offered() {
        let names: Vec<String> = (0..60).map(|number| format!("web{number:02}")).collect();
        let vms: Vec<(&str, u32)> = names.iter().zip(100..).map(|(name, pid)| (name.as_str(), pid)).collect();
        let error = choose(&observation(&vms), "wbe07").unwrap_err().to_string();
        assert!(error.contains("Nearest: web07 (process 107), ") && error.contains("57 more run"), "{error}");
        assert!(error.len() < 200, "{error}");
    }

    #[test]
    fn a_vm_of_proxmox_is_found_by_its_vmid_before_a_process_of_that_number() {
        let mut observation = observation(&[("web", 70), ("db", 101), ("strange", 9)]);
        observation.vms[0].manager_id = Some("101".to_owned());
        (observation.vms[2].manager_id, observation.vms[2].stranger) = (Some("102".to_owned()), true);
        let pid = |choice: &str| choose(&observation, choice).map(|vm| vm.pid);
        assert_eq!(pid("101").unwrap(), 70);
        assert_eq!(pid("db").unwrap(), 101);
        let error = pid("102").unwrap_err().to_string();
        assert!(error.contains("web (VMID 101, process 70)"), "{error}");
    }

    #[test]
    fn two_of_the_same_name_are_told_apart_by_process() {
        let observation = observation(&[("web", 7), ("web", 8)]);
        let error = choose(&observation, "web").unwrap_err().to_string();
        assert!(error.contains("web (process 7), web (process 8)"), "{error}");
        assert_eq!(choose(&observation, "8").unwrap().pid, 8);
    }

    #[test]
    fn what_strangers_call_theirs_counts_last() {
        let mut observation = observation(&[("web", 7), ("web", 8), ("7", 9), ("other", 10)]);
        for stranger in &mut observation.vms[1..] {
            (stranger.stranger, stranger.owner_uid, stranger.uuid) = (true, Some(1001), Some("ABC".to_owned()));
        }
        let pid = |choice: &str| choose(&observation, choice).map(|vm| vm.pid).unwrap_or_default();
        // `7` is a process, although a stranger has a VM of that name.
        assert_eq!(["web", "7", "8", "other"].map(pid), [7, 7, 8, 10]);
        let error = choose(&observation, "abc").unwrap_err().to_string();
        assert!(error.contains("web (process 8 of user 1001), 7 (process 9 of user 1001)"), "{error}");
        observation.vms[0].uuid = Some("abc".to_owned());
        assert_eq!(choose(&observation, "ABC").unwrap().pid, 7);
    }
}

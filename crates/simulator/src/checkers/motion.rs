//! Moves are bounded, and nobody goes to and fro.

use super::{Checker, Client, Found, Step};
use scheduler::{Action, Moment, Observation};
use topology::CpuSet;

/// What a single action may carry beyond the limit of its period: limits are kept on average.
const SLACK_S: f64 = 1.0;

/// A client's time at one home.
#[derive(Clone, Debug)]
pub(super) struct Stay {
    taken: Moment,
    cpus: CpuSet,
    /// When it was first seen off these CPUs: nobody needs a binding for that, the kernel does it
    /// where they go offline.
    left: Option<Moment>,
}

fn cpus_of(observation: &Observation, client: &Client) -> Option<CpuSet> {
    let vm = observation.vms.iter().find(|vm| vm.vm == client.0)?;
    Some(vm.clients.iter().find(|one| one.id == client.1)?.cpus.clone())
}

impl Checker {
    pub(super) fn motion(&mut self, step: &Step<'_>, found: &mut Found) {
        let now = step.before.at;
        self.see_who_left(step.before);
        let seconds = self.last.as_ref().map_or(2.0, |last| (now.0 - last.at.0) as f64 / 1000.0);
        let (mut moved, mut rebinds) = (0, 0);
        for (action, outcome) in step.actions {
            let Ok(done) = outcome else { continue };
            moved += done.moved.0;
            if done.moved.0 > 0 {
                self.last_move = Some(now);
            }
            let Action::Bind { vm, client, cpus, .. } = action else { continue };
            let client = (vm.clone(), *client);
            if cpus_of(step.before, &client).as_ref() == Some(cpus) {
                continue;
            }
            self.last_bind = Some(now);
            rebinds += u32::from(self.rebind(step, &client, cpus, found));
        }
        if let Some(limit) = self.limits.moved_bytes_per_second {
            let most = (limit as f64 * (seconds + SLACK_S)) as u64;
            found.unless(moved <= most, "bytes moved in a period", || {
                format!("{moved} B in {seconds} s, at most {most} B")
            });
        }
        if let Some(limit) = self.limits.rebinds_per_period {
            found.unless(rebinds <= limit, "moves in a period", || format!("{rebinds}, at most {limit}"));
        }
        self.homes.retain(|(vm, _), _| step.after.vms.iter().any(|other| other.vm == *vm));
    }

    /// Notes whose threads somebody took off their home since the last step.
    fn see_who_left(&mut self, seen: &Observation) {
        for (client, stays) in &mut self.homes {
            let (Some(stay), Some(cpus)) = (stays.last_mut(), cpus_of(seen, client)) else { continue };
            stay.left = if cpus.is_subset(&stay.cpus) { None } else { stay.left.or(Some(seen.at)) };
        }
    }

    /// Notes the new home; whether it counts as a move of the balancer's own will.
    fn rebind(&mut self, step: &Step<'_>, client: &Client, cpus: &CpuSet, found: &mut Found) -> bool {
        let now = step.before.at;
        let window_ms = (self.limits.return_s * 1000.0) as u64;
        let turn_ms = (self.limits.turn_s * 1000.0) as u64;
        let away_ms = if step.turns.contains(client) { turn_ms } else { window_ms };
        let online: CpuSet = step.before.nodes.values().flat_map(|node| node.cpus.iter()).collect();
        let stays = self.homes.entry(client.clone()).or_default();
        // The home before the last one.
        let before = stays.len().checked_sub(2).map(|index| &stays[index]);
        let returns =
            before.is_some_and(|stay| stay.cpus == *cpus && stay.left.is_some_and(|left| now.0 < left.0 + away_ms));
        let calm = now.0 >= self.hardware_changed.0 + window_ms || self.hardware_changed.0 == 0;
        found.unless(!returns || !calm, "to and fro", || {
            let at_s: Vec<f64> = stays.iter().map(|stay| stay.taken.0 as f64 / 1000.0).collect();
            format!("{} client {}: back to CPUs {cpus}; homes taken at {at_s:?} s", client.0.name, client.1.0)
        });
        let current = stays.last_mut().map(|stay| {
            stay.left.get_or_insert(now);
            stay.cpus.clone()
        });
        stays.push(Stay { taken: now, cpus: cpus.clone(), left: None });
        // It had a home that is still there, no CPUs came or went of late, and its threads had not
        // been taken off it by somebody else.
        calm && current
            .is_some_and(|home| home.is_subset(&online) && cpus_of(step.before, client).as_ref() == Some(&home))
    }
}

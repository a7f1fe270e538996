//! A trace from what was seen of a real host: when its VMs came and went, what they wanted and how
//! much memory they had touched.
//!
//! **Rule.** What a client wanted is the CPU time that it used and waited for, as a mean over half
//! a minute; its memory is what was resident at most by then. Where it ran and where its memory lay
//! is left out: that is what a policy decides.
//!
//! **What is assumed.** How it uses memory (`mixed`) and how much its virtual nodes use of each
//! other's: no observation says so. **What is left out, and said.** VMs whose memory or CPU time
//! was never readable: unknown is not zero.

use super::{Arrival, Trace};
use crate::Profile;
use crate::host::{ClientShape, Phase, Reuse, VmShape};
use scheduler::{ClientObservation, Moment, Observation, VmKey, VmObservation};
use std::collections::BTreeMap;
use topology::Bytes;

/// Over which demands are averaged, in milliseconds.
const WINDOW_MS: u64 = 30_000;
/// Part of the traffic of a virtual node that goes to the others of its VM, as generated traces
/// have it.
const SIBLING_PART: f64 = 0.15;

/// Collects a trace, look by look.
#[derive(Clone, Debug, Default)]
pub struct RecordedTrace {
    began: Option<Moment>,
    last: Moment,
    vms: BTreeMap<VmKey, Life>,
}

/// What was seen of a VM.
#[derive(Clone, Debug)]
struct Life {
    at: Moment,
    /// The first look without it.
    left: Option<Moment>,
    /// As it was seen last.
    seen: VmObservation,
    clients: Vec<Windows>,
}

/// What a client wanted, window by window.
#[derive(Clone, Debug, Default)]
struct Windows {
    /// By number of the window since the VM came: sum of demands, how many, most memory so far.
    of: BTreeMap<u64, (f64, u32, u64)>,
}

impl RecordedTrace {
    /// Takes note of a look. They come in the order of time.
    pub fn add(&mut self, observation: &Observation) {
        self.began.get_or_insert(observation.at);
        self.last = observation.at;
        for (key, life) in &mut self.vms {
            if life.left.is_none() && !observation.vms.iter().any(|seen| seen.vm == *key) {
                life.left = Some(observation.at);
            }
        }
        for seen in &observation.vms {
            let life = self.vms.entry(seen.vm.clone()).or_insert_with(|| Life {
                at: observation.at,
                left: None,
                seen: seen.clone(),
                clients: vec![Windows::default(); seen.clients.len()],
            });
            let window = observation.at.0.saturating_sub(life.at.0) / WINDOW_MS;
            for (windows, client) in life.clients.iter_mut().zip(&seen.clients) {
                windows.add(window, client);
            }
            life.seen.clone_from(seen);
        }
    }

    /// The trace, and what was left out of it, as sentences.
    pub fn finish(self, name: &str) -> (Trace, Vec<String>) {
        let began = self.began.unwrap_or_default();
        let since = |at: Moment| Moment(at.0.saturating_sub(began.0));
        let (mut arrivals, mut left_out) = (Vec::new(), Vec::new());
        for (key, life) in self.vms {
            let clients: Option<Vec<ClientShape>> = life
                .clients
                .iter()
                .zip(&life.seen.clients)
                .map(|(windows, seen)| windows.client(seen, &life))
                .collect();
            let Some(clients) = clients else {
                left_out.push(format!("VM {}: its CPU time or where its memory is was never readable", key.name));
                continue;
            };
            let (latency_sensitive, stated) = (life.seen.counts_full(), life.seen.stated());
            let VmObservation { mobility, shares, node_affinity, .. } = life.seen;
            let name = key.name;
            let vm = VmShape { name, shares, mobility, node_affinity, latency_sensitive, stated, guest: None, clients };
            arrivals.push(Arrival { at: since(life.at), leaves: life.left.map(since), vm });
        }
        arrivals.sort_by_key(|arrival| arrival.at);
        (Trace { name: name.to_owned(), seed: None, ends: since(self.last), arrivals }, left_out)
    }
}

impl Windows {
    fn add(&mut self, window: u64, client: &ClientObservation) {
        let before = self.of.last_key_value().map_or(0, |(_, known)| known.2);
        let Some(memory) = &client.memory else { return };
        let (Some(used), Some(waited)) = (client.cpu_used, client.cpu_waited) else { return };
        let entry = self.of.entry(window).or_insert((0.0, 0, before));
        let wanted = (used + waited).clamp(0.0, f64::from(client.vcpus.max(1)));
        let resident: u64 = memory.values().map(|bytes| bytes.0).sum();
        *entry = (entry.0 + wanted, entry.1 + 1, entry.2.max(resident));
    }

    /// `None` where nothing is known of it.
    fn client(&self, seen: &ClientObservation, life: &Life) -> Option<ClientShape> {
        let most = self.of.last_key_value().map(|(_, known)| known.2)?;
        let phase = |(index, (window, (sum, count, resident))): (usize, (&u64, &(f64, u32, u64)))| Phase {
            // Before the first figure it wanted what it wanted then.
            after_ms: if index == 0 { 0 } else { window * WINDOW_MS },
            busy: (sum / f64::from((*count).max(1)) * 1000.0).round() / 1000.0,
            resident: Bytes(*resident),
            profile: Profile::mixed(),
            reuse: Reuse::mixed(Bytes(Reuse::USUAL_FOR_A_VCPU.0 * u64::from(seen.vcpus.max(1)))),
        };
        Some(ClientShape {
            vcpus: seen.vcpus.max(1),
            memory: Bytes(seen.memory_size.0.max(most)),
            held_part: 0.0,
            sibling_part: if life.seen.clients.len() > 1 { SIBLING_PART } else { 0.0 },
            phases: self.of.iter().enumerate().map(phase).collect(),
        })
    }
}

//! Memory devices that are bound by themselves, elsewhere than their virtual node lives.
//!
//! **Rule.** A device counts with its virtual node: bound to no node where vCPUs of that may run,
//! all of it is remote. `<memnode>` says nothing of it: what the device says goes before that.
//!
//! **Example.** vCPUs of virtual node 0 are pinned to node 0, and a DIMM of it has
//! `<nodemask>1</nodemask>`.

use super::list;
use crate::finding::{Aspect, Finding, Harm};
use crate::scene::{NodeView, Scene, named};
use crate::shaped::BoundDevice;
use topology::Bytes;

const REMOTE: &str = "the guest takes it for memory of that virtual node, and every access goes over the links \
    between the nodes";

pub(crate) fn findings(scene: &Scene<'_>) -> Vec<Finding> {
    let view_of = |device: &BoundDevice| scene.views.iter().find(|view| view.node.id == device.virtual_node);
    let away: Vec<(&BoundDevice, &NodeView<'_>)> = scene
        .vm
        .bound_devices
        .iter()
        .filter_map(|device| Some((device, view_of(device)?)))
        .filter(|(device, view)| !view.runs_on.is_empty() && device.nodes.intersection(&view.runs_on).is_empty())
        .collect();
    let Some((first, view)) = away.first() else { return Vec::new() };
    let given: Bytes = away.iter().map(|(device, _)| device.given).sum();
    let sentence = match away.len() {
        1 => format!(
            "a memory device of {} ({given}) is bound to {}, and its vCPUs run on {}",
            view.called(scene.vm),
            named(&first.nodes),
            named(&view.runs_on)
        ),
        count => {
            format!("{count} memory devices ({given}) are bound to nodes where vCPUs of their virtual nodes do not run")
        }
    };
    let seen = |(device, view): &(&BoundDevice, &NodeView<'_>)| {
        format!(
            "{}: {} on {}, vCPUs on {}",
            view.called(scene.vm),
            device.given,
            named(&device.nodes),
            named(&view.runs_on)
        )
    };
    let seen: Vec<String> = away.iter().map(seen).collect();
    let found = Finding::new("device_memory_away", Harm::Waits, sentence, REMOTE).seen(list(&seen));
    let found = found.at(away.iter().filter_map(|(device, _)| device.spot.clone()));
    vec![found.cure("bind it where its virtual node lives", &[Aspect::Home])]
}

//! What the switches of a configuration carried, as the kernel counts it.
//!
//! **Rule.** Counters only grow; what a visit sent is what they say after it less what they said
//! before it, warm-ups included. A switch has one line for what its VMs sent and were sent, and one
//! for each direction of a link. A link whose frames wait for its rate is busy; one that drops
//! frames is saturated.
//!
//! **Example.** Before: 100 frames of VMs on `lan`. After: 350. The visit sent 250.

use network::{SwitchSeen, Traffic};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What went one way, between two readings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Carried {
    /// The switch.
    pub switch: String,
    /// The switch at the other end of a link; `None`: the cards of VMs in the switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Bytes of Ethernet frames that VMs sent, or that went over the link.
    pub bytes: u64,
    /// The frames, as the kernel hands them on: one may be several on a wire.
    pub frames: u64,
    /// Frames that a guest or the link did not take.
    pub dropped: u64,
    /// Times that a frame waited for the link's rate.
    pub waits: u64,
}

/// The counters, one by one.
pub(crate) fn counted(seen: &[SwitchSeen]) -> Vec<Carried> {
    seen.iter().flat_map(of_switch).collect()
}

fn of_switch(seen: &SwitchSeen) -> Vec<Carried> {
    let line = |to: Option<&String>, sent: Traffic, dropped: u64, waits: u64| Carried {
        switch: seen.name.clone(),
        to: to.cloned(),
        bytes: sent.bytes,
        frames: sent.frames,
        dropped,
        waits,
    };
    let of_vms = seen.ports.iter().fold(Traffic::default(), |all, port| Traffic {
        bytes: all.bytes + port.from_vm.bytes,
        frames: all.frames + port.from_vm.frames,
        dropped: all.dropped + port.from_vm.dropped + port.to_vm.dropped,
    });
    let vms = (!seen.ports.is_empty()).then(|| line(None, of_vms, of_vms.dropped, 0));
    let links = seen.links.iter().map(|link| line(Some(&link.to), link.sent, link.sent.dropped, link.waits));
    vms.into_iter().chain(links).collect()
}

/// What was counted after `before`.
pub(crate) fn since(before: &[Carried], after: Vec<Carried>) -> Vec<Carried> {
    let less = |now: Carried| {
        let same = before.iter().find(|then| then.switch == now.switch && then.to == now.to);
        let Some(then) = same else { return now };
        Carried {
            bytes: now.bytes.saturating_sub(then.bytes),
            frames: now.frames.saturating_sub(then.frames),
            dropped: now.dropped.saturating_sub(then.dropped),
            waits: now.waits.saturating_sub(then.waits),
            ..now
        }
    };
    after.into_iter().map(less).collect()
}

/// The sums over several visits, by switch and by link.
pub(crate) fn sum<'a>(visits: impl Iterator<Item = &'a Carried>) -> Vec<Carried> {
    let mut all: BTreeMap<(&str, Option<&str>), Carried> = BTreeMap::new();
    for one in visits {
        let sum = all.entry((one.switch.as_str(), one.to.as_deref())).or_insert_with(|| Carried {
            switch: one.switch.clone(),
            to: one.to.clone(),
            ..Carried::default()
        });
        sum.bytes += one.bytes;
        sum.frames += one.frames;
        sum.dropped += one.dropped;
        sum.waits += one.waits;
    }
    all.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use network::{LinkSeen, PortSeen, SwitchKind};

    fn traffic(bytes: u64, frames: u64, dropped: u64) -> Traffic {
        Traffic { bytes, frames, dropped }
    }

    fn lan(frames: u64, waits: u64) -> SwitchSeen {
        let port = |port: &str| PortSeen {
            port: port.to_owned(),
            from_vm: traffic(60 * frames, frames, 0),
            to_vm: traffic(0, 0, 1),
        };
        let sent = traffic(120 * frames, 2 * frames, 3);
        let link = LinkSeen { to: "core".to_owned(), rate: None, delay: None, sent, waits };
        SwitchSeen {
            name: "lan".to_owned(),
            kind: SwitchKind::Kernel,
            ports: vec![port("a/0"), port("b/0")],
            links: vec![link],
        }
    }

    #[test]
    fn a_visit_carried_what_the_counters_say_after_it_less_before_it() {
        let carried = since(&counted(&[lan(100, 5)]), counted(&[lan(350, 9)]));
        // Two VMs sent 250 frames of 60 bytes each, the link 500 of them; what was dropped was
        // before.
        let vms = Carried { switch: "lan".to_owned(), bytes: 30_000, frames: 500, ..Carried::default() };
        let link = Carried { to: Some("core".to_owned()), waits: 4, ..vms.clone() };
        assert_eq!(carried, [vms, link]);
        let twice = sum(carried.iter().chain(&carried));
        assert_eq!(twice[0].frames, 1000);
        assert_eq!((twice[1].to.as_deref(), twice[1].waits, twice.len()), (Some("core"), 8, 2));
    }

    #[test]
    fn a_switch_that_nobody_is_plugged_into_has_its_links_only() {
        let core = SwitchSeen { ports: Vec::new(), ..lan(1, 0) };
        assert_eq!(counted(&[core]).len(), 1);
    }
}

//! What VMs exchange over the switches that `homenode switch create` made for this user: for a
//! balancer that draws such VMs together (`communication_percent`).
//!
//! **Rule.** The keeper of the switches is asked once a period; what its ports counted since the
//! last look is divided among the VMs of a switch ([`Exchange::of_switch`]).
//!
//! **Properties.** The first look at a port says nothing, nor does one whose counters went back. A
//! port of a VM that is not in the observation counts as nobody's, and VMs of strangers are not
//! asked about. What goes over links to other switches is left out. A keeper that does not answer
//! is left alone for a minute.

use crate::switches;
use network::{Fabric, PortSeen, SwitchSeen};
use qemu::RuntimeDir;
use scheduler::{Exchange, Moment, Observation, PortRates, VmKey};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// So long a keeper that does not answer is not asked again.
const LEFT_ALONE_MS: u64 = 60_000;

/// Bytes that a port has sent and received so far, by switch and port.
type Counted = BTreeMap<(String, String), (u64, u64)>;

/// What the ports of switches counted at the last look.
pub(crate) struct SwitchExchanges {
    place: PathBuf,
    before: Option<(Moment, Counted)>,
    not_before: Moment,
}

impl SwitchExchanges {
    /// Of the switches of whoever runs this.
    ///
    /// # Errors
    /// There is no runtime directory.
    pub(crate) fn of_this_user() -> anyhow::Result<Self> {
        Ok(Self { place: switches::place(&RuntimeDir::open()?), before: None, not_before: Moment(0) })
    }

    /// What the VMs of this observation exchanged since the last one.
    pub(crate) fn now(&mut self, observation: &Observation) -> Vec<Exchange> {
        if observation.at < self.not_before {
            return Vec::new();
        }
        let seen = Fabric::kept(&self.place).and_then(|fabric| fabric.map_or(Ok(Vec::new()), |mut kept| kept.seen()));
        match seen {
            Ok(switches) => self.since_last(observation, &switches),
            Err(_) => {
                (self.before, self.not_before) = (None, Moment(observation.at.0 + LEFT_ALONE_MS));
                Vec::new()
            }
        }
    }

    fn since_last(&mut self, observation: &Observation, switches: &[SwitchSeen]) -> Vec<Exchange> {
        let counted = counted(switches);
        let before = self.before.replace((observation.at, counted.clone()));
        let Some((at, before)) = before.filter(|(at, _)| *at < observation.at) else { return Vec::new() };
        let seconds = (observation.at.0 - at.0) as f64 / 1000.0;
        let rates = |switch: &SwitchSeen, port: &PortSeen| {
            let place = (switch.name.clone(), port.port.clone());
            let (now, then) = (counted.get(&place)?, before.get(&place)?);
            let rate = |now: u64, then: u64| Some(now.checked_sub(then)? as f64 / seconds);
            let (sent, received) = (rate(now.0, then.0)?, rate(now.1, then.1)?);
            Some(PortRates { vm: vm_of(observation, &port.port)?, sent, received })
        };
        let of_switch = |switch: &SwitchSeen| {
            let ports: Vec<PortRates> = switch.ports.iter().filter_map(|port| rates(switch, port)).collect();
            Exchange::of_switch(&ports)
        };
        switches.iter().flat_map(of_switch).collect()
    }
}

fn counted(switches: &[SwitchSeen]) -> Counted {
    let of = |switch: &SwitchSeen| {
        let name = switch.name.clone();
        let port = |port: &PortSeen| ((name.clone(), port.port.clone()), (port.from_vm.bytes, port.to_vm.bytes));
        switch.ports.iter().map(port).collect::<Vec<_>>()
    };
    switches.iter().flat_map(of).collect()
}

/// The VM of a port, which is called `VM/CARD`.
fn vm_of(observation: &Observation, port: &str) -> Option<VmKey> {
    let (name, _) = port.rsplit_once('/')?;
    let its = observation.vms.iter().find(|seen| seen.vm.name == name && !seen.stranger)?;
    Some(its.vm.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use network::Traffic;
    use scheduler::{ClientObservation, VmObservation};

    fn switch(ports: &[(&str, u64, u64)]) -> SwitchSeen {
        let traffic = |bytes: u64| Traffic { bytes, ..Traffic::default() };
        let port = |&(port, sent, received): &(&str, u64, u64)| PortSeen {
            port: port.to_owned(),
            from_vm: traffic(sent),
            to_vm: traffic(received),
        };
        let ports = ports.iter().map(port).collect();
        SwitchSeen { name: "lan".to_owned(), kind: Default::default(), ports, links: Vec::new() }
    }

    fn observation(at: u64) -> Observation {
        let vm = |(index, name): (usize, &str)| {
            let key = VmKey { name: name.to_owned(), pid: index as u32 + 1, started: 1 };
            VmObservation::of_clients(key, vec![ClientObservation::default()])
        };
        Observation { at: Moment(at), vms: ["a", "b"].into_iter().enumerate().map(vm).collect(), ..Default::default() }
    }

    #[test]
    fn what_ports_counted_between_two_looks_is_exchanged() {
        let mut counted = SwitchExchanges { place: PathBuf::new(), before: None, not_before: Moment(0) };
        let first = [switch(&[("a/0", 1000, 500), ("b/0", 500, 1000), ("gone/0", 9, 9)])];
        assert_eq!(counted.since_last(&observation(1000), &first), []);
        // In 2 s a sent 4000 bytes to b, and b 2000 to a: 3000 a second. A port of a VM that nobody
        // sees is nobody's.
        let second = [switch(&[("a/0", 5000, 2500), ("b/0", 2500, 5000), ("gone/0", 99, 99)])];
        let exchanged = counted.since_last(&observation(3000), &second);
        let [exchange] = &exchanged[..] else { panic!("{exchanged:?}") };
        assert_eq!((exchange.one.name.as_str(), exchange.other.name.as_str()), ("a", "b"));
        assert_eq!(exchange.bytes_per_second, 3000.0);
        // b has started again: its counters went back, and say nothing.
        let third = [switch(&[("a/0", 6000, 2500), ("b/0", 0, 1000), ("gone/0", 99, 99)])];
        assert_eq!(counted.since_last(&observation(5000), &third), []);
        // The same moment again has no rate.
        assert_eq!(counted.since_last(&observation(5000), &third), []);
    }

    #[test]
    fn where_there_are_no_switches_nothing_is_exchanged() {
        let directory = tempfile::tempdir().expect("a directory");
        let place = directory.path().to_owned();
        let mut counted = SwitchExchanges { place, before: None, not_before: Moment(0) };
        assert_eq!(counted.now(&observation(1000)), []);
    }
}

//! What VMs exchange with each other.
//!
//! **Problem.** A switch counts bytes port by port; who sent them to whom it does not say.
//!
//! **Rule.** What a port sent went to the other ports of its switch in the proportion of what these
//! received, as far as nobody knows better.
//!
//! **Properties.** On a switch of two VMs it is exact. What a VM sends is never counted twice.
//!
//! **Example.** `db` sent 6 GB/s and received 2, `web` and `app` received 4 and 2 and sent one
//! each: `db` to `web` 6 x 4 / 6 = 4 GB/s, to `app` 2.

use crate::VmKey;
use serde::{Deserialize, Serialize};

/// Bytes that two VMs exchange, both ways together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exchange {
    /// The one.
    pub one: VmKey,
    /// The other.
    pub other: VmKey,
    /// In a second.
    pub bytes_per_second: f64,
}

/// A VM's port on a switch: bytes a second that it sent and received.
#[derive(Clone, Debug, PartialEq)]
pub struct PortRates {
    /// Whose.
    pub vm: VmKey,
    /// From the VM.
    pub sent: f64,
    /// To the VM.
    pub received: f64,
}

impl Exchange {
    /// What the VMs of one switch exchange, by what its ports counted.
    pub fn of_switch(ports: &[PortRates]) -> Vec<Self> {
        let to = |from: usize, to: usize| {
            let others: f64 =
                ports.iter().enumerate().filter(|(port, _)| *port != from).map(|(_, port)| port.received).sum();
            if others > 0.0 { ports[from].sent * ports[to].received / others } else { 0.0 }
        };
        let pairs = (0..ports.len()).flat_map(|one| (one + 1..ports.len()).map(move |other| (one, other)));
        let exchange = |(one, other): (usize, usize)| Self {
            one: ports[one].vm.clone(),
            other: ports[other].vm.clone(),
            bytes_per_second: to(one, other) + to(other, one),
        };
        let all = pairs.filter(|&(one, other)| ports[one].vm != ports[other].vm).map(exchange);
        all.filter(|exchange| exchange.bytes_per_second > 0.0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(name: &str, sent: f64, received: f64) -> PortRates {
        PortRates { vm: VmKey { name: name.to_owned(), pid: 1, started: 1 }, sent, received }
    }

    fn of(ports: &[PortRates]) -> Vec<(String, f64)> {
        let named = |exchange: Exchange| (format!("{} {}", exchange.one.name, exchange.other.name), exchange);
        Exchange::of_switch(ports).into_iter().map(named).map(|(names, all)| (names, all.bytes_per_second)).collect()
    }

    #[test]
    fn two_vms_exchange_all_that_they_send() {
        assert_eq!(of(&[port("a", 3.0, 1.0), port("b", 1.0, 3.0)]), [("a b".to_owned(), 4.0)]);
        assert_eq!(of(&[port("a", 3.0, 0.0)]), []);
    }

    #[test]
    fn several_share_by_what_they_received() {
        // db to web: 6 x 4 / 6 = 4. web to db: 1 x 2 / (2 + 2) = 0.5; app to db: 1 x 2 / (2 + 4) =
        // 1/3.
        let exchanges = of(&[port("db", 6.0, 2.0), port("web", 1.0, 4.0), port("app", 1.0, 2.0)]);
        assert_eq!(exchanges[0], ("db web".to_owned(), 4.5));
        let all: f64 = exchanges.iter().map(|(_, bytes)| bytes).sum();
        assert!((all - 8.0).abs() < 1e-9, "{exchanges:?}");
    }
}

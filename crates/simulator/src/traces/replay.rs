//! A trace on a host: VMs start and end at their moments.

use super::{Arrival, Trace};
use crate::SolveError;
use crate::host::SimulatedHost;
use scheduler::{Moment, VmKey};
use std::collections::BTreeMap;

/// How far a trace has come.
#[derive(Clone, Debug)]
pub struct Replay {
    arrivals: Vec<Arrival>,
    next: usize,
    leaving: BTreeMap<(Moment, u32), VmKey>,
}

impl Replay {
    /// At the beginning.
    pub fn new(trace: &Trace) -> Self {
        Self { arrivals: trace.arrivals.clone(), next: 0, leaving: BTreeMap::new() }
    }

    /// Lets the host's time pass up to `to`; VMs start and end meanwhile. `started` is called right
    /// after each start.
    ///
    /// # Errors
    /// As [`SimulatedHost::advance`].
    pub fn advance(
        &mut self,
        host: &mut SimulatedHost,
        to: Moment,
        mut started: impl FnMut(&mut SimulatedHost, &VmKey),
    ) -> Result<(), SolveError> {
        loop {
            let arrival = self.arrivals.get(self.next).filter(|arrival| arrival.at <= to);
            let leaving = self.leaving.first_key_value().filter(|((at, _), _)| *at <= to);
            let leaves_first = |at: Moment| leaving.is_some_and(|((leaves, _), _)| *leaves <= at);
            match (arrival, leaving.map(|(key, _)| *key)) {
                (Some(arrival), _) if !leaves_first(arrival.at) => {
                    host.advance(arrival.at)?;
                    let key = host.start(&arrival.vm);
                    if let Some(leaves) = arrival.leaves {
                        self.leaving.insert((leaves, key.pid), key.clone());
                    }
                    self.next += 1;
                    started(host, &key);
                }
                (_, Some(first)) => {
                    host.advance(first.0)?;
                    if let Some(key) = self.leaving.remove(&first) {
                        // It may have died before its time.
                        host.end(&key);
                    }
                }
                _ => return host.advance(to),
            }
        }
    }
}

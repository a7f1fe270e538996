//! The switches of a configuration, in a network namespace of their own that goes with this value,
//! and with this process however it ends.

use network::{Fabric, NetworkError, Switch, SwitchSeen};
use std::path::Path;
use vm::Launch;
use vm::spec::{Network, Outlet};

pub(crate) struct Wiring(Fabric);

impl Wiring {
    /// Makes the switches. `homenode`: the program whose `switch keep` keeps them.
    ///
    /// # Errors
    /// This user may not have a network namespace, or this kernel has no such switch.
    pub(crate) fn of(homenode: &Path, switches: &[Switch]) -> Result<Self, NetworkError> {
        // The keeper enters a namespace when a switch needs one.
        let mut fabric = Fabric::without_namespace(homenode)?;
        switches.iter().try_for_each(|switch| fabric.add(switch))?;
        Ok(Self(fabric))
    }

    /// Plugs the cards of a VM in, before it starts.
    ///
    /// # Errors
    /// This user may have no tap device.
    pub(crate) fn plug(&mut self, launch: &mut Launch) -> Result<(), NetworkError> {
        for (index, network) in launch.spec.networks.iter().enumerate() {
            let Network::Plugged { into: Outlet::Switch(switch), card } = network else { continue };
            let tap = self.0.plug(switch, &format!("{}/{index}", launch.spec.name), card.queues)?;
            launch.taps.insert(index, tap);
        }
        Ok(())
    }

    /// What went through them.
    ///
    /// # Errors
    /// Who keeps them is gone.
    pub(crate) fn seen(&mut self) -> Result<Vec<SwitchSeen>, NetworkError> {
        self.0.seen()
    }
}

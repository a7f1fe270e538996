//! Cards of VMs in the switches that `homenode switch create` made.

use crate::failure::bad_input;
use network::{Fabric, NetworkError, listed};
use qemu::RuntimeDir;
use std::path::PathBuf;
use std::sync::Arc;
use vm::Launch;
use vm::spec::Network;

/// Where the keeper of this user's switches is reached: no VM's name begins with a dot.
pub(crate) fn place(directory: &RuntimeDir) -> PathBuf {
    directory.path().join(".switches")
}

/// Plugs the VM's cards in, before it starts.
///
/// # Errors
/// A switch is not there, or this user may have no tap device.
pub(crate) fn plug(directory: &RuntimeDir, launch: &mut Launch) -> anyhow::Result<()> {
    let vm = &launch.spec.name;
    let mut fabric = None;
    for (index, card) in launch.spec.networks.iter().enumerate() {
        let Network::Switch { switch, queues, .. } = card else { continue };
        if fabric.is_none() {
            fabric = Fabric::kept(&place(directory))?;
        }
        let missing = |why: NetworkError| match why.is_input() {
            true => bad_input(format!(
                "VM {vm}: network[{index}].switch: {why}: `homenode switch create {switch}` makes it"
            )),
            false => why.into(),
        };
        let none = || NetworkError::NoSuchSwitch { name: switch.to_string(), there: listed([].iter()) };
        let fabric = fabric.as_mut().ok_or_else(|| missing(none()))?;
        let taps = fabric.tap(switch, &format!("{vm}/{index}"), *queues).map_err(missing)?;
        launch.taps.insert(index, taps.into_iter().map(Arc::new).collect());
    }
    Ok(())
}

/// The exit code that fits.
pub(crate) fn failure(error: NetworkError) -> anyhow::Error {
    if error.is_input() { bad_input(error.to_string()) } else { error.into() }
}

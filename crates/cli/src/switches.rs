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
        let missing = |there: String| {
            bad_input(format!(
                "VM {vm}: network[{index}].switch: `{switch}`: there is no such switch; there is {there}: `homenode switch \
                 create {switch}` makes it"
            ))
        };
        let Some(fabric) = &mut fabric else { return Err(missing(listed([].iter()))) };
        let there = fabric.seen()?;
        if !there.iter().any(|known| known.name == switch.as_ref()) {
            let names: Vec<&str> = there.iter().map(|known| known.name.as_str()).collect();
            return Err(missing(names.join(", ")));
        }
        let taps = fabric.tap(switch, &format!("{vm}/{index}"), *queues)?;
        launch.taps.insert(index, taps.into_iter().map(Arc::new).collect());
    }
    Ok(())
}

/// The exit code that fits.
pub(crate) fn failure(error: NetworkError) -> anyhow::Error {
    if error.is_input() { bad_input(error.to_string()) } else { error.into() }
}

//! Cards of VMs: in switches that `homenode switch create` made, on bridges and on cards of the
//! host.

use crate::failure::bad_input;
use crate::output;
use network::host::{self, MadeBy, Owner};
use network::{Fabric, NetworkError, listed};
use qemu::RuntimeDir;
use std::path::PathBuf;
use vm::backend::ReachedBy;
use vm::spec::{InterfaceName, LibvirtNetworkName, Network, Outlet, SwitchName};
use vm::{Launch, Tap};

/// Where the keeper of this user's switches is reached: no VM's name begins with a dot.
pub(crate) fn place(directory: &RuntimeDir) -> PathBuf {
    directory.path().join(".switches")
}

/// Where devices on cards of the host say that they are used.
fn macvtaps(directory: &RuntimeDir) -> PathBuf {
    directory.path().join(".macvtaps")
}

/// Takes away what VMs and keepers left that were killed.
pub(crate) fn sweep(directory: &RuntimeDir) {
    match host::sweep(&macvtaps(directory)) {
        Ok(of) => {
            for port in of {
                output::note(format_args!("the device of {port} on a card of the host was left over and is gone"));
            }
        }
        Err(error) => output::note(format_args!("devices on cards of the host may be left over: {error}")),
    }
    if let Err(error) = Fabric::forget_dead(&place(directory)) {
        output::note(error);
    }
}

/// Plugs the VM's cards in, before it starts or goes on: those of a QEMU that homenode starts.
/// libvirt makes the devices of its domains itself, and would leave ours beside them.
///
/// # Errors
/// A switch, a bridge or a card is not there, or this user may have no tap device.
pub(crate) fn plug(directory: &RuntimeDir, by: &ReachedBy, launch: &mut Launch) -> anyhow::Result<()> {
    if *by != ReachedBy::Qemu {
        return Ok(());
    }
    let vm = launch.spec.name.clone();
    let mut fabric = None;
    for (index, network) in launch.spec.networks.iter().enumerate() {
        let Network::Plugged { into, card } = network else { continue };
        let owner = Owner { vm: &vm, card: index, mac: card.address(&vm, index), queues: card.queues };
        let fault = |field: &str, why: NetworkError| match why.is_input() {
            true => bad_input(format!("VM {vm}: network[{index}].{field}: {why}")),
            false => anyhow::Error::from(why).context(format!("VM {vm}: network[{index}]")),
        };
        let tap = match into {
            Outlet::Switch(switch) => {
                let fault = |why: NetworkError| match why {
                    NetworkError::NoSuchSwitch { .. } | NetworkError::Input(_) => {
                        let why = NetworkError::Input(format!("{why}: `homenode switch create {switch}` makes it"));
                        fault("switch", why)
                    }
                    why @ NetworkError::AddressTaken { .. } => fault("mac", why),
                    why => why.into(),
                };
                in_switch(directory, &mut fabric, switch, owner).map_err(fault)?
            }
            Outlet::Bridge(bridge) => on_bridge(bridge, owner).map_err(|why| fault("bridge", why))?,
            Outlet::LibvirtNetwork(network) => {
                let bridge = bridge_of(network).map_err(|why| why.context(format!("VM {vm}: network[{index}]")))?;
                on_bridge(&bridge, owner).map_err(|why| fault("network", why))?
            }
            Outlet::Macvtap(of_host) => {
                host::on_card(&macvtaps(directory), of_host, owner).map_err(|why| fault("card", why))?
            }
        };
        launch.taps.insert(index, tap);
    }
    Ok(())
}

fn in_switch(
    directory: &RuntimeDir,
    fabric: &mut Option<Fabric>,
    switch: &SwitchName,
    owner: Owner<'_>,
) -> Result<Tap, NetworkError> {
    if fabric.is_none() {
        *fabric = Fabric::kept(&place(directory))?;
    }
    let none = || NetworkError::NoSuchSwitch { name: switch.to_string(), there: listed([].iter()) };
    let fabric = fabric.as_mut().ok_or_else(none)?;
    fabric.plug_card(switch, owner)
}

fn on_bridge(bridge: &InterfaceName, owner: Owner<'_>) -> Result<Tap, NetworkError> {
    let (tap, by) = host::on_bridge(bridge, owner)?;
    if let MadeBy::Helper(helper) = by {
        output::note(format_args!("card {} is plugged into {bridge} by {helper}", owner.card));
    }
    Ok(tap)
}

/// The bridge that a network of this host's libvirt has.
fn bridge_of(network: &LibvirtNetworkName) -> anyhow::Result<InterfaceName> {
    let told = libvirt::Connection::of_this_host("qemu:///system").ask(&["net-info", network.as_ref()])?;
    let value = |key: &str| told.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    if value("Active:").is_some_and(|active| active != "yes") {
        return Err(bad_input(format!("libvirt's network {network} does not run: virsh net-start {network}")));
    }
    let none = || bad_input(format!("libvirt's network {network} has no bridge on this host; name a card or a bridge"));
    value("Bridge:").and_then(|bridge| bridge.parse().ok()).ok_or_else(none)
}

/// The exit code that fits.
pub(crate) fn failure(error: NetworkError) -> anyhow::Error {
    if error.is_input() { bad_input(error.to_string()) } else { error.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vm::VmSpec;
    use vm::backend::DomainOf;

    #[test]
    fn libvirt_plugs_the_cards_of_its_domains_itself() {
        let spec: VmSpec = toml::from_str(
            "name = \"web\"\nvcpus = 1\nmemory = \"64 MiB\"\n[[network]]\nkind = \"bridge\"\nbridge = \"hn-none9\"\n",
        )
        .expect("a spec");
        let temporary = tempfile::tempdir().expect("a directory");
        let directory = RuntimeDir::at(temporary.path().join("run")).expect("a runtime directory");
        let machine = topology::read::from_synthetic("numa:1(memory=1GiB) core:2 pu:1").expect("a machine");
        let plan = scheduler::plan(&machine, &scheduler::Occupancy::default(), &spec).expect("a plan");
        let launch = || Launch::new(spec.clone(), plan.clone());
        let domain = DomainOf { uri: "qemu:///system".to_owned(), uuid: String::new(), adopted: false };
        let mut of_libvirt = launch();
        plug(&directory, &ReachedBy::Libvirt(domain), &mut of_libvirt).expect("nothing is plugged in");
        assert!(of_libvirt.taps.is_empty());
        let refused = plug(&directory, &ReachedBy::Qemu, &mut launch()).expect_err("there is no such bridge");
        assert!(refused.to_string().contains("hn-none9"), "{refused:#}");
    }
}

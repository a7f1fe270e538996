//! What homenode does for QEMUs that it starts itself, and libvirt cannot.

use vm::backend::ErrorKind;
use vm::spec::{Network, VmSpec};
use vm::{BackendError, Launch, Plan};

/// # Errors
/// A card is plugged into a switch of homenode's, or memory is to be divided by bandwidth.
pub(crate) fn check(launch: &Launch) -> Result<(), BackendError> {
    in_the_hosts_network(&launch.spec)?;
    undivided(&launch.spec.name, &launch.plan)
}

/// Parts of memory are put on nodes without CPUs before the guest runs, by a QEMU's starter.
fn undivided(name: &str, plan: &Plan) -> Result<(), BackendError> {
    if plan.placement.clients.iter().all(|client| client.far.is_empty()) {
        return Ok(());
    }
    let problem = format!(
        "VM `{name}`: policy.far_memory = \"by_bandwidth\": libvirt divides no memory by bandwidth: run it without \
         libvirt, or write \"when_full\""
    );
    Err(BackendError::new(ErrorKind::BadInput, problem))
}

/// libvirt opens tap devices in the host's own network, and a bridge there may have a switch's
/// name; homenode's switches are in a network namespace of their own.
fn in_the_hosts_network(spec: &VmSpec) -> Result<(), BackendError> {
    let plugged = |(index, network): (usize, &Network)| Some((index, network.switch()?.clone()));
    let Some((index, switch)) = spec.networks.iter().enumerate().find_map(plugged) else { return Ok(()) };
    let problem = format!(
        "network[{index}].switch = \"{switch}\": libvirt plugs no card into a switch of homenode's, which is in a \
         network namespace of its own: run it without libvirt, or name a bridge of the host or a network of libvirt \
         (kind = \"bridge\")"
    );
    Err(BackendError::new(ErrorKind::BadInput, problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_card_and_what_would_do_are_named() {
        let user = Network::User { forward: Vec::new() };
        let spec = |networks| VmSpec { networks, ..VmSpec::default() };
        assert!(in_the_hosts_network(&spec(vec![user.clone()])).is_ok());
        let switch = Network::in_switch("lan".parse().unwrap());
        let refused = in_the_hosts_network(&spec(vec![user, switch])).unwrap_err();
        assert!(refused.is_bad_input());
        let words = refused.to_string();
        assert!(words.contains("network[1].switch = \"lan\"") && words.contains("kind = \"bridge\""), "{words}");
    }
}

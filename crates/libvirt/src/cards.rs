//! Network cards that libvirt cannot plug in.

use vm::BackendError;
use vm::backend::ErrorKind;
use vm::spec::{Network, VmSpec};

/// libvirt opens tap devices in the host's own network, and a bridge there may have a switch's
/// name.
///
/// # Errors
/// A card is plugged into a switch of homenode's: that is in a network namespace of its own.
pub(crate) fn in_the_hosts_network(spec: &VmSpec) -> Result<(), BackendError> {
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

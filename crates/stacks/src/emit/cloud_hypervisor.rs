//! cloud_hypervisor.

use super::Emission;

pub(super) fn text(_emission: &Emission<'_>) -> Result<String, String> {
    Err("not there yet".to_owned())
}

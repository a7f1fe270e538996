//! What can go wrong between homenode and libvirt.

/// What can go wrong between homenode and libvirt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LibvirtError {
    /// There is no `virsh`.
    #[error("virsh cannot be started: {reason}. It comes with libvirt's clients (Debian: libvirt-clients)")]
    NoVirsh {
        /// The system's words.
        reason: String,
    },
    /// `virsh` failed.
    #[error("libvirt{}: {operation}: {words}", uri.as_ref().map(|uri| format!(" at {uri}")).unwrap_or_default())]
    Refused {
        /// Which libvirt.
        uri: Option<String>,
        /// What was asked.
        operation: String,
        /// What it said.
        words: String,
    },
}

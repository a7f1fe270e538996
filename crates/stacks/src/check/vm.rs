//! A VM as somebody else shaped it.

/// A VM as somebody else shaped it: from a libvirt domain, or from a running QEMU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShapedVm {
    /// Its name.
    pub name: String,
}

//! Starting a VM through libvirt.

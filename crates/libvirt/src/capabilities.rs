//! The machine of a libvirt, from its capabilities.

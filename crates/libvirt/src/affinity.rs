//! Affinities of domains, changed through libvirt.

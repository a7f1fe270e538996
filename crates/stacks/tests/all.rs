//! One test program: each further one would be linked with every crate below.

mod check;
mod check_distances;
mod check_growth;
mod check_movable;
mod check_proxmox;
mod check_proxmox_kinds;
mod check_refused;
mod cures;
mod domain_edit;
mod domain_planned;
mod domain_read;
mod domain_rehome;
mod emit_backing;
mod emit_caches;
mod emit_cards;
mod emit_clouds;
mod emit_libvirt;
mod emit_texts;
mod pins;
mod proxmox_cures;

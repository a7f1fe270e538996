//! Plans as texts for QEMU, Proxmox, cloud-hypervisor and systemd: what they are for VMs of several
//! shapes, whether they hold to what those stacks document, and what is refused.

mod cases;
mod cloud_hypervisor;
mod growth;
mod proxmox;
mod qemu;
mod systemd;
mod threads;
mod uefi;

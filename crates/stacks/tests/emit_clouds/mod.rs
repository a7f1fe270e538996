//! What the clouds' own code makes of the texts for KubeVirt and OpenStack Nova. docs/kubevirt.md
//! and docs/nova.md say what is proved by it.

mod cases;
mod judges;
mod kubevirt;
mod nova;

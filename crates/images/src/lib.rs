//! Systems for guests: a distribution's base with the packages that somebody wants, built once; and
//! what a disk image that somebody has needs to be one ([`OwnDisk`], [`seed`]).
//!
//! **Problem.** A program to be measured needs its libraries, natively and in a guest the same
//! ones. To install them takes minutes; root, and the host's own system, should not be needed.
//!
//! **Rule.** A [`Recipe`] says what is built: suite, architecture, packages with the versions that
//! the host's apt would install. Its key names a directory of the cache:
//!
//! ```text
//! KEY/recipe.json   what was asked for
//! KEY/root.ext4     the root file system, which any number of guests share (QEMU's snapshot=on)
//! KEY/tree/         the same files, for programs that run natively
//! ```
//!
//! It is built beside its place, by one homenode at a time, and then gets its name. `mmdebstrap`
//! makes an archive of the root file system; where there is no root it uses a user namespace, or
//! fakechroot (its own `--mode=auto`). `fakeroot` unpacks the archive, so that `mke2fs -d` gives
//! each file its owner and mode, while on disk all belongs to whoever builds. The agent is in no
//! image: the guest's initial RAM disk brings it, so that an image outlives a new homenode. apt's
//! sources are the host's own.
//!
//! **Properties.** An image is there whole or not at all; what a killed homenode left goes with the
//! next build. Images are never changed. The same recipe has the same key.
//!
//! **Example.** `Images::of_this_user().build(&recipe, ...)` of LAMMPS on Debian 12: two minutes
//! and 530 MB the first time, nothing the second.

mod apt;
mod boot_sector;
mod build;
mod error;
mod native;
mod own_disk;
mod recipe;
mod seed;
mod sources;
mod store;
mod tools;

pub use apt::recipe_of;
pub use boot_sector::bios_problem;
pub use build::Progress;
pub use error::ImagesError;
pub use own_disk::OwnDisk;
pub use recipe::Recipe;
pub use seed::{SeedFile, seed};
pub use store::{CACHE_VARIABLE, Image, Images};
pub use tools::Tools;

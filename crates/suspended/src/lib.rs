//! The file that a suspended VM is in.
//!
//! **Problem.** A file of gigabytes is the only copy of a guest. homenode, QEMU or the host may die
//! at any moment while it is written; later it may be cut, changed, or belong to another VM. A
//! guest that goes on with one wrong page corrupts its disks.
//!
//! **Rule.** One file holds everything:
//!
//! ```text
//! 0        magic, version, lengths, checksums                  80 bytes, see `head`
//!          the VM: its life, its manifest, as text
//! 1 MiB    the guest: pieces of at most 1 MiB, each compressed with zstd where that makes it
//!          smaller, each with its own checksum over its number, its length and its bytes
//! ```
//!
//! It is written beside its place as `NAME.unfinished`, with a head of zeros. The head comes last:
//! after it the file is synced, renamed, and its directory synced. Whoever reads it looks at the
//! head first, and then at each piece before a byte of it is passed on.
//!
//! What writes its guests into files of its own (libvirt) has the guest in a file beside this one,
//! `NAME.guest`; here is then its length and its checksum ([`beside`]).
//!
//! **Why these.** Checksums are XXH3 with 128 bits: as fast as memory, and no change by chance gets
//! past it. It is no seal against somebody who means harm: whoever may write the file may also
//! write a guest of his own into it. So the file is its owner's alone (mode 0600): it holds all
//! that the guest has in memory, keys and passwords as well. zstd at level 1 halves most memory and
//! is faster than most disks; pages of zeros are not in the stream at all.
//!
//! **Properties.** A kill at any moment leaves a file that can be read whole, or none of that name.
//! A file that was cut, or has any byte changed, is refused.
//!
//! **Example.**
//!
//! ```
//! # let directory = tempfile::tempdir().expect("a directory");
//! # let path = directory.path().join("web.homenode");
//! use std::io::{Read, Write, pipe};
//! let file = suspended::Unfinished::create(&path).expect("made");
//! let (from, mut into) = pipe().expect("a pipe");
//! let memory = topology::Bytes::MIB;
//! let filling = file.fill_from(from.into(), memory, Default::default()).expect("a thread");
//! into.write_all(b"all that the guest is").expect("written");
//! drop(into);
//! let written = filling.all().expect("written");
//! file.finish("the VM", &written).expect("synced and renamed");
//! let file = suspended::Opened::open(&path).expect("a file of a VM");
//! assert_eq!(file.about(), "the VM");
//! let (mut from, into) = pipe().expect("a pipe");
//! let pouring = file.pour_into(into.into()).expect("a thread");
//! let mut guest = String::new();
//! from.read_to_string(&mut guest).expect("it is read");
//! pouring.all().expect("it is whole");
//! assert_eq!(guest, "all that the guest is");
//! ```

mod about;
pub mod beside;
mod error;
mod head;
mod piece;
mod pipeline;
mod read;
mod write;

pub use about::{About, AboutError};
pub use error::FileError;
pub use read::{Opened, Pouring};
pub use write::{Filling, Unfinished, Written};

#[cfg(test)]
mod tests;

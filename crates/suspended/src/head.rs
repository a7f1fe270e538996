//! The beginning of the file: what it is, how long it must be, and the checksums.

use crate::FileError;
use std::path::Path;
use twox_hash::XxHash3_128;

/// Where the guest begins. The head and the text about the VM lie before it.
pub(crate) const GUEST_AT: u64 = 1 << 20;
/// Bytes of the head; the text follows.
pub(crate) const HEAD: usize = 80;
/// Most bytes of the text.
pub(crate) const LONGEST_ABOUT: usize = GUEST_AT as usize - HEAD;

const MAGIC: [u8; 16] = *b"homenode guest\n\0";
/// Of a file whose guest is in another file, beside it.
const MAGIC_BESIDE: [u8; 16] = *b"homenode beside\n";
const VERSION: u32 = 1;

/// What stands there, in this order, little endian: magic (16), version (4), length of the text
/// (4), bytes of all pieces in the file (8), bytes of the guest (8), number of pieces (8), sum of
/// the pieces' checksums (16), checksum of all before and of the text (16).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// Bytes of the text.
    pub(crate) about: u32,
    /// Bytes of all pieces in the file.
    pub(crate) stored: u64,
    /// Bytes of the guest.
    pub(crate) guest: u64,
    /// Pieces.
    pub(crate) pieces: u64,
    /// Sum of their checksums.
    pub(crate) sum: u128,
    /// Whether the guest is in a file beside this one: then `guest` is that file's length, `sum`
    /// its checksum, and the user whom it belongs to stands in place of the number of pieces.
    pub(crate) beside: bool,
}

impl Head {
    /// The bytes of the head and the text.
    pub(crate) fn encode(&self, about: &str) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD + about.len());
        bytes.extend(if self.beside { MAGIC_BESIDE } else { MAGIC });
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(self.about.to_le_bytes());
        bytes.extend(self.stored.to_le_bytes());
        bytes.extend(self.guest.to_le_bytes());
        bytes.extend(self.pieces.to_le_bytes());
        bytes.extend(self.sum.to_le_bytes());
        let checksum = checksum(&bytes, about.as_bytes());
        bytes.extend(checksum.to_le_bytes());
        bytes.extend(about.as_bytes());
        bytes
    }

    /// Reads the head; the text is checked by [`Head::check`] once its length is known.
    pub(crate) fn decode(bytes: &[u8; HEAD], path: &Path) -> Result<Self, FileError> {
        let other = |problem: String| FileError::Other { path: path.to_owned(), problem };
        if bytes.iter().all(|&byte| byte == 0) {
            return Err(other("it was not written to its end: homenode or the host ended meanwhile".to_owned()));
        }
        let beside = bytes[..16] == MAGIC_BESIDE;
        if bytes[..16] != MAGIC && !beside {
            return Err(other("no VM that homenode suspended is in it".to_owned()));
        }
        let number = |at: usize, length: usize| {
            let mut wide = [0u8; 16];
            wide[..length].copy_from_slice(&bytes[at..at + length]);
            u128::from_le_bytes(wide)
        };
        if number(16, 4) != u128::from(VERSION) {
            let version = number(16, 4);
            return Err(other(format!("version {version}: this homenode reads version {VERSION}")));
        }
        let head = Self {
            about: number(20, 4) as u32,
            stored: number(24, 8) as u64,
            guest: number(32, 8) as u64,
            pieces: number(40, 8) as u64,
            sum: number(48, 16),
            beside,
        };
        if head.about as usize > LONGEST_ABOUT {
            return Err(damaged(path, "the lengths at its beginning are impossible"));
        }
        Ok(head)
    }

    /// Whether head and text are as they were written.
    pub(crate) fn check(bytes: &[u8; HEAD], about: &[u8]) -> bool {
        bytes[64..] == checksum(&bytes[..64], about).to_le_bytes()
    }
}

fn checksum(head: &[u8], about: &[u8]) -> u128 {
    let mut hasher = XxHash3_128::new();
    hasher.write(head);
    hasher.write(about);
    hasher.finish_128()
}

pub(crate) fn damaged(path: &Path, problem: impl Into<String>) -> FileError {
    FileError::Damaged { path: path.to_owned(), problem: problem.into() }
}

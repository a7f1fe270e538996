//! A piece of the guest, as it lies in the file: checksum (16), bytes that follow (4), bytes of the
//! guest (4), and the bytes. As many bytes as the guest has: they are not compressed.

use twox_hash::XxHash3_128;
use zstd::bulk::{Compressor, Decompressor};

/// Most bytes of the guest in one piece.
pub(crate) const LARGEST: usize = 1 << 20;
/// Bytes before the compressed ones.
pub(crate) const PREFIX: usize = 24;
/// zstd's fastest usual level.
pub(crate) const LEVEL: i32 = 1;

/// The checksum of a piece: of its number, its lengths and its bytes.
fn checksum(number: u64, rest: &[u8]) -> u128 {
    XxHash3_128::oneshot_with_seed(number, rest)
}

/// The piece with that number, and its checksum.
pub(crate) fn encode(number: u64, guest: &[u8], zstd: &mut Compressor<'_>) -> (Vec<u8>, u128) {
    let mut piece = vec![0u8; PREFIX + guest.len()];
    // No room for more than the guest has: what grows is kept as it is.
    let stored = match zstd.compress_to_buffer(guest, &mut piece[PREFIX..]) {
        Ok(stored) if stored < guest.len() => stored,
        _ => {
            piece[PREFIX..].copy_from_slice(guest);
            guest.len()
        }
    };
    piece.truncate(PREFIX + stored);
    piece[16..20].copy_from_slice(&(stored as u32).to_le_bytes());
    piece[20..24].copy_from_slice(&(guest.len() as u32).to_le_bytes());
    let checksum = checksum(number, &piece[16..]);
    piece[..16].copy_from_slice(&checksum.to_le_bytes());
    (piece, checksum)
}

/// How many bytes follow a piece's prefix; `None` where no piece has so many.
pub(crate) fn stored(prefix: &[u8; PREFIX]) -> Option<usize> {
    let number = |at: usize| u32::from_le_bytes([prefix[at], prefix[at + 1], prefix[at + 2], prefix[at + 3]]) as usize;
    let (stored, guest) = (number(16), number(20));
    (stored <= guest && (1..=LARGEST).contains(&guest) && stored > 0).then_some(stored)
}

/// The guest's bytes in a whole piece, and its checksum; `None` where it is not as it was written.
pub(crate) fn decode(number: u64, piece: Vec<u8>, zstd: &mut Decompressor<'_>) -> Option<(Vec<u8>, u128)> {
    let prefix: &[u8; PREFIX] = piece.first_chunk()?;
    let guest = u32::from_le_bytes([prefix[20], prefix[21], prefix[22], prefix[23]]) as usize;
    let (stored, checksum) = (stored(prefix)?, checksum(number, &piece[16..]));
    if checksum.to_le_bytes() != prefix[..16] || piece.len() != PREFIX + stored {
        return None;
    }
    if stored == guest {
        let mut bytes = piece;
        bytes.drain(..PREFIX);
        return Some((bytes, checksum));
    }
    let bytes = zstd.decompress(&piece[PREFIX..], guest).ok()?;
    (bytes.len() == guest).then_some((bytes, checksum))
}

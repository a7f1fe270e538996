//! Words that are like no other: by them two things of one name are told apart.

use std::fs::File;
use std::io::{self, Read};

/// A new word: 128 bits that were drawn, in hexadecimal digits.
///
/// # Errors
/// `/dev/urandom` cannot be read.
pub fn word() -> io::Result<String> {
    let mut bytes = [0u8; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_two_words_are_alike() {
        let words = [super::word().unwrap(), super::word().unwrap()];
        assert!(words[0] != words[1] && words.iter().all(|word| word.len() == 32), "{words:?}");
    }
}

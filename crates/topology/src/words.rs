//! Parts of sentences and commands that every crate writes alike.

use crate::{Id, IdSet};

/// `1 socket`, `2 sockets`.
pub fn count(number: usize, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
}

/// `node 1`, `nodes 0-1`.
pub fn named<T: Id>(one: &str, set: &IdSet<T>) -> String {
    if set.len() == 1 { format!("{one} {set}") } else { format!("{one}s {set}") }
}

/// A word as a POSIX shell takes it: as it is, or in single quotes.
pub fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_=+,./:@%".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeSet;

    #[test]
    fn one_and_several_are_told_apart() {
        assert_eq!((count(1, "VM"), count(0, "VM")), ("1 VM".to_owned(), "0 VMs".to_owned()));
        let set = |text: &str| named("node", &text.parse::<NodeSet>().expect("a set"));
        assert_eq!((set("3"), set("0-1")), ("node 3".to_owned(), "nodes 0-1".to_owned()));
    }

    #[test]
    fn a_shell_reads_what_was_meant() {
        assert_eq!((quoted("results/a.toml"), quoted("")), ("results/a.toml".to_owned(), "''".to_owned()));
        assert_eq!(quoted("it's here"), r"'it'\''s here'");
    }
}

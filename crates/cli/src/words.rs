//! The words of homenode, explained: docs/words.md, for the terminal.

use crate::text::wrapped;

/// The page.
const PAGE: &str = include_str!("../../../docs/words.md");

/// The glossary in lines of at most `width` characters: each word at the margin, what it means below.
pub(crate) fn text(width: usize) -> String {
    let mut text = String::new();
    for line in PAGE.lines() {
        let plain = line.replace("**", "");
        let (indent, plain) = match plain.strip_prefix("- ") {
            Some(entry) => ("    ", entry.to_owned()),
            None => ("", plain.trim_start_matches("# ").to_owned()),
        };
        let lines = wrapped(&plain, width.saturating_sub(indent.len()).max(20));
        for (index, line) in lines.iter().enumerate() {
            text.push_str(if index > 0 { indent } else { "" });
            text.push_str(line);
            text.push('\n');
        }
        if lines.is_empty() {
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_whole_and_within_the_width() {
        let text = text(60);
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
        for word in ["home:", "client:", "N%L:", "Elsewhere:"] {
            assert!(text.contains(word), "{word}");
        }
        let words = |text: &str| text.split_whitespace().count();
        let bullets = PAGE.lines().filter(|line| line.starts_with("- ")).count();
        let marks = PAGE.lines().filter(|line| line.starts_with("# ")).count();
        assert_eq!(words(&text), words(PAGE) - bullets - marks);
    }
}

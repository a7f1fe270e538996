//! The words of homenode, explained: docs/words.md, for the terminal.

use crate::text::wrapped;

/// The page.
const PAGE: &str = include_str!("../../../docs/words.md");

/// The glossary in lines of at most `width` characters: each word at the margin, what it means
/// below.
pub(crate) fn text(width: usize) -> String {
    let mut text = String::new();
    for paragraph in paragraphs(PAGE) {
        let plain = paragraph.replace("**", "");
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

/// Headings, entries, and other paragraphs as one line each; an empty line stays one.
fn paragraphs(page: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for line in page.lines() {
        let goes_on = !line.is_empty() && !line.starts_with(['-', '#']);
        match all.last_mut().filter(|last| goes_on && !last.is_empty()) {
            Some(last) => *last = format!("{last} {}", line.trim_start()),
            None => all.push(line.to_owned()),
        }
    }
    all
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

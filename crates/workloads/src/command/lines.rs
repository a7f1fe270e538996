//! A pattern in a stream of lines. The stream comes in pieces and is never kept.

use super::error::CommandError;
use super::number;
use super::{LONGEST_PATTERN, Which};
use regex::bytes::{Regex, RegexBuilder};

/// Bytes of a line that are looked at. The rest of a longer one is not.
const LONGEST_LINE: usize = 1 << 20;

/// A pattern for lines. `^` and `$` are a line's ends.
pub(super) fn pattern(pattern: &str) -> Result<Regex, CommandError> {
    let bad = |reason: String| CommandError::Pattern { pattern: pattern.to_owned(), reason };
    if pattern.len() > LONGEST_PATTERN {
        return Err(bad(format!("it is over {LONGEST_PATTERN} bytes long")));
    }
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        if letter == '\\' && matches!(letters.next(), Some('A' | 'z')) {
            return Err(bad("it is looked for in each line: write ^ or $ for a line's ends".to_owned()));
        }
    }
    let built = RegexBuilder::new(pattern).unicode(false).multi_line(true).crlf(true).size_limit(1 << 20).build();
    // The parser's message draws the pattern with marks below it: its last line says what is wrong.
    built.map_err(|error| bad(error.to_string().lines().last().unwrap_or_default().trim().to_owned()))
}

/// Cuts a stream into whole lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    begun: Vec<u8>,
    /// Lines that are complete.
    pub(super) count: u64,
}

impl Lines {
    /// Gives `each` every piece of whole lines, with the number of lines before it.
    pub(super) fn add(&mut self, mut said: &[u8], mut each: impl FnMut(&[u8], u64)) {
        if !self.begun.is_empty() {
            let end = said.iter().position(|&byte| byte == b'\n');
            let (line, rest) = said.split_at(end.map_or(said.len(), |end| end + 1));
            self.begin(line);
            said = rest;
            if end.is_none() {
                return;
            }
            each(&self.begun, self.count);
            self.count += 1;
            self.begun.clear();
        }
        let whole = said.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let (whole, begun) = said.split_at(whole);
        if !whole.is_empty() {
            each(whole, self.count);
            self.count += whole.iter().filter(|&&byte| byte == b'\n').count() as u64;
        }
        self.begin(begun);
    }

    /// The last line, if it has no end.
    pub(super) fn end(&mut self, mut each: impl FnMut(&[u8], u64)) {
        if !self.begun.is_empty() {
            each(&self.begun, self.count);
            self.count += 1;
            self.begun.clear();
        }
    }

    fn begin(&mut self, line: &[u8]) {
        let room = LONGEST_LINE.saturating_sub(self.begun.len());
        self.begun.extend_from_slice(&line[..line.len().min(room)]);
    }
}

/// Where a pattern matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Match {
    /// Line, from 1.
    pub(super) line: u64,
    /// The group.
    pub(super) text: String,
}

/// Looks for a pattern in whole lines: in each the first match counts.
#[derive(Debug)]
pub(super) struct Finder {
    regex: Regex,
    group: usize,
    which: Which,
    /// A group that must be this number: other matches do not count.
    only_at: Option<(usize, u64)>,
    /// The match that counts, so far.
    pub(super) found: Option<Match>,
    /// Line of the last match.
    pub(super) last_line: u64,
    /// Lines that matched.
    pub(super) count: u64,
}

impl Finder {
    pub(super) fn new(regex: Regex, group: usize, which: Which) -> Self {
        Self { regex, group, which, only_at: None, found: None, last_line: 0, count: 0 }
    }

    pub(super) fn only_at(self, only_at: Option<(usize, u64)>) -> Self {
        Self { only_at, ..self }
    }

    /// Looks through whole lines, before which `before` lines were.
    pub(super) fn look(&mut self, block: &[u8], before: u64) {
        let (mut from, mut counted_to, mut line_number) = (0, 0, before + 1);
        // A piece is searched at once, which is fast where nothing matches. What seems to match may
        // be a match over the end of a line, so its line is searched on its own.
        while let Some(seems) = self.regex.find_at(block, from) {
            // Behind the last end of a line nothing has begun.
            if seems.start() == block.len() && block.ends_with(b"\n") {
                break;
            }
            let start = block[..seems.start()].iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
            let rest = &block[seems.start()..];
            let end = seems.start() + rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
            line_number += block[counted_to..start].iter().filter(|&&byte| byte == b'\n').count() as u64;
            counted_to = start;
            self.look_at(&block[start..end], line_number);
            from = end + 1;
            if from >= block.len() {
                break;
            }
        }
    }

    fn look_at(&mut self, line: &[u8], number: u64) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(captures) = self.regex.captures(line) else { return };
        let is_there = |(group, value): (usize, u64)| {
            let text = captures.get(group).map(|group| String::from_utf8_lossy(group.as_bytes()));
            text.and_then(|text| number::read(&text)) == Some(value as f64)
        };
        if !self.only_at.is_none_or(is_there) {
            return;
        }
        self.count += 1;
        self.last_line = number;
        if self.found.is_none() || self.which == Which::Last {
            // A group that took no part is no number, and is said to be none.
            let text = captures.get(self.group).map(|group| String::from_utf8_lossy(group.as_bytes()).into_owned());
            self.found = Some(Match { line: number, text: text.unwrap_or_default() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn found(text: &str, expression: &str, which: Which) -> (u64, Option<Match>, u64) {
        let mut lines = Lines::default();
        let mut finder = Finder::new(pattern(expression).unwrap(), 1, which);
        lines.add(text.as_bytes(), |block, before| finder.look(block, before));
        lines.end(|block, before| finder.look(block, before));
        (finder.count, finder.found, finder.last_line)
    }

    #[test]
    fn which_match_counts_is_said() {
        let text = "start\nrate 1.5\r\nnothing\nrate 2.5";
        let at = |line, text: &str| Some(Match { line, text: text.to_owned() });
        assert_eq!(found(text, "^rate ([0-9.]+)$", Which::First), (2, at(2, "1.5"), 4));
        assert_eq!(found(text, "^rate ([0-9.]+)$", Which::Last), (2, at(4, "2.5"), 4));
        assert_eq!(found(text, "^late ([0-9.]+)$", Which::Last), (0, None, 0));
    }

    #[test]
    fn a_match_never_crosses_the_end_of_a_line() {
        // `\s+` takes the end of a line too, in a text that is not cut into lines.
        assert_eq!(found("rate\n2\nrate 3\n", r"rate\s+(\d)", Which::Only).1.unwrap().text, "3");
    }

    #[test]
    fn a_line_without_an_end_costs_no_memory() {
        let mut lines = Lines::default();
        for _ in 0..100 {
            lines.add(&[b'x'; 1 << 16], |_, _| panic!("no line is complete"));
        }
        assert!(lines.begun.capacity() <= 2 * LONGEST_LINE);
    }

    #[test]
    fn a_pattern_that_does_not_compile_says_why() {
        for (bad, why) in
            [("(", "unclosed group"), ("a{2,1}", "repetition"), (r"\Arate", "line's ends"), ("[z-a]", "range")]
        {
            let error = pattern(bad).unwrap_err().to_string();
            assert!(error.contains(bad) && error.contains(why), "{error}");
        }
        assert!(pattern(r"\\A").is_ok());
    }

    properties::properties! {
        #[test]
        fn how_a_stream_is_cut_into_pieces_does_not_matter(
            text in "[ab1\n\r ]{0,60}",
            cuts in prop::collection::vec(0usize..60, 0..5),
            expression in prop::sample::select(vec!["a(1*)", "^(a|b)", r"(\s)$", r"b\s+(1)", "([^b]+)", "(.*)", "^()$"]),
        ) {
            let regex = pattern(expression).unwrap();
            let (mut lines, mut finder) = (Lines::default(), Finder::new(regex.clone(), 1, Which::Last));
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            for pair in cuts.windows(2) {
                lines.add(&text.as_bytes()[pair[0]..pair[1]], |block, before| finder.look(block, before));
            }
            lines.end(|block, before| finder.look(block, before));
            let plain = text.split_terminator('\n').enumerate();
            let matched: Vec<u64> = plain
                .filter(|(_, line)| regex.is_match(line.strip_suffix('\r').unwrap_or(line).as_bytes()))
                .map(|(index, _)| index as u64 + 1)
                .collect();
            prop_assert_eq!(finder.count, matched.len() as u64);
            prop_assert_eq!(finder.last_line, matched.last().copied().unwrap_or(0));
            prop_assert_eq!(lines.count, text.split_terminator('\n').count() as u64);
        }
    }
}

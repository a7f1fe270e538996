//! Words and numbers in charts.

use kuva::render::render::{Primitive, TextAnchor};

/// Distance of two lines of words.
pub(super) const LINE: f64 = 17.0;
/// Width of a character, in sizes of its font: that of the widest of the usual fonts, on average,
/// so that what is taken to fit does.
const CHARACTER: f64 = 0.61;

/// A line of words.
pub(super) struct Line {
    /// Where it begins.
    pub(super) x: f64,
    /// Where its letters stand on.
    pub(super) y: f64,
    /// Of the letters.
    pub(super) size: u32,
    /// Of the letters.
    pub(super) bold: bool,
    /// The words.
    pub(super) content: String,
}

pub(super) fn text(line: Line) -> Primitive {
    Primitive::Text {
        x: line.x,
        y: line.y,
        content: literal(line.content),
        size: line.size,
        anchor: TextAnchor::Start,
        rotate: None,
        bold: line.bold,
        color: Some("#1d2329".into()),
    }
}

/// Words as they are: between two dollars kuva reads a formula.
pub(super) fn literal(words: impl Into<String>) -> String {
    words.into().replace('$', "\\$")
}

/// Paper below a line, so that no line of the grid goes through its letters.
pub(super) fn paper(line: &Line) -> Primitive {
    let size = f64::from(line.size);
    Primitive::Rect {
        x: line.x - 2.0,
        y: line.y - size,
        width: width(line.content.chars().count(), size),
        height: size + 3.0,
        fill: "#ffffff".into(),
        stroke: None,
        stroke_width: None,
        opacity: Some(0.85),
    }
}

/// Width of so many characters of a size.
pub(super) fn width(characters: usize, size: f64) -> f64 {
    size * CHARACTER * characters as f64
}

/// In as many lines as it needs; a word that is longer than a line is broken.
pub(super) fn wrapped(words: &str, width: f64, size: f64) -> Vec<String> {
    let most = ((width / (size * CHARACTER)) as usize).max(1);
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in words.split_whitespace() {
        let letters: Vec<char> = word.chars().collect();
        for (index, piece) in letters.chunks(most).enumerate() {
            let blank = usize::from(used > 0 && index == 0);
            if used + blank + piece.len() > most || index > 0 {
                lines.push(String::new());
                used = 0;
            }
            if let Some(line) = lines.last_mut() {
                if used > 0 {
                    line.push(' ');
                    used += 1;
                }
                line.extend(piece);
                used += piece.len();
            }
        }
    }
    lines
}

/// A value beside an axis: as many digits as it needs, at most six that count.
pub(super) fn number(value: f64) -> String {
    let digits = if value == 0.0 { 0 } else { (5 - value.abs().log10().floor() as i32).clamp(0, 9) as usize };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A value beside a logarithmic axis: `10`, `1 k`, `10 M`.
pub(super) fn short(value: f64) -> String {
    let prefixes = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    let prefix = prefixes.into_iter().find(|(from, _)| value >= *from);
    prefix.map_or_else(|| number(value), |(from, letter)| format!("{} {letter}", number(value / from)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_have_the_digits_that_they_need() {
        let all = [0.0, 0.25, 1.0, 1.5, 12.125, 50_000.0, 1_250_000.0];
        assert_eq!(all.map(number), ["0", "0.25", "1", "1.5", "12.125", "50000", "1250000"]);
        // A step of 0.1 that was added three times.
        assert_eq!(number(0.1 + 0.1 + 0.1), "0.3");
        assert_eq!([0.01, 100.0, 1e3, 1e7, 2e9].map(short), ["0.01", "100", "1 k", "10 M", "2 G"]);
    }

    properties::properties! {
        #[test]
        fn no_letter_is_lost_and_no_line_too_long(words in "[a-z ]{0,90}", most in 3usize..40) {
            let lines = wrapped(&words, most as f64 * 10.0 * CHARACTER + 0.01, 10.0);
            let letters = |text: &str| text.chars().filter(|letter| !letter.is_whitespace()).collect::<String>();
            prop_assert_eq!(letters(&lines.concat()), letters(&words));
            prop_assert!(lines.iter().all(|line| line.chars().count() <= most), "{:?}", lines);
        }
    }
}

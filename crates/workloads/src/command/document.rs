//! Numbers in JSON documents and CSV tables. Both are read whole, up to a limit.

use super::error::{CommandError, Kind};
use super::number;
use super::section::{Figure, Which};
use serde_json::Value;

/// Longest document, in bytes.
const LONGEST: usize = 16 << 20;

/// A document, as far as it is kept.
#[derive(Debug, Default)]
pub(super) struct Document {
    bytes: Vec<u8>,
    is_cut: bool,
}

impl Document {
    pub(super) fn add(&mut self, said: &[u8]) {
        let room = LONGEST - self.bytes.len();
        self.is_cut |= said.len() > room;
        self.bytes.extend_from_slice(&said[..said.len().min(room)]);
    }

    /// The number at a JSON pointer.
    pub(super) fn at_pointer(&self, figure: &Figure, pointer: &str, place: &str) -> Result<f64, CommandError> {
        let none = |reason: &str| self.not_a(figure, place, Kind::Json, reason);
        if self.is_cut {
            return Err(none(""));
        }
        let document: Value = serde_json::from_slice(&self.bytes).map_err(|error| none(&error.to_string()))?;
        let sought = || format!("the JSON pointer `{pointer}`");
        match document.pointer(pointer) {
            None => Err(self.not_found(figure, sought(), place)),
            Some(Value::Number(number)) => {
                number.as_f64().ok_or_else(|| not_a_number(figure, &number.to_string(), place))
            }
            Some(Value::String(text)) => number::read(text).ok_or_else(|| not_a_number(figure, text, place)),
            Some(other) => Err(not_a_number(figure, &cut(&other.to_string()), place)),
        }
    }

    /// The number in a column of a table.
    pub(super) fn in_column(&self, figure: &Figure, column: &str, place: &str) -> Result<f64, CommandError> {
        let none = |reason: &str| self.not_a(figure, place, Kind::Csv, reason);
        if self.is_cut {
            return Err(none(""));
        }
        let mut table = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(self.bytes.as_slice());
        let header = table.headers().map_err(|error| none(&error.to_string()))?.clone();
        let Some(index) = header.iter().position(|name| name == column) else {
            let names: Vec<&str> = header.iter().take(20).collect();
            let sought = format!("a column \"{column}\" (columns: {})", cut(&names.join(", ")));
            return Err(self.not_found(figure, sought, place));
        };
        let (mut rows, mut found) = (0, None);
        for record in table.records() {
            let record = record.map_err(|error| none(&error.to_string()))?;
            rows += 1;
            let counts = match (figure.row, figure.which) {
                (Some(row), _) => row == rows,
                (None, Which::Last) => true,
                (None, _) => found.is_none(),
            };
            if counts {
                found = record.get(index).map(str::to_owned);
            }
        }
        if figure.row.is_none() && figure.which == Which::Only && rows > 1 {
            let (figure, sought, place) =
                (figure.name.clone(), format!("a row of column \"{column}\""), place.to_owned());
            return Err(CommandError::Several { figure, sought, place, count: rows, first: 1, last: rows });
        }
        let sought = || match figure.row {
            Some(row) => format!("row {row} of column \"{column}\""),
            None => format!("a row of column \"{column}\""),
        };
        let text = found.ok_or_else(|| self.not_found(figure, sought(), place))?;
        number::read(&text).ok_or_else(|| not_a_number(figure, &text, place))
    }

    fn not_a(&self, figure: &Figure, place: &str, kind: Kind, reason: &str) -> CommandError {
        let reason = if self.is_cut { format!("it is over {} MiB long", LONGEST >> 20) } else { cut(reason) };
        CommandError::Document { figure: figure.name.clone(), place: place.to_owned(), kind, reason }
    }

    fn not_found(&self, figure: &Figure, sought: String, place: &str) -> CommandError {
        let lines = self.bytes.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).count() as u64;
        CommandError::NotFound {
            figure: figure.name.clone(),
            sought,
            place: place.to_owned(),
            lines,
            hint: String::new(),
        }
    }
}

/// The error of a text that is no number.
pub(super) fn not_a_number(figure: &Figure, text: &str, place: &str) -> CommandError {
    CommandError::NotANumber { figure: figure.name.clone(), text: cut(text), place: place.to_owned() }
}

/// What an error quotes of a foreign text.
fn cut(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).take(120).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(text: &str) -> Document {
        let mut document = Document::default();
        document.add(text.as_bytes());
        document
    }

    fn figure(row: Option<u64>, which: Which) -> Figure {
        Figure { name: "rate".to_owned(), row, which, ..Figure::default() }
    }

    #[test]
    fn a_pointer_leads_to_a_number_or_to_an_error_that_names_it() {
        let of = |text: &str, pointer: &str| document(text).at_pointer(&figure(None, Which::Only), pointer, "out.json");
        let text = r#"{"jobs": [{"bw": 12.5, "name": "a", "iops": "3e2"}]}"#;
        assert_eq!((of(text, "/jobs/0/bw"), of(text, "/jobs/0/iops")), (Ok(12.5), Ok(300.0)));
        for (text, pointer, said) in [
            (text, "/jobs/1/bw", "`/jobs/1/bw` is not in out.json"),
            (text, "/jobs/0/name", "`a` in out.json is not a number"),
            (text, "/jobs", "is not a number"),
            ("{", "/a", "out.json is no JSON document"),
        ] {
            let error = of(text, pointer).unwrap_err().to_string();
            assert!(error.contains("\"rate\"") && error.contains(said), "{error}");
        }
    }

    #[test]
    fn a_column_needs_a_row_that_is_the_only_one_or_is_named() {
        let of = |text: &str, row, which| document(text).in_column(&figure(row, which), "mean", "stdout");
        let table = "name, mean, max\nread, 1.5, 2\nwrite, 2.5, 3\n";
        assert_eq!(of(table, Some(2), Which::Only), Ok(2.5));
        assert_eq!((of(table, None, Which::First), of(table, None, Which::Last)), (Ok(1.5), Ok(2.5)));
        assert_eq!(of("mean\n7\n", None, Which::Only), Ok(7.0));
        for (text, row, said) in [
            (table, None, "2 times"),
            (table, Some(3), "row 3 of column \"mean\""),
            ("a,b\n1,2\n", None, "columns: a, b"),
            ("mean\n", None, "a row of column"),
            ("mean\nfast\n", None, "`fast`"),
            ("mean,b\n1\n", None, "no CSV table"),
        ] {
            let error = of(text, row, Which::Only).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn a_document_of_any_length_costs_a_bounded_memory() {
        let mut document = Document::default();
        for _ in 0..40 {
            document.add(&vec![b' '; 1 << 20]);
        }
        assert_eq!(document.bytes.len(), LONGEST);
        let error = document.at_pointer(&figure(None, Which::Only), "/a", "stdout").unwrap_err().to_string();
        assert!(error.contains("over 16 MiB"), "{error}");
    }
}

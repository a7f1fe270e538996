//! From the text of a `vm.toml` to a checked [`VmSpec`].

use super::source::Source;
use super::{VmSpec, check};
use std::fmt;

/// A VM spec that cannot be used: which file, line and field, what is written there, and what would be valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct SpecError {
    /// The file, as the user named it.
    pub file: String,
    /// Line in the file, from 1, where it is known.
    pub line: Option<usize>,
    /// The field, for example `policy.virtual_nodes[1].memory`; empty where the text is not TOML.
    pub field: String,
    /// What is written there.
    pub value: Option<String>,
    /// What is wrong and what would be valid.
    pub problem: String,
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.field.is_empty() {
            write!(f, ": {}", self.field)?;
            if let Some(value) = &self.value {
                write!(f, " = {value}")?;
            }
        }
        write!(f, ": {}", self.problem)
    }
}

impl VmSpec {
    /// Reads and checks a spec. `file` only names the text in errors; paths inside it are left as they are written.
    ///
    /// # Errors
    /// The first thing that makes the spec unusable, with its line.
    pub fn from_toml(text: &str, file: &str) -> Result<VmSpec, SpecError> {
        let source = Source::new(text);
        let spec: VmSpec = toml::from_str(text).map_err(|error| from_parser(&error, &source, file))?;
        check::check(&spec).map_err(|problem| {
            let written = source.written(&problem.field);
            SpecError {
                file: file.to_owned(),
                line: written.map(|(line, _)| line),
                field: problem.field,
                value: written.and_then(|(_, value)| shortened(value)),
                problem: problem.problem,
            }
        })?;
        Ok(spec)
    }
}

/// Restates an error of the TOML reader with the field's path and line.
fn from_parser(error: &toml::de::Error, source: &Source<'_>, file: &str) -> SpecError {
    let at = error.span().map(|span| span.start);
    let around = at.and_then(|at| source.field_at(at)).unwrap_or_default();
    // Fields of a tagged table (boot, console, network) are buffered by serde, so that its error points at the whole table.
    let unknown = error.message().split('`').nth(1).filter(|_| error.message().starts_with("unknown "));
    let field = unknown.and_then(|name| source.below(around, name)).unwrap_or(around);
    let written = source.written(field);
    let line = written.map(|(line, _)| line).or_else(|| at.map(|at| source.line(at)));
    let mut problem = plain(error.message());
    if field.is_empty()
        && let Some(text) = line.and_then(|line| source.text_of(line))
    {
        problem = format!("`{text}`: {problem}");
    }
    SpecError {
        file: file.to_owned(),
        line,
        field: field.to_owned(),
        value: written.and_then(|(_, value)| shortened(value)),
        problem,
    }
}

/// The reader's words without the names of Rust's types.
fn plain(message: &str) -> String {
    message
        .replace("expected u32", "expected a whole number from 0 to 4294967295")
        .replace("expected u16", "expected a port from 1 to 65535")
}

/// The first line of what is written, so that an error stays one line. Nothing for a table: its header is no value.
fn shortened(value: &str) -> Option<String> {
    let header = value.starts_with('[') && value.trim_matches(['[', ']']).starts_with(|c: char| c.is_ascii_lowercase());
    let first = value.lines().next().unwrap_or_default();
    let text = if first.len() == value.len() { first.to_owned() } else { format!("{first} ...") };
    (!header).then_some(text)
}

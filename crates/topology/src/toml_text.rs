//! TOML that people write: VM specs, experiments, machine files. One way to say what is wrong in
//! any of them.

use crate::input::{cut, excerpt};
use serde::de::DeserializeOwned;
use std::fmt;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

/// The most characters of what is said to be wrong; the longest sentence of homenode's own has some
/// 400.
const LONGEST_PROBLEM: usize = 1000;

/// The longest path of a field that is remembered, in bytes: ours have up to 60. With the name of
/// its table before each of them, a megabyte would become many gigabytes.
const LONGEST_PATH: usize = 200;

/// A TOML file that cannot be used: which file, line and field, what is written there, and what
/// would be valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct TomlError {
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

impl fmt::Display for TomlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What is written there, and what the reader quotes of it, may be of any length.
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.field.is_empty() {
            write!(f, ": {}", excerpt(&self.field))?;
            if let Some(value) = &self.value {
                write!(f, " = {}", excerpt(value))?;
            }
        }
        write!(f, ": {}", cut(&self.problem, LONGEST_PROBLEM))
    }
}

/// A TOML text and the place of each of its fields, by path (`policy.virtual_nodes[1].memory`).
pub struct TomlText<'a> {
    text: &'a str,
    file: &'a str,
    fields: Vec<Field>,
}

struct Field {
    path: String,
    key: Range<usize>,
    value: Range<usize>,
}

impl<'a> TomlText<'a> {
    /// Reads the places; none where the text is not TOML at all. `file` only names the text in
    /// errors.
    pub fn new(text: &'a str, file: &'a str) -> Self {
        let mut fields = Vec::new();
        if let Ok(table) = DeTable::parse(text) {
            collect_table(table.get_ref(), "", &mut fields);
        }
        Self { text, file, fields }
    }

    /// The text as a value of type `T`.
    ///
    /// # Errors
    /// It is not TOML, or lacks a field, or has one that is unknown or of a wrong kind.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, TomlError> {
        toml::from_str(self.text).map_err(|error| self.restate(&error))
    }

    /// The text as a value of type `T`, but for the tables that `apart` names: `read` makes
    /// something of each of those that are there.
    ///
    /// # Errors
    /// As [`TomlText::read`], and what `read` has to say.
    pub fn read_apart<T: DeserializeOwned, S>(
        &self,
        apart: &[&str],
        read: impl Fn(&str, ValueDeserializer) -> Result<S, toml::de::Error>,
    ) -> Result<(T, Vec<S>), TomlError> {
        let restate = |error: toml::de::Error| self.restate(&error);
        let mut table = DeTable::parse(self.text).map_err(restate)?;
        let mut sections = Vec::new();
        for name in apart {
            if let Some(value) = table.get_mut().remove(*name) {
                sections.push(read(name, ValueDeserializer::from(value)).map_err(restate)?);
            }
        }
        Ok((T::deserialize(toml::de::Deserializer::from(table)).map_err(restate)?, sections))
    }

    /// Line (from 1) of a field, by its path; `None` where the text does not have it.
    pub fn line_of(&self, field: &str) -> Option<usize> {
        self.written(field).map(|(line, _)| line)
    }

    /// Paths of the fields of a table, in their order.
    pub fn fields_of(&self, table: &str) -> impl Iterator<Item = &str> {
        let below = move |path: &str| {
            let rest = path.strip_prefix(table).and_then(|rest| rest.strip_prefix('.'));
            rest.is_some_and(|name| !name.contains(['.', '[']))
        };
        self.fields.iter().map(|field| field.path.as_str()).filter(move |path| below(path))
    }

    /// What is wrong with a field that was read: with its line, and what is written there.
    pub fn fault(&self, field: &str, problem: String) -> TomlError {
        let written = self.written(field);
        TomlError {
            file: self.file.to_owned(),
            line: written.map(|(line, _)| line),
            field: field.to_owned(),
            value: written.and_then(|(_, value)| shortened(value)),
            problem,
        }
    }

    /// Restates an error of the TOML reader with the field's path and line.
    fn restate(&self, error: &toml::de::Error) -> TomlError {
        let at = error.span().map(|span| span.start);
        let around = at.and_then(|at| self.field_at(at)).unwrap_or_default();
        // Fields of a tagged table are buffered by serde, so that its error points at the whole
        // table.
        let unknown = error.message().split('`').nth(1).filter(|_| error.message().starts_with("unknown "));
        let field = unknown.and_then(|name| self.below(around, name)).unwrap_or(around);
        let mut fault = self.fault(field, plain(error.message()));
        fault.line = fault.line.or_else(|| at.map(|at| self.line(at)));
        if field.is_empty()
            && let Some(text) = fault.line.and_then(|line| self.text_of(line))
        {
            let colon = text.split_once(':').is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_alphanumeric()));
            let advice =
                if colon { ". A line is `name = value`; `name: value` is YAML, or a file of Proxmox" } else { "" };
            fault.problem = format!("`{}`: {}{advice}", excerpt(text), fault.problem);
        }
        fault
    }

    /// The field whose key or value covers this byte: the innermost one.
    fn field_at(&self, at: usize) -> Option<&str> {
        let covers = |range: &Range<usize>| range.contains(&at).then(|| range.len());
        self.fields
            .iter()
            .filter_map(|field| Some((covers(&field.key).or_else(|| covers(&field.value))?, field)))
            .min_by_key(|(length, _)| *length)
            .map(|(_, field)| field.path.as_str())
    }

    /// Line (from 1) of a field, and what is written as its value.
    fn written(&self, path: &str) -> Option<(usize, &'a str)> {
        let field = self.fields.iter().find(|field| field.path == path)?;
        Some((self.line(field.key.start), self.text.get(field.value.clone())?))
    }

    /// Path of the field `name` that stands in the table `parent` or below it.
    fn below(&self, parent: &str, name: &str) -> Option<&str> {
        let inside = |path: &str| path.starts_with(parent) && path.rsplit('.').next() == Some(name);
        self.fields.iter().find(|field| inside(&field.path)).map(|field| field.path.as_str())
    }

    /// What stands on a line (from 1); nothing for a blank one.
    fn text_of(&self, line: usize) -> Option<&'a str> {
        self.text.lines().nth(line.checked_sub(1)?).map(str::trim).filter(|text| !text.is_empty())
    }

    /// Line (from 1) of a byte.
    fn line(&self, at: usize) -> usize {
        1 + self.text.bytes().take(at).filter(|&byte| byte == b'\n').count()
    }
}

fn collect_table(table: &DeTable<'_>, parent: &str, fields: &mut Vec<Field>) {
    for (key, value) in table {
        let name = key.get_ref();
        let path = if parent.is_empty() { name.to_string() } else { format!("{parent}.{name}") };
        collect_value(path, key.span(), value, fields);
    }
}

fn collect_value(path: String, key: Range<usize>, value: &Spanned<DeValue<'_>>, fields: &mut Vec<Field>) {
    if path.len() > LONGEST_PATH {
        return;
    }
    match value.get_ref() {
        DeValue::Table(table) => collect_table(table, &path, fields),
        DeValue::Array(array) => {
            for (index, element) in array.iter().enumerate() {
                collect_value(format!("{path}[{index}]"), element.span(), element, fields);
            }
        }
        _ => {}
    }
    fields.push(Field { path, key, value: value.span() });
}

/// The reader's words without the names of Rust's types.
fn plain(message: &str) -> String {
    message
        .replace("expected u32", "expected a whole number from 0 to 4294967295")
        .replace("expected u16", "expected a port from 1 to 65535")
        .replace("expected f64", "expected a number")
        .replace("expected struct Rates", "expected a table [rates]")
}

/// The first line of what is written, so that an error stays one line. Nothing for a table: its
/// header is no value.
fn shortened(value: &str) -> Option<String> {
    let header = value.starts_with('[') && value.trim_matches(['[', ']']).starts_with(|c: char| c.is_ascii_lowercase());
    let first = value.lines().next().unwrap_or_default();
    let text = if first.len() == value.len() { first.to_owned() } else { format!("{first} ...") };
    (!header).then_some(text)
}

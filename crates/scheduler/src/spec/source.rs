//! Where in a TOML text a field stands, so that an error can name its line and what is written there.

use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A TOML text and the place of each of its fields, by path (`policy.virtual_nodes[1].memory`).
pub(super) struct Source<'a> {
    text: &'a str,
    fields: Vec<Field>,
}

struct Field {
    path: String,
    key: Range<usize>,
    value: Range<usize>,
}

impl<'a> Source<'a> {
    /// Reads the places; none where the text is not TOML at all.
    pub(super) fn new(text: &'a str) -> Self {
        let mut fields = Vec::new();
        if let Ok(table) = DeTable::parse(text) {
            collect_table(table.get_ref(), "", &mut fields);
        }
        Self { text, fields }
    }

    /// The field whose key or value covers this byte: the innermost one.
    pub(super) fn field_at(&self, at: usize) -> Option<&str> {
        let covers = |range: &Range<usize>| range.contains(&at).then(|| range.len());
        self.fields
            .iter()
            .filter_map(|field| Some((covers(&field.key).or_else(|| covers(&field.value))?, field)))
            .min_by_key(|(length, _)| *length)
            .map(|(_, field)| field.path.as_str())
    }

    /// Line (from 1) of a field, and what is written as its value.
    pub(super) fn written(&self, path: &str) -> Option<(usize, &'a str)> {
        let field = self.fields.iter().find(|field| field.path == path)?;
        Some((self.line(field.key.start), self.text.get(field.value.clone())?))
    }

    /// Path of the field `name` that stands in the table `parent` or below it.
    pub(super) fn below(&self, parent: &str, name: &str) -> Option<&str> {
        let inside = |path: &str| path.starts_with(parent) && path.rsplit('.').next() == Some(name);
        self.fields.iter().find(|field| inside(&field.path)).map(|field| field.path.as_str())
    }

    /// What stands on a line (from 1); nothing for a blank one.
    pub(super) fn text_of(&self, line: usize) -> Option<&'a str> {
        self.text.lines().nth(line.checked_sub(1)?).map(str::trim).filter(|text| !text.is_empty())
    }

    /// Line (from 1) of a byte.
    pub(super) fn line(&self, at: usize) -> usize {
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

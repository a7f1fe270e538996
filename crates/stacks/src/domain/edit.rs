//! Edits of a domain's text: everything that they do not name stays byte for byte as it was.

use super::batch::Batch;
use super::document::tree;
use super::error::{DomainError, EditProblem};
use super::splice::{self, Splice};

/// One step down from `<domain>`: an element, told from its siblings by an attribute where there
/// are several.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// Name of the element.
    pub element: String,
    /// Attribute and value that tell it from its siblings: `vcpu`, `3`. An element that is made
    /// gets it.
    pub key: Option<(String, String)>,
}

#[allow(clippy::needless_pass_by_value, reason = "a key is a number or a text at hand")]
impl Step {
    /// The element of that name: the first, where there are several.
    pub fn new(element: impl Into<String>) -> Self {
        Self { element: element.into(), key: None }
    }
    /// The element of that name whose attribute `key` is `value`.
    pub fn keyed(element: impl Into<String>, key: impl Into<String>, value: impl ToString) -> Self {
        Self { element: element.into(), key: Some((key.into(), value.to_string())) }
    }
}

/// A change. A path begins below `<domain>`; an empty one is `<domain>` itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Gives an attribute a value. Elements on the path that are not there are made, in the order
    /// of libvirt's schema.
    #[allow(missing_docs, reason = "the variant says it")]
    SetAttribute { at: Vec<Step>, name: String, value: String },
    /// Takes an attribute away, if it is there.
    #[allow(missing_docs, reason = "the variant says it")]
    RemoveAttribute { at: Vec<Step>, name: String },
    /// Gives an element a text. It and its parents are made if they are not there.
    #[allow(missing_docs, reason = "the variant says it")]
    SetText { at: Vec<Step>, text: String },
    /// Takes an element away with all that is in it, if it is there; where several match, all of
    /// them.
    #[allow(missing_docs, reason = "the variant says it")]
    Remove { at: Vec<Step> },
    /// Gives each element of that path that lacks the attribute its number among all of them, from
    /// 0: so does libvirt with cells, which then can be named.
    #[allow(missing_docs, reason = "the variant says it")]
    Number { at: Vec<Step>, name: String },
}

/// The text with the edits, in their order. What an edit says already holds changes no byte.
/// Indentation, line ends and quotes are those of the text around.
///
/// # Errors
/// Those of [`super::parse`] for a text that is not XML or no domain; an edit that would make it
/// one: a name or a character that XML does not have, a text in an element of elements, the
/// attribute of a step's own key.
pub fn apply(text: &str, file: &str, edits: &[Edit]) -> Result<String, DomainError> {
    let mut text = text.to_owned();
    let mut left = edits;
    while !left.is_empty() {
        let (done, splices) = run(&text, file, left)?;
        text = splice::spliced(&text, splices);
        left = &left[done..];
    }
    tree(&text, file)?;
    Ok(text)
}

/// What the first of the edits change of the text, and how many are done with that: as many as can
/// be told from one tree.
fn run(text: &str, file: &str, edits: &[Edit]) -> Result<(usize, Vec<Splice>), DomainError> {
    let document = tree(text, file)?;
    let mut batch = Batch::new(text, document.root_element(), edits);
    let mut done = 0;
    while done < edits.len() {
        check(&edits[done]).map_err(|problem| DomainError::new(file, problem))?;
        let more = batch.add(&edits[done..]).map_err(|problem| DomainError::new(file, problem))?;
        let Some(more) = more else { break };
        done += more;
    }
    Ok((done, batch.into_splices()))
}

pub(super) fn path(edit: &Edit) -> &[Step] {
    match edit {
        Edit::SetAttribute { at, .. }
        | Edit::RemoveAttribute { at, .. }
        | Edit::SetText { at, .. }
        | Edit::Number { at, .. }
        | Edit::Remove { at } => at,
    }
}

/// Fails for what no XML could hold.
fn check(edit: &Edit) -> Result<(), EditProblem> {
    let (at, name, value) = match edit {
        Edit::SetAttribute { at, name, value } => (at, Some(name), value.as_str()),
        Edit::RemoveAttribute { at, name } | Edit::Number { at, name } => (at, Some(name), ""),
        Edit::SetText { at, text } => (at, None, text.as_str()),
        Edit::Remove { at } => (at, None, ""),
    };
    let keys = at.iter().filter_map(|step| step.key.as_ref());
    let names = at.iter().map(|step| &step.element).chain(keys.clone().map(|(key, _)| key)).chain(name);
    for name in names {
        if !is_name(name) {
            return Err(EditProblem::Name(name.clone()));
        }
    }
    for value in keys.map(|(_, value)| value.as_str()).chain([value]) {
        if let Some(odd) = value.chars().find(|&c| !is_character(c)) {
            return Err(EditProblem::Character(odd));
        }
    }
    if at.is_empty() && !matches!(edit, Edit::SetAttribute { .. } | Edit::RemoveAttribute { .. }) {
        return Err(EditProblem::OfDomain);
    }
    let key = at.last().and_then(|step| step.key.as_ref());
    if let (Some(name), Some((key, _))) = (name, key)
        && name == key
    {
        return Err(EditProblem::Key(name.clone()));
    }
    Ok(())
}

/// Names as libvirt has them: no namespace, ASCII.
fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
        && name != "xmlns"
}

/// XML 1.0, production 2.
fn is_character(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

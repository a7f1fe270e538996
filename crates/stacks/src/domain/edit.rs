//! Edits of a domain's text: everything that they do not name stays byte for byte as it was.

use super::document::{is, tree};
use super::error::{DomainError, EditProblem, Fault};
use super::splice::{self, Splice, SpliceKind};
use roxmltree::Node;

/// One step down from `<domain>`: an element, told from its siblings by an attribute where there
/// are several.
#[derive(Clone, Debug, PartialEq, Eq)]
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
        let (done, mut splices) = run(&text, file, left)?;
        splices.sort_by_key(|splice| std::cmp::Reverse(splice.range.start));
        for splice in splices {
            text.replace_range(splice.range, &splice.with);
        }
        left = &left[done..];
    }
    tree(&text, file)?;
    Ok(text)
}

/// What the first of the edits change of the text, and how many are done with that: as many as can
/// be told from one tree. A domain of a thousand vCPUs has a thousand pins, each a new value of an
/// attribute; everything else that changes the text takes a tree of its own.
fn run(text: &str, file: &str, edits: &[Edit]) -> Result<(usize, Vec<Splice>), DomainError> {
    let document = tree(text, file)?;
    let mut splices: Vec<Splice> = Vec::new();
    for (index, edit) in edits.iter().enumerate() {
        let Some(splice) = step(text, file, document.root_element(), edit)? else {
            // A value that the tree has already may be one that a splice before takes away.
            if matches!(edit, Edit::SetAttribute { .. }) && !splices.is_empty() {
                return Ok((index, splices));
            }
            continue;
        };
        let alone = !is_new_value(edit, &splice, &edits[index..]);
        if alone && splices.is_empty() {
            // Where several elements match, the next is found in the next tree.
            let again = matches!(edit, Edit::Remove { .. } | Edit::Number { .. });
            return Ok((index + usize::from(!again), vec![splice]));
        }
        if alone || splices.iter().any(|other| other.range == splice.range) {
            return Ok((index, splices));
        }
        splices.push(splice);
    }
    Ok((edits.len(), splices))
}

/// Whether the edit leaves the tree as it is, for the edits from it on: it gives an attribute that
/// is there a new value, and no element is looked for by it.
fn is_new_value(edit: &Edit, splice: &Splice, from_it: &[Edit]) -> bool {
    let Edit::SetAttribute { name, .. } = edit else { return false };
    let looked_for = |step: &Step| step.key.as_ref().is_some_and(|(key, _)| key == name);
    splice.kind == SpliceKind::NewValue && !from_it.iter().any(|edit| path(edit).iter().any(looked_for))
}

fn path(edit: &Edit) -> &[Step] {
    match edit {
        Edit::SetAttribute { at, .. }
        | Edit::RemoveAttribute { at, .. }
        | Edit::SetText { at, .. }
        | Edit::Number { at, .. }
        | Edit::Remove { at } => at,
    }
}

/// What the edit changes of the text: one range of it, or nothing. [`Edit::Remove`] and
/// [`Edit::Number`] take a step for each element.
fn step(text: &str, file: &str, root: Node<'_, '_>, edit: &Edit) -> Result<Option<Splice>, DomainError> {
    check(edit).map_err(|problem| DomainError::new(file, problem))?;
    let splice = match edit {
        Edit::SetAttribute { at, name, value } => match find(root, at) {
            Found::There(element) => splice::set_attribute(text, element, name, value),
            Found::Missing(parent, missing) => {
                Some(splice::insert(text, parent, missing, &splice::Leaf::Attribute(name, value)))
            }
        },
        Edit::RemoveAttribute { at, name } => match find(root, at) {
            Found::There(element) => splice::remove_attribute(text, element, name),
            Found::Missing(..) => None,
        },
        Edit::SetText { at, text: new } => match find(root, at) {
            Found::There(element) if element.children().any(|child| child.is_element()) => {
                return Err(DomainError::new(file, Fault::HasElements.at(element)));
            }
            Found::There(element) => splice::set_text(text, element, new),
            Found::Missing(parent, missing) => Some(splice::insert(text, parent, missing, &splice::Leaf::Text(new))),
        },
        Edit::Remove { at } => match find(root, at) {
            Found::There(element) => Some(splice::remove(text, element)),
            Found::Missing(..) => None,
        },
        Edit::Number { at, name } => {
            let elements = found(root, at).unwrap_or_default();
            let lacks = elements.iter().zip(0_u32..).find(|(element, _)| !element.has_attribute(name.as_str()));
            lacks.and_then(|(&element, number)| splice::set_attribute(text, element, name, &number.to_string()))
        }
    };
    Ok(splice)
}

enum Found<'a, 'i, 'p> {
    There(Node<'a, 'i>),
    /// The last element on the path that is there, and the steps that are missing below it.
    Missing(Node<'a, 'i>, &'p [Step]),
}

/// The first element at the end of the path.
fn find<'a, 'i, 'p>(root: Node<'a, 'i>, path: &'p [Step]) -> Found<'a, 'i, 'p> {
    match found(root, path) {
        Ok(elements) => Found::There(elements[0]),
        Err((parent, index)) => Found::Missing(parent, &path[index..]),
    }
}

/// All elements at the end of the path, at least one; or the last element on it, and how many steps
/// lead there. An element may stand several times (libvirt takes all of them together): each is
/// looked into.
fn found<'a, 'i>(root: Node<'a, 'i>, path: &[Step]) -> Result<Vec<Node<'a, 'i>>, (Node<'a, 'i>, usize)> {
    let mut here = vec![root];
    for (index, step) in path.iter().enumerate() {
        let next: Vec<Node<'a, 'i>> =
            here.iter().flat_map(|parent| parent.children()).filter(|&child| matches_step(child, step)).collect();
        if next.is_empty() {
            return Err((here[0], index));
        }
        here = next;
    }
    Ok(here)
}

fn matches_step(element: Node<'_, '_>, step: &Step) -> bool {
    is(element, &step.element)
        && step
            .key
            .as_ref()
            .is_none_or(|(key, value)| element.attribute(key.as_str()).is_some_and(|written| is_same(written, value)))
}

/// libvirt reads numbers: `vcpu=' 03'` is vCPU 3.
fn is_same(written: &str, value: &str) -> bool {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    written == value || number(value).is_some_and(|value| number(written) == Some(value))
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

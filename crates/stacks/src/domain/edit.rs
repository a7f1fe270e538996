//! Edits of a domain's text: everything that they do not name stays byte for byte as it was.

use super::DomainError;

/// One step down from `<domain>`: an element, told from its siblings by an attribute where there are several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Name of the element.
    pub element: String,
    /// Attribute and value that tell it from its siblings: `vcpu`, `3`.
    pub key: Option<(String, String)>,
}

/// A change. A path begins below `<domain>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Gives an attribute a value. Elements on the path that are not there are made, in the order of libvirt's schema.
    #[allow(missing_docs)]
    SetAttribute { at: Vec<Step>, name: String, value: String },
    /// Takes an attribute away, if it is there.
    #[allow(missing_docs)]
    RemoveAttribute { at: Vec<Step>, name: String },
    /// Gives an element a text. It and its parents are made if they are not there.
    #[allow(missing_docs)]
    SetText { at: Vec<Step>, text: String },
    /// Takes an element away with all that is in it, if it is there.
    #[allow(missing_docs)]
    Remove { at: Vec<Step> },
}

/// The text with the edits, in their order.
///
/// # Errors
/// Those of [`super::parse`] for a text that is not XML.
pub fn apply(_text: &str, file: &str, _edits: &[Edit]) -> Result<String, DomainError> {
    Err(DomainError { file: file.to_owned(), problem: "not there yet".to_owned() })
}

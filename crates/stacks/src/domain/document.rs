//! A text as a tree, once it is known to do no harm ([`topology::xml`]).

use super::error::{DomainError, Fault, Place, Problem};
use roxmltree::{Document, Node};
use topology::read::second_document;
use topology::xml::{DocumentType, Harm, look_through};

/// Longest text: what libvirt itself takes as one string (its `VIR_NET_MESSAGE_STRING_MAX`). A VM
/// of 4096 vCPUs with all pins is 0.6 MB.
pub const LONGEST_TEXT: usize = 4 << 20;
/// The tree of a text whose root is `<domain>`.
pub(super) fn tree<'a>(text: &'a str, file: &str) -> Result<Document<'a>, DomainError> {
    let fail = |problem: Problem| DomainError::new(file, problem);
    if text.len() > LONGEST_TEXT {
        return Err(fail(Problem::TooLong(text.len())));
    }
    let harmful = |harm: Harm| fail(Problem::At(Place::line(harm.line), harm.fault.into()));
    look_through(text, DocumentType::Refused).map_err(harmful)?;
    // Without `allow_dtd` a document type is refused, and with it every entity but XML's own five.
    let document = Document::parse(text).map_err(|error| match second_document(text) {
        Some(line) => fail(Problem::At(Place::line(line), Fault::SecondDocument)),
        None => fail(Problem::NotXml(error.to_string())),
    })?;
    let root = document.root_element();
    if !is(root, "domain") {
        return Err(fail(Problem::Root(root.tag_name().name().to_owned())));
    }
    Ok(document)
}

/// Whether the element has this name and is libvirt's own, of no namespace.
pub(super) fn is(element: Node<'_, '_>, name: &str) -> bool {
    element.is_element() && element.tag_name().namespace().is_none() && element.tag_name().name() == name
}

/// The elements of that name in `parent`.
pub(crate) fn all<'a, 'i>(parent: Node<'a, 'i>, name: &'a str) -> impl Iterator<Item = Node<'a, 'i>> {
    parent.children().filter(move |&child| is(child, name))
}

/// The elements at the end of a path of names. An element may stand several times: libvirt takes
/// all of them together.
pub(crate) fn at<'a, 'i>(parent: Node<'a, 'i>, path: &[&str]) -> Vec<Node<'a, 'i>> {
    path.iter().fold(vec![parent], |parents, name| {
        parents.into_iter().flat_map(|parent| parent.children().filter(|&child| is(child, name))).collect()
    })
}

//! A text as a tree, once it is known to do no harm: an XML parser's own limits are far beyond what libvirt writes.

use super::error::{DomainError, Fault, Place, Problem};
use quick_xml::events::{BytesStart, Event};
use roxmltree::{Document, Node};
use topology::read::second_document;

/// Longest text: what libvirt itself takes as one string (its `VIR_NET_MESSAGE_STRING_MAX`). A VM of 4096 vCPUs with all pins is 0.6 MB.
pub const LONGEST_TEXT: usize = 4 << 20;
/// Elements inside elements. libvirt's deepest have about 8; a backing chain of disk images nests 3 for each image.
pub(super) const DEEPEST: usize = 512;
/// Attributes of an element: the tree's check for double ones takes the square of it. libvirt's elements have up to 15.
pub(super) const MOST_ATTRIBUTES: usize = 64;
/// Namespaces of a document, each of which the tree copies into every element that declares one. libvirt knows 5.
pub(super) const MOST_NAMESPACES: usize = 32;

/// The tree of a text whose root is `<domain>`.
pub(super) fn tree<'a>(text: &'a str, file: &str) -> Result<Document<'a>, DomainError> {
    let fail = |problem: Problem| DomainError::new(file, problem);
    harmless(text).map_err(fail)?;
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

/// Fails for a text that would cost a parser more than its length.
fn harmless(text: &str) -> Result<(), Problem> {
    if text.len() > LONGEST_TEXT {
        return Err(Problem::TooLong(text.len()));
    }
    let mut reader = quick_xml::Reader::from_str(text);
    let (mut depth, mut namespaces) = (0_usize, 0);
    loop {
        let fail = |offset: u64, fault: Fault| Problem::At(Place::line(line_of(text, offset as usize)), fault);
        match reader.read_event() {
            Ok(Event::Start(element)) => {
                depth += 1;
                namespaces += attributes(&element).map_err(|fault| fail(reader.buffer_position(), fault))?;
            }
            Ok(Event::Empty(element)) => {
                namespaces += attributes(&element).map_err(|fault| fail(reader.buffer_position(), fault))?;
            }
            Ok(Event::End(_)) => depth = depth.saturating_sub(1),
            Ok(Event::DocType(_)) => return Err(fail(reader.buffer_position(), Fault::DocumentType)),
            Ok(Event::Eof) => return Ok(()),
            Ok(_) => {}
            Err(error) => return Err(fail(reader.error_position(), Fault::NotXml(error.to_string()))),
        }
        if depth > DEEPEST {
            return Err(fail(reader.buffer_position(), Fault::Depth));
        }
        if namespaces > MOST_NAMESPACES {
            return Err(fail(reader.buffer_position(), Fault::Namespaces));
        }
    }
}

/// How many namespaces the element declares.
fn attributes(element: &BytesStart<'_>) -> Result<usize, Fault> {
    let mut namespaces = 0;
    for (index, attribute) in element.attributes().with_checks(false).enumerate() {
        let attribute = attribute.map_err(|error| Fault::NotXml(error.to_string()))?;
        if index >= MOST_ATTRIBUTES {
            return Err(Fault::Attributes);
        }
        namespaces += usize::from(attribute.key.as_namespace_binding().is_some());
    }
    Ok(namespaces)
}

fn line_of(text: &str, offset: usize) -> u32 {
    let before = &text.as_bytes()[..offset.min(text.len())];
    before.iter().filter(|&&byte| byte == b'\n').count() as u32 + 1
}

/// Whether the element has this name and is libvirt's own, of no namespace.
pub(super) fn is(element: Node<'_, '_>, name: &str) -> bool {
    element.is_element() && element.tag_name().namespace().is_none() && element.tag_name().name() == name
}

/// The elements of that name in `parent`.
pub(crate) fn all<'a, 'i>(parent: Node<'a, 'i>, name: &'a str) -> impl Iterator<Item = Node<'a, 'i>> {
    parent.children().filter(move |&child| is(child, name))
}

/// The elements at the end of a path of names. An element may stand several times: libvirt takes all of them together.
pub(crate) fn at<'a, 'i>(parent: Node<'a, 'i>, path: &[&str]) -> Vec<Node<'a, 'i>> {
    path.iter().fold(vec![parent], |parents, name| {
        parents.into_iter().flat_map(|parent| parent.children().filter(|&child| is(child, name))).collect()
    })
}

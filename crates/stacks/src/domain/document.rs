//! A text as a tree, once it is known to do no harm: an XML parser's own limits are far beyond what libvirt writes.

use super::DomainError;
use quick_xml::events::{BytesStart, Event};
use roxmltree::{Document, Node};
use topology::input::excerpt;
use topology::read::second_document;

/// Longest text: what libvirt itself takes as one string (its `VIR_NET_MESSAGE_STRING_MAX`). A VM of 4096 vCPUs with all pins is 0.6 MB.
pub const LONGEST_TEXT: usize = 4 << 20;
/// Elements inside elements. libvirt's deepest have about 8; a backing chain of disk images nests 3 for each image.
const DEEPEST: usize = 512;
/// Attributes of an element: the tree's check for double ones takes the square of it. libvirt's elements have up to 15.
const MOST_ATTRIBUTES: usize = 64;
/// Namespaces of a document, each of which the tree copies into every element that declares one. libvirt knows 5.
const MOST_NAMESPACES: usize = 32;

/// The tree of a text whose root is `<domain>`.
pub(super) fn tree<'a>(text: &'a str, file: &str) -> Result<Document<'a>, DomainError> {
    let fail = |problem: String| DomainError { file: file.to_owned(), problem };
    harmless(text).map_err(fail)?;
    // Without `allow_dtd` a document type is refused, and with it every entity but XML's own five.
    let document = Document::parse(text).map_err(|error| match second_document(text) {
        Some(line) => fail(format!("line {line}: a second document begins: give each domain a file of its own")),
        None => fail(format!("not XML: {}", excerpt(&error.to_string()))),
    })?;
    let root = document.root_element();
    if !is(root, "domain") {
        return Err(fail(format!(
            "the outermost element is <{}>: expected libvirt's <domain>, as `virsh dumpxml` prints it",
            excerpt(root.tag_name().name())
        )));
    }
    Ok(document)
}

/// Fails with a sentence for a text that would cost a parser more than its length.
fn harmless(text: &str) -> Result<(), String> {
    if text.len() > LONGEST_TEXT {
        return Err(format!("{} bytes: libvirt takes at most {LONGEST_TEXT} for a domain", text.len()));
    }
    let mut reader = quick_xml::Reader::from_str(text);
    let (mut depth, mut namespaces) = (0_usize, 0);
    loop {
        let at = |reader: &quick_xml::Reader<&[u8]>| line_of(text, reader.buffer_position() as usize);
        match reader.read_event() {
            Ok(Event::Start(element)) => {
                depth += 1;
                namespaces += attributes(&element).map_err(|problem| format!("line {}: {problem}", at(&reader)))?;
            }
            Ok(Event::Empty(element)) => {
                namespaces += attributes(&element).map_err(|problem| format!("line {}: {problem}", at(&reader)))?;
            }
            Ok(Event::End(_)) => depth = depth.saturating_sub(1),
            Ok(Event::DocType(_)) => {
                return Err(format!(
                    "line {}: a document type (<!DOCTYPE>), which could define entities: libvirt writes none; take it out",
                    at(&reader)
                ));
            }
            Ok(Event::Eof) => return Ok(()),
            Ok(_) => {}
            Err(error) => {
                let line = line_of(text, reader.error_position() as usize);
                return Err(format!("line {line}: not XML: {}", excerpt(&error.to_string())));
            }
        }
        if depth > DEEPEST {
            return Err(format!("line {}: elements are nested deeper than {DEEPEST}", at(&reader)));
        }
        if namespaces > MOST_NAMESPACES {
            return Err(format!("line {}: more than {MOST_NAMESPACES} namespaces", at(&reader)));
        }
    }
}

/// How many namespaces the element declares.
fn attributes(element: &BytesStart<'_>) -> Result<usize, String> {
    let mut namespaces = 0;
    for (index, attribute) in element.attributes().with_checks(false).enumerate() {
        let attribute = attribute.map_err(|error| format!("not XML: {error}"))?;
        if index >= MOST_ATTRIBUTES {
            return Err(format!("an element with more than {MOST_ATTRIBUTES} attributes"));
        }
        namespaces += usize::from(attribute.key.as_namespace_binding().is_some());
    }
    Ok(namespaces)
}

fn line_of(text: &str, offset: usize) -> usize {
    let before = &text.as_bytes()[..offset.min(text.len())];
    before.iter().filter(|&&byte| byte == b'\n').count() + 1
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

/// `problem` with the line and the path of the element: `line 7: domain/cputune/vcpupin: ...`.
pub(super) fn problem_at(element: Node<'_, '_>, problem: &str) -> String {
    let line = element.document().text_pos_at(element.range().start).row;
    let mut names: Vec<String> =
        element.ancestors().filter(Node::is_element).map(|element| excerpt(element.tag_name().name())).collect();
    names.reverse();
    format!("line {line}: {}: {problem}", names.join("/"))
}

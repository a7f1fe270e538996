//! What all readers of XML share: the limits of a document, whose document it is, and values with their element and line.

use super::error::{ReadError, shortened};
use super::{hwloc_xml, libvirt_capabilities};
use crate::Machine;
use roxmltree::{Document, Node as Element, ParsingOptions};

/// Elements and attributes of a document: some 20 objects a thread on the largest machine.
const MOST_XML_NODES: u32 = 4_000_000;

/// A machine from XML: hwloc's (root `<topology>`) or libvirt's capabilities (root `<capabilities>`).
///
/// # Errors
/// Those of the two readers, and a document of any other kind.
pub fn from_xml(text: &str, name: &str) -> Result<Machine, ReadError> {
    let document = parse(text, name, "make one with `lstopo --of xml` or `virsh capabilities`")?;
    match document.root_element().tag_name().name() {
        "topology" => hwloc_xml::from_document(&document, name),
        "capabilities" => libvirt_capabilities::from_document(&document, name),
        "domain" => Err(fail(
            name,
            "the root element is <domain>: that is a VM of libvirt, not a machine; `homenode check` judges it"
                .to_owned(),
        )),
        other => Err(fail(
            name,
            format!(
                "the root element is <{}>: expected <topology> (`lstopo --of xml`) or <capabilities> (`virsh capabilities`)",
                shortened(other)
            ),
        )),
    }
}

/// The document of a text. Entities that it defines are refused.
pub(super) fn parse<'a>(text: &'a str, name: &str, advice: &str) -> Result<Document<'a>, ReadError> {
    if text.contains("<!ENTITY") {
        return Err(fail(name, "it defines XML entities, which no description of a machine needs".to_owned()));
    }
    let options = ParsingOptions { allow_dtd: true, nodes_limit: MOST_XML_NODES, ..ParsingOptions::default() };
    Document::parse_with_options(text, options).map_err(|error| fail(name, format!("not XML ({error}); {advice}")))
}

/// The line of an element, counted from 1.
pub(super) fn line(element: Element<'_, '_>) -> u32 {
    element.document().text_pos_at(element.range().start).row
}

fn fail(name: &str, reason: String) -> ReadError {
    ReadError::Document { file: name.to_owned(), reason }
}

//! What all readers of XML share: the limits of a document, whose document it is, and values with
//! their element and line.

use super::error::ReadError;
use super::{hwloc_xml, libvirt_capabilities};
use crate::Machine;
use crate::input::excerpt;
use crate::xml::{self, DocumentType, XmlFault};
use roxmltree::{Document, Node as Element, ParsingOptions, TextPos};

/// Elements and attributes of a document: some 20 objects a thread on the largest machine.
const MOST_XML_NODES: u32 = 4_000_000;

/// A machine from XML: hwloc's (root `<topology>`) or libvirt's capabilities (root
/// `<capabilities>`).
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
                "the root element is <{}>: expected <topology> (`lstopo --of xml`) or <capabilities> (`virsh \
                capabilities`)",
                excerpt(other)
            ),
        )),
    }
}

/// The document of a text. Entities that it defines are refused.
pub(super) fn parse<'a>(text: &'a str, name: &str, advice: &str) -> Result<Document<'a>, ReadError> {
    if text.contains("<!ENTITY") {
        return Err(fail(name, "it defines XML entities, which no description of a machine needs".to_owned()));
    }
    // What is no XML is said better below.
    if let Err(harm) = xml::look_through(text, DocumentType::Allowed)
        && !matches!(harm.fault, XmlFault::NotXml(_))
    {
        return Err(fail(name, harm.to_string()));
    }
    let options = ParsingOptions { allow_dtd: true, nodes_limit: MOST_XML_NODES, ..ParsingOptions::default() };
    Document::parse_with_options(text, options).map_err(|error| match second_document(text) {
        Some(line) => fail(
            name,
            format!("line {line}: a second document begins: a file holds one; split it, and name the part you mean"),
        ),
        None => fail(name, format!("not XML ({}); {advice}", excerpt(&error.to_string()))),
    })
}

/// The line (from 1) at which a second XML document begins in a text, as where two outputs are in
/// one file.
pub fn second_document(text: &str) -> Option<u32> {
    let parsed = |text| {
        let options = ParsingOptions { allow_dtd: true, nodes_limit: MOST_XML_NODES, ..ParsingOptions::default() };
        Document::parse_with_options(text, options)
    };
    let end = parsed(text).err().and_then(|error| offset(text, error.pos()))?;
    let first = parsed(text.get(..end)?).is_ok();
    let line = text[..end].bytes().filter(|&byte| byte == b'\n').count() as u32 + 1;
    (first && text[end..].trim_start().starts_with('<')).then_some(line)
}

/// The byte at a position: columns are counted in characters.
fn offset(text: &str, at: TextPos) -> Option<usize> {
    let line = text.split_inclusive('\n').take((at.row as usize).checked_sub(1)?).map(str::len).sum::<usize>();
    let within = text[line..].char_indices().nth((at.col as usize).checked_sub(1)?).map(|(index, _)| index);
    Some(line + within.unwrap_or(text.len() - line))
}

/// The line of an element, counted from 1.
pub(super) fn line(element: Element<'_, '_>) -> u32 {
    element.document().text_pos_at(element.range().start).row
}

fn fail(name: &str, reason: String) -> ReadError {
    ReadError::Document { file: name.to_owned(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_costs_more_than_its_length_is_refused() {
        let attributes: String = (0..200_000).map(|number| format!(" a{number}='1'")).collect();
        let wide = from_xml(&format!("<topology{attributes}/>"), "wide.xml").unwrap_err().to_string();
        assert!(wide.contains("line 1: an element with more than 64 attributes"), "{wide}");
        let deep = from_xml(&format!("<topology>{}", "<object>".repeat(100_000)), "deep.xml").unwrap_err().to_string();
        assert!(deep.contains("nested deeper than 512"), "{deep}");
    }

    #[test]
    fn a_second_document_is_found_and_nothing_else_is_taken_for_one() {
        let one = "<a>\n<b c='ä'/>\n</a>\n";
        assert_eq!(second_document(&format!("{one}{one}")), Some(4));
        assert_eq!(second_document(&format!("<?xml version='1.0'?>\n{one}<?xml version='1.0'?>\n{one}")), Some(5));
        for text in [one, "<a><b></a>", "", "nonsense", "<a/> trailing", "<a/><b"] {
            assert_eq!(second_document(text), if text == "<a/><b" { Some(1) } else { None }, "{text}");
        }
        let error = from_xml(&format!("{one}{one}"), "two.xml").expect_err("two").to_string();
        assert!(error.starts_with("two.xml: line 4: a second document begins"), "{error}");
    }
}

//! XML from others, looked through before it becomes a tree: a parser's own limits are far beyond
//! what hwloc and libvirt write.
//!
//! **Problem.** A tree costs more than the length of its text: its check for double attributes
//! takes the square of their number (200,000 of them took 42 s), each element that declares a
//! namespace gets a copy of all, and every reader goes down the elements' depth.
//!
//! **Rule.** One pass over the text counts these three, in time proportional to its length, and
//! refuses beyond the limits below.

use crate::input::excerpt;
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

/// Elements inside elements. libvirt's deepest have about 8; a backing chain of disk images nests 3
/// for each image.
const DEEPEST: usize = 512;
/// Attributes of an element. libvirt's elements have up to 15, hwloc's up to 20.
const MOST_ATTRIBUTES: usize = 64;
/// Namespaces of a document. libvirt knows 5.
const MOST_NAMESPACES: usize = 32;

/// Whether a document may begin with `<!DOCTYPE>`: hwloc's do, libvirt's do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentType {
    /// It may.
    Allowed,
    /// It may not: it could define entities.
    Refused,
}

/// What is harmful in a text, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct Harm {
    /// The line, from 1.
    pub line: u32,
    /// What is wrong there.
    pub fault: XmlFault,
}

/// What is wrong at a place of a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum XmlFault {
    /// It is no XML: why.
    #[error("not XML: {}", excerpt(.0))]
    NotXml(String),
    /// It has a document type.
    #[error("a document type (<!DOCTYPE>), which could define entities: libvirt writes none; take it out")]
    DocumentType,
    /// Too deep.
    #[error("elements are nested deeper than {DEEPEST}")]
    Depth,
    /// Too many namespaces.
    #[error("more than {MOST_NAMESPACES} namespaces")]
    Namespaces,
    /// Too many attributes.
    #[error("an element with more than {MOST_ATTRIBUTES} attributes")]
    Attributes,
}

/// Fails for a text that would cost a parser more than its length.
///
/// # Errors
/// What is harmful, at its line.
pub fn look_through(text: &str, document_type: DocumentType) -> Result<(), Harm> {
    let mut reader = Reader::from_str(text);
    let (mut depth, mut namespaces) = (0_usize, 0);
    loop {
        let fail = |offset: u64, fault: XmlFault| Harm { line: line_of(text, offset as usize), fault };
        match reader.read_event() {
            Ok(Event::Start(element)) => {
                depth += 1;
                namespaces += attributes(&element).map_err(|fault| fail(reader.buffer_position(), fault))?;
            }
            Ok(Event::Empty(element)) => {
                namespaces += attributes(&element).map_err(|fault| fail(reader.buffer_position(), fault))?;
            }
            Ok(Event::End(_)) => depth = depth.saturating_sub(1),
            Ok(Event::DocType(_)) if document_type == DocumentType::Refused => {
                return Err(fail(reader.buffer_position(), XmlFault::DocumentType));
            }
            Ok(Event::Eof) => return Ok(()),
            Ok(_) => {}
            Err(error) => return Err(fail(reader.error_position(), XmlFault::NotXml(error.to_string()))),
        }
        if depth > DEEPEST {
            return Err(fail(reader.buffer_position(), XmlFault::Depth));
        }
        if namespaces > MOST_NAMESPACES {
            return Err(fail(reader.buffer_position(), XmlFault::Namespaces));
        }
    }
}

/// How many namespaces the element declares.
fn attributes(element: &BytesStart<'_>) -> Result<usize, XmlFault> {
    let mut namespaces = 0;
    for (index, attribute) in element.attributes().with_checks(false).enumerate() {
        let attribute = attribute.map_err(|error| XmlFault::NotXml(error.to_string()))?;
        if index >= MOST_ATTRIBUTES {
            return Err(XmlFault::Attributes);
        }
        namespaces += usize::from(attribute.key.as_namespace_binding().is_some());
    }
    Ok(namespaces)
}

fn line_of(text: &str, offset: usize) -> u32 {
    let before = &text.as_bytes()[..offset.min(text.len())];
    before.iter().filter(|&&byte| byte == b'\n').count() as u32 + 1
}

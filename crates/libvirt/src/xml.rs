//! What virsh prints of a domain, as a tree.

use roxmltree::{Document, Node};
use topology::Bytes;
use topology::input::shortened;
use vm::BackendError;
use vm::backend::ErrorKind;

/// The tree of a domain that libvirt printed.
///
/// # Errors
/// It is not XML.
pub(crate) fn tree<'a>(xml: &'a str, vm: &str) -> Result<Document<'a>, BackendError> {
    Document::parse(xml).map_err(|error| {
        let why = shortened(&error.to_string());
        BackendError::new(ErrorKind::Failed, format!("VM {vm}: what libvirt prints of it is not XML: {why}"))
    })
}

/// The first element at the end of a path of names.
pub(crate) fn child<'a, 'i>(node: Node<'a, 'i>, path: &[&str]) -> Option<Node<'a, 'i>> {
    path.iter().try_fold(node, |node, name| node.children().find(|child| child.has_tag_name(*name)))
}

/// The elements of a name in an element; none where that is not there.
pub(crate) fn children<'a, 'i>(node: Option<Node<'a, 'i>>, name: &'a str) -> impl Iterator<Item = Node<'a, 'i>> {
    node.into_iter().flat_map(|node| node.children()).filter(move |child| child.has_tag_name(name))
}

/// An amount as libvirt writes it: in KiB.
pub(crate) fn kib(node: Node<'_, '_>, text: &str) -> Option<Bytes> {
    let is_kib = node.attribute("unit").is_none_or(|unit| unit == "KiB");
    text.trim().parse().ok().filter(|_| is_kib).map(Bytes::from_kib)
}

/// The amount in the element at the end of a path.
pub(crate) fn amount(node: Node<'_, '_>, path: &[&str]) -> Option<Bytes> {
    let element = child(node, path)?;
    kib(element, element.text()?)
}

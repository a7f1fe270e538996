//! Which bytes of a domain a cure may touch, told without the code that edits.

use roxmltree::{Attribute, Document, Node};
use std::ops::Range;

/// Values that cures give: of pins, memory policies, cells, which vCPUs are there, and what the
/// guest is told.
fn is_named(element: Node<'_, '_>, attribute: &str) -> bool {
    let inside = |name: &str| element.parent().is_some_and(|parent| parent.has_tag_name(name));
    match element.tag_name().name() {
        "vcpu" if inside("vcpus") => ["enabled", "hotpluggable", "order"].contains(&attribute),
        "vcpu" => inside("domain") && ["cpuset", "placement"].contains(&attribute),
        "vcpupin" | "emulatorpin" | "iothreadpin" => inside("cputune") && attribute == "cpuset",
        "memory" | "memnode" => inside("numatune") && ["mode", "nodeset", "placement"].contains(&attribute),
        "cell" => inside("numa") && ["id", "cpus", "memory", "unit"].contains(&attribute),
        "sibling" => inside("distances") && attribute == "value",
        "topology" => inside("cpu"),
        "cache" => inside("cpu") && ["mode", "level"].contains(&attribute),
        _ => false,
    }
}

/// Elements that a cure may make or, with a cell, take away.
fn is_made(element: Node<'_, '_>) -> bool {
    let path: Vec<&str> = element.ancestors().filter(Node::is_element).map(|node| node.tag_name().name()).collect();
    matches!(
        path[..],
        ["vcpupin" | "emulatorpin" | "iothreadpin", "cputune", "domain"]
            | ["memory" | "memnode", "numatune", "domain"]
            | ["vcpu", "vcpus", "domain"]
            | ["topology" | "cache", "cpu", "domain"]
            | ["cell", "numa", "cpu", "domain"]
            | ["distances", "cell", "numa", "cpu", "domain"]
            | ["sibling", "distances", "cell", "numa", "cpu", "domain"]
    )
}

fn cells(document: &Document<'_>) -> usize {
    document.descendants().filter(|node| node.has_tag_name("cell") && is_made(*node)).count()
}

/// What is lost of the domain or has come to it, though no cure names it.
pub(super) fn lost(before: &str, after: &str) -> Option<String> {
    let (old, new) = (Document::parse(before).ok()?, Document::parse(after).ok()?);
    let (had, has) = (beside(&old), beside(&new));
    if had != has {
        return Some(format!("beside the cures there was {had:#?}, and there is {has:#?}"));
    }
    let fewer = cells(&new) < cells(&old);
    let is_gone = |node: Node<'_, '_>| {
        (fewer && (node.has_tag_name("cell") || node.has_tag_name("memnode"))) || is_of_no_iothread(node, &new)
    };
    let mut cut: Vec<Range<usize>> = old.descendants().flat_map(|node| cuts(node, before, is_gone(node))).collect();
    cut.sort_by_key(|range| (range.start, range.end));
    let mut left = after.as_bytes().iter();
    let mut at = 0;
    for range in cut.into_iter().chain(std::iter::once(before.len()..before.len())) {
        for (place, byte) in before.bytes().enumerate().take(range.start).skip(at) {
            if !left.any(|other| *other == byte) {
                return Some(format!(
                    "byte {place} is lost: {:?}",
                    String::from_utf8_lossy(&before.as_bytes()[place.saturating_sub(40)..before.len().min(place + 40)])
                ));
            }
        }
        at = at.max(range.end);
    }
    None
}

/// Texts, comments and attributes that are none of a cure's business.
fn beside<'a>(document: &'a Document<'_>) -> Vec<&'a str> {
    let text = document.input_text();
    let mut found = Vec::new();
    for node in document.descendants() {
        let in_removed = node.ancestors().any(|node| node.has_tag_name("cell") || node.has_tag_name("memnode"));
        if node.is_element() && !in_removed {
            let kept = |attribute: &Attribute<'_, '_>| !is_named(node, attribute.name()) && !is_made(node);
            found.extend(node.attributes().filter(kept).map(|attribute| &text[attribute.range()]));
        } else if !node.is_root() && !node.is_element() && !text[node.range()].trim().is_empty() && !in_removed {
            found.push(&text[node.range()]);
        }
    }
    found
}

/// A pin that is gone, of an iothread that the domain does not have: libvirt refuses it.
fn is_of_no_iothread(node: Node<'_, '_>, after: &Document<'_>) -> bool {
    let same = |other: Node<'_, '_>| {
        other.has_tag_name("iothreadpin") && other.attribute("iothread") == node.attribute("iothread")
    };
    node.has_tag_name("iothreadpin") && is_made(node) && !after.descendants().any(same)
}

fn cuts(node: Node<'_, '_>, text: &str, is_gone: bool) -> Vec<Range<usize>> {
    if !node.is_element() {
        return Vec::new();
    }
    if is_gone {
        let range = node.range();
        let start = text[..range.start].trim_end().len();
        let end = text.len() - text[range.end..].trim_start().len();
        return std::iter::once(start..end).collect();
    }
    // An element that gets its first child loses the blanks before `/>`.
    let end = node.range().end.saturating_sub(2);
    let blanks = text[..end].trim_end().len()..if text[end..].starts_with("/>") { end } else { 0 };
    let named = node.attributes().filter(|attribute| is_named(node, attribute.name()));
    let range = |attribute: Attribute<'_, '_>| {
        let range = attribute.range();
        // A value alone changes; some attributes of a topology, and the order of a vCPU, go with
        // the blanks before them.
        match node.has_tag_name("topology") || attribute.name() == "order" {
            true => text[..range.start].trim_end().len()..range.end,
            false => range.start + text[range.clone()].find(['\'', '"']).unwrap_or_default() + 1..range.end - 1,
        }
    };
    named.map(range).chain((blanks.start < blanks.end).then_some(blanks)).collect()
}

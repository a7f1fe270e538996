//! Where in a text a change goes, and how it looks there.

use super::edit::Step;
use super::order::{is_in_order, place_among};
use roxmltree::Node;
use std::fmt::Write;
use std::ops::Range;

/// A range of the text and what takes its place.
pub(super) struct Splice {
    pub(super) range: Range<usize>,
    pub(super) with: String,
}

impl Splice {
    fn new(range: Range<usize>, with: String) -> Self {
        Self { range, with }
    }
}

/// The text with ranges of it replaced, none of which overlap; those that begin at one place in
/// their order.
pub(super) fn spliced(text: &str, mut splices: Vec<Splice>) -> String {
    splices.sort_by_key(|splice| splice.range.start);
    let mut new = String::with_capacity(text.len() + splices.iter().map(|splice| splice.with.len()).sum::<usize>());
    let mut from = 0;
    for splice in splices {
        new += &text[from..splice.range.start];
        new += &splice.with;
        from = splice.range.end;
    }
    new + &text[from..]
}

/// What the innermost of the elements that are made gets.
pub(super) enum Leaf<'a> {
    /// An attribute. There may be several such elements, side by side: each a step and a value.
    Attribute(&'a str, Vec<(&'a Step, &'a str)>),
    Text(&'a str),
}

pub(super) fn set_attribute(text: &str, element: Node<'_, '_>, name: &str, value: &str) -> Option<Splice> {
    if let Some(attribute) = attribute(element, name) {
        if attribute.value() == value {
            return None;
        }
        let range = value_range(text, attribute.range());
        let quote = text[attribute.range()].chars().next_back().unwrap_or('\'');
        return Some(Splice::new(range, escaped(value, Some(quote))));
    }
    let quote = quote_of(element);
    let at = attributes_end(element);
    Some(Splice::new(at..at, format!(" {name}={quote}{}{quote}", escaped(value, Some(quote)))))
}

pub(super) fn remove_attribute(text: &str, element: Node<'_, '_>, name: &str) -> Option<Splice> {
    let range = attribute(element, name)?.range();
    let start = text[..range.start].trim_end().len();
    Some(Splice::new(start..range.end, String::new()))
}

pub(super) fn set_text(text: &str, element: Node<'_, '_>, new: &str) -> Option<Splice> {
    let old: String =
        element.children().filter_map(|child| if child.is_text() { child.text() } else { None }).collect();
    if old.trim() == new.trim() {
        return None;
    }
    let new = escaped(new, None);
    let Some(inside) = content(text, element) else {
        let name = element.tag_name().name();
        let range = text[..element.range().end - 2].trim_end().len()..element.range().end;
        return Some(Splice::new(range, format!(">{new}</{name}>")));
    };
    // Comments stay: the text goes where the first text that is not blank was, and the others go.
    let mut with = String::new();
    let mut written = false;
    let mut from = inside.start;
    for other in element.children().filter(|child| !child.is_text()) {
        piece(&mut with, &text[from..other.range().start], &new, &mut written);
        with += &text[other.range()];
        from = other.range().end;
    }
    piece(&mut with, &text[from..inside.end], &new, &mut written);
    if !written {
        with.insert_str(0, &new);
    }
    Some(Splice::new(inside, with))
}

/// A run of text between comments: its blanks stay; the first that is not blank becomes the new
/// one.
fn piece(with: &mut String, old: &str, new: &str, written: &mut bool) {
    let trimmed = old.trim();
    let start = old.len() - old.trim_start().len();
    *with += &old[..start];
    if !trimmed.is_empty() && !*written {
        *with += new;
        *written = true;
    }
    *with += &old[start + trimmed.len()..];
}

/// The elements at these places, in their order, go; with their line where nothing else is on it.
pub(super) fn remove(text: &str, elements: Vec<Range<usize>>) -> Vec<Splice> {
    let is_blank = |range: Range<usize>| text[range].bytes().all(|byte| matches!(byte, b' ' | b'\t'));
    let mut splices = Vec::new();
    let mut elements = elements.into_iter().peekable();
    while let Some(first) = elements.next() {
        let mut side_by_side = vec![first];
        while let Some(next) = elements.next_if(|next| is_blank(side_by_side[side_by_side.len() - 1].end..next.start)) {
            side_by_side.push(next);
        }
        match line_of(text, side_by_side[0].start..side_by_side[side_by_side.len() - 1].end) {
            Some(line) => splices.push(Splice::new(line, String::new())),
            None => splices.extend(side_by_side.into_iter().map(|range| Splice::new(range, String::new()))),
        }
    }
    splices
}

/// The line of this range with its end, where nothing else is on it.
fn line_of(text: &str, range: Range<usize>) -> Option<Range<usize>> {
    let before = &text[..range.start];
    let line = before.trim_end_matches([' ', '\t']).len();
    let after = &text[range.end..];
    let rest = after.trim_start_matches([' ', '\t']);
    let alone = before[..line].ends_with('\n') && (rest.starts_with('\n') || rest.starts_with("\r\n"));
    let end = range.end + (after.len() - rest.len()) + rest.find('\n')? + 1;
    alone.then_some(line..end)
}

/// Makes the elements of `path` in `parent`, each in the one before, the first at its place among
/// its siblings.
pub(super) fn insert(text: &str, parent: Node<'_, '_>, path: &[Step], leaf: &Leaf<'_>) -> Splice {
    let style = Style::of(text, parent);
    let element = style.element(path, leaf, 1);
    let Some(inside) = content(text, parent) else {
        let name = parent.tag_name().name();
        let range = text[..parent.range().end - 2].trim_end().len()..parent.range().end;
        return Splice::new(range, format!(">{}{element}{}</{name}>", style.line(1), style.line(0)));
    };
    if let Some(before) = path.first().and_then(|step| place_among(parent, step)) {
        let at = end_with_comment(text, before);
        return Splice::new(at..at, format!("{}{element}", style.line(1)));
    }
    // The first of its parent. Where the parent had nothing, its end tag gets a line of its own.
    let closes_here = text[inside.clone()].trim().is_empty() && !text[inside.clone()].contains('\n');
    let last = if closes_here { style.line(0) } else { String::new() };
    let range = if closes_here { inside } else { inside.start..inside.start };
    Splice::new(range, format!("{}{element}{last}", style.line(1)))
}

/// Whether a new element goes after a sibling that it follows by its number or its name: then the
/// next of its name goes after it.
pub(super) fn has_place(parent: Node<'_, '_>, new: &Step) -> bool {
    place_among(parent, new).is_some_and(|before| is_in_order(before, new))
}

/// The end of the element, or of the comment that follows it on its line.
fn end_with_comment(text: &str, element: Node<'_, '_>) -> usize {
    let mut end = element.range().end;
    for next in element.next_siblings().skip(1) {
        let range = next.range();
        if next.is_comment() {
            end = range.end;
        } else if !next.is_text() || text[range].contains('\n') {
            break;
        }
    }
    end
}

/// How the text around is written.
struct Style<'t> {
    /// Ends a line; empty where elements stand side by side.
    line_end: &'static str,
    /// Indentation of the parent.
    outer: &'t str,
    /// What a level adds to it.
    unit: &'t str,
    quote: char,
}

impl<'t> Style<'t> {
    fn of(text: &'t str, parent: Node<'_, '_>) -> Self {
        let place = |element: Node<'_, '_>| indentation(text, element.range().start);
        let child = parent.children().filter(Node::is_element).find_map(place);
        let own = place(parent);
        let lines = child.is_some() || (own.is_some() && !parent.children().any(|child| child.is_element()));
        let ends = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let outer = own.unwrap_or_default();
        let root = parent.document().root_element();
        let indented = root.children().filter(Node::is_element).find_map(place);
        let unit = child.and_then(|child| child.strip_prefix(outer)).or(indented).unwrap_or("  ");
        let quote = quote_of(parent);
        Self { line_end: if lines { ends } else { "" }, outer, unit, quote }
    }

    /// A new line, indented by `levels` more than the parent.
    fn line(&self, levels: usize) -> String {
        if self.line_end.is_empty() {
            return String::new();
        }
        format!("{}{}{}", self.line_end, self.outer, self.unit.repeat(levels))
    }

    fn element(&self, path: &[Step], leaf: &Leaf<'_>, level: usize) -> String {
        let Some((step, inner)) = path.split_first() else { return String::new() };
        let mut made = self.opened(step);
        if !inner.is_empty() {
            let inner = self.element(inner, leaf, level + 1);
            let _ = write!(made, ">{}{inner}{}</{}>", self.line(level + 1), self.line(level), step.element);
            return made;
        }
        match leaf {
            Leaf::Attribute(name, elements) => {
                let one =
                    |(step, value): &(&Step, &str)| format!("{}{}/>", self.opened(step), self.attribute(name, value));
                elements.iter().map(one).collect::<Vec<_>>().join(&self.line(level))
            }
            Leaf::Text(text) => made + &format!(">{}</{}>", escaped(text, None), step.element),
        }
    }

    /// The beginning of a start tag, with the attribute that tells the element from its siblings.
    fn opened(&self, step: &Step) -> String {
        let key = step.key.as_ref().map(|(key, value)| self.attribute(key, value));
        format!("<{}{}", step.element, key.unwrap_or_default())
    }

    fn attribute(&self, name: &str, value: &str) -> String {
        let quote = self.quote;
        format!(" {name}={quote}{}{quote}", escaped(value, Some(quote)))
    }
}

/// The blanks before `at`, where nothing else is on the line before it.
fn indentation(text: &str, at: usize) -> Option<&str> {
    let before = &text[..at];
    let start = before.trim_end_matches([' ', '\t']).len();
    (start == 0 || before[..start].ends_with('\n')).then(|| &before[start..])
}

/// What is between the start tag and the end tag; none for `<x/>`.
fn content(text: &str, element: Node<'_, '_>) -> Option<Range<usize>> {
    let range = element.range();
    if text[range.clone()].ends_with("/>") && element.children().next().is_none() {
        return None;
    }
    let end = range.start + text[range].rfind("</")?;
    let start = element.first_child().map_or(end, |child| child.range().start);
    Some(start..end)
}

fn attribute<'a, 'i>(element: Node<'a, 'i>, name: &str) -> Option<roxmltree::Attribute<'a, 'i>> {
    element.attributes().find(|attribute| attribute.namespace().is_none() && attribute.name() == name)
}

/// Where another attribute goes: after the last, or after the name.
fn attributes_end(element: Node<'_, '_>) -> usize {
    let name_end = element.range().start + 1 + element.tag_name().name().len();
    // Namespaces are no attributes of the tree, so that the start tag may go on after the last of
    // its attributes.
    element.attributes().map(|attribute| attribute.range().end).max().unwrap_or(name_end)
}

/// The value in `name='value'`; the tree's own ranges are wrong for very long names.
fn value_range(text: &str, attribute: Range<usize>) -> Range<usize> {
    let written = &text[attribute.clone()];
    let opens = written.find(['\'', '"']).map_or(written.len(), |at| at + 1);
    attribute.start + opens.min(written.len() - 1)..attribute.end - 1
}

/// The quotes that are used there: libvirt's own are single.
fn quote_of(element: Node<'_, '_>) -> char {
    let text = element.document().input_text();
    let written = element.ancestors().find_map(|element| element.attributes().next_back());
    written.and_then(|attribute| text[attribute.range()].chars().next_back()).unwrap_or('\'')
}

/// For a text, or for a value between `quote`s.
fn escaped(value: &str, quote: Option<char>) -> String {
    let mut escaped = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '\r' => escaped += "&#13;",
            '\n' if quote.is_some() => escaped += "&#10;",
            '\t' if quote.is_some() => escaped += "&#9;",
            '\'' if quote == Some('\'') => escaped += "&apos;",
            '"' if quote == Some('"') => escaped += "&quot;",
            c => escaped.push(c),
        }
    }
    escaped
}

//! Where in a text a change goes, and how it looks there.

use super::edit::Step;
use super::order::place_among;
use roxmltree::Node;
use std::fmt::Write;
use std::ops::Range;

/// A range of the text and what takes its place.
pub(super) struct Splice {
    pub(super) range: Range<usize>,
    pub(super) with: String,
    pub(super) kind: SpliceKind,
}

/// What a splice does to the tree of the text. Its range does not tell: an element made in
/// `<cputune/>` takes the place of `/>`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SpliceKind {
    /// An attribute that is there has another value: all elements and attributes stay.
    NewValue,
    /// Elements, attributes or texts come or go.
    NewTree,
}

impl Splice {
    fn new_tree(range: Range<usize>, with: String) -> Self {
        Self { range, with, kind: SpliceKind::NewTree }
    }
}

/// What the innermost of the elements that are made gets.
pub(super) enum Leaf<'a> {
    Attribute(&'a str, &'a str),
    Text(&'a str),
}

pub(super) fn set_attribute(text: &str, element: Node<'_, '_>, name: &str, value: &str) -> Option<Splice> {
    if let Some(attribute) = attribute(element, name) {
        if attribute.value() == value {
            return None;
        }
        let range = value_range(text, attribute.range());
        let quote = text[attribute.range()].chars().next_back().unwrap_or('\'');
        return Some(Splice { range, with: escaped(value, Some(quote)), kind: SpliceKind::NewValue });
    }
    let quote = quote_of(element);
    let at = attributes_end(element);
    Some(Splice::new_tree(at..at, format!(" {name}={quote}{}{quote}", escaped(value, Some(quote)))))
}

pub(super) fn remove_attribute(text: &str, element: Node<'_, '_>, name: &str) -> Option<Splice> {
    let range = attribute(element, name)?.range();
    let start = text[..range.start].trim_end().len();
    Some(Splice::new_tree(start..range.end, String::new()))
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
        return Some(Splice::new_tree(range, format!(">{new}</{name}>")));
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
    Some(Splice::new_tree(inside, with))
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

/// The element goes with its line, where nothing else is on it.
pub(super) fn remove(text: &str, element: Node<'_, '_>) -> Splice {
    let range = element.range();
    let before = &text[..range.start];
    let line = before.trim_end_matches([' ', '\t']).len();
    let after = &text[range.end..];
    let rest = after.trim_start_matches([' ', '\t']);
    let alone = before[..line].ends_with('\n') && (rest.starts_with('\n') || rest.starts_with("\r\n"));
    if !alone {
        return Splice::new_tree(range, String::new());
    }
    let blank = after.len() - rest.len();
    let end = range.end + blank + rest.find('\n').map_or(0, |at| at + 1);
    Splice::new_tree(line..end, String::new())
}

/// Makes the elements of `path` in `parent`, each in the one before, the first at its place among
/// its siblings.
pub(super) fn insert(text: &str, parent: Node<'_, '_>, path: &[Step], leaf: &Leaf<'_>) -> Splice {
    let style = Style::of(text, parent);
    let element = style.element(path, leaf, 1);
    let Some(inside) = content(text, parent) else {
        let name = parent.tag_name().name();
        let range = text[..parent.range().end - 2].trim_end().len()..parent.range().end;
        return Splice::new_tree(range, format!(">{}{element}{}</{name}>", style.line(1), style.line(0)));
    };
    if let Some(before) = path.first().and_then(|step| place_among(parent, step)) {
        let at = end_with_comment(text, before);
        return Splice::new_tree(at..at, format!("{}{element}", style.line(1)));
    }
    // The first of its parent. Where the parent had nothing, its end tag gets a line of its own.
    let closes_here = text[inside.clone()].trim().is_empty() && !text[inside.clone()].contains('\n');
    let last = if closes_here { style.line(0) } else { String::new() };
    let range = if closes_here { inside } else { inside.start..inside.start };
    Splice::new_tree(range, format!("{}{element}{last}", style.line(1)))
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
        let mut made = format!("<{}", step.element);
        if let Some((key, value)) = &step.key {
            made += &self.attribute(key, value);
        }
        if !inner.is_empty() {
            let inner = self.element(inner, leaf, level + 1);
            let _ = write!(made, ">{}{inner}{}</{}>", self.line(level + 1), self.line(level), step.element);
            return made;
        }
        match leaf {
            Leaf::Attribute(name, value) => made += &format!("{}/>", self.attribute(name, value)),
            Leaf::Text(text) => made += &format!(">{}</{}>", escaped(text, None), step.element),
        }
        made
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

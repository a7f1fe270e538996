//! Elements, and their text. Escaping and indentation are the writer's.

use quick_xml::Writer;
use quick_xml::events::{BytesEnd, BytesStart, BytesText, Event};
use std::io;

/// An element: its attributes, and a text or elements in it.
#[derive(Debug)]
pub(super) struct Element {
    name: &'static str,
    attributes: Vec<(&'static str, String)>,
    text: Option<String>,
    elements: Vec<Element>,
}

#[allow(clippy::needless_pass_by_value, reason = "what an element is given is a number or a text at hand")]
impl Element {
    /// An empty one.
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, attributes: Vec::new(), text: None, elements: Vec::new() }
    }

    /// One with a text.
    pub(super) fn text(name: &'static str, text: impl ToString) -> Self {
        Self { text: Some(text.to_string()), ..Self::new(name) }
    }

    /// One with elements in it.
    pub(super) fn holding(name: &'static str, elements: impl IntoIterator<Item = Element>) -> Self {
        Self { elements: elements.into_iter().collect(), ..Self::new(name) }
    }

    /// The same with one more attribute.
    #[must_use]
    pub(super) fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.attributes.push((name, value.to_string()));
        self
    }

    fn write(&self, writer: &mut Writer<Vec<u8>>) -> io::Result<()> {
        let attributes = self.attributes.iter().map(|(name, value)| (*name, value.as_str()));
        let start = BytesStart::new(self.name).with_attributes(attributes);
        if self.text.is_none() && self.elements.is_empty() {
            return writer.write_event(Event::Empty(start));
        }
        writer.write_event(Event::Start(start))?;
        if let Some(text) = &self.text {
            writer.write_event(Event::Text(BytesText::new(text)))?;
        }
        self.elements.iter().try_for_each(|element| element.write(writer))?;
        writer.write_event(Event::End(BytesEnd::new(self.name)))
    }
}

/// A comment of whole lines, and the element below it.
pub(super) fn document(comment: &str, root: &Element) -> String {
    let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
    let comment = format!("\n{}", speakable(comment));
    writer
        .write_event(Event::Comment(BytesText::from_escaped(comment)))
        .and_then(|()| root.write(&mut writer))
        .expect("memory takes every byte");
    let mut text = String::from_utf8(writer.into_inner()).expect("all that was written is text");
    text.push('\n');
    text
}

/// XML's comments have no `--` in them.
fn speakable(comment: &str) -> String {
    let mut text = comment.to_owned();
    while text.contains("--") {
        text = text.replace("--", "- -");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_values_are_read_back_as_they_were() {
        let odd = "a<b>&\"c' --> ]]> é";
        let root = Element::holding("domain", [Element::text("name", odd), Element::new("x").with("y", odd)]);
        let text = document("  one --> two --- three-\n", &root);
        let document = roxmltree::Document::parse(&text).unwrap();
        let comment = document.root().first_child().unwrap();
        assert_eq!(comment.text(), Some("\n  one - -> two - - - three-\n"));
        let elements: Vec<_> = document.root_element().children().filter(roxmltree::Node::is_element).collect();
        assert_eq!(elements[0].text(), Some(odd));
        assert_eq!(elements[1].attribute("y"), Some(odd));
    }
}

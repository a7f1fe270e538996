//! A tree of elements as text, in all the ways in which people and programs write XML.

use super::choices::Choices;

/// An element.
#[derive(Clone, Debug)]
pub(super) struct Element {
    name: &'static str,
    attributes: Vec<(&'static str, String)>,
    children: Vec<Element>,
    text: Option<String>,
}

pub(super) fn element(name: &'static str) -> Element {
    Element { name, attributes: Vec::new(), children: Vec::new(), text: None }
}

#[allow(clippy::needless_pass_by_value, reason = "a value is a number or a text at hand")]
impl Element {
    pub(super) fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.attributes.push((name, value.to_string()));
        self
    }

    pub(super) fn maybe(self, name: &'static str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    pub(super) fn text(mut self, text: impl ToString) -> Self {
        self.text = Some(text.to_string());
        self
    }

    pub(super) fn add(mut self, child: Element) -> Self {
        self.children.push(child);
        self
    }

    pub(super) fn all(mut self, children: impl IntoIterator<Item = Element>) -> Self {
        self.children.extend(children);
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.attributes.is_empty() && self.children.is_empty() && self.text.is_none()
    }

    /// Its children in another order.
    pub(super) fn shuffle(&mut self, choices: &mut Choices<'_>) {
        for index in (1..self.children.len()).rev() {
            let other = choices.below(index as u32 + 1) as usize;
            self.children.swap(index, index - other);
        }
    }
}

/// How a text is written.
struct Writer {
    quote: char,
    line_end: &'static str,
    /// None: elements stand side by side.
    indent: Option<&'static str>,
    /// Odd places among 100.
    odd: u32,
    state: u64,
    text: String,
}

/// The text, with what is odd at as many of 100 places as is drawn.
pub(super) fn written(root: &Element, choices: &mut Choices<'_>) -> String {
    let mut writer = Writer {
        quote: choices.one(&['\'', '"']),
        line_end: if choices.percent(10) { "\r\n" } else { "\n" },
        indent: choices.one(&[Some("  "), Some("  "), Some("    "), Some("\t"), Some(""), None]),
        odd: choices.one(&[0, 0, 2, 8, 20]),
        state: u64::from(choices.below(1 << 16)),
        text: String::new(),
    };
    if choices.percent(15) {
        writer.text += "<?xml version='1.0' encoding='UTF-8'?>";
        writer.text += writer.line_end;
    }
    writer.element(root, 0);
    if choices.percent(90) {
        writer.text += writer.line_end;
    }
    writer.text
}

impl Writer {
    /// A step of SplitMix64.
    fn below(&mut self, end: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    fn is_odd(&mut self) -> bool {
        self.odd > 0 && self.below(100) < u64::from(self.odd)
    }

    /// The plain text, or at an odd place one of the others.
    fn add(&mut self, plain: &str, odd: [&str; 3]) {
        let text = if self.is_odd() { odd[self.below(3) as usize] } else { plain };
        self.text += text;
    }

    fn line(&mut self, depth: usize) {
        if let Some(unit) = self.indent {
            self.text += self.line_end;
            self.text += &unit.repeat(depth);
        }
    }

    fn element(&mut self, element: &Element, depth: usize) {
        self.text += "<";
        self.text += element.name;
        for (name, value) in &element.attributes {
            self.attribute(name, value);
        }
        self.add("", ["  ", "\n", " \t"]);
        if element.children.is_empty() && element.text.is_none() && !self.is_odd() {
            self.text += "/>";
            return;
        }
        self.text += ">";
        if let Some(text) = &element.text {
            self.content(text);
        }
        for child in &element.children {
            self.between(depth + 1);
            self.line(depth + 1);
            self.element(child, depth + 1);
        }
        if !element.children.is_empty() {
            self.between(depth + 1);
            self.line(depth);
        }
        self.text += &format!("</{}", element.name);
        self.add(">", [" >", "\n>", "  >"]);
    }

    /// Comments, processing instructions and empty lines between elements.
    fn between(&mut self, depth: usize) {
        if !self.is_odd() {
            return;
        }
        match self.below(5) {
            0 => self.text += " <!-- cpus='9' beside -->",
            1 => {
                self.line(depth);
                self.text += "<!-- <vcpupin vcpu='0' cpuset='7'/> \u{e4} -->";
            }
            2 => {
                self.line(depth);
                self.text += "<?editor fold='yes'?>";
            }
            3 => self.text += self.line_end,
            _ => self.text += " \t ",
        }
    }

    fn attribute(&mut self, name: &str, value: &str) {
        self.add(" ", ["\n", "\t ", "   "]);
        self.text += name;
        self.add("=", [" = ", "= ", "\n="]);
        let other = if self.quote == '\'' { '"' } else { '\'' };
        let quote = if self.is_odd() { other } else { self.quote };
        self.text.push(quote);
        let is_number = !value.is_empty() && value.chars().all(|c| c.is_ascii_digit());
        if is_number {
            self.add("", ["0", " ", "00"]);
        }
        for c in value.chars() {
            self.character(c);
        }
        self.text.push(quote);
    }

    fn character(&mut self, c: char) {
        match c {
            '&' => self.text += "&amp;",
            '<' => self.text += "&lt;",
            '\'' | '"' => self.text += &format!("&#{};", c as u32),
            _ if self.is_odd() && self.below(8) == 0 => self.text += &format!("&#x{:x};", c as u32),
            _ => self.text.push(c),
        }
    }

    fn content(&mut self, text: &str) {
        match if self.is_odd() { self.below(4) } else { 9 } {
            0 => self.text += &format!("<![CDATA[{text}]]>"),
            1 => self.text += &format!(" {text}\n"),
            2 => self.text += &format!("<!-- was 1 -->{text}"),
            _ => text.chars().for_each(|c| self.character(c)),
        }
    }
}

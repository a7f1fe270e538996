//! The grammar of one option of QEMU's: `first,key=value,key=va,,lue,flag,noflag`, or `{JSON}`.

use super::sizes::{is_yes, number};
use serde_json::Value;

/// The keys and values of one option, in order; a key may come more than once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options(Vec<(String, String)>);

impl Options {
    /// Reads one value. A first word without a key is that of `implied`. A word without a value is
    /// a flag: `flag` is on, `noflag` is off (`get_opt_name_value` of QEMU's util/qemu-option.c).
    pub(crate) fn parse(value: &str, implied: &str) -> Self {
        if value.starts_with('{')
            && let Ok(Value::Object(object)) = serde_json::from_str(value)
        {
            let mut pairs = Vec::new();
            object.into_iter().for_each(|(key, value)| add_json(&mut pairs, key, value));
            return Self(pairs);
        }
        let mut pairs = Vec::new();
        for (index, word) in split(value).into_iter().enumerate() {
            let pair = match (word.split_once('='), word.strip_prefix("no")) {
                (Some((key, value)), _) => (key.to_owned(), value.to_owned()),
                (None, _) if index == 0 && !implied.is_empty() => (implied.to_owned(), word),
                (None, Some(flag)) => (flag.to_owned(), "off".to_owned()),
                (None, None) => (word, "on".to_owned()),
            };
            pairs.push(pair);
        }
        Self(pairs)
    }

    /// Adds what was said later: it counts more.
    pub(crate) fn add(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.0.push((key.into(), value.into()));
    }

    /// Adds what another option said later, each key behind `prefix`.
    pub(crate) fn merge(&mut self, other: Self, prefix: &str) {
        self.0.extend(other.0.into_iter().map(|(key, value)| (format!("{prefix}{key}"), value)));
    }

    /// The value of a key; of several the last.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// All values of a key that is a list: each is one more (`host-nodes=0,host-nodes=2`). In a
    /// configuration file, and in JSON, they are numbered: `host-nodes.0`.
    pub(crate) fn all(&self, key: &str) -> impl Iterator<Item = &str> {
        let is_its = move |name: &str| {
            let index = name.strip_prefix(key).and_then(|rest| rest.strip_prefix('.'));
            name == key || index.is_some_and(|index| index.bytes().all(|byte| byte.is_ascii_digit()))
        };
        self.0.iter().filter(move |(name, _)| is_its(name)).map(|(_, value)| value.as_str())
    }

    /// Whether any word has one of these in it.
    pub(crate) fn mention(&self, words: &[&str]) -> bool {
        self.0.iter().any(|(key, value)| words.iter().any(|word| key.contains(word) || value.contains(word)))
    }

    pub(crate) fn number(&self, key: &str) -> Option<u32> {
        number(self.get(key)?)
    }

    pub(crate) fn is_on(&self, key: &str) -> bool {
        self.get(key).is_some_and(is_yes)
    }
}

/// A list is the same key several times, as `host-nodes` is written; what is within an object has
/// the object's name before it.
fn add_json(pairs: &mut Vec<(String, String)>, key: String, value: Value) {
    match value {
        Value::Array(values) => values.into_iter().for_each(|value| add_json(pairs, key.clone(), value)),
        Value::Object(object) => {
            object.into_iter().for_each(|(inner, value)| add_json(pairs, format!("{key}.{inner}"), value));
        }
        Value::Bool(on) => pairs.push((key, if on { "on" } else { "off" }.to_owned())),
        Value::String(text) => pairs.push((key, text)),
        Value::Number(number) => pairs.push((key, number.to_string())),
        Value::Null => {}
    }
}

/// Splits at commas; two commas stand for one.
fn split(value: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut letters = value.chars().peekable();
    while let Some(letter) = letters.next() {
        let doubled = letter == ',' && letters.next_if_eq(&',').is_some();
        match words.last_mut() {
            Some(word) if letter != ',' || doubled => word.push(letter),
            _ => words.push(String::new()),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qemu::memory_size;
    use topology::Bytes;

    #[test]
    fn words_keys_and_doubled_commas_are_read() {
        let options = Options::parse("guest=a,,b,debug-threads=on,flag,nowait", "guest");
        assert_eq!(
            (options.get("guest"), options.is_on("debug-threads"), options.is_on("flag"), options.get("wait")),
            (Some("a,b"), true, true, Some("off"))
        );
        assert_eq!(Options::parse("web", "guest").get("guest"), Some("web"));
        assert_eq!(Options::parse("node", "type").get("type"), Some("node"));
        let node = Options::parse("node,cpus=0-1,cpus=4,nodeid=1,nodeid=0x2", "type");
        assert_eq!(node.all("cpus").collect::<Vec<_>>(), ["0-1", "4"]);
        assert_eq!(node.number("nodeid"), Some(2));
        let numbered = Options::parse("host-nodes.0=1,host-nodes.1=2,host-nodes-x=3", "");
        assert_eq!(numbered.all("host-nodes").collect::<Vec<_>>(), ["1", "2"]);
    }

    #[test]
    fn json_is_read_as_the_same_keys() {
        let options = Options::parse(
            r#"{"qom-type":"memory-backend-ram","id":"m","size":1073741824,"host-nodes":[0,2],"prealloc":true,"x":{"y":1}}"#,
            "",
        );
        assert_eq!(options.get("qom-type"), Some("memory-backend-ram"));
        assert_eq!(options.all("host-nodes").collect::<Vec<_>>(), ["0", "2"]);
        assert!(options.is_on("prealloc"));
        assert_eq!(options.number("x.y"), Some(1));
        assert_eq!(memory_size(options.get("size").unwrap(), Bytes(1)), Some(Bytes(1 << 30)));
        assert_eq!(Options::parse("{broken", "driver").get("driver"), Some("{broken"));
    }
}

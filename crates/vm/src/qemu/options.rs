//! The grammar of QEMU's options: `-option first,key=value,key=va,,lue`, or `-option {JSON}`.

use serde_json::Value;
use topology::Bytes;

/// The value of the first `-option` (or `--option`).
pub(crate) fn value_of<'a>(arguments: &'a [String], option: &str) -> Option<&'a str> {
    values_of(arguments, &[option]).next()
}

/// The values of every option with one of these names.
pub(crate) fn values_of<'a>(arguments: &'a [String], names: &[&str]) -> impl Iterator<Item = &'a str> {
    arguments.windows(2).filter_map(move |pair| {
        let name = pair[0].strip_prefix('-')?;
        let name = name.strip_prefix('-').unwrap_or(name);
        names.contains(&name).then_some(pair[1].as_str())
    })
}

/// The keys and values of one option, in order; a key may come more than once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options(Vec<(String, String)>);

impl Options {
    /// Reads one value. A first word without a key is that of `implied`.
    pub(crate) fn parse(value: &str, implied: &str) -> Self {
        if value.starts_with('{')
            && let Ok(Value::Object(object)) = serde_json::from_str(value)
        {
            return Self(object.into_iter().flat_map(|(key, value)| json_pairs(key, value)).collect());
        }
        let mut pairs = Vec::new();
        for (index, word) in split(value).into_iter().enumerate() {
            match word.split_once('=') {
                Some((key, value)) => pairs.push((key.to_owned(), value.to_owned())),
                None if index == 0 && !implied.is_empty() => pairs.push((implied.to_owned(), word)),
                None => pairs.push((word, "on".to_owned())),
            }
        }
        Self(pairs)
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.all(key).next()
    }

    pub(crate) fn all(&self, key: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    pub(crate) fn number(&self, key: &str) -> Option<u32> {
        self.get(key)?.parse().ok()
    }

    pub(crate) fn is_on(&self, key: &str) -> bool {
        matches!(self.get(key), Some("on" | "yes" | "true"))
    }
}

/// A list is the same key several times, as `host-nodes` is written.
fn json_pairs(key: String, value: Value) -> Vec<(String, String)> {
    match value {
        Value::Array(values) => values.into_iter().flat_map(|value| json_pairs(key.clone(), value)).collect(),
        Value::Bool(on) => vec![(key, if on { "on" } else { "off" }.to_owned())],
        Value::String(text) => vec![(key, text)],
        // A nested object holds nothing that is asked for here.
        Value::Object(_) | Value::Null => Vec::new(),
        Value::Number(number) => vec![(key, number.to_string())],
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

/// Reads a size such as `4G`, `8388608k` or `0x1000`; a number without a unit counts `unit` bytes
/// (a MiB in `-m`, one in `-object`).
pub fn memory_size(text: &str, unit: Bytes) -> Option<Bytes> {
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).ok().map(Bytes);
    }
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let number: u64 = digits.parse().ok()?;
    let unit = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" => unit.0,
        "B" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        "T" => 1 << 40,
        _ => return None,
    };
    number.checked_mul(unit).map(Bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_keys_and_doubled_commas_are_read() {
        let options = Options::parse("guest=a,,b,debug-threads=on,flag", "guest");
        assert_eq!(
            (options.get("guest"), options.is_on("debug-threads"), options.is_on("flag")),
            (Some("a,b"), true, true)
        );
        assert_eq!(Options::parse("web", "guest").get("guest"), Some("web"));
        let node = Options::parse("node,cpus=0-1,cpus=4", "type");
        assert_eq!(node.all("cpus").collect::<Vec<_>>(), ["0-1", "4"]);
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
        assert_eq!(memory_size(options.get("size").unwrap(), Bytes(1)), Some(Bytes(1 << 30)));
        assert_eq!(Options::parse("{broken", "driver").get("driver"), Some("{broken"));
    }

    #[test]
    fn sizes_have_units() {
        let cases =
            [("512", 512 << 20), ("4G", 4 << 30), ("8388608k", 8 << 30), ("1048576B", 1 << 20), ("0x1000", 4096)];
        for (text, bytes) in cases {
            assert_eq!(memory_size(text, Bytes::MIB), Some(Bytes(bytes)), "{text}");
        }
        assert_eq!(memory_size("1073741824", Bytes(1)), Some(Bytes(1 << 30)));
        for text in ["", "G", "4 apples", "99999999999999999T"] {
            assert_eq!(memory_size(text, Bytes::MIB), None, "{text}");
        }
    }
}

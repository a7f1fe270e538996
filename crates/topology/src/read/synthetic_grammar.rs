//! hwloc's synthetic grammar: words into levels. `[pack:2 [numa(memory=4GiB)] l3:2(size=32MiB)
//! core:4 pu:2]`

use super::error::ReadError;
use crate::Bytes;
use crate::input::excerpt;

/// What a level consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Socket,
    Die,
    Group,
    /// A cache that holds data, by level.
    Cache(u8),
    /// A cache that holds instructions only.
    Instructions,
    Numa,
    Core,
    Thread,
}

/// Attributes in parentheses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Attributes {
    pub(super) memory: Option<Bytes>,
    pub(super) size: Option<Bytes>,
    pub(super) indexes: Option<String>,
    /// Of hardware threads; homenode's own, not hwloc's.
    pub(super) isolated_cpus: Option<String>,
}

/// A memory attached in brackets: a NUMA node beside each object of the level before it.
#[derive(Clone, Debug)]
pub(super) struct Attached {
    pub(super) attributes: Attributes,
    pub(super) at: At,
}

/// One level: `count` objects in each object of the level above.
#[derive(Clone, Debug)]
pub(super) struct Level {
    pub(super) kind: Kind,
    pub(super) count: usize,
    pub(super) attributes: Attributes,
    pub(super) attached: Vec<Attached>,
    pub(super) at: At,
}

/// A word and its place, for errors.
#[derive(Clone, Debug)]
pub(super) struct At {
    pub(super) word: String,
    pub(super) start: usize,
}

/// A whole string.
pub(super) struct Description {
    /// Memory attached to the machine itself.
    pub(super) attached: Vec<Attached>,
    pub(super) levels: Vec<Level>,
}

const KINDS: [(&[&str], Kind); 15] = [
    (&["pack", "package", "socket", "sock"], Kind::Socket),
    (&["die"], Kind::Die),
    (&["group"], Kind::Group),
    (&["numa", "numanode", "node"], Kind::Numa),
    (&["l5", "l5cache"], Kind::Cache(5)),
    (&["l4", "l4cache"], Kind::Cache(4)),
    (&["l3", "l3cache", "l3u"], Kind::Cache(3)),
    (&["l2", "l2cache", "l2u", "l2d"], Kind::Cache(2)),
    (&["l1", "l1d", "l1dcache"], Kind::Cache(1)),
    (&["l3i", "l3icache"], Kind::Instructions),
    (&["l2i", "l2icache"], Kind::Instructions),
    (&["l1i", "l1icache"], Kind::Instructions),
    (&["core"], Kind::Core),
    (&["pu"], Kind::Thread),
    (&["thread"], Kind::Thread),
];
const VALID: &str = "write `type:count` with a type of pack, die, group, numa, l1 to l5, core or pu, or `[numa]` for a \
    memory attached to the level before it";

/// hwloc's own bound (`HWLOC_SYNTHETIC_MAX_DEPTH`): each level is one inside the one before.
const MOST_LEVELS: usize = 128;

/// An error at a word.
pub(super) fn error(text: &str, at: &At, reason: impl Into<String>) -> ReadError {
    let position = text.get(..at.start).map_or(0, |before| before.chars().count()) + 1;
    ReadError::Synthetic { text: excerpt(text), word: excerpt(&at.word), position, reason: reason.into() }
}

/// Splits a string into its levels.
pub(super) fn parse(text: &str) -> Result<Description, ReadError> {
    let mut description = Description { attached: Vec::new(), levels: Vec::<Level>::new() };
    for word in words(text)? {
        if let Some(inside) = word.word.strip_prefix('[').and_then(|word| word.strip_suffix(']')) {
            let attached = attached(text, inside, &word)?;
            match description.levels.last_mut() {
                Some(level) => level.attached.push(attached),
                None => description.attached.push(attached),
            }
        } else {
            let level = level(text, word)?;
            check_order(text, &description.levels, &level)?;
            if description.levels.len() >= MOST_LEVELS {
                return Err(error(text, &level.at, format!("at most {MOST_LEVELS} levels are taken")));
            }
            description.levels.push(level);
        }
    }
    check_memory(text, &description)?;
    match description.levels.last() {
        Some(last) if last.kind == Kind::Thread => Ok(description),
        Some(last) => {
            Err(error(text, &last.at, "the last level must be hardware threads: end with `pu:1` (no SMT) or `pu:2`"))
        }
        None => Err(error(text, &At { word: text.to_owned(), start: 0 }, VALID)),
    }
}

/// Words are parted by spaces outside parentheses and brackets; a bracket starts a word of its own.
fn words(text: &str) -> Result<Vec<At>, ReadError> {
    const LONGEST: usize = 1 << 20;
    if text.len() > LONGEST {
        return Err(error(text, &At { word: text.to_owned(), start: 0 }, "the string is longer than 1 MiB"));
    }
    let mut words = Vec::new();
    let mut start = None;
    let (mut parentheses, mut brackets) = (0_i32, 0_i32);
    let end_word = |words: &mut Vec<At>, start: &mut Option<usize>, end: usize| {
        words.extend(start.take().map(|start| At { word: text[start..end].to_owned(), start }));
    };
    for (index, character) in text.char_indices() {
        let inside = parentheses > 0 || brackets > 0;
        if !inside && (character.is_whitespace() || character == '[') {
            end_word(&mut words, &mut start, index);
        }
        if !character.is_whitespace() {
            start.get_or_insert(index);
        }
        match character {
            '(' => parentheses += 1,
            ')' => parentheses -= 1,
            '[' => brackets += 1,
            ']' => brackets -= 1,
            _ => {}
        }
        if parentheses < 0 || !(0..=1).contains(&brackets) || parentheses > 1 {
            let at = At { word: text[index..].to_owned(), start: index };
            return Err(error(text, &at, "a bracket or parenthesis has no partner"));
        }
        if character == ']' && parentheses == 0 {
            end_word(&mut words, &mut start, index + 1);
        }
    }
    if parentheses > 0 || brackets > 0 {
        let start = start.unwrap_or(0);
        return Err(error(
            text,
            &At { word: text[start..].to_owned(), start },
            "a bracket or parenthesis is not closed",
        ));
    }
    end_word(&mut words, &mut start, text.len());
    Ok(words)
}

fn kind_of(text: &str, name: &str, at: &At) -> Result<Kind, ReadError> {
    let lower = name.trim().to_ascii_lowercase();
    let found = KINDS.iter().find(|(names, _)| names.contains(&lower.as_str()));
    found.map(|&(_, kind)| kind).ok_or_else(|| error(text, at, format!("unknown type; {VALID}")))
}

/// `type:count(attributes)`.
fn level(text: &str, at: At) -> Result<Level, ReadError> {
    let (head, attributes) = split_attributes(text, &at.word, &at)?;
    let (name, count) = head.split_once(':').unwrap_or((head, ""));
    let kind = kind_of(text, name, &at)?;
    let count = match count.trim().parse::<usize>() {
        Ok(count) if count > 0 => count,
        _ => return Err(error(text, &at, format!("give a number of objects from 1 up, for example `{name}:2`"))),
    };
    Ok(Level { kind, count, attributes, attached: Vec::new(), at })
}

/// `numa(attributes)` inside brackets.
fn attached(text: &str, inside: &str, at: &At) -> Result<Attached, ReadError> {
    let (name, attributes) = split_attributes(text, inside, at)?;
    if kind_of(text, name, at)? != Kind::Numa {
        return Err(error(text, at, "only memory can be attached: write `[numa]` or `[numa(memory=48GiB)]`"));
    }
    Ok(Attached { attributes, at: at.clone() })
}

fn split_attributes<'a>(text: &str, word: &'a str, at: &At) -> Result<(&'a str, Attributes), ReadError> {
    let Some((head, rest)) = word.split_once('(') else { return Ok((word, Attributes::default())) };
    let Some(inside) = rest.strip_suffix(')') else {
        return Err(error(text, at, "nothing may follow the parenthesis"));
    };
    let mut attributes = Attributes::default();
    for attribute in inside.split_whitespace() {
        let (key, value) = attribute.split_once('=').unwrap_or((attribute, ""));
        match key {
            "memory" => attributes.memory = Some(amount(text, value, at)?),
            "size" => attributes.size = Some(amount(text, value, at)?),
            "indexes" => attributes.indexes = Some(value.to_owned()),
            "isolated_cpus" if head.starts_with("pu") || head.starts_with("thread") => {
                attributes.isolated_cpus = Some(value.to_owned());
            }
            _ => {
                return Err(error(
                    text,
                    at,
                    format!(
                        "unknown attribute `{}`: write memory=, size=, indexes=, or of pu isolated_cpus=",
                        excerpt(key)
                    ),
                ));
            }
        }
    }
    Ok((head, attributes))
}

/// An amount in hwloc's units: `GiB` is 1024^3 bytes, `GB` 1000^3, none is bytes.
fn amount(text: &str, value: &str, at: &At) -> Result<Bytes, ReadError> {
    let digits = value.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = value.split_at(digits);
    let factor = match unit {
        "" | "B" => Some(1),
        "kB" | "KB" => Some(1000),
        "MB" => Some(1_000_000),
        "GB" => Some(1_000_000_000),
        "TB" => Some(1_000_000_000_000),
        "KiB" => Some(1 << 10),
        "MiB" => Some(1 << 20),
        "GiB" => Some(1 << 30),
        "TiB" => Some(1_u64 << 40),
        _ => None,
    };
    let bytes = factor.and_then(|factor| number.parse::<u64>().ok()?.checked_mul(factor));
    bytes.map(Bytes).ok_or_else(|| {
        error(
            text,
            at,
            format!(
                "`{}` is not an amount: write a whole number and kB, MB, \
        GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (of 1024)",
                excerpt(value)
            ),
        )
    })
}

/// A type may be there once, and nothing is inside a hardware thread.
fn check_order(text: &str, levels: &[Level], level: &Level) -> Result<(), ReadError> {
    if levels.last().is_some_and(|last| last.kind == Kind::Thread) {
        return Err(error(text, &level.at, "nothing can follow pu: it must be the last level"));
    }
    let once = !matches!(level.kind, Kind::Group | Kind::Instructions);
    if once && levels.iter().any(|other| other.kind == level.kind) {
        return Err(error(text, &level.at, "this type is there already: each type but group may be a level once"));
    }
    if levels.iter().any(|other| other.kind == Kind::Core)
        && matches!(level.kind, Kind::Socket | Kind::Die | Kind::Numa)
    {
        return Err(error(text, &level.at, "it cannot be inside a core: put core and pu last"));
    }
    Ok(())
}

/// hwloc takes nodes as a level or attached, not both in one string.
fn check_memory(text: &str, description: &Description) -> Result<(), ReadError> {
    let level = description.levels.iter().find(|level| level.kind == Kind::Numa);
    let attached = description.levels.iter().flat_map(|level| &level.attached).chain(&description.attached).next();
    match (level, attached) {
        (Some(_), Some(attached)) => Err(error(
            text,
            &attached.at,
            "NUMA nodes are a level of this string already: write `numa:2` or `[numa]`, not both",
        )),
        _ => Ok(()),
    }
}

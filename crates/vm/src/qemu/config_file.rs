//! Configuration files of QEMU (`-readconfig`; `qemu_config_foreach` of its util/qemu-config.c).
//!
//! ```text
//! # a comment, where it begins the line
//! [object "ram0"]
//!   qom-type = "memory-backend-ram"
//!   size = "1G"
//! ```

use super::options::Options;

/// The sections of a file, in order: group, and what it says; the number of a line that QEMU does
/// not take where there is one.
pub(super) fn parse(text: &str) -> Result<Vec<(String, Options)>, usize> {
    let mut sections: Vec<(String, Options)> = Vec::new();
    // `fgets` ends a line at its end only: a carriage return is behind the quotes, or nowhere.
    for (index, line) in text.split('\n').enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(section) = section(line) {
            sections.push(section);
            continue;
        }
        match (pair(line), sections.last_mut()) {
            (Some((key, value)), Some((_, options))) => options.add(key, value),
            _ => return Err(index + 1),
        }
    }
    Ok(sections)
}

/// `[group]`, `[group "id"]`. What is behind it nobody reads.
fn section(line: &str) -> Option<(String, Options)> {
    let inner = line.strip_prefix('[')?;
    let mut options = Options::default();
    if let Some((group, rest)) = inner.split_once(char::is_whitespace)
        && let Some((id, _)) = rest.trim_start().strip_prefix('"').and_then(|rest| rest.split_once('"'))
        && !group.is_empty()
        && !id.is_empty()
    {
        options.add("id", id);
        return Some((group.to_owned(), options));
    }
    let (group, _) = inner.split_once(']')?;
    (!group.is_empty()).then(|| (group.to_owned(), options))
}

/// `key = "value"`: blanks stand around the sign, and what is behind the quotes nobody reads.
fn pair(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    let (key, rest) = line.split_at(line.find(char::is_whitespace)?);
    let rest = rest.trim_start().strip_prefix('=')?.trim_start().strip_prefix('"')?;
    Some((key, rest.split_once('"').map_or(rest, |(value, _)| value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_have_a_group_and_perhaps_an_id() {
        let text = "# made by hand\n\n[memory]\n  size = \"96\"\r\n[object \"m 0\"]\n\tsize = \"1G\" # half\n empty = \"\"\n[smp-opts]";
        let read = parse(text).unwrap();
        let groups: Vec<&str> = read.iter().map(|(group, _)| group.as_str()).collect();
        assert_eq!(groups, ["memory", "object", "smp-opts"]);
        assert_eq!(read[0].1.get("size"), Some("96"));
        let object = &read[1].1;
        assert_eq!([object.get("id"), object.get("size"), object.get("empty")], [Some("m 0"), Some("1G"), Some("")]);
    }

    #[test]
    fn a_line_that_qemu_does_not_take_is_named() {
        let of = |text: &str| parse(text).map(|_| ());
        for text in ["size = \"1\"", "[memory]\nsize=\"1\"", "[memory]\nsize = 1", "[memory]\n # indented", "[memory"] {
            assert!(of(text).is_err(), "{text}");
        }
        assert_eq!(of("[memory]\n\nx"), Err(3));
        assert_eq!(of(""), Ok(()));
    }
}

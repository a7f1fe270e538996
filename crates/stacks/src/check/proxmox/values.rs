//! Values as qemu-server reads them (`check_type` of QemuServer.pm, `parse_property_string` of
//! JSONSchema.pm, `parse_cpuset` of CpuSet.pm).

use std::collections::{BTreeMap, BTreeSet};
use topology::input::excerpt;
use topology::{CpuId, CpuSet};

/// The largest CPU number that is counted with.
const LARGEST_CPU: u32 = 65_535;
/// Kinds of hot-plug.
const FEATURES: [&str; 6] = ["network", "disk", "cpu", "memory", "usb", "cloudinit"];
/// What is on where nothing is written.
const USUAL_FEATURES: [&str; 3] = ["network", "disk", "usb"];

/// Why Proxmox cannot read a value, in its words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Unreadable(pub(super) String);

/// `1`, `on`, `yes`, `true` in any case.
pub(super) fn is_true(value: &str) -> bool {
    value == "1" || ["on", "yes", "true"].iter().any(|word| value.eq_ignore_ascii_case(word))
}

/// Whether it is a boolean at all.
pub(super) fn is_boolean(value: &str) -> bool {
    is_true(value) || value == "0" || ["off", "no", "false"].iter().any(|word| value.eq_ignore_ascii_case(word))
}

/// A whole number without a sign.
pub(super) fn whole(value: &str) -> Option<u64> {
    value.bytes().all(|byte| byte.is_ascii_digit()).then(|| value.parse().ok())?
}

/// `memory`: MiB, also as `current=MiB`.
pub(super) fn current(value: &str) -> Option<u64> {
    let pairs = properties(value, &["current"], Some("current")).ok()?;
    whole(pairs.get("current")?)
}

/// A list such as `a=1,b=2`, of these keys; `usual` is that of a value without one.
///
/// # Errors
/// Why it is none, as qemu-server says it.
pub(super) fn properties<'a>(
    value: &'a str,
    keys: &[&'static str],
    usual: Option<&'static str>,
) -> Result<BTreeMap<&'static str, &'a str>, Unreadable> {
    let no = |why: String| Err(Unreadable(why));
    let mut found = BTreeMap::new();
    for part in value.split(',').filter(|part| !part.trim().is_empty()) {
        let (key, value) = match part.split_once('=') {
            Some((key, value)) if !key.is_empty() && !value.is_empty() => (key, value),
            Some(_) => return no("missing key in comma-separated list property".to_owned()),
            None => match usual {
                Some(key) => (key, part),
                None => return no("value without key, but schema does not define a default key".to_owned()),
            },
        };
        let Some(key) = keys.iter().find(|known| **known == key) else {
            return no(format!("invalid key in comma-separated list property: {}", excerpt(key)));
        };
        if found.insert(*key, value).is_some() {
            return no(format!("duplicate key in comma-separated list property: {key}"));
        }
    }
    Ok(found)
}

/// Ranges such as `0-3;8`.
pub(super) fn ranges(value: &str, between: char) -> Option<Vec<(u32, u32)>> {
    let range = |part: &str| {
        let (first, last) = part.trim().split_once('-').unwrap_or((part.trim(), part.trim()));
        let number = |text: &str| whole(text).and_then(|number| u32::try_from(number).ok());
        let (first, last) = (number(first)?, number(last)?);
        (!first.to_string().is_empty() && first <= last && last <= LARGEST_CPU).then_some((first, last))
    };
    // As Perl splits: nothing at the end is nothing.
    value.trim_end_matches(between).split(between).map(range).collect()
}

/// `affinity`.
pub(super) fn cpu_set(value: &str) -> Option<CpuSet> {
    Some(ranges(value, ',')?.into_iter().flat_map(|(first, last)| (first..=last).map(CpuId)).collect())
}

/// `hotplug`: its kinds.
///
/// # Errors
/// Why it is none, as qemu-server says it.
pub(super) fn hotplug(value: &str) -> Result<BTreeSet<&'static str>, Unreadable> {
    if value == "0" {
        return Ok(BTreeSet::new());
    }
    if value == "1" {
        return Ok(usual_hotplug());
    }
    let words = value.split([',', ';', ' ', '\t']).filter(|word| !word.is_empty());
    let known = |word: &str| {
        let found = FEATURES.iter().find(|known| **known == word).copied();
        found.ok_or_else(|| Unreadable(format!("invalid hotplug feature '{}'", excerpt(word))))
    };
    words.map(known).collect()
}

/// What can be plugged in where nothing is written.
pub(super) fn usual_hotplug() -> BTreeSet<&'static str> {
    USUAL_FEATURES.into_iter().collect()
}

/// Kinds of hot-plug as they are written.
pub(super) fn hotplug_text(features: &BTreeSet<&'static str>) -> String {
    if features.is_empty() {
        return "0".to_owned();
    }
    let order = ["network", "disk", "usb", "cpu", "memory", "cloudinit"];
    order.into_iter().filter(|word| features.contains(word)).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans_are_written_in_many_ways() {
        for yes in ["1", "on", "yes", "true", "YES", "True"] {
            assert!(is_true(yes) && is_boolean(yes), "{yes}");
        }
        for no in ["0", "off", "No", "false"] {
            assert!(!is_true(no) && is_boolean(no), "{no}");
        }
        assert!(!is_boolean("2") && !is_boolean("enabled") && !is_boolean(""));
    }

    #[test]
    fn sets_have_their_own_separators() {
        assert_eq!(cpu_set("0-3, 8,9-10").map(|set| set.to_string()), Some("0-3,8-10".to_owned()));
        assert_eq!(cpu_set("0,0-2,").map(|set| set.to_string()), Some("0-2".to_owned()));
        for none in ["0-3;8", "3-1", "^2", "0-7:2", "a", "", ",1", "0-99999999"] {
            assert_eq!(cpu_set(none), None, "{none}");
        }
        assert_eq!(ranges("0-1;4-5", ';'), Some(vec![(0, 1), (4, 5)]));
    }

    #[test]
    fn hotplug_is_a_list_or_a_switch() {
        let text = |value: &str| hotplug(value).map(|features| hotplug_text(&features));
        assert_eq!(text("1"), Ok("network,disk,usb".to_owned()));
        assert_eq!(text("0"), Ok("0".to_owned()));
        assert_eq!(text("memory;cpu"), Ok("cpu,memory".to_owned()));
        assert_eq!(text("ram"), Err(Unreadable("invalid hotplug feature 'ram'".to_owned())));
    }

    #[test]
    fn a_property_is_one_of_its_keys() {
        assert_eq!(current("2048"), Some(2048));
        assert_eq!(current("current=2048"), Some(2048));
        for none in ["max=3", "current=1,current=2", "1,2", "4G", "-1", "current="] {
            assert_eq!(current(none), None, "{none}");
        }
    }
}

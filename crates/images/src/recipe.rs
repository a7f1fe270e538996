//! What an image is made of. Pure.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Changes where the same words would be built into something else.
const FORMAT: u32 = 1;

/// What an image is made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Version of how images are built.
    pub format: u32,
    /// The distribution's release, by its codename.
    pub suite: String,
    /// The distribution's word for the processor, such as `amd64`.
    pub architecture: String,
    /// Packages that were asked for, with the versions that the host's apt knows; `None` where it
    /// knows none, for a suite that is not the host's own.
    pub packages: BTreeMap<String, Option<String>>,
}

impl Recipe {
    /// A recipe for what is built today.
    pub fn new(suite: String, architecture: String, packages: BTreeMap<String, Option<String>>) -> Self {
        Self { format: FORMAT, suite, architecture, packages }
    }

    /// The name of its image: 16 hexadecimal digits.
    pub fn key(&self) -> String {
        let mut text = format!("{}\n{}\n{}\n", self.format, self.suite, self.architecture);
        for (package, version) in &self.packages {
            // Neither has white space: a name and a version cannot be taken for another pair.
            text += &format!("{package} {}\n", version.as_deref().unwrap_or("-"));
        }
        format!("{:016x}", twox_hash::XxHash3_128::oneshot(text.as_bytes()) >> 64)
    }

    /// `lammps, openmpi-bin on bookworm`.
    pub fn summary(&self) -> String {
        let packages: Vec<&str> = self.packages.keys().map(String::as_str).collect();
        format!("{} on {}", packages.join(", "), self.suite)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn recipe(packages: &[(&str, &str)]) -> Recipe {
        let packages = packages.iter().map(|&(name, version)| (name.to_owned(), Some(version.to_owned())));
        Recipe::new("bookworm".into(), "amd64".into(), packages.collect())
    }

    #[test]
    fn the_order_of_packages_does_not_count_and_all_else_does() {
        let one = recipe(&[("lammps", "1"), ("hpcc", "2")]);
        assert_eq!(one.key(), recipe(&[("hpcc", "2"), ("lammps", "1")]).key());
        assert_eq!(one.key().len(), 16);
        let newer = recipe(&[("lammps", "2"), ("hpcc", "2")]);
        let fewer = recipe(&[("lammps", "1")]);
        let other = Recipe { suite: "trixie".into(), ..one.clone() };
        let keys = [&one, &newer, &fewer, &other].map(Recipe::key);
        assert!((1..4).all(|index| !keys[..index].contains(&keys[index])), "{keys:?}");
    }

    properties::properties! {
        #[test]
        fn recipes_that_differ_have_different_keys(
            one in proptest::collection::btree_map("[a-z]{1,3}", proptest::option::of("[0-9]{1,2}"), 1..4),
            other in proptest::collection::btree_map("[a-z]{1,3}", proptest::option::of("[0-9]{1,2}"), 1..4),
        ) {
            let of = |packages| Recipe::new("bookworm".into(), "amd64".into(), packages);
            let (one, other) = (of(one), of(other));
            prop_assert_eq!(one.key() == other.key(), one == other);
        }
    }
}

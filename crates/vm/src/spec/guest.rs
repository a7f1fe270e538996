//! The system of a guest: packages of a distribution.

use super::VmSpec;
use super::check::{Checked, ensure};
use serde::{Deserialize, Serialize};

/// Most packages that one guest names; what they depend on comes by itself.
const MOST_PACKAGES: usize = 200;
/// Longest name of a package or of a suite: Debian's own longest are below 80.
const LONGEST_WORD: usize = 100;

/// A system to build for a guest: a distribution's base with some packages, over homenode's own
/// kernel and init.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guest {
    /// Packages, by the distribution's names.
    pub packages: Vec<String>,
    /// The distribution's release, by its codename, such as `bookworm`. Default: the host's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suite: Option<String>,
}

/// What the spec says of its guest.
pub(super) fn check(spec: &VmSpec) -> Checked {
    let Some(guest) = &spec.guest else { return Ok(()) };
    guest.check()?;
    ensure(spec.boot == super::Boot::default(), "boot", || {
        "it does not go with [guest], which says what the VM boots: remove one of the two".to_owned()
    })
}

impl Guest {
    /// Whether its words can be names of packages and of a suite.
    ///
    /// # Errors
    /// The first that cannot; fields are those of a table `[guest]`.
    pub fn check(&self) -> Checked {
        ensure((1..=MOST_PACKAGES).contains(&self.packages.len()), "guest.packages", || {
            format!("name 1 to {MOST_PACKAGES} packages, for example [\"lammps\"]; {} are written", self.packages.len())
        })?;
        for (index, package) in self.packages.iter().enumerate() {
            ensure(is_word(package, "+.-"), &format!("guest.packages[{index}]"), || {
                format!(
                    "{package:?} is no name of a package: lower-case letters, digits, `+`, `.` and `-` are valid, \
                    and the first is a letter or a digit"
                )
            })?;
        }
        let suite = self.suite.as_deref().unwrap_or("stable");
        ensure(is_word(suite, ".-"), "guest.suite", || {
            format!("{suite:?} is no suite: write a release's codename, for example \"bookworm\"")
        })
    }
}

fn is_word(text: &str, also: &str) -> bool {
    let valid = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    (1..=LONGEST_WORD).contains(&text.len())
        && text.starts_with(valid)
        && text.chars().all(|letter| valid(letter) || also.contains(letter))
}

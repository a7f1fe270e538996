//! The system of a guest: packages of a distribution, or a disk image that somebody has.

use super::check::{Checked, ensure};
use super::{DiskFormat, Firmware, VmSpec};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Most packages that one guest names; what they depend on comes by itself.
const MOST_PACKAGES: usize = 200;
/// Longest name of a package or of a suite: Debian's own longest are below 80.
const LONGEST_WORD: usize = 100;

/// A system for a guest: a distribution's base with some packages, over homenode's own kernel and
/// init; or a disk image with a boot loader, kernel and init of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guest {
    /// Packages, by the distribution's names. Empty: `image` is it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packages: Vec<String>,
    /// The distribution's release, by its codename, such as `bookworm`. Default: the host's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suite: Option<String>,
    /// A disk image, which is never written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<PathBuf>,
    /// Its format. Default: [`DiskFormat::Qcow2`], as clouds publish them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<DiskFormat>,
    /// The firmware that it boots by. Default: [`Firmware::Bios`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<Firmware>,
}

/// A disk image that a guest boots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestImage {
    /// The file.
    pub path: PathBuf,
    /// Its format.
    pub format: DiskFormat,
    /// The firmware that it boots by.
    #[serde(default, skip_serializing_if = "Firmware::is_bios")]
    pub firmware: Firmware,
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
    /// The disk image that it is; `None`: packages.
    pub fn image(&self) -> Option<GuestImage> {
        let path = self.image.clone()?;
        let (format, firmware) = (self.format.unwrap_or(DiskFormat::Qcow2), self.firmware.unwrap_or_default());
        Some(GuestImage { path, format, firmware })
    }

    /// Whether its words can be names of packages and of a suite.
    ///
    /// # Errors
    /// The first that cannot; fields are those of a table `[guest]`.
    pub fn check(&self) -> Checked {
        if self.image.is_some() {
            let other = [("guest.packages", !self.packages.is_empty()), ("guest.suite", self.suite.is_some())];
            let other = other.into_iter().find(|(_, written)| *written).map(|(field, _)| field);
            return ensure(other.is_none(), other.unwrap_or_default(), || {
                "it does not go with `image`, whose programs are its own: remove one of the two".to_owned()
            });
        }
        ensure(self.format.is_none(), "guest.format", || {
            "it is the format of `image`, which is not written: add it, or remove this".to_owned()
        })?;
        ensure(self.firmware.is_none(), "guest.firmware", || {
            "it is the firmware of `image`, which is not written: add it, or remove this".to_owned()
        })?;
        ensure((1..=MOST_PACKAGES).contains(&self.packages.len()), "guest.packages", || {
            format!(
                "name 1 to {MOST_PACKAGES} packages, for example [\"lammps\"], or a disk image by `image`; {} \
                packages are written",
                self.packages.len()
            )
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

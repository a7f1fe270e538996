//! What two homenodes say to each other about a VM that goes from one to the other: pure.
//!
//! **Rule.** One JSON object a line, of at most [`LONGEST_LINE`] bytes. The first line of each side
//! is its `hello`, which any version understands; two of unlike [`VERSION`] go no further. What is
//! said is checked before it is believed ([`Offer::check`]).
//!
//! **Example.** `{"go":{"receipt":"0123456789abcdef0123456789abcdef"}}`

use qemu::migration::Tuning;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use topology::Bytes;
use topology::limits::{MOST_VCPUS, MOST_VIRTUAL_NODES};
use vm::history::Life;
use vm::{Manifest, Plan};

/// Of what is said after `hello`.
pub const VERSION: u32 = 1;
/// Longest line in bytes: a VM of 4096 vCPUs and a long life takes some 100 kB.
pub const LONGEST_LINE: usize = 4 << 20;

/// A program that takes part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// What is said after this.
    pub version: u32,
    /// homenode's version.
    pub homenode: String,
    /// The host, as it names itself.
    pub host: String,
    /// The run of the kernel (`boot_id`).
    pub boot: String,
    /// Where VMs run.
    pub runtime: PathBuf,
    /// Where VMs are kept.
    pub inventory: PathBuf,
}

impl Hello {
    /// Whether two have the same VMs: then one leaves the other's name when it arrives.
    pub fn is_same_place(&self, other: &Self) -> bool {
        (&self.boot, &self.runtime, &self.inventory) == (&other.boot, &other.runtime, &other.inventory)
    }
}

/// A disk as one host sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskSeen {
    /// The file or device.
    pub path: PathBuf,
    /// Its size.
    pub size: Bytes,
    /// Device and inode: the same on one host, of one file.
    pub identity: (u64, u64),
}

/// A VM that is to be received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Tells this receipt from all others: 32 hexadecimal digits.
    pub receipt: String,
    /// What it is, and what the QEMU that takes it over must agree on.
    pub manifest: Manifest,
    /// How it came where it is.
    pub life: Life,
    /// Whether its vCPUs run.
    pub runs: bool,
    /// The process of its QEMU.
    pub pid: u32,
    /// Its disks, in the order of the spec.
    pub disks: Vec<DiskSeen>,
    /// Somebody says that disks of the same path and size are the same disks.
    pub shared_storage: bool,
    /// Nothing is built: only the plan is wanted.
    pub dry_run: bool,
}

/// What the source says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromSource {
    /// The first line.
    Hello(Hello),
    /// The VM that is to be received.
    Offer(Box<Offer>),
    /// A program comes with the guest.
    Listen {
        /// How it is sent.
        tuning: Tuning,
    },
    /// It is all there: let it run.
    Go {
        /// Which.
        receipt: String,
    },
    /// It has ended here.
    Gone,
    /// It does not come.
    Never,
    /// The link is there.
    Alive,
}

/// What the destination says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromDestination {
    /// The first line.
    Hello(Hello),
    /// Where it would live; the reservation is held.
    Planned {
        /// With its reasons.
        plan: Box<Plan>,
    },
    /// Its QEMU waits, its memory filled and its threads at home.
    Built(Built),
    /// The program that comes with the guest is expected.
    Listens,
    /// The guest may be sent.
    Receives,
    /// It runs here (or waits here, where it waited there).
    Runs {
        /// The QEMU that it is in now.
        pid: u32,
        /// Why the record or the name is not as it should be, where it is not.
        problem: Option<String>,
    },
    /// Nothing is left to be done.
    Done,
    /// It is not here, and will not be.
    Refused {
        /// Why, as a sentence.
        because: String,
        /// Whether what was asked for cannot be.
        bad_input: bool,
    },
    /// The link is there.
    Alive,
}

/// A QEMU that waits for a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Built {
    /// Its process.
    pub pid: u32,
    /// What the source compares with its own.
    pub manifest: Box<Manifest>,
    /// What its owner should know, as sentences.
    pub notes: Vec<String>,
}

/// What is wrong with what the other side said.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// It is none of the things that are said.
    #[error("this homenode does not understand what the other one says: {0}")]
    NotUnderstood(String),
    /// It does not end.
    #[error("the other homenode sends a line of more than {LONGEST_LINE} bytes")]
    TooLong,
    /// Another version.
    #[error(
        "the other homenode ({homenode}) speaks version {theirs} of the migration's protocol, this one \
        version {VERSION}; use the same version of homenode on both hosts"
    )]
    Version {
        /// That homenode's version.
        homenode: String,
        /// Of the protocol.
        theirs: u32,
    },
    /// An offer that no VM makes.
    #[error("the other homenode offers a VM that cannot be: {field}: {problem}")]
    Offer {
        /// The field.
        field: &'static str,
        /// What is wrong.
        problem: String,
    },
}

/// Reads a line of the source.
///
/// # Errors
/// It is none.
pub fn from_source(line: &[u8]) -> Result<FromSource, ProtocolError> {
    parse(line)
}

/// Reads a line of the destination.
///
/// # Errors
/// It is none.
pub fn from_destination(line: &[u8]) -> Result<FromDestination, ProtocolError> {
    parse(line)
}

fn parse<T: serde::de::DeserializeOwned>(line: &[u8]) -> Result<T, ProtocolError> {
    if line.len() > LONGEST_LINE {
        return Err(ProtocolError::TooLong);
    }
    let problem = |error: serde_json::Error| topology::input::one_line(&error.to_string(), 200);
    serde_json::from_slice(line).map_err(|error| ProtocolError::NotUnderstood(problem(error)))
}

/// Whether a receipt is one: it becomes part of file names.
pub fn is_receipt(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

impl Hello {
    /// That both speak alike.
    ///
    /// # Errors
    /// They do not.
    pub fn check(&self) -> Result<(), ProtocolError> {
        if self.version == VERSION {
            return Ok(());
        }
        let homenode = topology::input::one_line(&self.homenode, 40);
        Err(ProtocolError::Version { homenode, theirs: self.version })
    }
}

impl Offer {
    /// That it is a VM, of a size that work may grow with.
    ///
    /// # Errors
    /// It is not.
    pub fn check(&self) -> Result<(), ProtocolError> {
        let fail = |field: &'static str, problem: String| Err(ProtocolError::Offer { field, problem });
        if !is_receipt(&self.receipt) {
            return fail("receipt", "32 hexadecimal digits are one".to_owned());
        }
        if let Err(problem) = self.manifest.spec.check() {
            return fail("spec", problem.to_string());
        }
        let nodes = &self.manifest.topology.nodes;
        let rows = &self.manifest.topology.distances;
        if nodes.is_empty() || nodes.len() > MOST_VIRTUAL_NODES {
            return fail(
                "topology.nodes",
                format!("a VM has 1 to {MOST_VIRTUAL_NODES} virtual nodes, not {}", nodes.len()),
            );
        }
        if rows.len() > nodes.len() || rows.iter().any(|row| row.len() != rows.len()) {
            return fail("topology.distances", "there is one for each pair of virtual nodes".to_owned());
        }
        let vcpus: usize = nodes.iter().map(|node| node.vcpus.len()).sum();
        if vcpus == 0 || vcpus > MOST_VCPUS as usize {
            return fail("topology.nodes", format!("a VM has 1 to {MOST_VCPUS} vCPUs, not {vcpus}"));
        }
        if self.disks.len() != self.manifest.spec.disks.len() {
            return fail("disks", format!("{} of {} are described", self.disks.len(), self.manifest.spec.disks.len()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood_and_nonsense_is_not() {
        let go = FromSource::Go { receipt: "0".repeat(32) };
        let line = serde_json::to_vec(&go).unwrap();
        assert_eq!(from_source(&line).unwrap(), go);
        for line in [&b"{"[..], b"", b"[]", br#""run""#, br#"{"go":{}}"#] {
            assert!(matches!(from_source(line), Err(ProtocolError::NotUnderstood(_))));
        }
        assert_eq!(from_destination(&vec![b' '; LONGEST_LINE + 1]), Err(ProtocolError::TooLong));
    }

    #[test]
    fn a_receipt_cannot_leave_its_directory() {
        assert!(is_receipt(&"a1".repeat(16)));
        for bad in ["", "../../../etc/passwd0000000000000", &"A".repeat(32), &"0".repeat(31)] {
            assert!(!is_receipt(bad), "{bad}");
        }
    }

    #[test]
    fn another_version_is_told_what_to_do() {
        let place = PathBuf::from("/");
        let hello = |version, boot: &str| Hello {
            version,
            homenode: "9.9".to_owned(),
            host: "b".to_owned(),
            boot: boot.to_owned(),
            runtime: place.clone(),
            inventory: place.clone(),
        };
        assert_eq!(hello(VERSION, "1").check(), Ok(()));
        let error = hello(7, "1").check().unwrap_err().to_string();
        assert!(error.contains("(9.9) speaks version 7") && error.contains("same version"), "{error}");
        assert!(hello(1, "1").is_same_place(&hello(1, "1")) && !hello(1, "1").is_same_place(&hello(1, "2")));
    }
}

//! What two homenodes say to each other about a VM that goes from one to the other: pure.
//!
//! **Rule.** One JSON object a line, of at most [`LONGEST_LINE`] bytes. The first line of each side
//! is its `hello`, which any version understands; two of unlike [`VERSION`] go no further. What is
//! said is checked before it is believed ([`Offer::check`]).
//!
//! **Example.** `{"go":{"receipt":"0123456789abcdef0123456789abcdef"}}`

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use topology::Bytes;
use topology::input::one_line;
use vm::history::Life;
use vm::sending::Tuning;
use vm::{Manifest, Plan};

/// Of what is said after `hello`.
pub const VERSION: u32 = 1;
/// Longest line in bytes: a VM of 4096 vCPUs and a long life takes some 100 kB.
pub const LONGEST_LINE: usize = 4 << 20;

/// Most characters of a sentence that the other side says.
const LONGEST_SENTENCE: usize = 1000;
/// Most notes of a destination.
const MOST_NOTES: usize = 20;

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
        /// For how long it had run when this was said, in milliseconds.
        #[serde(default)]
        for_ms: u64,
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
    /// How long it took to build it, in milliseconds.
    #[serde(default)]
    pub took_ms: u64,
    /// How many connections may carry a guest's memory; an older homenode takes one.
    #[serde(default)]
    pub most_connections: u32,
}

/// What is wrong with what the other side said.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// It is none of the things that are said.
    #[error(
        "what was said is not homenode's: {0}; where ssh leads there, it must print nothing of its own: see what `ssh \
        HOST true` prints"
    )]
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

/// Reads a line of the destination. Its sentences are printed and written down here: each is one
/// line.
///
/// # Errors
/// It is none.
pub fn from_destination(line: &[u8]) -> Result<FromDestination, ProtocolError> {
    let mut said = parse(line)?;
    match &mut said {
        FromDestination::Planned { plan } => {
            let Plan { vm, reasons, warnings, .. } = plan.as_mut();
            let of_reasons = reasons.iter_mut().flat_map(|reason| [&mut reason.choice, &mut reason.because]);
            std::iter::once(vm).chain(of_reasons).chain(warnings).for_each(shorten);
        }
        FromDestination::Built(built) => {
            built.notes.truncate(MOST_NOTES);
            built.notes.iter_mut().for_each(shorten);
        }
        FromDestination::Runs { problem, .. } => problem.iter_mut().for_each(shorten),
        FromDestination::Refused { because, .. } => shorten(because),
        _ => {}
    }
    Ok(said)
}

fn shorten(sentence: &mut String) {
    *sentence = one_line(sentence, LONGEST_SENTENCE);
}

fn parse<T: serde::de::DeserializeOwned>(line: &[u8]) -> Result<T, ProtocolError> {
    if line.len() > LONGEST_LINE {
        return Err(ProtocolError::TooLong);
    }
    let problem = |error: serde_json::Error| {
        let (said, why) = (one_line(&String::from_utf8_lossy(line), 80), one_line(&error.to_string(), 200));
        ProtocolError::NotUnderstood(format!("{said:?} ({why})"))
    };
    serde_json::from_slice(line).map_err(problem)
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
        let homenode = one_line(&self.homenode, 40);
        Err(ProtocolError::Version { homenode, theirs: self.version })
    }
}

impl Offer {
    /// That it is a VM, of a size that work may grow with, and a manifest of which no word becomes
    /// another on a command line.
    ///
    /// # Errors
    /// It is not.
    pub fn check(&self) -> Result<(), ProtocolError> {
        let fail = |field: &'static str, problem: String| Err(ProtocolError::Offer { field, problem });
        if !is_receipt(&self.receipt) {
            return fail("receipt", "32 hexadecimal digits are one".to_owned());
        }
        if let Err(problem) = self.manifest.check() {
            return fail("manifest", problem.to_string());
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
    use vm::backend::ReachedBy;
    use vm::history::UnixSeconds;
    use vm::manifest::RunBy;
    use vm::{Added, Shape, VirtualNode, VirtualTopology, VmSpec};

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

    fn offer() -> Offer {
        let node = VirtualNode { vcpus: vec![0], memory: Bytes::GIB, ..VirtualNode::default() };
        let topology = VirtualTopology {
            exposed: false,
            nodes: vec![node],
            sockets: 1,
            cores_per_socket: 1,
            dies_per_socket: 1,
            threads_per_core: 1,
            distances: vec![vec![10]],
        };
        let shape = Shape { name: "web".to_owned(), vcpus: 1, memory: Bytes::GIB, ..Shape::default() };
        let spec = VmSpec { shape, ..VmSpec::default() };
        let run_by = RunBy {
            qemu: "7.2.0".to_owned(),
            machine: "pc-q35-7.2".to_owned(),
            cpu_model: String::new(),
            host_cpu: None,
            hardware: false,
            memory: Vec::new(),
            places: Vec::new(),
            disk_sizes: Vec::new(),
            flash_sizes: Vec::new(),
            agent: false,
        };
        Offer {
            receipt: "0".repeat(32),
            manifest: Manifest::of(&spec, &topology, &Added::default(), run_by),
            life: Life::planned(ReachedBy::Qemu, UnixSeconds(1)),
            runs: true,
            pid: 1,
            disks: Vec::new(),
            shared_storage: false,
            dry_run: false,
        }
    }

    /// A machine type of the source's choice, with options of its choice, was given to QEMU.
    #[test]
    fn what_becomes_a_word_of_a_command_line_is_one() {
        assert_eq!(offer().check(), Ok(()));
        let refused = |change: fn(&mut Manifest)| {
            let mut offer = offer();
            change(&mut offer.manifest);
            offer.check().unwrap_err().to_string()
        };
        let error = refused(|manifest| manifest.run_by.machine = "q35,dumpdtb=/etc/passwd".to_owned());
        assert!(error.contains("manifest: ") && error.contains("is no machine type"), "{error}");
        assert!(refused(|manifest| manifest.added.vcpus = vec![0]).contains("vCPU 0 was there already"));
        assert!(refused(|manifest| manifest.topology.sockets = u32::MAX).contains("fill its cores"));
        assert!(refused(|manifest| manifest.topology.nodes[0].absent = vec![0; 9]).contains("absent"));
    }

    #[test]
    fn what_a_destination_says_is_one_line() {
        let because = "no\u{1b}[2J\nhomenode: VM web runs".repeat(1000);
        let line = serde_json::to_vec(&FromDestination::Refused { because, bad_input: true }).unwrap();
        let FromDestination::Refused { because, .. } = from_destination(&line).unwrap() else { panic!("{line:?}") };
        assert!(because.starts_with("no\u{fffd}[2J homenode") && because.chars().count() < 1010, "{because}");
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

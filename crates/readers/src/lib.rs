//! Every reader of texts from elsewhere as a function of bytes: for the fuzzer and for tests alone,
//! no program uses it.
//!
//! **Problem.** Whatever homenode reads, somebody else wrote: a file from another host, a command
//! line of another user, a word of a guest. A reader must neither end the program nor take more
//! time and memory than its input is worth.
//!
//! **Rule.** A [`Reader`] takes any bytes and panics where a property does not hold. The fuzzer
//! (`fuzz/`, `make fuzz`) draws bytes; `tests/all.rs` takes the same seeds, every input that once
//! failed (`fuzz/regressions`), and the worst inputs of a megabyte that we could think of.
//!
//! **Properties.** Nothing panics. An error as it is printed does nothing to a terminal, and has at
//! most [`LONGEST_ERROR`] bytes. What a writer writes is read as it was. A domain that was cured is
//! a domain, has the guest's memory and vCPUs, and a second cure changes nothing.
//!
//! **Example.** `domain(b"<domain/>")` reads a domain without memory, which is an error, and looks
//! at how the error is printed.

mod domains;
mod files;
mod machines;
mod moved;
mod remembered;
mod talk;
mod tree;
mod vms;

pub use tree::Tree;

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::fmt::{Debug, Display};
use std::io;
use std::path::Path;
use topology::input::{excerpt, harmless, is_harmful};

/// Most bytes that a reader is given.
pub const LONGEST_INPUT: usize = 1 << 20;

/// Most bytes of an error: a screen of text.
pub const LONGEST_ERROR: usize = 4096;

/// A reader, and where inputs that it understands are.
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    /// Its name, which its fuzz target has too.
    pub name: &'static str,
    /// Reads an input; panics where a property does not hold.
    pub read: fn(&[u8]),
    /// Directories and files of the repository whose contents are inputs.
    pub seeds: &'static [&'static str],
    /// How the contents of a seed become an input.
    pub as_input: fn(&[u8]) -> Vec<u8>,
}

impl Reader {
    /// Its inputs in a checkout of the repository, by name: those that it understands, and those
    /// that once failed.
    ///
    /// # Errors
    /// A seed is not there.
    pub fn inputs(&self, repository: &Path) -> io::Result<Vec<(String, Vec<u8>)>> {
        let mut inputs = Vec::new();
        for seed in self.seeds {
            for (name, contents) in contents(&repository.join(seed))? {
                inputs.push((name, (self.as_input)(&contents)));
            }
        }
        let failed = repository.join("fuzz/regressions").join(self.name);
        if failed.exists() {
            inputs.extend(contents(&failed)?);
        }
        inputs.retain(|(_, input)| (1..=LONGEST_INPUT).contains(&input.len()));
        Ok(inputs)
    }

    const fn new(name: &'static str, read: fn(&[u8]), seeds: &'static [&'static str]) -> Self {
        Self { name, read, seeds, as_input: as_it_is }
    }
}

/// A file, or the files of a directory, by name.
fn contents(path: &Path) -> io::Result<Vec<(String, Vec<u8>)>> {
    let files = if path.is_dir() { topology::input::entries(path, Path::is_file)? } else { vec![path.to_owned()] };
    let name = |file: &Path| file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    files.iter().map(|file| Ok((name(file), std::fs::read(file)?))).collect()
}

fn as_it_is(contents: &[u8]) -> Vec<u8> {
    contents.to_vec()
}

const DOMAINS: &[&str] = &["crates/stacks/tests/check-domains", "examples/away.xml"];

const TRACE: &[&str] = &["examples/day.trace.toml"];

/// All readers.
pub const READERS: &[Reader] = &[
    Reader::new("machine_archive", machines::archive, &["crates/topology/tests/golden"]),
    Reader {
        as_input: machines::unpacked,
        ..Reader::new("machine_tree", machines::tree, &["crates/topology/tests/golden"])
    },
    Reader::new("machine_hwloc", machines::xml, &["crates/topology/tests/golden/xml"]),
    Reader::new("machine_libvirt", machines::xml, &["crates/topology/tests/golden/libvirt"]),
    Reader::new("machine_file", machines::file, &["machines"]),
    Reader::new("machine_synthetic", machines::synthetic, &["fuzz/seeds/machine_synthetic"]),
    Reader::new("vm_spec", files::vm_spec, &["examples"]),
    Reader::new("manifest", files::manifest, &["fuzz/seeds/manifest"]),
    Reader { as_input: moved::as_suspended, ..Reader::new("suspended", moved::suspended, &["fuzz/seeds/suspended"]) },
    Reader::new("migration", moved::migration, &["fuzz/seeds/migration"]),
    Reader::new("experiment", files::experiment, &["experiments"]),
    Reader::new("policy", files::policy, &["examples/balance.toml"]),
    Reader::new("trace", files::trace, TRACE),
    Reader::new("profile", files::profile, &["profiles"]),
    Reader::new("domain", domains::read, DOMAINS),
    Reader { as_input: domains::with_edits, ..Reader::new("domain_edit", domains::edit, DOMAINS) },
    Reader::new("domain_cure", domains::cure, DOMAINS),
    Reader::new("proxmox", domains::proxmox, &["fuzz/seeds/proxmox"]),
    Reader::new("command_line", vms::command_line, &["crates/vm/tests/command-lines"]),
    Reader::new("proc_tree", vms::proc_tree, &["fuzz/seeds/proc_tree"]),
    Reader::new("agent", talk::agent, &["fuzz/seeds/agent"]),
    Reader::new("monitor", talk::monitor, &["fuzz/seeds/monitor"]),
    Reader::new("virsh", talk::virsh, &["fuzz/seeds/virsh"]),
    Reader { as_input: vms::as_occupied, ..Reader::new("occupied", vms::occupied, DOMAINS) },
    Reader { as_input: remembered::state_of, ..Reader::new("state", remembered::state, TRACE) },
    Reader { as_input: remembered::recording_of, ..Reader::new("recording", remembered::recording, TRACE) },
    Reader { as_input: remembered::results_of, ..Reader::new("results", remembered::results, &["experiments"]) },
];

/// The reader of this name.
pub fn reader(name: &str) -> Option<&'static Reader> {
    READERS.iter().find(|reader| reader.name == name)
}

/// The input as a text. A reader of files refuses what is no UTF-8 before it looks at it: the rest
/// of such an input is worth a look all the same.
fn text(input: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(input)
}

/// Looks at how an error is printed: whatever it quotes, nothing of it does something to a
/// terminal.
fn printed(error: &dyn Display) {
    let text = harmless(&error.to_string());
    let harmful = text.lines().flat_map(str::chars).find(|letter| is_harmful(*letter));
    assert!(harmful.is_none(), "an error with {harmful:?}: {text:?}");
    assert!(text.len() <= LONGEST_ERROR, "an error of {} bytes: {}", text.len(), excerpt(&text));
}

/// What was read; an error is looked at.
fn read_or_printed<T, E: Display>(read: Result<T, E>) -> Option<T> {
    read.map_err(|error| printed(&error)).ok()
}

/// A value is read from JSON as it was written.
fn same_from_json<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) {
    let text = serde_json::to_string(value).expect("written");
    let again: T = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(&again, value);
}

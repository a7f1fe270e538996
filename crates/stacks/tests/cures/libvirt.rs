//! What libvirt says of domains: its schema, and its own parser behind the `test` driver. Many
//! domains in one process each.

use roxmltree::{Document, Node};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SCHEMA: &str = "/usr/share/libvirt/schemas/domain.rng";

/// What libvirt makes of a domain.
#[derive(Clone, Debug, Default)]
pub(super) struct Verdict {
    /// It is valid by its schema.
    pub(super) valid: bool,
    /// What `virsh dumpxml` prints of it; `None`: refused.
    pub(super) dumped: Option<String>,
}

/// Whether these programs and the schema are here; says what is not.
pub(super) fn is_here(test: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let lacks = |program: &&str| !std::env::split_paths(&path).any(|directory| directory.join(program).exists());
    let missing: Vec<&str> = ["virsh", "xmllint"].into_iter().filter(lacks).collect();
    if !missing.is_empty() || !Path::new(SCHEMA).exists() {
        eprintln!("SKIPPED {test}: no {} here", missing.first().unwrap_or(&SCHEMA));
        return false;
    }
    true
}

/// The verdict on each text.
pub(super) fn verdicts(texts: &[&str], name: &str) -> Vec<Verdict> {
    let directory = tempfile::tempdir().expect("a directory");
    let files: Vec<PathBuf> = (0..texts.len()).map(|index| directory.path().join(format!("{index}.xml"))).collect();
    for (file, text) in files.iter().zip(texts) {
        std::fs::write(file, text).expect("a file");
    }
    let mut verdicts = defined(&files, name, directory.path());
    let output = Command::new("xmllint").args(["--noout", "--relaxng", SCHEMA]).args(&files).output().expect("xmllint");
    let said = String::from_utf8_lossy(&output.stderr);
    for (verdict, file) in verdicts.iter_mut().zip(&files) {
        verdict.valid = said.contains(&format!("{} validates\n", file.display()));
    }
    verdicts
}

fn defined(files: &[PathBuf], name: &str, place: &Path) -> Vec<Verdict> {
    let mut commands = String::new();
    for (index, file) in files.iter().enumerate() {
        let _ = writeln!(commands, "define {}\ndumpxml {name}\nundefine {name}\necho @{index}@", file.display());
    }
    let script = place.join("commands");
    std::fs::File::create(&script).and_then(|mut file| file.write_all(commands.as_bytes())).expect("a file");
    let output = Command::new("virsh")
        .args(["--quiet", "--connect", "test:///default"])
        .env("HOME", place)
        .env("XDG_RUNTIME_DIR", place)
        .env("LC_ALL", "C.UTF-8")
        .stdin(std::fs::File::open(&script).expect("a file"))
        .stderr(Stdio::null())
        .output()
        .expect("virsh");
    let said = String::from_utf8_lossy(&output.stdout);
    let mut left = &*said;
    let mut found = Vec::new();
    for index in 0..files.len() {
        let mark = format!("\n@{index}@");
        let (of_it, rest) = left.split_once(&mark).expect("virsh's answer to each domain");
        left = rest;
        let dumped = of_it.find("<domain").zip(of_it.find("</domain>"));
        let dumped = dumped.map(|(first, last)| of_it[first..last + "</domain>".len()].to_owned());
        found.push(Verdict { valid: false, dumped });
    }
    found
}

/// Memory in KiB: of the guest, and of each cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) total: u64,
    pub(super) cells: Vec<u64>,
}

/// The guest's memory as libvirt's QEMU driver has it, of what libvirt dumped: where there are
/// cells, these and the devices of memory; else `<memory>`, of which the devices are a part.
pub(super) fn memory(dumped: &str) -> Memory {
    let document = Document::parse(dumped).expect("libvirt's XML");
    let root = document.root_element();
    let text = |node: Node<'_, '_>| node.text().unwrap_or_default().trim().parse::<u64>().expect("KiB");
    let named = |name: &'static str| root.descendants().filter(move |node| node.has_tag_name(name));
    let cells: Vec<u64> =
        named("cell").map(|cell| cell.attribute("memory").unwrap_or_default().parse().expect("KiB")).collect();
    let devices = named("memory").filter(|node| node.has_attribute("model"));
    let devices: u64 =
        devices.flat_map(|node| node.descendants().filter(|node| node.has_tag_name("size"))).map(text).sum();
    let whole = root.children().find(|node| node.has_tag_name("memory")).map(text).expect("<memory>");
    Memory { total: if cells.is_empty() { whole } else { cells.iter().sum::<u64>() + devices }, cells }
}

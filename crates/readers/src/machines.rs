//! Machines, in each form that `--on` takes.

use crate::{Tree, printed, read_or_printed, same_from_json, text};
use std::io::Read;
use topology::read::{self, Described, ReadError};
use topology::{CpuId, Machine};

/// Above so many hardware threads a machine is not written and read again: that takes longer than
/// all of its reading.
const SMALL: usize = 256;

/// An archive of a captured tree.
pub(crate) fn archive(input: &[u8]) {
    whole(read::from_archive(input, "host.tar.gz"));
}

/// A captured tree, without the wrapping that hides it from the fuzzer.
pub(crate) fn tree(input: &[u8]) {
    let tree = Tree::of(input);
    let mut archive = tar::Builder::new(Vec::new());
    for (path, contents) in &tree.files {
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o644);
        header.set_size(contents.len() as u64);
        // A path that does not fit into the format.
        let _left_out = archive.append_data(&mut header, path, *contents);
    }
    let archive = archive.into_inner().expect("an archive in memory");
    whole(read::from_archive(&archive, "host.tar"));
}

/// XML of hwloc or libvirt: which, its root says.
pub(crate) fn xml(input: &[u8]) {
    whole(read::from_xml(&text(input), "host.xml"));
}

/// A machine file; its rates are checked as whoever models it does.
pub(crate) fn file(input: &[u8]) {
    let text = text(input);
    whole(read::from_toml(&text, "host.toml"));
    if let Some(Described { machine, rates: Some(rates) }) = read_or_printed(read::described(&text, "host.toml")) {
        simulator::machine_check::check(&machine, &rates).iter().for_each(|finding| printed(finding));
    }
}

/// hwloc's synthetic description.
pub(crate) fn synthetic(input: &[u8]) {
    whole(read::from_synthetic(&text(input)));
}

/// A machine that was read fits together: whoever uses it looks for what it names.
fn whole(read: Result<Machine, ReadError>) {
    let Some(machine) = read_or_printed(read) else { return };
    assert!(!machine.threads.is_empty() && !machine.nodes.is_empty(), "{machine:?}");
    assert!(machine.threads.len() <= read::MOST_THREADS && machine.nodes.len() <= read::MOST_NODES);
    assert!(machine.threads.windows(2).all(|pair| pair[0].id < pair[1].id), "threads rise");
    assert!(machine.nodes.windows(2).all(|pair| pair[0].id < pair[1].id), "nodes rise");
    let has_cache = |id| machine.llcs.iter().any(|llc| llc.id == id);
    for thread in &machine.threads {
        assert!(machine.node(thread.node).is_some(), "the node of {}", thread.id);
        assert!(thread.llc.is_none_or(has_cache), "the cache of {}", thread.id);
    }
    let rows = machine.distances.rows();
    assert!(rows.len() == machine.nodes.len() && rows.iter().all(|row| row.len() == rows.len()), "distances");
    assert!(machine.thread(CpuId(u32::MAX)).is_none());
    if machine.threads.len() <= SMALL {
        same_from_json(&machine);
    }
}

/// The files of an archive as an input of [`tree`]; nothing where it is none.
pub(crate) fn unpacked(archive: &[u8]) -> Vec<u8> {
    let mut input = Vec::new();
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(archive));
    let entries = archive.entries().into_iter().flatten().map_while(Result::ok);
    for mut entry in entries.filter(|entry| entry.header().entry_type().is_file()) {
        let Ok(path) = entry.path().map(|path| path.display().to_string()) else { continue };
        input.extend(format!("@ {path}\n").bytes());
        if entry.read_to_end(&mut input).is_err() {
            return Vec::new();
        }
        input.extend(b"\n");
    }
    input
}

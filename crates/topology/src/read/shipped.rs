//! The machine files that come with homenode, inside the program.

use super::error::ReadError;
use super::machine_file::{Described, described};
use crate::Machine;

macro_rules! machine_files {
    ($($name:literal),* $(,)?) => {
        /// Name and text of every file in `machines/`.
        const FILES: &[(&str, &str)] = &[$(($name, include_str!(concat!("../../../../machines/", $name, ".toml")))),*];
    };
}

machine_files!(
    "altra-max-2s",
    "dell-r910",
    "epyc-7742-2s-nps1",
    "epyc-7742-2s-nps2",
    "epyc-7742-2s-nps4",
    "epyc-9654-2s-nps4",
    "hp-dl380-g6",
    "hp-dl980-g7",
    "xeon-8480-2s",
    "xeon-8480-2s-snc4"
);

/// Names of the machines that come with homenode, in order.
pub fn shipped_names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|&(name, _)| name)
}

/// The machine of this name that comes with homenode; `None` if there is none.
///
/// # Errors
/// None for the files as shipped: a test reads each.
pub fn shipped(name: &str) -> Option<Result<Machine, ReadError>> {
    shipped_described(name).map(|described| described.map(|described| described.machine))
}

/// Like [`shipped`], with its rates.
///
/// # Errors
/// None for the files as shipped: a test reads each.
pub fn shipped_described(name: &str) -> Option<Result<Described, ReadError>> {
    shipped_text(name).map(|text| described(text, name))
}

/// The text of the machine file of this name that comes with homenode; `None` if there is none.
pub fn shipped_text(name: &str) -> Option<&'static str> {
    FILES.iter().find(|&&(known, _)| known == name).map(|&(_, text)| text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn every_file_in_machines_is_shipped_and_reads() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
        let mut on_disk: Vec<String> = std::fs::read_dir(directory)
            .expect("machines/")
            .filter_map(|entry| Some(entry.ok()?.file_name().into_string().ok()?.strip_suffix(".toml")?.to_owned()))
            .collect();
        on_disk.sort();
        assert_eq!(on_disk, shipped_names().collect::<Vec<_>>());
        for name in shipped_names() {
            let machine = shipped(name).expect(name).expect(name);
            assert_eq!(machine.name, name);
        }
    }

    #[test]
    fn the_machines_have_the_size_that_their_sources_say() {
        // Nodes, caches, hardware threads, GiB in all.
        let facts = [
            ("hp-dl380-g6", [2, 2, 16, 48]),
            ("dell-r910", [4, 4, 64, 256]),
            ("hp-dl980-g7", [8, 8, 128, 512]),
            ("epyc-7742-2s-nps1", [2, 32, 256, 1024]),
            ("epyc-7742-2s-nps2", [4, 32, 256, 1024]),
            ("epyc-7742-2s-nps4", [8, 32, 256, 1024]),
            ("epyc-9654-2s-nps4", [8, 24, 384, 768]),
            ("xeon-8480-2s", [2, 2, 224, 1024]),
            ("xeon-8480-2s-snc4", [8, 8, 224, 1024]),
            ("altra-max-2s", [2, 2, 256, 512]),
        ];
        for (name, fact) in facts {
            let machine = shipped(name).expect(name).expect(name);
            let gib: u64 = machine.nodes.iter().map(|node| node.memory.0 >> 30).sum();
            assert_eq!([machine.nodes.len(), machine.llcs.len(), machine.threads.len(), gib as usize], fact, "{name}");
        }
    }
}

//! The scheduler touches no clock, file, thread, environment or random source: its sources do not name one.
#![allow(clippy::disallowed_methods, reason = "this test reads the sources that must not read anything")]

use std::fs;
use std::path::Path;

const FORBIDDEN: [&str; 12] = [
    "std::fs",
    "std::time",
    "std::thread",
    "std::env",
    "std::process",
    "std::net",
    "std::io",
    "println!",
    "eprintln!",
    "rand::",
    "HashMap",
    "HashSet",
];

#[test]
fn the_sources_name_nothing_impure() {
    let mut files = 0;
    let found = search(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    assert!(files > 10, "only {files} files were found");
    assert!(found.is_empty(), "{found:#?}");
}

fn search(directory: &Path, files: &mut usize) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(search(&path, files));
            continue;
        }
        *files += 1;
        let text = fs::read_to_string(&path).expect("a source file");
        let named = FORBIDDEN.iter().filter(|name| text.contains(*name));
        found.extend(named.map(|name| format!("{}: {name}", path.display())));
    }
    found
}

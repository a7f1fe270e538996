//! What README and the pages show of commands on machines that are not here is what these print.

use crate::common::said_in;
use std::path::Path;

/// A command of a page, and the lines that the page shows of what it prints.
struct Shown {
    page: String,
    arguments: Vec<String>,
    lines: Vec<String>,
}

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Commands that begin with `$ homenode` (or the program where it is built) and say a machine with
/// `--on`: nothing of this host is in them.
fn shown() -> Vec<Shown> {
    let pages = std::fs::read_dir(root().join("docs")).expect("docs").map(|entry| entry.expect("an entry").path());
    let pages = pages.filter(|page| page.extension().is_some_and(|ending| ending == "md"));
    let mut shown = Vec::new();
    for page in pages.chain([root().join("README.md")]) {
        let text = std::fs::read_to_string(&page).expect("a page");
        let name = page.file_name().expect("a name").to_string_lossy().into_owned();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let command = line.strip_prefix("$ ").map(|line| line.trim_start_matches("target/release/"));
            let Some(words) = command.and_then(|command| command.strip_prefix("homenode ")) else { continue };
            let arguments: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
            let lines = lines.by_ref().take_while(|line| !line.starts_with("```")).map(str::to_owned).collect();
            if arguments.iter().any(|word| word == "--on") {
                shown.push(Shown { page: name.clone(), arguments, lines });
            }
        }
    }
    shown
}

#[test]
fn what_the_pages_show_is_what_is_printed() {
    let (shown, runtime) = (shown(), tempfile::tempdir().expect("a directory"));
    assert!(shown.len() >= 7, "{}", shown.len());
    for Shown { page, arguments, lines } in shown {
        let absolute = |word: &String| {
            if word.starts_with("examples/") { root().join(word).display().to_string() } else { word.clone() }
        };
        let words: Vec<String> = arguments.iter().map(absolute).collect();
        let (_, printed, _) = said_in(runtime.path(), &words.iter().map(String::as_str).collect::<Vec<_>>());
        // The program names a file as it was given.
        let printed = printed.replace(&format!("{}/", root().display()), "");
        let mut printed = printed.lines().map(str::trim_end).filter(|line| !line.is_empty());
        for line in lines.iter().filter(|line| !line.is_empty()) {
            if line == "..." {
                break;
            }
            assert_eq!(printed.next(), Some(line.trim_end()), "{page}: homenode {}", arguments.join(" "));
        }
    }
}

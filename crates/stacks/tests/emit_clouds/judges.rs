//! Programs with the clouds' own code in them, which `scripts/validators` makes out of their
//! published packages.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A judge, or nothing where it cannot be had here; the script then says why, and `test` is
/// skipped.
pub(crate) fn judge(test: &str, which: &str) -> Option<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/validators/make");
    let made = Command::new(script).arg(which).output().expect("scripts/validators/make starts");
    if made.status.success() {
        return Some(PathBuf::from(String::from_utf8_lossy(&made.stdout).trim()));
    }
    let why = String::from_utf8_lossy(&made.stderr);
    assert_eq!(made.status.code(), Some(3), "scripts/validators/make {which}: {why}");
    eprintln!("SKIPPED {test}: {}", why.trim().lines().last().unwrap_or("no reason given"));
    None
}

/// What a program says to a text on its standard input.
pub(crate) fn said(program: &mut Command, text: &str) -> Output {
    let mut child =
        program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the judge starts");
    // A judge that refuses early closes its end: its answer counts then, not the failed write.
    let _ = child.stdin.take().expect("a pipe").write_all(text.as_bytes());
    child.wait_with_output().expect("the judge's answer")
}

//! The slice, as systemd's own checker judges it.

use super::cases::{all, devices};
use stacks::emit::Kind;
use std::process::Command;

#[test]
fn shapes() {
    for (name, case) in all() {
        insta::assert_snapshot!(format!("systemd-{name}"), case.text(Kind::Systemd).expect("a text"));
    }
}

/// What `systemd-analyze verify` says of the text as a unit; `None` where it is not installed. It
/// exits with 0 also where it complains.
fn complaints(name: &str, text: &str) -> Option<String> {
    let directory = tempfile::tempdir().expect("a directory");
    let unit = directory.path().join(name);
    std::fs::write(&unit, text).expect("a unit");
    let output = Command::new("systemd-analyze").arg("verify").arg(&unit).output().ok()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // It loads the units of the host beside ours, and says what is wrong with those too.
    Some(said.lines().filter(|line| line.contains("homenode")).collect::<Vec<_>>().join("\n"))
}

#[test]
fn systemd_takes_every_slice() {
    let name = "homenode-x\\x2d1.slice";
    let Some(wrong) = complaints(name, "[Slice]\nAllowedCPUs=0-x\nAllowedMemoryNode=1\n") else {
        return eprintln!("SKIPPED systemd_takes_every_slice: no systemd-analyze in PATH");
    };
    if !wrong.contains("0-x") || !wrong.contains("AllowedMemoryNode") {
        return eprintln!(
            "SKIPPED systemd_takes_every_slice: systemd-analyze finds no fault in a bad slice here: {wrong}"
        );
    }
    for (shape, case) in all().into_iter().chain([("devices", devices())]) {
        let text = case.text(Kind::Systemd).expect("a text");
        assert_eq!(complaints(name, &text).as_deref(), Some(""), "{shape}: {text}");
    }
}

#[test]
fn all_homes_are_allowed_and_nothing_else() {
    for (shape, case) in all() {
        let text = case.text(Kind::Systemd).expect("a text");
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::to_owned);
        let clients = &case.plan.placement.clients;
        let cpus: topology::CpuSet = clients.iter().flat_map(|client| client.cpus.iter()).collect();
        assert_eq!(value("AllowedCPUs="), Some(cpus.to_string()), "{shape}");
        let homes: topology::NodeSet = clients.iter().flat_map(|client| client.home.iter()).collect();
        let expected = (shape != "unbound").then(|| homes.to_string());
        assert_eq!(value("AllowedMemoryNodes="), expected, "{shape}");
    }
}

//! The unit of packaging/, as `systemd-analyze` judges it. tests/lab/service.sh starts it.

use std::path::Path;
use std::process::Command;

/// The most that `systemd-analyze security` may say of it, in tenths: 100 is without any sandbox.
const MOST_EXPOSED: u32 = 14;

#[test]
fn the_unit_is_hardly_exposed_with_and_without_libvirts_file() {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    let text = |name: &str| std::fs::read_to_string(packaging.join(name)).expect(name);
    let directory = tempfile::tempdir().expect("a directory");
    let unit = directory.path().join("homenode-balance.service");
    let alone = text("homenode-balance.service");
    let with_libvirt = alone.clone() + &text("homenode-balance-libvirt.conf");
    for content in [alone, with_libvirt] {
        std::fs::write(&unit, content).expect("a unit");
        let mut analyze = Command::new("systemd-analyze");
        analyze.args(["security", "--offline=true", "--no-pager", &format!("--threshold={MOST_EXPOSED}")]).arg(&unit);
        let Ok(output) = analyze.output() else {
            return eprintln!("SKIPPED the_unit_is_hardly_exposed_with_and_without_libvirts_file: no systemd-analyze");
        };
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        let overall = said.lines().find(|line| line.contains("Overall exposure level"));
        println!("{}", overall.unwrap_or_default());
        if overall.is_none() {
            return eprintln!("SKIPPED the_unit_is_hardly_exposed_with_and_without_libvirts_file: {said}");
        }
        assert!(output.status.success(), "{said}");
    }
}

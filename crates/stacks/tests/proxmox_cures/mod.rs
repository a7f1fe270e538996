//! Cures of Proxmox VE's configurations, each applied to its text as `qm set` does and read again.
//!
//! A cure keeps vCPUs and memory, with it the VM starts by the rules of qemu-server ([`oracle`]),
//! no problem more is found than before, and a second cure changes nothing.

mod draw;
mod oracle;

use draw::{Draw, conf};
use judge::{Finding, Severity};
use oracle::Read;
use properties::proptest::prelude::*;
use scheduler::Occupancy;
use stacks::check::Definition;
use std::collections::BTreeSet;
use std::sync::OnceLock;
use topology::{Machine, read};

fn machines() -> &'static [Machine] {
    static MACHINES: OnceLock<Vec<Machine>> = OnceLock::new();
    let synthetic = |text: &str| read::from_synthetic(text).expect(text);
    MACHINES.get_or_init(|| {
        vec![
            read::shipped("hp-dl380-g6").expect("a file").expect("a machine"),
            synthetic("pack:2 [numa(memory=64GiB)] l3:1 core:16 pu:2"),
            synthetic("pack:4 [numa(memory=16GiB)] l3:1 core:6 pu:1"),
            synthetic("pack:1 [numa(memory=64GiB)] l3:1 core:16 pu:2"),
        ]
    })
}

fn check(machine: &Machine, text: &str) -> Option<Vec<Finding>> {
    let definition = Definition::read(text.to_owned(), "/etc/pve/qemu-server/101.conf".to_owned()).ok()?;
    Some(definition.check(machine, &Occupancy::default()).expect("findings"))
}

fn counts(findings: &[Finding]) -> (usize, usize) {
    let problems = findings.iter().filter(|finding| finding.severity == Severity::Problem).count();
    (problems, judge::wrong(findings))
}

fn commands(findings: &[Finding], notes: bool) -> BTreeSet<String> {
    let meant = findings.iter().filter(|finding| (finding.severity == Severity::Note) == notes);
    meant.flat_map(|finding| finding.cure.commands.clone()).filter(|command| command.starts_with("qm set")).collect()
}

/// Tries a configuration on a machine.
fn try_out(machine: &Machine, text: &str) -> Result<(), String> {
    let Some(before) = check(machine, text) else { return Ok(()) };
    let read = Read::of(text);
    let cpus = machine.threads.iter().filter(|thread| thread.online).count() as u64;
    let refused = |read: &Read| read.refused(cpus, machine.nodes.len() as u64);
    let found = before.iter().find(|finding| finding.what == "start_refused" || finding.what == "no_such_node");
    match (refused(&read), found) {
        (Some(why), None) => return Err(format!("not found: {why}")),
        (None, Some(found)) if found.what == "start_refused" => return Err(format!("it starts: {found:#?}")),
        _ => {}
    }
    let uncured = |found: &&Finding| found.what == "start_refused" && found.cure.commands.is_empty();
    let hopeless = before.iter().find(uncured).is_some();
    let whole = commands(&before, false);
    if whole.len() > 1 {
        return Err(format!("several commands for problems and warnings: {whole:#?}"));
    }
    let tried = |read: &Read, command: &String| -> Result<Read, String> {
        let after = read.set(command);
        let sizes = |read: &Read| (read.vcpus(), read.most_vcpus(), read.memory());
        if sizes(&after) != sizes(read) {
            return Err(format!("{command}\nother sizes: {:?} {:?}", sizes(read), sizes(&after)));
        }
        if let (Some(why), false) = (refused(&after), hopeless) {
            return Err(format!("{command}\ndoes not start: {why}"));
        }
        let now = check(machine, &after.text()).ok_or_else(|| format!("{command}\nis not read"))?;
        let (before, now) = (counts(&before), counts(&now));
        if now.0 > before.0 || now.1 > before.1 {
            return Err(format!("{command}\nproblems, wrong: {before:?}, then {now:?}\n{}", after.text()));
        }
        Ok(after)
    };
    let mut cured = read.clone();
    for command in &whole {
        cured = tried(&cured, command)?;
        let again = check(machine, &cured.text()).expect("findings");
        if counts(&again).1 >= counts(&before).1 && counts(&again).0 >= counts(&before).0 {
            return Err(format!("{command}\nmends nothing\n{again:#?}"));
        }
        if let Some(second) = commands(&again, false).first() {
            return Err(format!("{command}\nand then another one: {second}"));
        }
    }
    for command in &commands(&before, true) {
        tried(&read, command)?;
        cured = tried(&cured, command)?;
    }
    Ok(())
}

properties::properties! {
    #![cases(192)]

    #[test]
    fn a_cure_of_proxmox_keeps_the_vm_and_starts_it(seed in any::<u64>()) {
        let mut draw = Draw::new(seed);
        let machine = &machines()[draw.below(4) as usize];
        let text = conf(&mut draw);
        if let Err(why) = try_out(machine, &text) {
            prop_assert!(false, "{}\n{text}\n{why}", machine.name);
        }
    }
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn many_configurations_of_proxmox() {
    let many = std::env::var("HOMENODE_CONFS").ok().and_then(|many| many.parse().ok()).unwrap_or(1000u64);
    let mut failed = 0;
    for seed in 0..many {
        let mut draw = Draw::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let machine = &machines()[draw.below(4) as usize];
        let text = conf(&mut draw);
        if let Err(why) = try_out(machine, &text) {
            failed += 1;
            println!("---- {seed} on {}\n{text}\n{why}", machine.name);
        }
    }
    assert_eq!(failed, 0, "of {many}");
}

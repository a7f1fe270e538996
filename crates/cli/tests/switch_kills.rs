//! Whoever of those that make a VM's network is killed, and whenever: nothing is left.

use crate::common::kept_vm::Drawn;
use crate::common::{no_qemu, tiny_guest, unique, within_seconds};
use crate::host_network::Host;
use std::path::Path;

/// What there is besides what counts: namespaces with a name, interfaces, queues, processes of
/// ours, files: also those of the directory for what is temporary.
fn state(host: &mut Host, of_ours: &str) -> String {
    let namespaces = host.ok("ip netns list");
    let interfaces = host.interfaces();
    let queues = host.ok("tc qdisc show | awk '{print $2, $5}' | sort");
    // The shell that asks has the pattern in its own command.
    let (_, processes) = host.says(&format!("pgrep -fa '{of_ours}' | grep -v pgrep"));
    let files = [files(&host.place.runtime()), files(&host.place.path("tmp"))];
    format!("{namespaces}{interfaces}{queues}{processes}{files:?}")
}

/// Files and sockets; directories stay once they are made.
fn files(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            true => found.extend(files(&path)),
            false => found.push(path.display().to_string()),
        }
    }
    found.sort();
    found
}

fn kills(test: &str, rounds: u64) {
    if no_qemu(test) || tiny_guest(test).is_none() {
        return;
    }
    let Some(mut host) = Host::new(test) else { return };
    let temporary = host.place.path("tmp").display().to_string();
    host.ok(&format!("mkdir {temporary} && chmod 1777 {temporary} && export TMPDIR={temporary}"));
    let seed = std::env::var("HOMENODE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0x5EED_u64).max(1);
    let (mut drawn, vm) = (Drawn(seed), unique("switch-kills"));
    let cards = "kind = \"switch\"\nswitch = \"lan\"\n\n[[network]]\nkind = \"macvtap\"\ncard = \"c0\"";
    let spec = host.spec(&vm, cards).display().to_string();
    let runtime = host.place.runtime().display().to_string();
    let of_ours = format!("[k]eep {runtime}|[n]ame {vm},|[r]un {spec}");
    let victims = [format!("switch keep {runtime}"), format!("-name {vm},"), format!("run {spec}")];
    // So the directories are there, and what stays in them.
    host.ok("$H switch create lan; $H switch delete lan; $H vm list");
    let before = state(&mut host, &of_ours);
    for round in 0..rounds {
        let (victim, milliseconds) = (&victims[drawn.below(3) as usize], drawn.below(1200));
        let what = format!("seed {seed}, round {round}: `{victim}` is killed after {milliseconds} ms");
        let makes = format!(
            "$H switch create core; $H switch create lan --uplink core --rate '1 Gbit/s' --bridge br0; \
             $H run {spec} --daemonize"
        );
        let (seconds, rest) = (milliseconds / 1000, milliseconds % 1000);
        host.says(&format!("( {makes} ) & sleep {seconds}.{rest:03}; pkill -KILL -f -- '{victim}'; wait"));
        // The end of what was not killed.
        host.says(&format!("$H vm delete {vm} --force; $H switch delete lan; $H switch delete core; $H switch list"));
        let clean = within_seconds(60, || {
            host.says("$H vm list; $H switch list");
            state(&mut host, &of_ours) == before
        });
        assert!(clean, "{what}\nbefore: {before}\nafter: {}", state(&mut host, &of_ours));
    }
    println!("{rounds} kills left nothing (seed {seed})");
}

#[test]
fn five_kills_leave_nothing() {
    kills("five_kills_leave_nothing", 5);
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn fifty_kills_leave_nothing() {
    kills("fifty_kills_leave_nothing", 50);
}

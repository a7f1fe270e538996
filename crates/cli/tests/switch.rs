//! `homenode switch`, and cards of VMs in switches: in namespaces of our own.

use crate::common::{Place, homenode_in, lacks, said, said_in, within_seconds};
use network::host::Owner;
use network::{Fabric, NetworkError, Switch, SwitchSeen};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// What virtio-net puts before each frame: nothing to say.
const HEADER: [u8; 10] = [0; 10];
const FRAME_BYTES: usize = 1514;

fn fabric(test: &str) -> Option<Fabric> {
    match Fabric::of_our_own(Path::new(env!("CARGO_BIN_EXE_homenode"))) {
        Ok(fabric) => Some(fabric),
        Err(error) => {
            eprintln!("SKIPPED {test}: {error}");
            None
        }
    }
}

fn switch(text: &str) -> Switch {
    serde_json::from_str(text).expect("a switch")
}

fn tap(fabric: &mut Fabric, switch: &str, port: &str) -> File {
    let mut taps = fabric.tap(&switch.parse().expect("a name"), port, 1).expect("a tap");
    File::from(taps.remove(0))
}

/// An Ethernet frame from card 1 to card 2, of a protocol for experiments (IEEE 802: 0x88B5).
fn frame() -> Vec<u8> {
    let mut frame = HEADER.to_vec();
    frame.extend([0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1, 0x88, 0xB5]);
    frame.resize(HEADER.len() + FRAME_BYTES, 0x5A);
    frame
}

/// Sends as fast as the switch takes it, and says how many bits a second arrived between the first
/// frame and the last.
fn rate(from: &mut File, to: &mut File, time: Duration) -> f64 {
    let (frame, begin) = (frame(), Instant::now());
    let (mut first, mut last, mut arrived) = (None, begin, 0u32);
    let mut buffer = [0u8; 4096];
    while begin.elapsed() < time {
        for _ in 0..16 {
            // A full queue: the switch drops what comes.
            let _ = from.write(&frame);
        }
        while linux::sys::wait_readable(to, Duration::ZERO).expect("a tap that is open") {
            let bytes = to.read(&mut buffer).expect("a frame");
            // The kernel speaks of its own addresses now and then.
            if bytes == frame.len() && buffer[22..24] == [0x88, 0xB5] {
                last = Instant::now();
                first.get_or_insert(last);
                arrived += 1;
            }
        }
    }
    let seconds = (last - first.expect("frames arrive")).as_secs_f64();
    f64::from(arrived) * FRAME_BYTES as f64 * 8.0 / seconds
}

#[test]
fn a_link_has_the_rate_that_it_was_given_and_what_it_refuses_is_counted() {
    let Some(mut fabric) = fabric("a_link_has_the_rate_that_it_was_given_and_what_it_refuses_is_counted") else {
        return;
    };
    fabric.add(&switch(r#"{"name":"core"}"#)).expect("a switch");
    fabric.add(&switch(r#"{"name":"lan","uplink":[{"to":"core","rate":"50 Mbit/s"}]}"#)).expect("a switch");
    let (mut here, mut there) = (tap(&mut fabric, "lan", "a/0"), tap(&mut fabric, "core", "b/0"));
    // Beside other tests the sender may have to wait: the best that it reaches in a minute.
    let (mut best, end) = (0.0f64, Instant::now() + Duration::from_secs(60));
    while Instant::now() < end {
        let seen = rate(&mut here, &mut there, Duration::from_millis(500));
        // 1 ms of the rate may go at once: 0.2 % of half a second.
        assert!(seen < 52.5e6, "{seen} bits a second");
        best = best.max(seen);
        if best > 47.5e6 {
            break;
        }
    }
    assert!(best > 47.5e6, "{best} bits a second");
    // What the link still holds is counted on one side of it first.
    let mut seen = fabric.seen().expect("what there is");
    let drained = || {
        let before = std::mem::replace(&mut seen, fabric.seen().expect("what there is"));
        before == seen
    };
    assert!(within_seconds(20, drained), "frames come without an end");
    let [core, lan] = &seen[..] else { panic!("{seen:?}") };
    let (sent, arrived) = (lan.links[0].sent, core.ports[0].to_vm);
    assert!(sent.dropped > 0 && lan.links[0].waits > 0, "{lan:?}");
    assert_eq!(lan.ports[0].from_vm.bytes / FRAME_BYTES as u64, lan.ports[0].from_vm.frames);
    // What the link let through arrived, or the reader was too slow for it; and what the kernel
    // itself says on that switch, which goes back over the link too.
    let of_kernel = core.links[0].sent.frames;
    assert!(arrived.frames + arrived.dropped <= sent.frames + of_kernel, "{seen:?}");
    assert_eq!((core.links[0].to.as_str(), lan.links[0].to.as_str()), ("lan", "core"));
}

#[test]
fn switches_go_with_who_has_them_and_nothing_of_the_hosts_network_changes() {
    let test = "switches_go_with_who_has_them_and_nothing_of_the_hosts_network_changes";
    let interfaces = || {
        let names = fs::read_dir("/sys/class/net").expect("interfaces").map(|entry| entry.expect("one").file_name());
        names.collect::<std::collections::BTreeSet<_>>()
    };
    let before = interfaces();
    let Some(mut fabric) = fabric(test) else { return };
    fabric.add(&switch(r#"{"name":"lan"}"#)).expect("a switch");
    let card = tap(&mut fabric, "lan", "vm/0");
    assert!(fabric.remove("lan").expect_err("in use").to_string().contains("VM vm/0"));
    drop(card);
    let ports = |fabric: &mut Fabric| fabric.seen().expect("what there is")[0].ports.len();
    let end = Instant::now() + Duration::from_secs(5);
    while ports(&mut fabric) > 0 {
        assert!(Instant::now() < end, "a card that was closed stays");
        std::thread::sleep(Duration::from_millis(5));
    }
    fabric.remove("lan").expect("nobody is plugged in");
    assert_eq!(fabric.seen().expect("what there is"), Vec::<SwitchSeen>::new());
    assert_eq!(interfaces(), before);
}

#[test]
fn two_vms_of_one_address_do_not_meet_on_switches_that_are_joined() {
    let Some(mut fabric) = fabric("two_vms_of_one_address_do_not_meet_on_switches_that_are_joined") else { return };
    for text in [r#"{"name":"core"}"#, r#"{"name":"lan","uplink":[{"to":"core"}]}"#, r#"{"name":"alone"}"#] {
        fabric.add(&switch(text)).expect("a switch");
    }
    let mut plug = |switch: &str, vm: &str, card: usize, mac: &str| {
        let owner = Owner { vm, card, mac: mac.parse().expect("an address"), queues: 1 };
        fabric.plug_card(&switch.parse().expect("a name"), owner)
    };
    let (one, other) = ("52:54:00:00:00:01", "52:54:00:00:00:02");
    let first = plug("core", "a", 0, one).expect("a tap");
    for switch in ["core", "lan"] {
        let error = plug(switch, "b", 1, one).expect_err("taken");
        let NetworkError::AddressTaken { .. } = &error else { panic!("{error}") };
        let expected =
            "52:54:00:00:00:01 is the address of VM a/0 on switch core, which frames to it could reach too: ";
        assert!(error.is_input() && error.to_string().starts_with(expected), "{error}");
    }
    let _more =
        [plug("lan", "b", 1, other).expect("another address"), plug("alone", "b", 0, one).expect("it is alone")];
    // A VM that starts again may find its own card, which goes as its QEMU ends.
    plug("core", "a", 0, one).expect("its own");
    drop(first);
    let free = || plug("core", "c", 0, one).is_ok();
    assert!(within_seconds(20, free), "the address of a card that has gone stays taken");
    let ports = fabric.seen().expect("what there is").into_iter().find(|seen| seen.name == "lan").expect("it").ports;
    assert_eq!(ports[0].port, "b/1", "the address is no part of it");
}

#[test]
fn a_keeper_that_is_killed_frees_the_name_and_cards_stay_on_the_switch_that_they_have() {
    let test = "a_keeper_that_is_killed_frees_the_name_and_cards_stay_on_the_switch_that_they_have";
    if fabric(test).is_none() || lacks(test, "pkill") {
        return;
    }
    let place = Place::new();
    says(&place, &["switch", "create", "lan"], 0);
    let directory = place.runtime().join(".switches");
    let mut kept = Fabric::kept(&directory).expect("a keeper").expect("switches");
    let (mut here, mut there) = (tap(&mut kept, "lan", "a/0"), tap(&mut kept, "lan", "b/0"));
    drop(kept);
    let keeper = format!("switch keep {}", directory.display());
    assert!(Command::new("pkill").args(["-KILL", "-f", &keeper]).status().expect("pkill").success());
    let gone = || says(&place, &["switch", "list"], 0).starts_with("There is no switch.");
    assert!(within_seconds(20, gone), "the keeper stays");
    says(&place, &["switch", "create", "lan"], 0);
    let listed = says(&place, &["switch", "list"], 0);
    assert!(listed.contains("lan   kernel    0  -"), "{listed}");
    assert!(rate(&mut here, &mut there, Duration::from_millis(200)) > 0.0);
    says(&place, &["switch", "delete", "lan"], 0);
}

fn says(place: &Place, arguments: &[&str], code: i32) -> String {
    let (status, output, errors) = said_in(&place.runtime(), arguments);
    let said = output + &errors;
    assert_eq!(status, Some(code), "{arguments:?}: {said}");
    said
}

#[test]
fn kept_switches_are_made_listed_used_and_deleted() {
    if fabric("kept_switches_are_made_listed_used_and_deleted").is_none() {
        return;
    }
    let place = Place::new();
    assert!(says(&place, &["switch", "list"], 0).starts_with("There is no switch."));
    says(&place, &["switch", "create", "core"], 0);
    says(&place, &["switch", "create", "lan", "--uplink", "core", "--rate", "1 Gbit/s"], 0);
    let said = says(&place, &["switch", "create", "lan"], 2);
    assert!(said.contains("switch lan is there already"), "{said}");
    let said = says(&place, &["switch", "create", "x", "--uplink", "core", "--rate", "1 GB/s"], 2);
    assert!(said.contains("`1 GB/s` is no rate: expected 64 kbit/s to 400 Gbit/s"), "{said}");
    let said = says(&place, &["switch", "create", "x", "--uplink", "core", "--delay", "-1 ms"], 2);
    assert!(said.contains("`-1 ms` is no delay: expected 1 us to 1000 ms"), "{said}");
    let said = says(&place, &["switch", "create", "x", "--uplink", "enp1s0"], 2);
    assert!(said.contains("there is core, lan. An uplink leads to a switch that was made before"), "{said}");
    assert!(said.contains("joins a card or a bridge of the host by --card or --bridge"), "{said}");
    let said = says(&place, &["switch", "create", "ring", "--uplink", "core", "--uplink", "lan"], 2);
    assert!(said.contains("would make a ring"), "{said}");
    let listed = says(&place, &["switch", "list"], 0);
    assert!(listed.contains("core  kernel    0  lan 1 Gbit/s"), "{listed}");
    let said = says(&place, &["switch", "delete", "core"], 2);
    assert!(said.contains("in use by switch lan"), "{said}");
    let said = says(&place, &["switch", "show", "wan"], 2);
    assert!(said.contains("there is no such switch; there is core, lan"), "{said}");
    says(&place, &["switch", "delete", "lan"], 0);
    says(&place, &["switch", "delete", "core"], 0);
    says(&place, &["switch", "delete", "core"], 2);
    for name in ["", "..", "\u{fc}ber", "two\nlines", "--", &"a".repeat(300)] {
        for command in ["create", "show", "delete"] {
            assert!(!says(&place, &["switch", command, "--", name], 2).contains("panicked"), "{command} {name}");
        }
    }
    assert!(says(&place, &["switch", "list"], 0).starts_with("There is no switch."));
}

const VDE: [&str; 5] = ["switch", "create", "lan", "--kind", "vde"];

/// Directories of switches that are programs.
fn programs(place: &Path) -> usize {
    fs::read_dir(place).expect("a directory").count()
}

#[test]
fn a_switch_that_is_a_program_needs_no_namespace_and_leaves_nothing_when_its_keeper_is_killed() {
    let test = "a_switch_that_is_a_program_needs_no_namespace_and_leaves_nothing_when_its_keeper_is_killed";
    if lacks(test, "vde_switch") {
        return;
    }
    let (place, sockets) = (Place::new(), tempfile::tempdir().expect("a directory"));
    let says = |arguments: &[&str], code: i32| {
        let output = Command::new(env!("CARGO_BIN_EXE_homenode"))
            .args(arguments)
            .env("HOMENODE_RUNTIME_DIR", place.runtime())
            .env("TMPDIR", sockets.path())
            .output()
            .expect("homenode runs");
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        said.into_owned()
    };
    let without = |place: &str| said(homenode_in(&Place::new().runtime(), &VDE).env("TMPDIR", place));
    let (code, _, error) = without("/no/such/place");
    let expected =
        "cannot use /no/such/place for sockets and locks: No such file or directory (os error 2); TMPDIR may";
    assert!(code == Some(1) && error.contains(expected), "{error}");
    says(&VDE, 0);
    let said = says(&["switch", "create", "up", "--uplink", "lan"], 2);
    assert!(said.contains("lan is of kind \"vde\", which is joined to nothing but VMs"), "{said}");
    let said = says(&["switch", "create", "up", "--kind", "other"], 2);
    assert!(said.contains("`other` is no kind of switch: expected `kernel` or `vde`"), "{said}");
    let directory = place.runtime().join(".switches");
    let mut fabric = Fabric::kept(&directory).expect("a keeper").expect("switches");
    let mut card = |port: &str| fabric.plug(&"lan".parse().expect("a name"), port, 1).expect("a card");
    let (here, there) = (card("a/0"), card("b/0"));
    let socket = |tap: &vm::Tap| UnixDatagram::from(tap.queues[0].try_clone().expect("a descriptor"));
    let frame = &frame()[HEADER.len()..];
    socket(&here).send(frame).expect("sent");
    let (to, mut arrived) = (socket(&there), [0u8; 4096]);
    to.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
    assert_eq!(to.recv(&mut arrived).expect("a frame"), FRAME_BYTES);
    let seen = fabric.seen().expect("what there is");
    assert_eq!((seen[0].ports[0].port.as_str(), seen[0].ports[0].from_vm.bytes), ("a/0", FRAME_BYTES as u64));
    // The keeper serves one at a time.
    drop(fabric);
    assert!(says(&["switch", "delete", "lan"], 2).contains("in use by VM a/0, VM b/0"));
    assert!(says(&["switch", "list"], 0).contains("lan   vde     2  -"), "{}", says(&["switch", "list"], 0));
    assert_eq!(programs(sockets.path()), 1);
    let keeper = format!("switch keep {}", directory.display());
    let killed = Command::new("pkill").args(["-KILL", "-f", &keeper]).status().expect("pkill");
    assert!(killed.success());
    // Whoever looks next takes away what is left.
    let gone = || says(&["switch", "list"], 0).starts_with("There is no switch.") && programs(sockets.path()) == 0;
    assert!(within_seconds(60, gone), "{} directories", programs(sockets.path()));
}

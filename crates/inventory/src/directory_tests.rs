//! The directory, as those meet it who keep VMs in it.

use super::*;
use crate::files::kill;
use crate::{Kept, Proposal};
use topology::Bytes;
use vm::history::{Life, LifeEvent, UnixSeconds};
use vm::life::Step;
use vm::truth::{Process, mend};
use vm::{Added, Placement, Shape, VirtualNode, VirtualTopology, VmSpec};

fn record() -> Record {
    let shape = Shape { name: "web".to_owned(), vcpus: 2, memory: Bytes::from_mib(512), ..Shape::default() };
    let spec = VmSpec { shape, ..VmSpec::default() };
    let life = Life::planned(Default::default(), UnixSeconds(7));
    Record { spec, topology: None, placement: None, life }
}

fn topology() -> VirtualTopology {
    let node = VirtualNode { vcpus: vec![0, 1], memory: Bytes::from_mib(512), ..VirtualNode::default() };
    let distances = vec![vec![10]];
    let nodes = vec![node];
    VirtualTopology {
        exposed: false,
        nodes,
        sockets: 1,
        cores_per_socket: 2,
        dies_per_socket: 1,
        threads_per_core: 1,
        distances,
    }
}

#[test]
fn a_vm_is_read_as_it_was_written_and_held_by_one_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let inventory = Inventory::at(directory.path().join("vms"));
    assert_eq!(inventory.names().unwrap(), Vec::<String>::new());
    let mut held = inventory.create(&record()).unwrap();
    assert!(matches!(inventory.hold("web"), Err(InventoryError::Busy { .. })));
    held.set_topology(Some(topology())).unwrap();
    held.set_placement(Some(kept("a"))).unwrap();
    held.step(Step::Start, None, UnixSeconds(8)).unwrap();
    let written = held.record().clone();
    drop(held);
    assert_eq!(inventory.read("web").unwrap(), written);
    assert_eq!((written.life.state, inventory.names().unwrap()), (State::Starting, vec!["web".to_owned()]));
    assert!(matches!(inventory.create(&record()), Err(InventoryError::NameTaken { .. })));
    inventory.hold("web").unwrap().delete().unwrap();
    assert!(matches!(inventory.read("web"), Err(InventoryError::NoSuchVm { .. })));
    assert!(!directory.path().join("vms/web").exists());
}

#[test]
fn what_a_killed_creator_left_is_no_vm_and_in_nobodys_way() {
    let directory = tempfile::tempdir().unwrap();
    let inventory = Inventory::at(directory.path().to_owned());
    let make = |name: &str| DirBuilder::new().mode(0o700).create(directory.path().join(name)).unwrap();
    make("web");
    fs::write(directory.path().join("web/spec.toml"), "name = ").unwrap();
    fs::write(directory.path().join("web/unfinished-life.json"), "{").unwrap();
    assert!(inventory.names().unwrap().is_empty());
    assert!(matches!(inventory.hold("web"), Err(InventoryError::NoSuchVm { .. })));
    make("db");
    fs::write(directory.path().join("db/spec.toml.12"), "name = ").unwrap();
    fs::create_dir(directory.path().join("others")).unwrap();
    fs::write(directory.path().join("others/disk.img"), "").unwrap();
    inventory.remove_unfinished().unwrap();
    let left = ["web", "db", "others/disk.img"].map(|name| directory.path().join(name).exists());
    assert_eq!(left, [false, false, true]);
    drop(inventory.create(&record()).unwrap());
    assert_eq!(inventory.read("web").unwrap(), record());
}

/// Its topology and its memory were removed by the next `vm list`, and nobody was told.
#[test]
fn a_vm_whose_life_somebody_removed_is_named_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let inventory = Inventory::at(directory.path().to_owned());
    drop(stopped(&inventory));
    fs::write(inventory.memory_file("web"), "all of a guest").unwrap();
    fs::remove_file(directory.path().join("web/life.json")).unwrap();
    let left = || fs::read_dir(directory.path().join("web")).unwrap().count();
    let before = left();
    inventory.remove_unfinished().unwrap();
    assert_eq!((left(), inventory.names().unwrap()), (before, vec!["web".to_owned()]));
    for error in [inventory.read("web").unwrap_err(), inventory.create(&record()).unwrap_err()] {
        assert!(error.is_unreadable() && error.to_string().contains("web/life.json: it is missing"), "{error}");
    }
    assert!(inventory.hold("web").is_err() && left() == before);
    inventory.forget("web").unwrap();
    drop(inventory.create(&record()).unwrap());
}

/// A suspend that was killed left gigabytes, and what the guest has in memory, for anybody's time.
#[test]
fn a_guest_that_went_on_leaves_no_old_memory() {
    let directory = tempfile::tempdir().unwrap();
    let inventory = Inventory::at(directory.path().to_owned());
    let mut held = stopped(&inventory);
    let memory = inventory.memory_file("web");
    let unfinished = memory.with_extension("homenode.unfinished");
    let write = || [&memory, &unfinished].iter().for_each(|path| fs::write(path, "a guest").unwrap());
    write();
    held.change_life(|life| life.suspended_in = Some(memory.clone())).unwrap();
    drop(held);
    drop(inventory.hold("web").unwrap());
    assert!(memory.exists());
    inventory.hold("web").unwrap().change_life(|life| life.suspended_in = None).unwrap();
    drop(inventory.hold("web").unwrap());
    assert!(!memory.exists() && !unfinished.exists());
}

#[test]
fn what_another_homenode_wrote_is_named_and_stays() {
    let directory = tempfile::tempdir().unwrap();
    let inventory = Inventory::at(directory.path().to_owned());
    drop(inventory.create(&record()).unwrap());
    fs::write(directory.path().join("web/life.json"), "{\"version\": 9}").unwrap();
    let error = inventory.hold("web").unwrap_err().to_string();
    assert!(error.ends_with("life.json: version 9: this homenode reads version 1"), "{error}");
    assert!(inventory.hold("web").unwrap_err().is_unreadable());
    for name in ["..", "a/b", "", "-x"] {
        assert!(matches!(inventory.read(name), Err(InventoryError::NoSuchVm { .. })), "{name}");
    }
}

#[test]
fn a_vm_with_a_file_missing_or_of_another_vm_is_refused_with_its_path() {
    let directory = tempfile::tempdir().unwrap();
    let inventory = Inventory::at(directory.path().to_owned());
    drop(stopped(&inventory));
    let whole = inventory.read("web").unwrap();
    let refused = |file: &str, content: Option<&str>| {
        let path = directory.path().join("web").join(file);
        let before = fs::read(&path).unwrap();
        content.map_or_else(|| fs::remove_file(&path), |content| fs::write(&path, content)).unwrap();
        let error = inventory.hold("web").unwrap_err();
        assert!(error.is_unreadable());
        fs::write(&path, before).unwrap();
        error.to_string().replace(&directory.path().display().to_string(), "vms")
    };
    assert_eq!(refused("topology.json", None), "vms/web/topology.json: it is missing");
    assert_eq!(refused("placement.json", None), "vms/web/placement.json: it is missing");
    let other = "name = \"db\"\nvcpus = 2\nmemory = \"512 MiB\"\n";
    assert_eq!(refused("spec.toml", Some(other)), "vms/web/spec.toml: `name` is db: it is the file of another VM");
    let cut = refused("spec.toml", Some("name = \"web\"\nvcp"));
    assert!(cut.starts_with("vms/web/spec.toml:2: "), "{cut}");
    assert_eq!(inventory.read("web").unwrap(), whole);
}

fn kept(host: &str) -> Kept {
    Kept { host: host.to_owned(), placement: Placement { clients: vec![] }, added: Added::default() }
}

fn proposal(kernel: &str) -> Proposal {
    let boot = vm::spec::Boot::TinyGuest { kernel: Some(kernel.into()), root: vm::spec::GuestRoot::Initramfs };
    Proposal { spec: VmSpec { boot, ..record().spec }, topology: topology(), placement: kept(kernel) }
}

const STARTED: LifeEvent = LifeEvent::Started { homes: Vec::new() };

/// A VM that ran and was stopped.
fn stopped(inventory: &Inventory) -> Held {
    let mut held = inventory.create(&record()).unwrap();
    held.begin(Step::Start, proposal("old"), UnixSeconds(8)).unwrap();
    held.complete(STARTED, UnixSeconds(9)).unwrap();
    held.step(Step::Stop, Some(LifeEvent::Stopped), UnixSeconds(10)).unwrap();
    held
}

/// Whoever looks next: the VM's process is there or not.
fn look(inventory: &Inventory, runs: bool) -> Option<Record> {
    let process = if runs { Process::Runs } else { Process::Gone { because: String::new() } };
    let held = match inventory.hold("web") {
        Err(InventoryError::NoSuchVm { .. }) => return None,
        held => held.unwrap(),
    };
    if let Some(mend) = mend(&held.record().life, &process) {
        held.mend(mend, UnixSeconds(20)).unwrap();
    }
    inventory.read("web").ok()
}

/// Carries out `work` in a new inventory with a kill before each of its writes in turn: `seen` gets
/// what the next one who looks finds, with the process there or not, and whether `work` had come so
/// far that there could be one.
fn cut(
    before: fn(&Inventory) -> Option<Held>,
    work: fn(&Inventory, Option<Held>, &mut bool) -> Result<(), InventoryError>,
    mut seen: impl FnMut(Option<Record>, bool, bool),
) {
    for runs in [false, true] {
        for writes in 0.. {
            let directory = tempfile::tempdir().unwrap();
            let inventory = Inventory::at(directory.path().to_owned());
            let held = before(&inventory);
            let mut has_process = false;
            kill::after(Some(writes));
            let done = work(&inventory, held, &mut has_process).is_ok();
            kill::after(None);
            // A write that was cut short in the middle.
            if let Ok(entries) = fs::read_dir(directory.path().join("web")) {
                drop(entries);
                fs::write(directory.path().join("web/life.json.4711"), "{\"vers").unwrap();
            }
            if runs && !has_process {
                // There is nothing that could run.
                if done {
                    break;
                }
                continue;
            }
            let record = look(&inventory, runs);
            let mut left: Vec<_> = fs::read_dir(directory.path().join("web")).map_or(Vec::new(), |entries| {
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
            });
            left.sort();
            if record.is_some() {
                assert_eq!(left, ["life.json", "placement.json", "spec.toml", "topology.json"], "{writes} writes");
            }
            seen(record, runs, done);
            if done {
                break;
            }
        }
    }
}

#[test]
fn a_start_that_is_killed_at_any_write_leaves_the_old_or_the_new() {
    let before = |inventory: &Inventory| Some(stopped(inventory));
    let work = |_: &Inventory, held: Option<Held>, has_process: &mut bool| {
        let mut held = held.unwrap();
        held.begin(Step::Start, proposal("new"), UnixSeconds(11))?;
        *has_process = true;
        held.complete(STARTED, UnixSeconds(12))
    };
    let mut cuts = 0;
    cut(before, work, |record, runs, done| {
        let record = record.unwrap();
        let is = |proposal: Proposal| {
            let Proposal { spec, topology, placement } = proposal;
            (record.spec == spec) && record.topology == Some(topology) && record.placement == Some(placement)
        };
        match record.life.state {
            State::Running => assert!(runs && is(proposal("new"))),
            State::Stopped => assert!(!runs && !done && is(proposal("old")) && record.life.since == UnixSeconds(10)),
            // It ran, and its process is gone since.
            State::Lost => assert!(!runs && is(proposal("new"))),
            state => panic!("{state}"),
        }
        cuts += 1;
    });
    // begin: 3 files and the life; complete: the life, 3 renames, the life.
    assert_eq!(cuts, 10 + 6);
}

#[test]
fn a_topology_is_sized_anew_by_a_power_on_and_by_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let mut held = stopped(&Inventory::at(directory.path().to_owned()));
    let mut runs = |step: Step, event: LifeEvent, leave: Step| {
        held.begin(step, proposal("/new"), UnixSeconds(9)).unwrap();
        held.complete(event, UnixSeconds(10)).unwrap();
        let anew = held.record().life.topology_anew;
        held.step(leave, None, UnixSeconds(11)).unwrap();
        held.change_life(|life| life.topology_anew = true).unwrap();
        anew
    };
    let homes = Vec::new;
    assert!(!runs(Step::Start, LifeEvent::Started { homes: homes() }, Step::Suspend));
    assert!(runs(Step::Resume, LifeEvent::Resumed { homes: homes() }, Step::Stop));
    assert!(!runs(Step::Start, LifeEvent::Started { homes: homes() }, Step::Stop));
}

#[test]
fn a_start_that_is_called_back_leaves_the_old_at_any_write() {
    let before = |inventory: &Inventory| Some(stopped(inventory));
    let work = |_: &Inventory, held: Option<Held>, _: &mut bool| {
        let mut held = held.unwrap();
        held.begin(Step::Start, proposal("new"), UnixSeconds(11))?;
        held.call_back()
    };
    let directory = tempfile::tempdir().unwrap();
    let old = stopped(&Inventory::at(directory.path().to_owned())).record().clone();
    let mut cuts = 0;
    cut(before, work, |record, runs, _| {
        assert!(!runs);
        assert_eq!(record, Some(old.clone()));
        cuts += 1;
    });
    assert_eq!(cuts, 9);
}

#[test]
fn the_first_start_leaves_no_record_unless_the_vm_runs() {
    let work = |inventory: &Inventory, _: Option<Held>, has_process: &mut bool| {
        let Proposal { spec, topology, placement } = proposal("new");
        let life = Life::starting(Default::default(), UnixSeconds(7));
        let record = Record { spec, topology: Some(topology), placement: Some(placement), life };
        let mut held = inventory.create(&record)?;
        *has_process = true;
        held.complete(STARTED, UnixSeconds(12))
    };
    let mut found = Vec::new();
    cut(|_| None, work, |record, runs, done| found.push((record.map(|record| record.life.state), runs, done)));
    let count = |state: Option<State>, runs: bool| found.iter().filter(|one| (one.0, one.1) == (state, runs)).count();
    assert!(count(None, false) > 4 && count(None, true) == 0);
    assert!(count(Some(State::Running), true) == 6 && count(Some(State::Running), false) == 0);
    assert_eq!(found.iter().filter(|one| one.2).count(), 2);
}

#[test]
fn a_deletion_or_a_stop_that_is_killed_at_any_write_leaves_the_old_or_the_new() {
    let before = |inventory: &Inventory| Some(stopped(inventory));
    let mut gone = 0;
    let delete = |_: &Inventory, held: Option<Held>, _: &mut bool| held.unwrap().delete();
    cut(before, delete, |record, runs, done| {
        assert!(!runs && (record.is_none() || !done));
        gone += usize::from(record.is_none());
        if let Some(record) = record {
            assert_eq!((record.life.state, record.spec), (State::Stopped, proposal("old").spec));
        }
    });
    // The life's other name, 11 files and the directory: cut before the first it is whole, at the
    // 12 others and after the last it is no VM.
    assert_eq!(gone, 13);
    let running = |inventory: &Inventory| {
        let mut held = stopped(inventory);
        held.begin(Step::Start, proposal("old"), UnixSeconds(11)).unwrap();
        held.complete(STARTED, UnixSeconds(12)).unwrap();
        Some(held)
    };
    let stop = |_: &Inventory, held: Option<Held>, has_process: &mut bool| {
        let mut held = held.unwrap();
        *has_process = true;
        held.change_life(|life| life.asked_to_end = true)?;
        *has_process = false;
        held.step(Step::Stop, Some(LifeEvent::Stopped), UnixSeconds(13))
    };
    let mut states = Vec::new();
    cut(running, stop, |record, runs, _| states.push((record.unwrap().life.state, runs)));
    // Killed before it said so: whoever looks cannot know that somebody was about to.
    assert_eq!(states[..3], [(State::Lost, false), (State::Stopped, false), (State::Stopped, false)]);
}

#[test]
fn a_full_disk_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let inventory = Inventory::at(directory.path().to_owned());
    let mut held = stopped(&inventory);
    let before = held.record().clone();
    for writes in 0..4 {
        kill::after(Some(writes));
        let full = held.begin(Step::Start, proposal("new"), UnixSeconds(11)).unwrap_err();
        kill::after(None);
        assert!(full.to_string().contains("HOMENODE_STATE_DIR"), "{full}");
        assert_eq!((held.record(), inventory.read("web").unwrap()), (&before, before.clone()));
    }
    assert!(matches!(held.begin(Step::Resume, proposal("new"), UnixSeconds(11)), Err(InventoryError::NotNow { .. })));
}

#[test]
fn a_directory_that_others_can_change_is_not_believed() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| Inventory::at(directory.path().join(name));
    fs::create_dir(directory.path().join("open")).unwrap();
    fs::set_permissions(directory.path().join("open"), fs::Permissions::from_mode(0o777)).unwrap();
    symlink(directory.path(), directory.path().join("link")).unwrap();
    fs::write(directory.path().join("file"), "").unwrap();
    for (name, words) in [("open", "mode 777"), ("link", "it is a link"), ("file", "not a directory")] {
        for error in [at(name).names().unwrap_err(), at(name).create(&record()).unwrap_err()] {
            assert!(error.to_string().contains(words) && error.to_string().contains(STATE_VARIABLE), "{error}");
        }
    }
    let relative = Inventory::at("vms".into()).create(&record()).unwrap_err().to_string();
    assert!(relative.ends_with("the path is relative") && !Path::new("vms").exists(), "{relative}");
}

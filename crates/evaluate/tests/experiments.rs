//! The experiments that come with homenode, on machines that are not here.

use evaluate::experiment::{Experiment, NativeFiles};
use evaluate::parse;
use evaluate::point::Point;
use evaluate::resolve::{Host, Resolved, ResolvedConfiguration, ResolvedGuest, resolve};
use std::path::{Path, PathBuf};
use topology::Bytes;
use vm::spec::{DiskFormat, Firmware, GuestImage};
use workloads::stream::Stream;

/// Two Xeon X5570: four cores with two hardware threads on each of two nodes.
const DL380: &str = "pack:2 [numa(memory=24GB)] l3:1(size=8MB) core:4 pu:2";

fn shipped(name: &str) -> Experiment {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments").join(name);
    parse::read(&path).expect("a shipped experiment is valid")
}

fn on(experiment: &Experiment, machine: &str, available_gib: u64, emulated: bool) -> Resolved {
    let machine = topology::read::from_synthetic(machine).expect("a machine");
    let host = Host { machine: &machine, available: Bytes(available_gib << 30), emulated };
    resolve(experiment, &host, &|machine, specs| scheduler::plan_together(machine, &Default::default(), specs))
        .expect("resolved")
}

fn threads(configuration: &ResolvedConfiguration) -> Vec<u32> {
    configuration.points.iter().filter_map(Point::width).collect()
}

fn elements(resolved: &Resolved) -> u64 {
    resolved.parameters::<Stream>().expect("it is measured").elements()
}

/// The nodes that each VM lives on.
fn homes(configuration: &ResolvedConfiguration) -> Vec<Vec<String>> {
    let of_vm = |clients: &[vm::Client]| clients.iter().map(|client| client.home.to_string()).collect();
    configuration.vms.iter().map(|vm| of_vm(&vm.plan.placement.clients)).collect()
}

#[test]
fn the_article_on_its_own_machine() {
    let resolved = on(&shipped("stream-esx41.toml"), DL380, 46, false);
    assert_eq!(elements(&resolved), 100_000_000);
    assert!(resolved.notes.iter().all(|note| !note.contains("STREAM asks for")), "{:?}", resolved.notes);
    assert_eq!((resolved.experiment.repetitions, resolved.keep_running), (40, true));
    let [native, vms] = resolved.configurations.as_slice() else { panic!("two configurations are measured") };
    assert!(resolved.notes.iter().any(|note| note.contains("only the model runs it")), "{:?}", resolved.notes);
    assert_eq!(threads(native), [1, 2, 4, 8, 16]);
    assert_eq!(threads(vms), [2, 4, 8, 16]);
    // preferHT=1: eight vCPUs count as eight hardware threads, so each VM fits on one node, and the
    // two do not share it.
    assert_eq!(homes(vms), [["0"], ["1"]]);
    assert!(vms.vms.iter().all(|vm| vm.spec.vcpus == 8 && vm.plan.topology.nodes.len() == 1));
    // N = 5 x 10^7 in each VM: 1.2 GB of arrays must fit.
    assert!(vms.vms.iter().all(|vm| vm.spec.memory.0 > 1_200_000_000));
}

#[test]
fn the_published_tables_are_those_of_the_article() {
    let experiment = shipped("stream-esx41.toml");
    let native = &experiment.published[0];
    assert_eq!(native.value("Copy", 1), Some(6388.0));
    assert_eq!(native.value("Triad", 16), Some(29889.0));
    let virtualized = &experiment.published[1];
    assert_eq!(virtualized.value("Copy", 4), Some(22526.0));
    assert_eq!(virtualized.value("Triad", 1), None);
    // Statement of the article: two VMs have slightly greater bandwidth than native.
    let ratio = virtualized.value("Add", 8).zip(native.value("Add", 8)).map(|(vm, host)| vm / host).expect("both");
    assert!((ratio - 30676.0 / 29081.0).abs() < 1e-9);
}

#[test]
fn stream_scales_to_a_machine_of_four_nodes() {
    let resolved = on(
        &shipped("stream.toml"),
        "pack:2 [numa(memory=64GB)] [numa(memory=64GB)] l3:2(size=32MB) core:8 pu:2",
        200,
        false,
    );
    // The synthetic machine has 2 sockets x 2 caches of 32 MB; the rule is in whole millions.
    // 4 x 2 x 32 MB are 268435456 B = 33554432 elements; the file wants more.
    assert_eq!(elements(&resolved), 100_000_000);
    assert!(resolved.notes.iter().all(|note| !note.contains("STREAM asks for")), "{:?}", resolved.notes);
    let shape: Vec<String> = resolved.configurations.iter().map(ResolvedConfiguration::shape).collect();
    assert_eq!(shape[0], "on the host");
    let per_node = &resolved.configurations[3];
    let unique: std::collections::BTreeSet<_> = homes(per_node).into_iter().collect();
    assert_eq!(unique.len(), per_node.vms.len(), "each VM has a node of its own: {:?}", homes(per_node));
    let interleaved = &resolved.configurations[2].vms[0].plan;
    assert!(!interleaved.topology.exposed);
    assert_eq!(interleaved.placement.clients[0].memory_policy, vm::MemoryPolicy::Interleave);
    assert!(interleaved.placement.clients[0].home.len() > 1);
}

#[test]
fn the_articles_vms_fill_a_node_of_any_size() {
    let machine = "pack:2 [numa(memory=256GB)] l3:1(size=105MB) core:56 pu:2";
    let resolved = on(&shipped("stream-esx41.toml"), machine, 400, false);
    let [native, vms] = resolved.configurations.as_slice() else { panic!("two configurations are measured") };
    assert_eq!(threads(native), [1, 2, 4, 8, 16, 32, 64, 128, 224]);
    assert_eq!((vms.vms[0].spec.vcpus, homes(vms)), (112, vec![vec!["0".to_owned()], vec!["1".to_owned()]]));
}

#[test]
fn no_vm_of_stream_looks_faster_than_a_native_run_that_fills_one_socket() {
    let machine = topology::read::shipped_described("xeon-8480-2s").expect("shipped").expect("valid");
    let prediction =
        evaluate::validation::shipped::run(&shipped("stream.toml"), "stream.toml", Some(&machine), 1).expect("figures");
    let figure = |configuration: &str, threads: u32| {
        let of = |one: &&evaluate::figure::Figure| {
            one.configuration == configuration && one.is_of("Triad") && one.threads() == Some(threads)
        };
        prediction.figures.iter().find(of).expect(configuration).value
    };
    // With "compact" interleaved memory gave 1.87 times the native bandwidth here.
    for threads in [16, 32, 64] {
        let ratio = figure("1 VM, interleaved", threads) / figure("native", threads);
        assert!(ratio <= 1.01, "{threads} threads: {ratio}");
    }
}

#[test]
fn stream_on_one_node_runs_two_vms_and_says_what_that_means() {
    let resolved = on(&shipped("stream.toml"), "pack:1 [numa(memory=16GB)] l3:1(size=480MB) core:2 pu:1", 12, true);
    assert_eq!(resolved.configurations[3].vms.len(), 2);
    assert_eq!(elements(&resolved), 20_000_000);
    let notes = resolved.notes.join("\n");
    for part in ["only 0.3", "SOFTWARE EMULATION", "one NUMA node"] {
        assert!(notes.contains(part), "{part}: {notes}");
    }
}

#[test]
fn the_matrix_measures_every_pair() {
    let resolved = on(&shipped("numa-matrix.toml"), DL380, 46, false);
    // Two nodes: four pairs, each with a latency and a bandwidth; the VM with 16 vCPUs has two
    // virtual nodes.
    assert_eq!(resolved.configurations[0].points.len(), 8);
    assert_eq!(resolved.configurations[1].points.len(), 8);
}

/// As LAMMPS 20220106 and 20250204 of Debian print the last step, in guest and natively.
const THERMO: &str = "Step Temp E_pair E_mol TotEng Press \n\
    \x20      0         1.44   -6.7733681            0   -4.6134356   -5.0197073 \n\
    \x20    100    0.7574531   -5.7585055            0   -4.6223613   0.20726105 \n\
    Performance: 27744.404 tau/day, 64.223 timesteps/s\n";

#[test]
fn lammps_runs_in_a_guest_and_is_believed_by_its_energy() {
    use workloads::command::{Ended, Hearing, Section, Used, Verdict};
    let resolved = on(&shipped("lammps.toml"), DL380, 32, false);
    assert_eq!(resolved.configurations[0].native_files, Some(NativeFiles::OfGuest));
    assert_eq!(resolved.configurations[0].shape(), "on the host, the guest's programs");
    let section: &Section = resolved.parameters().expect("it is measured");
    assert!(section.environment["PATH"].contains("/usr/bin") && section.environment["HOME"] == "/root");
    let figures = |said: &str| {
        let mut hearing = Hearing::of(section.figures(), None).expect("patterns");
        hearing.stdout.hear(said.as_bytes());
        hearing.read(&Used::default()).expect("both figures")
    };
    let verdict = |figures: &[f64]| section.verify.judge(Ended::Status(0), None, &section.figures(), figures);
    assert_eq!(figures(THERMO), [-4.6223613, 64.223]);
    assert_eq!(verdict(&figures(THERMO)), Verdict::Verified);
    // The energy of 4000 atoms: a run of another size is not taken for this one.
    let other = figures(&THERMO.replace("-4.6223613", "-4.6226965"));
    assert!(matches!(verdict(&other), Verdict::Wrong(_)));
}

#[test]
fn in_an_image_natively_the_hosts_programs_run_and_a_boot_may_take_longer() {
    let mut experiment = shipped("lammps.toml");
    let guest = experiment.guest.as_mut().expect("a guest");
    (guest.packages, guest.image) = (Vec::new(), Some("cloud.qcow2".into()));
    experiment.limits.boot_seconds = None;
    let disk = images::OwnDisk {
        disk: GuestImage { path: "/cloud.qcow2".into(), format: DiskFormat::Qcow2, firmware: Firmware::Bios },
        length: Bytes(1),
        modified: 0,
    };
    let resolved = |emulated| on(&experiment, DL380, 32, emulated).with_guest(ResolvedGuest::Image(disk.clone()));
    assert_eq!(resolved(false).configurations[0].shape(), "on the host, its own programs");
    assert_eq!((resolved(false).boot_seconds(), resolved(true).boot_seconds()), (300, 900));
    assert_eq!(on(&experiment, DL380, 32, true).boot_seconds(), 120);
    let notes = resolved(false).notes.join("\n");
    assert!(notes.contains("the host's own programs run, in VMs others: the disk image /cloud.qcow2"), "{notes}");
    // What is kept with results is read again.
    let kept = serde_json::to_string(&resolved(false)).expect("JSON");
    assert_eq!(
        serde_json::from_str::<Resolved>(&kept).expect("the same").guest,
        Some(ResolvedGuest::Image(disk.clone()))
    );
}

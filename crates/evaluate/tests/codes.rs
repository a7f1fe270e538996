//! The codes that come with homenode: which problem a host gets, and that what they print is read
//! and judged. The texts are what Debian 12's packages printed.

use evaluate::applications::{Widths, narrowed};
use evaluate::experiment::Experiment;
use evaluate::parse;
use evaluate::point::Point;
use evaluate::resolve::{Host, Resolved, ResolvedConfiguration, resolve};
use std::path::Path;
use topology::{Bytes, Id};
use workloads::choice::Choice;
use workloads::command::{Ended, Hearing, Section, Used, Verdict};

const CODES: [&str; 4] = ["hpcc.toml", "gromacs.toml", "lammps-peptide.toml", "openfoam.toml"];

fn shipped(name: &str) -> Experiment {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments").join(name);
    parse::read(&path).expect("a shipped experiment is valid")
}

fn on(name: &str, machine: &str, available_gib: u64, emulated: bool) -> Resolved {
    resolved(&shipped(name), Widths::OfTheFile, machine, available_gib, emulated)
}

fn resolved(experiment: &Experiment, widths: Widths, machine: &str, available_gib: u64, emulated: bool) -> Resolved {
    let machine = topology::read::from_synthetic(machine).expect("a machine");
    let host = Host { machine: &machine, available: Bytes(available_gib << 30), emulated };
    let (experiment, _) = narrowed(experiment, &machine, host.available, widths);
    resolve(&experiment, &host, &|machine, specs| scheduler::plan_together(machine, &Default::default(), specs))
        .expect("resolved")
}

fn small(name: &str) -> Section {
    on(name, "pack:1 [numa(memory=16GB)] core:2 pu:1", 12, true)
        .parameters::<Section>()
        .expect("it is measured")
        .clone()
}

/// What is read where the command said this, and whether it is believed.
fn judged(section: &Section, files: &[(&str, &str)], stdout: &str) -> (Vec<f64>, Verdict) {
    let mut hearing = Hearing::of(section.figures(), None).expect("patterns");
    hearing.stdout.hear(stdout.as_bytes());
    for (name, listener) in hearing.files() {
        let text = files.iter().find(|(file, _)| Path::new(file) == name).expect("a file that it writes").1;
        listener.hear(text.as_bytes());
    }
    let figures = hearing.read(&Used { wall_seconds: 2.5, ..Used::default() }).expect("all figures");
    let verdict = section.verify.judge(Ended::Status(0), None, &section.figures(), &figures);
    (figures, verdict)
}

#[test]
fn the_problem_suits_the_host() {
    let size = |name: &str, machine: &str, gib, emulated| {
        let resolved = on(name, machine, gib, emulated);
        resolved.parameters::<Section>().and_then(|section| section.size.clone()).expect("a problem")
    };
    let large = "pack:2 [numa(memory=256GB)] core:32 pu:1";
    let two = "pack:1 [numa(memory=16GB)] core:2 pu:1";
    for (name, largest) in CODES.iter().zip(["huge", "huge", "huge", "middle"]) {
        assert_eq!(size(name, large, 400, false), largest, "{name}");
        assert_eq!(size(name, large, 400, true), "small", "{name}: nobody waits for an emulated machine");
        assert_eq!(size(name, two, 12, false), "middle", "{name}");
    }
}

#[test]
fn nothing_is_left_to_fill_in_and_vms_have_room() {
    for name in CODES {
        let resolved = on(name, "pack:2 [numa(memory=256GB)] core:32 pu:1", 400, false);
        let section: &Section = resolved.parameters().expect("it is measured");
        for program in section.programs_in_order() {
            let line = program.line().replace("{ranks}", "").replace("{memory_mib}", "");
            let left =
                line.split('{').skip(1).find(|rest| rest.starts_with(|letter: char| letter.is_ascii_lowercase()));
            assert_eq!(left, None, "{name}: {line}");
        }
        let memory = section.memory.fixed().expect("it is settled").0;
        let has_room = |one: &ResolvedConfiguration| one.vms.iter().all(|vm| vm.spec.memory.0 > memory);
        assert!(resolved.configurations.iter().all(has_room), "{name}");
        assert!(!section.verify.is_empty(), "{name}: nobody would check it");
    }
}

#[test]
fn hpcc_is_believed_by_its_own_checks() {
    let said = "    5 tests completed and passed residual checks.\n\
        \x20   0 tests completed and failed residual checks.\n\
        \x20             1 tests completed and passed residual checks,\n\
        \x20             0 tests completed and failed residual checks,\n\
        HPL_Tflops=0.00421701\nMPIRandomAccess_ErrorsFraction=0\nMPIRandomAccess_GUPs=0.000581234\n\
        StarSTREAM_Triad=42.4616\nAvgPingPongLatency_usec=0.35775\n";
    let section = small("hpcc.toml");
    let (figures, verdict) = judged(&section, &[("hpccoutf.txt", said)], "");
    assert_eq!(figures, [1.0, 0.0, 0.0, 0.0, 0.35775, 0.000581234, 42.4616, 0.00421701]);
    assert_eq!(verdict, Verdict::Verified);
    for (right, wrong) in [
        ("1 tests completed and passed residual checks,", "0 tests completed and passed residual checks,"),
        ("0 tests completed and failed residual checks.", "2 tests completed and failed residual checks."),
        ("ErrorsFraction=0", "ErrorsFraction=0.02"),
    ] {
        let (_, verdict) = judged(&section, &[("hpccoutf.txt", &said.replace(right, wrong))], "");
        assert!(matches!(verdict, Verdict::Wrong(_)), "{wrong}");
    }
}

#[test]
fn gromacs_is_believed_by_its_total_energy() {
    let section = small("gromacs.toml");
    let log = "               Core t (s)   Wall t (s)        (%)\n       Time:       40.204       20.102      200.0\n\
        \x20                (ns/day)    (hour/ns)\nPerformance:        0.868       27.643\n";
    let energies = |last: &str| format!("    0.000000  -38.780563\n    0.100000  -38.775959\n    0.200000  {last}\n");
    let said = "in messages: 72.8\n";
    let (figures, verdict) = judged(&section, &[("energy.xvg", &energies("-38.776295")), ("md.log", log)], said);
    assert_eq!((figures, verdict), (vec![-38.776295, 72.8, 0.868], Verdict::Verified));
    let (_, verdict) = judged(&section, &[("energy.xvg", &energies("-38.9")), ("md.log", log)], said);
    assert!(matches!(verdict, Verdict::Wrong(_)));
}

#[test]
fn lammps_s_peptide_is_believed_by_its_energy() {
    let section = small("lammps-peptide.toml");
    let said = "Performance: 0.380 ns/day, 63.077 hours/ns, 2.202 timesteps/s\n\
        Comm    | 2.0465     | 2.1198     | 2.1932     |   5.0 |  9.34\n\
        Energy a copy after 50 steps: -5248.473297 kcal/mol\n";
    let (figures, verdict) = judged(&section, &[], said);
    assert_eq!((figures, verdict), (vec![-5248.473297, 9.34, 2.202], Verdict::Verified));
    let (_, verdict) = judged(&section, &[], &said.replace("-5248.473297", "-5248.490000"));
    assert!(matches!(verdict, Verdict::Wrong(_)));
}

#[test]
fn openfoam_is_believed_by_its_velocity() {
    let section = small("openfoam.toml");
    let said = "# Probe 0 (0.0501 0.0751 0.0501)\n#          Probe                0\n#           Time\n\
        \x20          0.025                (-0.0565709482 -0.00733550727 -0.000506935181)\n";
    let probes = "postProcessing/probes/0/U";
    let (figures, verdict) = judged(&section, &[(probes, said)], "");
    assert_eq!((figures, verdict), (vec![-0.0565709482, 2.5], Verdict::Verified));
    let (_, verdict) = judged(&section, &[(probes, &said.replace("-0.0565", "-0.0566"))], "");
    assert!(matches!(verdict, Verdict::Wrong(_)));
}

#[test]
fn a_host_that_is_too_narrow_for_four_vms_measures_the_others() {
    let names = |resolved: &Resolved| resolved.configurations.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
    let narrow = on("lammps-switches.toml", "pack:1 [numa(memory=16GB)] core:2 pu:1", 12, true);
    assert_eq!(names(&narrow), ["native", "1 VM", "2 VMs, 1 switch", "2 VMs, 2 switches"]);
    let said = narrow.notes.join("\n");
    for left_out in ["4 VMs, 1 switch", "4 VMs, 4 switches"] {
        assert!(said.contains(&format!("too narrow: configuration \"{left_out}\"")), "{said}");
    }
    let wide = on("lammps-switches.toml", "pack:2 [numa(memory=256GB)] core:32 pu:1", 400, false);
    assert_eq!(names(&wide).len(), 6);
    let last = wide.configurations.last().expect("four VMs");
    assert_eq!(last.points.iter().filter_map(|point| point.width()).collect::<Vec<_>>(), [4, 8, 16, 32, 64]);
}

#[test]
fn lammps_over_several_vms_is_believed_by_its_energy() {
    let section = small("lammps-switches.toml");
    let said = "   100   0.75785341 -5.759087            0   -4.6226965    0.20840212\n\
        Performance: 3423.456 tau/day, 7.925 timesteps/s\n\
        Comm    | 2.0465     | 2.1198     | 2.1932     |   5.0 |  9.34\n";
    let (figures, verdict) = judged(&section, &[], said);
    assert_eq!((figures, verdict), (vec![-4.6226965, 9.34, 7.925], Verdict::Verified));
    let (_, verdict) = judged(&section, &[], &said.replace("-4.6226965", "-4.6229"));
    assert!(matches!(verdict, Verdict::Wrong(_)));
}

/// The article's configurations, with the hardware threads that each runs with.
fn of_namd(machine: &str, available_gib: u64, emulated: bool) -> Vec<(String, Vec<u32>)> {
    widths(&on("namd.toml", machine, available_gib, emulated))
}

fn widths(resolved: &Resolved) -> Vec<(String, Vec<u32>)> {
    let widths = |one: &ResolvedConfiguration| one.points.iter().filter_map(Point::width).collect();
    resolved.configurations.iter().map(|one| (one.name.clone(), widths(one))).collect()
}

#[test]
fn lammps_runs_in_namd_s_place_as_far_as_the_host_goes() {
    let expected = |all: &[(&str, &[u32])]| -> Vec<(String, Vec<u32>)> {
        all.iter().map(|(name, widths)| ((*name).to_owned(), widths.to_vec())).collect()
    };
    // Two CPUs, one hardware thread a core: nothing to turn off, and no room for four VMs.
    let few = of_namd("pack:1 [numa(memory=16GB)] core:2 pu:1", 12, true);
    let of_two: [(&str, &[u32]); 4] =
        [("Native", &[1, 2]), ("1 VM", &[1, 2]), ("2 VMs, 1 vSwitch", &[2]), ("2 VMs, 2 vSwitches", &[2])];
    assert_eq!(few, expected(&of_two));
    // The article's machine, with more memory.
    let its_own = of_namd("pack:2 [numa(memory=64GB)] core:4 pu:2", 100, false);
    let all: [(&str, &[u32]); 8] = [
        ("Native", &[4, 8, 16]),
        ("Native, HT off", &[4, 8]),
        ("1 VM, HT off", &[4, 8]),
        ("1 VM", &[4, 8]),
        ("2 VMs, 1 vSwitch", &[4, 8, 16]),
        ("2 VMs, 2 vSwitches", &[4, 8, 16]),
        ("4 VMs, 1 vSwitch", &[4, 8, 16]),
        ("4 VMs, 4 vSwitches", &[4, 8, 16]),
    ];
    assert_eq!(its_own, expected(&all));
}

#[test]
fn who_asks_for_four_ranks_on_two_cpus_gets_four_vms() {
    let mut namd = shipped("namd.toml");
    namd.threads = Choice::Fixed(vec![2, 4]);
    let asked = resolved(&namd, Widths::Asked, "pack:1 [numa(memory=16GB)] core:2 pu:1", 12, true);
    let all = widths(&asked);
    assert_eq!((all.len(), all[0].1.as_slice(), all[1].1.as_slice()), (6, [2, 4].as_slice(), [2].as_slice()));
    assert_eq!(all[5], ("4 VMs, 4 vSwitches".to_owned(), vec![4]));
}

#[test]
fn without_smt_only_the_first_thread_of_each_core_works() {
    let resolved = on("namd.toml", "pack:2 [numa(memory=64GB)] core:4 pu:2", 100, false);
    let [on, off, in_a_vm, ..] = &resolved.configurations[..] else { panic!("configurations") };
    assert_eq!((on.name.as_str(), on.cpus.as_ref()), ("Native", None));
    let cpus = off.cpus.as_ref().expect("some of the CPUs");
    assert_eq!(cpus.iter().map(|cpu| cpu.number()).collect::<Vec<_>>(), [0, 2, 4, 6, 8, 10, 12, 14]);
    let clients = &in_a_vm.vms[0].plan.placement.clients;
    assert!(!clients.is_empty() && clients.iter().all(|client| client.cpus.is_subset(cpus)), "{clients:?}");
}

#[test]
fn lammps_in_namd_s_place_is_believed_by_its_energy_and_gives_a_time() {
    let section = small("namd.toml");
    let said = "Loop time of 22.7057 on 2 procs for 10 steps with 2004 atoms\n\
        Comm    | 2.0465     | 2.1198     | 2.1932     |   5.0 |  9.34\n\
        Energy a copy after 10 steps: -5238.069701 kcal/mol\n";
    let (figures, verdict) = judged(&section, &[], said);
    assert_eq!((figures, verdict), (vec![-5238.069701, 9.34, 22.7057], Verdict::Verified));
}

/// The message that names what is wrong with the file.
fn refusal(text: &str) -> String {
    let inputs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/namd.toml");
    parse::parse(text, &inputs).expect_err("it is refused").to_string()
}

#[test]
fn what_cannot_stand_for_an_application_is_refused() {
    let namd = include_str!("../../../experiments/namd.toml");
    let other_name = namd.replace("name = \"namd-stmv\"\nunit", "name = \"seconds\"\nunit");
    let message = refusal(&other_name);
    assert!(message.contains("command.figure") && message.contains("namd-stmv"), "{message}");
    let with_kernels = format!("{namd}[kernels]\nprograms = [{{ name = \"namd-stmv\", kernel = \"integer_sort\" }}]\n");
    let message = refusal(&with_kernels);
    assert!(message.contains("command") && message.contains("[kernels]"), "{message}");
}

#[test]
fn netpipe_gives_a_time_and_a_rate_at_each_size() {
    let section = small("network-switches.toml");
    // NetPIPE 3.7.2 of Debian 12 prints some 46 sizes; `B` and the size are what is looked for.
    let line = |bytes: u64| {
        format!("  0: {bytes:>7} bytes  14915 times --> {:>9}.50 Mbps in {:>8}.89 usec\n", 2 * bytes, bytes + 6)
    };
    let said: String = (0..=20).map(|power| line(1 << power)).collect();
    let (figures, _) = judged(&section, &[], &said);
    let figure = |name: &str| {
        let index = section.figures().iter().position(|figure| figure.name == name).expect(name);
        figures[index]
    };
    assert_eq!((figure("TCP latency at 1 B"), figure("TCP latency at 65536 B")), (7.89, 65542.89));
    assert_eq!(figure("TCP bandwidth at 1048576 B"), 2_097_152.5);
}

#[test]
fn intel_mpi_benchmarks_give_a_time_or_a_rate_at_each_size() {
    // Without a host, which would have to have fetched them.
    let section = shipped("network-mpi.toml").parameters::<Section>();
    // IMB 2021.11, each line with its benchmark before it; a sum has four bytes at least.
    let sizes = || std::iter::once(0).chain((0..=22).map(|power| 1u64 << power));
    let of = |name: &str, rest: &str| sizes().map(|size| format!("{name} {size:>12} 200 {rest}\n")).collect::<String>();
    let said = of("PingPong", "  0.43  147.14")
        + &of("Sendrecv", "  3.18  3.23  3.20  40603.03")
        + &of("Allreduce", "  0.50  0.54  0.52");
    let (figures, _) = judged(&section, &[], &said);
    let figure = |name: &str| {
        let index = section.figures().iter().position(|figure| figure.name == name).expect(name);
        figures[index]
    };
    assert_eq!((figure("PingPong latency at 1 B"), figure("PingPong bandwidth at 4194304 B")), (0.43, 147.14));
    assert_eq!(figure("Sendrecv bandwidth, both ways at 65536 B"), 40603.03);
    assert_eq!(figure("Allreduce time, slowest rank at 8 B"), 0.54);
}

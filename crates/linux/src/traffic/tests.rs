//! Counting on a made-up resctrl tree: directories and files as the kernel shows them.

#[path = "fault_tests.rs"]
mod fault_tests;

use super::*;
use scheduler::VmKey;
use std::fs;
use std::path::Path;

const SECOND: u64 = 1_000_000_000;

/// A host with resctrl mounted.
struct Host {
    directory: tempfile::TempDir,
    root: Root,
    spare: Cell<usize>,
    turn: u64,
}

impl Host {
    fn new(groups: u32) -> Self {
        Self::in_directory(tempfile::tempdir().unwrap(), groups)
    }

    fn in_directory(directory: tempfile::TempDir, groups: u32) -> Self {
        let root = Root::at(directory.path());
        let host = Self { directory, root, spare: Cell::new(100), turn: 0 };
        host.write("info/L3_MON/mon_features", "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes\n");
        host.write("info/L3_MON/num_rmids", &format!("{groups}\n"));
        fs::create_dir_all(host.mount().join("mon_groups")).unwrap();
        host
    }

    fn mount(&self) -> PathBuf {
        self.root.join("sys/fs/resctrl")
    }

    fn group(&self, name: &str) -> PathBuf {
        self.mount().join("mon_groups").join(name)
    }

    fn write(&self, file: &str, text: &str) {
        write(&self.mount().join(file), text);
    }

    /// A VM of one client whose threads are in these groups.
    fn vm(&self, pid: u32, threads: &[(u32, &str)]) -> RunningVm {
        write(&self.root.process(pid, "stat"), &stat(pid, 100 + u64::from(pid)));
        for (thread, groups) in threads {
            write(&self.root.thread(pid, *thread, "cpu_resctrl_groups"), groups);
        }
        let client =
            VmClient { vcpus: vec![0], thread_ids: threads.iter().map(|(id, _)| *id).collect(), ..VmClient::default() };
        let key = VmKey { name: format!("vm{pid}"), pid, started: 100 + u64::from(pid) };
        RunningVm { key, clients: vec![client], ..RunningVm::default() }
    }

    /// A look at these VMs, `second` seconds after boot.
    fn look(&mut self, meters: &mut Meters, vms: &[&RunningVm], second: u64) -> Vec<Measured> {
        self.turn += 1;
        let look =
            Look { root: &self.root, turn: self.turn, now_ns: second * SECOND, spare: &self.spare, hurries: false };
        meters.begin(&look, |key| vms.iter().any(|vm| vm.key.pid == key.0));
        vms.iter().map(|vm| meters.measure(&look, vm, &vm.clients[0], vm.owner_uid.is_some())).collect()
    }
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// `/proc/PID/stat` with the start of the process, its 22nd field.
fn stat(pid: u32, started: u64) -> String {
    format!("{pid} (qemu) S {}{started} 0\n", "0 ".repeat(18))
}

/// What the kernel shows in a group: all, local, occupancy of each cache.
fn counted(group: &Path, domains: &[(&str, &str, &str)]) {
    for (index, (total, local, occupancy)) in domains.iter().enumerate() {
        let domain = group.join(format!("mon_data/mon_L3_{index:02}"));
        write(&domain.join("mbm_total_bytes"), total);
        write(&domain.join("mbm_local_bytes"), local);
        write(&domain.join("llc_occupancy"), occupancy);
        // The parts of a cache that is divided are in its sums.
        write(&domain.join("mon_sub_L3_07/mbm_total_bytes"), "999999999");
    }
}

/// The kernel's own files go with their directory.
fn emptied(group: &Path) {
    fs::remove_dir_all(group).unwrap();
    fs::create_dir(group).unwrap();
}

fn making() -> Meters {
    Meters::new(TrafficOptions { may_create: true, ..TrafficOptions::default() })
}

const NOBODYS: &str = "res:/\nmon:\n";

#[test]
fn a_client_gets_a_group_and_its_traffic_and_occupancy_are_read_there() {
    let (mut host, mut meters) = (Host::new(16), making());
    let vm = host.vm(7, &[(8, NOBODYS), (9, NOBODYS)]);
    assert_eq!(host.look(&mut meters, &[&vm], 1), [Measured::default()]);
    assert_eq!(meters.meter().source, Some(TrafficSource::Resctrl));
    let group = host.group("homenode.7.107.0");
    assert_eq!(fs::read_to_string(group.join("tasks")).unwrap(), "8\n9\n");
    counted(&group, &[("150", "100", "4096"), ("50", "0", "1024")]);
    let first = host.look(&mut meters, &[&vm], 2);
    assert_eq!(first, [Measured { occupancy: Some(Bytes(5120)), ..Measured::default() }]);
    counted(&group, &[("450", "300", "4096"), ("450", "100", "0")]);
    // 2 s: local 400 - 100, all 900 - 200.
    let traffic = Some(Traffic { local: 150.0, remote: 200.0 });
    let seen = Measured { traffic, unsplit: None, occupancy: Some(Bytes(4096)) };
    assert_eq!(host.look(&mut meters, &[&vm], 4), [seen]);
    assert_eq!(meters.meter().notes, Vec::<String>::new());
    assert!(meters.open_files() > 0);
    // One counter that stops makes traffic unknown, from then on for two looks.
    counted(&group, &[("Unavailable", "300", "4096"), ("450", "100", "0")]);
    assert_eq!(host.look(&mut meters, &[&vm], 6)[0].traffic, None);
    let notes = meters.meter().notes;
    assert!(notes[0].contains("vm7 is unknown") && notes[0].contains("say nothing"), "{notes:?}");
    counted(&group, &[("500", "300", "4096"), ("450", "100", "0")]);
    assert_eq!(host.look(&mut meters, &[&vm], 8)[0].traffic, None);
    assert!(host.look(&mut meters, &[&vm], 10)[0].traffic.is_some());
    counted(&group, &[("Unassigned", "Unassigned", "4096"), ("450", "100", "0")]);
    assert_eq!(host.look(&mut meters, &[&vm], 12)[0], Measured { occupancy: Some(Bytes(4096)), ..Measured::default() });
    assert!(meters.meter().notes[0].contains("Unassigned"));
}

#[test]
fn groups_of_others_are_read_where_they_fit_and_always_left_alone() {
    let (mut host, mut meters) = (Host::new(16), making());
    let libvirts = host.mount().join("qemu-1-web");
    for (group, tasks) in
        [(libvirts.join("mon_groups/vcpus"), "8\n9\n"), (libvirts.clone(), "10\n"), (host.group("op"), "11\n12\n")]
    {
        write(&group.join("tasks"), tasks);
        counted(&group, &[("100", "60", "64")]);
    }
    let fits = host.vm(1, &[(8, "res:qemu-1-web\nmon:vcpus\n"), (9, "res:qemu-1-web\nmon:vcpus\n")]);
    let whole = host.vm(2, &[(10, "res:qemu-1-web\nmon:\n")]);
    let shared = host.vm(3, &[(11, "res:/\nmon:op\n")]);
    let mixed = host.vm(4, &[(20, NOBODYS), (21, "res:/\nmon:op\n")]);
    let outside = host.vm(5, &[(22, "res:..\nmon:\n")]);
    let vms = [&fits, &whole, &shared, &mixed, &outside];
    host.look(&mut meters, &vms, 1);
    counted(&libvirts, &[("300", "60", "64")]);
    let seen = host.look(&mut meters, &vms, 2);
    assert_eq!(seen[0].traffic, Some(Traffic { local: 0.0, remote: 0.0 }));
    assert_eq!(seen[1].traffic, Some(Traffic { local: 0.0, remote: 200.0 }));
    assert_eq!(seen[2..], [Measured::default(); 3]);
    let notes = meters.meter().notes.join("; ");
    assert!(notes.contains("vm3, vm4 is unknown: another program put its threads"), "{notes}");
    assert!(notes.contains("vm5 is unknown: the kernel does not say"), "{notes}");
    drop(meters);
    assert_eq!(fs::read_dir(host.mount().join("mon_groups")).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(host.group("op").join("tasks")).unwrap(), "11\n12\n");
    assert!(libvirts.join("mon_groups/vcpus").is_dir());
}

#[test]
fn who_only_looks_makes_no_group_and_removes_none() {
    let mut host = Host::new(16);
    let mut meters = Meters::new(TrafficOptions::default());
    let (without, with) = (host.vm(1, &[(8, NOBODYS)]), host.vm(7, &[(9, "res:/\nmon:homenode.7.107.0\n")]));
    let group = host.group("homenode.7.107.0");
    counted(&group, &[("100", "60", "64")]);
    host.look(&mut meters, &[&without, &with], 1);
    let seen = host.look(&mut meters, &[&without, &with], 2);
    assert_eq!((seen[0].traffic, seen[1].occupancy), (None, Some(Bytes(64))));
    assert!(seen[1].traffic.is_some());
    assert!(meters.meter().notes[0].contains("vm1 is unknown: resctrl has no monitoring group"));
    emptied(&group);
    host.look(&mut meters, &[&without], 3);
    drop(meters);
    assert!(group.is_dir());
    assert_eq!(fs::read_dir(host.mount().join("mon_groups")).unwrap().count(), 1);
}

#[test]
fn groups_of_ours_end_with_the_vm_with_us_and_when_we_begin_after_a_kill() {
    let mut host = Host::new(16);
    let (vm, other) = (host.vm(7, &[(8, NOBODYS)]), host.vm(9, &[(10, NOBODYS)]));
    // Of a process that ended, of a later one with its number, of one that runs; and what is not
    // ours by its form.
    let kept = ["homenode.9.109.3", "homenode.notes", "homenode.1.2", "homenode.01.2.3", "op"];
    let swept = ["homenode.6.106.0", "homenode.7.99.0"];
    kept.iter().chain(&swept).for_each(|name| fs::create_dir(host.group(name)).unwrap());
    let mut meters = making();
    host.look(&mut meters, &[&vm, &other], 1);
    assert!(kept.iter().all(|name| host.group(name).is_dir()));
    assert!(swept.iter().all(|name| !host.group(name).exists()));
    let (own, others) = (host.group("homenode.7.107.0"), host.group("homenode.9.109.0"));
    for group in [&own, &others] {
        counted(group, &[("1", "1", "1")]);
    }
    host.look(&mut meters, &[&vm, &other], 2);
    emptied(&own);
    host.look(&mut meters, &[&other], 3);
    assert!(!own.exists() && others.is_dir());
    emptied(&others);
    drop(meters);
    assert!(!others.exists());
}

#[test]
fn a_group_that_another_program_removes_is_made_again_and_not_for_ever() {
    let (mut host, mut meters) = (Host::new(16), making());
    let vm = host.vm(7, &[(8, NOBODYS)]);
    let group = host.group("homenode.7.107.0");
    for round in 0..10 {
        host.look(&mut meters, &[&vm], 10 * round + 1);
        if group.is_dir() {
            counted(&group, &[("1", "1", "1")]);
        }
        host.look(&mut meters, &[&vm], 10 * round + 2);
        let _ = fs::remove_dir_all(&group);
        meters.resctrl.as_mut().unwrap().close_files();
        assert_eq!(host.look(&mut meters, &[&vm], 10 * round + 3)[0], Measured::default());
    }
    assert!(meters.meter().notes[0].contains("removed its monitoring group again and again"));
    assert!(!group.exists());
}

#[test]
fn a_quarter_of_all_groups_is_left_to_others() {
    let (mut host, mut meters) = (Host::new(4), making());
    let vms: Vec<RunningVm> = (1..=6).map(|pid| host.vm(pid, &[(pid + 100, NOBODYS)])).collect();
    let vms: Vec<&RunningVm> = vms.iter().collect();
    for turn in 1..=3 {
        host.look(&mut meters, &vms, turn);
        for entry in fs::read_dir(host.mount().join("mon_groups")).unwrap().flatten() {
            counted(&entry.path(), &[("1", "1", "1")]);
        }
    }
    let made = fs::read_dir(host.mount().join("mon_groups")).unwrap().count();
    assert_eq!(made, 3);
    let notes = meters.meter().notes;
    assert_eq!(notes.len(), 1);
    assert!(notes[0].starts_with("memory traffic of vm4, vm5, vm6 is unknown: the CPU has no monitoring group left"));
}

#[test]
fn vms_of_strangers_leave_groups_to_others() {
    let (mut host, mut meters) = (Host::new(16), making());
    let vms: Vec<RunningVm> = (1..=20).map(|pid| host.vm(pid, &[(pid + 100, NOBODYS)])).collect();
    let of_user = |vm: &RunningVm| RunningVm { owner_uid: Some(1000), ..vm.clone() };
    let strangers: Vec<RunningVm> = vms[..15].iter().map(of_user).collect();
    let all: Vec<&RunningVm> = strangers.iter().chain(&vms[15..]).collect();
    host.look(&mut meters, &all, 1);
    let made = |pid: u32| host.group(&format!("homenode.{pid}.{}.0", 100 + pid)).is_dir();
    // Of 16 groups 12 are ours, 3 of them for strangers.
    assert_eq!((1..=15).filter(|pid| made(*pid)).count(), 3);
    assert!((16..=20).all(made));
}

#[test]
fn what_is_not_there_is_said() {
    let mut host = Host::new(16);
    let vm = host.vm(7, &[(8, NOBODYS)]);
    let mut said = |from| {
        let mut meters = Meters::new(TrafficOptions { from, may_create: true, ..TrafficOptions::default() });
        assert_eq!(host.look(&mut meters, &[&vm], 1), [Measured::default()]);
        (meters.meter().source, meters.meter().notes.join("; "))
    };
    assert_eq!(said(TrafficFrom::Off), (None, "the policy switched that off".to_owned()));
    assert_eq!(said(TrafficFrom::Perf), (None, "perf: this is a captured tree".to_owned()));
    write(&host.mount().join("info/L3_MON/mon_features"), "mbm_total\ngarbage\0\n");
    let said = |host: &mut Host| {
        let mut meters = making();
        host.look(&mut meters, &[&vm], 1);
        meters.meter().notes.join("; ")
    };
    assert!(said(&mut host).contains("counts neither memory traffic nor cache occupancy"));
    fs::remove_dir_all(host.mount().join("info")).unwrap();
    let unmounted = said(&mut host);
    assert!(unmounted.contains("not mounted: as root, `mount -t resctrl resctrl /"), "{unmounted}");
    fs::remove_dir_all(host.mount()).unwrap();
    assert!(said(&mut host).contains("neither this CPU nor its kernel has it"));
    assert!(host.directory.path().is_dir());
}

#[test]
fn amds_counters_are_asked_for_where_nobody_gives_them_out() {
    let (mut host, mut meters) = (Host::new(16), making());
    host.write("info/L3_MON/mbm_assign_mode", "[mbm_event]\ndefault\n");
    host.write("info/L3_MON/mbm_assign_on_mkdir", "0\n");
    let vm = host.vm(7, &[(8, NOBODYS)]);
    let group = host.group("homenode.7.107.0");
    host.look(&mut meters, &[&vm], 1);
    write(&group.join("mbm_L3_assignments"), "");
    counted(&group, &[("Unassigned", "Unassigned", "64")]);
    for second in 2..=40 {
        host.look(&mut meters, &[&vm], second);
    }
    // The kernel takes each write by itself; the file here keeps the last at its beginning.
    assert_eq!(fs::read_to_string(group.join("mbm_L3_assignments")).unwrap(), "mbm_local_bytes:*=e\n");
    assert_eq!(meters.meter().notes.len(), 1);
    host.write("info/L3_MON/mbm_assign_mode", "mbm_event\n[default]\n");
    assert!(meters.meter().notes[0].contains("echo mbm_event > "));
}

#[test]
fn a_look_that_hurries_leaves_clients_for_the_next_ones() {
    let (mut host, mut meters) = (Host::new(4096), making());
    // As many threads as a large VM has, and more groups of others than any CPU.
    (0..1_000).for_each(|group| fs::create_dir(host.group(&format!("op{group}"))).unwrap());
    let threads: Vec<(u32, &str)> = (1000..1512).map(|thread| (thread, NOBODYS)).collect();
    let large = host.vm(7, &threads);
    host.look(&mut meters, &[&large], 1);
    let tasks = fs::read_to_string(host.group("homenode.7.107.0").join("tasks")).unwrap();
    assert_eq!(tasks.lines().count(), 512);
    counted(&host.group("homenode.7.107.0"), &[("0", "0", "0")]);
    host.look(&mut meters, &[&large], 2);
    // The time is up: the last rate stands, for 30 s.
    counted(&host.group("homenode.7.107.0"), &[("500", "500", "0")]);
    let seen = host.look(&mut meters, &[&large], 3)[0];
    assert_eq!(seen.traffic, Some(Traffic { local: 500.0, remote: 0.0 }));
    meters.spent = WITHIN * 2;
    let mut hurried = |second| {
        let look = Look { root: &host.root, turn: 4, now_ns: second * SECOND, spare: &host.spare, hurries: true };
        meters.measure(&look, &large, &large.clients[0], false)
    };
    assert_eq!((hurried(4), hurried(40)), (seen, Measured::default()));
    assert!(meters.overran);
    meters.begin(&Look { root: &host.root, turn: 5, now_ns: 41 * SECOND, spare: &host.spare, hurries: true }, |_| true);
    assert_eq!(meters.every, 2);
}

//! What goes wrong with resctrl while it is used: no group left, counters that go back, threads
//! that come and go, a mount that ends.

use super::*;
use std::process::Command;

/// Where the test below finds a file system on which no directory can be made.
const FULL_PLACE: &str = "HOMENODE_TEST_FULL_PLACE";

const OWN: &str = "res:/\nmon:homenode.7.107.0\n";

fn group_of_7(host: &Host) -> PathBuf {
    host.group("homenode.7.107.0")
}

fn tasks_of(group: &Path) -> String {
    fs::read_to_string(group.join("tasks")).unwrap()
}

#[test]
fn threads_that_come_are_put_into_the_group_and_those_that_went_stop_nothing() {
    let (mut host, mut meters) = (Host::new(16), making());
    let vm = host.vm(7, &[(8, NOBODYS), (9, NOBODYS)]);
    host.look(&mut meters, &[&vm], 1);
    let group = group_of_7(&host);
    counted(&group, &[("100", "100", "64")]);
    host.look(&mut meters, &[&vm], 2);
    // A vCPU is plugged in: its thread begins in the group of the thread that made it.
    let grown = host.vm(7, &[(8, OWN), (9, OWN), (10, NOBODYS)]);
    counted(&group, &[("300", "300", "64")]);
    let seen = host.look(&mut meters, &[&grown], 3);
    assert_eq!(tasks_of(&group), "8\n9\n10\n");
    assert_eq!(seen[0].traffic, Some(Traffic { local: 200.0, remote: 0.0 }));
    // One is unplugged, and its thread ended: the kernel takes it out by itself.
    fs::remove_dir_all(host.root.thread(7, 9, "")).unwrap();
    let shrunk = host.vm(7, &[(8, OWN), (10, OWN)]);
    counted(&group, &[("400", "400", "64")]);
    let seen = host.look(&mut meters, &[&shrunk], 4);
    assert_eq!(seen[0].traffic, Some(Traffic { local: 100.0, remote: 0.0 }));
    // A client of which no thread is left is unknown, not idle.
    let none = host.vm(7, &[]);
    assert_eq!(host.look(&mut meters, &[&none], 5), [Measured::default()]);
    assert!(meters.meter().notes[0].contains("which threads run its vCPUs is unknown"));
    assert_eq!(fs::read_dir(host.mount().join("mon_groups")).unwrap().count(), 1);
}

#[test]
fn a_counter_that_goes_back_is_unknown_for_one_look() {
    let (mut host, mut meters) = (Host::new(16), making());
    let vm = host.vm(7, &[(8, NOBODYS)]);
    host.look(&mut meters, &[&vm], 1);
    let group = group_of_7(&host);
    let mut seen = |second: u64, total: &str| {
        counted(&group, &[(total, total, "64")]);
        host.look(&mut meters, &[&vm], second)[0].traffic.map(|traffic| traffic.local)
    };
    assert_eq!([seen(2, "500"), seen(4, "900")], [None, Some(200.0)]);
    // It began anew, or had no more bits: what was between nobody knows.
    assert_eq!([seen(6, "100"), seen(8, "700")], [None, Some(300.0)]);
    // The largest number is no traffic either: 1.8 x 10^19 bytes in 2 s.
    assert_eq!(seen(10, "18446744073709551615"), None);
    assert_eq!([seen(12, "Error"), seen(14, "0"), seen(16, "2")], [None, None, Some(1.0)]);
}

#[test]
fn a_mount_that_ends_makes_traffic_unknown_and_one_that_comes_counts_anew() {
    let (mut host, mut meters) = (Host::new(16), making());
    let vm = host.vm(7, &[(8, NOBODYS)]);
    host.look(&mut meters, &[&vm], 1);
    counted(&group_of_7(&host), &[("100", "100", "64")]);
    host.look(&mut meters, &[&vm], 2);
    let mount = host.mount();
    fs::remove_dir_all(&mount).unwrap();
    fs::create_dir(&mount).unwrap();
    meters.resctrl.as_mut().unwrap().close_files();
    assert_eq!(host.look(&mut meters, &[&vm], 3), [Measured::default()]);
    // It is asked for again every 32 looks.
    for second in 4..=40 {
        assert_eq!(host.look(&mut meters, &[&vm], second), [Measured::default()], "{second}");
    }
    let notes = meters.meter().notes.join("; ");
    assert!(meters.meter().source.is_none() && notes.contains("resctrl is not mounted"), "{notes}");
    host.write("info/L3_MON/mon_features", "mbm_total_bytes\n");
    fs::create_dir_all(mount.join("mon_groups")).unwrap();
    let mut looks = 41..=80;
    assert!(looks.any(|second| {
        host.look(&mut meters, &[&vm], second);
        group_of_7(&host).is_dir()
    }));
}

#[test]
fn each_refusal_of_the_kernel_has_its_reason() {
    for (error, why) in [
        (libc::ENOSPC, Why::OutOfGroups),
        (libc::EBUSY, Why::OutOfGroups),
        (libc::EPERM, Why::NotPermitted),
        (libc::EACCES, Why::NotPermitted),
        (libc::EROFS, Why::NotPermitted),
        (libc::EINVAL, Why::Elsewhere),
    ] {
        assert_eq!(resctrl::refusal(&std::io::Error::from_raw_os_error(error)), why, "{error}");
    }
}

/// On a small file system in a mount namespace of its own: `mkdir` is refused as the kernel refuses
/// it where no RMID is left.
#[test]
fn a_group_that_the_kernel_refuses_is_asked_for_again_later() {
    let test = "a_group_that_the_kernel_refuses_is_asked_for_again_later";
    let place = tempfile::tempdir().unwrap();
    let program = std::env::current_exe().unwrap();
    let script = "mount -t tmpfs -o nr_inodes=64 none \"$1\" || exit 77\n\
                  exec \"$2\" --exact traffic::tests::fault_tests::where_no_directory_can_be_made --ignored";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(place.path()).arg(program).env(FULL_PLACE, place.path());
    let Ok(output) = command.output() else { return eprintln!("SKIPPED {test}: there is no program unshare") };
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() && !said.contains("running 1 test") {
        let why = String::from_utf8_lossy(&output.stderr);
        return eprintln!("SKIPPED {test}: no file system can be mounted here: {}", why.trim());
    }
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
#[ignore = "no test but the process that the test above starts"]
fn where_no_directory_can_be_made() {
    let Some(place) = std::env::var_os(FULL_PLACE).map(PathBuf::from) else { return };
    let mut host = Host::in_directory(tempfile::tempdir_in(&place).unwrap(), 64);
    let (first, second) = (host.vm(7, &[(8, NOBODYS)]), host.vm(9, &[(10, NOBODYS)]));
    let mut meters = making();
    host.look(&mut meters, &[&first], 1);
    counted(&group_of_7(&host), &[("100", "100", "64")]);
    let taken = place.join("taken");
    fs::create_dir(&taken).unwrap();
    let fillers: Vec<PathBuf> = (0..64).map(|number| taken.join(number.to_string())).collect();
    let full = fillers.iter().find_map(|file| fs::write(file, "").err()).expect("no inode is left");
    assert_eq!(full.raw_os_error(), Some(libc::ENOSPC));
    // The one that has a group is counted on; the other is unknown, and named.
    host.look(&mut meters, &[&first, &second], 2);
    let seen = host.look(&mut meters, &[&first, &second], 3);
    assert_eq!((seen[0].traffic, seen[1]), (Some(Traffic { local: 0.0, remote: 0.0 }), Measured::default()));
    let notes = meters.meter().notes;
    assert!(notes.len() == 1 && notes[0].contains("vm9 is unknown: the CPU has no monitoring group left"), "{notes:?}");
    // Once there is room again it gets one, but not before 32 looks: each asking costs a search.
    fs::remove_dir_all(&taken).unwrap();
    let group = host.group("homenode.9.109.0");
    let look = (4..=40).find(|&second_after| {
        host.look(&mut meters, &[&first, &second], second_after);
        group.is_dir()
    });
    assert_eq!(look, Some(34));
}

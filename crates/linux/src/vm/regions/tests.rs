//! Texts of `maps` as QEMU's processes have them.

use super::*;
use crate::vm::{PluggedMemory, RunningVm, VmClient};

fn command(line: &str) -> CommandLine {
    CommandLine::parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>()).unwrap()
}

/// Where the blocks of a VM of several clients are, of which nothing else is known.
fn find_any(command: &CommandLine, maps: &str, is_pool: impl FnMut(&str) -> bool) -> Found {
    let known = Beside { hints: &Hints::default(), is_one_clients: false };
    super::find(command, Ok(maps), &known, is_pool)
}

fn find(command: &CommandLine, maps: &str) -> BTreeMap<String, Region> {
    let found = find_any(command, maps, |_| false);
    found.blocks.into_iter().filter_map(|(id, region)| Some((id, region.ok()?))).collect()
}

const TWO: &str = "qemu -object memory-backend-ram,id=m0,size=16M -object memory-backend-ram,id=m1,size=16M";

#[test]
fn equal_backends_lie_below_each_other() {
    let maps = "7f0000000000-7f0001000000 rw-p 00000000 00:00 0 \n7f0001000000-7f0001001000 ---p 00000000 00:00 0 \n\
                7f0001200000-7f0002200000 rw-p 00000000 00:00 0 \n7f0010000000-7f0010021000 rw-p 00000000 00:00 0 \n\
                7ffc00000000-7ffc01000000 rw-p 00000000 00:00 0   [stack]\n7f0020000000-7f0021000000 rwxp 00000000 \
                00:00 0 \n";
    let found = find(&command(TWO), maps);
    assert_eq!(found["m0"].addresses, 0x7f00_0120_0000..0x7f00_0220_0000);
    assert_eq!(found["m1"].addresses, 0x7f00_0000_0000..0x7f00_0100_0000);
    assert_eq!(found["m1"].evidence, RegionEvidence::Order);
}

#[test]
fn three_mappings_for_two_backends_are_no_answer() {
    let one = |start: u64| format!("{:x}-{:x} rw-p 00000000 00:00 0 \n", start, start + (16 << 20));
    let maps = one(0x1000_0000) + &one(0x2000_0000) + &one(0x3000_0000);
    let said = find_any(&command(TWO), &maps, |_| false).blocks["m1"].clone().unwrap_err().to_string();
    let expected =
        "3 parts of QEMU's memory have the size of backend m0 (16 MiB), and which is the guest's cannot be told";
    assert_eq!(said, expected);
    // Two have the page above them that QEMU's blocks have.
    let guard = |end: u64| format!("{:x}-{:x} ---p 00000000 00:00 0 \n", end, end + 4096);
    let maps = one(0x1000_0000) + &guard(0x1100_0000) + &one(0x2000_0000) + &one(0x3000_0000) + &guard(0x3100_0000);
    assert_eq!(find(&command(TWO), &maps)["m1"].addresses.start, 0x1000_0000);
}

#[test]
fn maps_that_run_backwards_or_overflow_are_no_memory() {
    let maps = "ffffffffffffffff-0 rw-p 00000000 00:00 0 \n12000000-10000000 rw-p 00000000 00:00 0 \nx-y rw-p";
    assert!(find_any(&command("qemu -m 32"), maps, |_| false).blocks[""].is_err());
}

#[test]
fn a_region_that_was_split_or_merged_is_whole() {
    let single = command("qemu -m 32");
    let split = "10000000-10800000 rw-p 00000000 00:00 0 \n10800000-12000000 rw-p 00000000 00:00 0 \n";
    assert_eq!(find(&single, split)[""].addresses.start, 0x1000_0000);
    // 32 MiB of the guest with 1 MiB of QEMU's own merged below: the guest's memory is the upper
    // part.
    let merged = "0ff00000-12000000 rw-p 00000000 00:00 0 \n";
    assert_eq!(find(&single, merged)[""].addresses.start, 0x1000_0000);
}

#[test]
fn blocks_that_were_plugged_in_later_are_whole_and_have_a_guard() {
    let guard = |end: u64| format!("{:x}-{:x} ---p 00000000 00:00 0 \n", end, end + 4096);
    let block = |start: u64, end: u64| format!("{start:x}-{end:x} rw-p 00000000 00:00 0 \n");
    let (start, end) = (0x7f00_0000_0000_u64, 0x7f00_0800_0000_u64); // 128 MiB
    let main = block(0x7f10_0000_0000, 0x7f10_0400_0000) + &guard(0x7f10_0400_0000);
    // Below it memory of QEMU's own, and the stack of a thread.
    for own_mib in [0, 3, 8] {
        let maps =
            block(start - (own_mib << 20), end) + &guard(end) + &block(0x7f01_0000_0000, 0x7f01_0800_0000) + &main;
        let found = find_any(&command("qemu -m 64,slots=2,maxmem=1G"), &maps, |_| false);
        let [late] = &found.later[..] else { panic!("{found:?}") };
        assert_eq!(late.addresses, start..end);
        // Nothing can be plugged in: then it is something else.
        assert!(find_any(&command("qemu -m 64"), &maps, |_| false).later.is_empty());
    }
}

#[test]
fn files_are_known_by_their_names() {
    let line = "qemu -object memory-backend-file,id=ram-node1,mem-path=/dev/hugepages/libvirt/qemu/1-vm,size=16M \
                -object memory-backend-file,id=ram-node0,mem-path=/dev/hugepages/libvirt/qemu/1-vm,size=16M";
    let maps = "7f0000000000-7f0001000000 rw-s 00000000 00:0f 41 \
        /dev/hugepages/libvirt/qemu/1-vm/qemu_back_mem._objects_ram-node1.Xy12Ab (deleted)\n\
                7f0002000000-7f0003000000 rw-s 00000000 00:0f 42 \
                /dev/hugepages/libvirt/qemu/1-vm/qemu_back_mem._objects_ram-node0.ab12XY (deleted)\n";
    let found = find(&command(line), maps);
    assert_eq!(found["ram-node1"].addresses.start, 0x7f00_0000_0000);
    let region = &found["ram-node0"];
    assert_eq!(
        (region.addresses.start, region.kind, region.evidence),
        (0x7f00_0200_0000, RegionKind::HugePages, RegionEvidence::Path)
    );
}

#[test]
fn a_memory_file_is_found_by_its_size() {
    let line =
        "qemu -object memory-backend-memfd,id=a,size=16M,share=on -object memory-backend-memfd,id=b,size=32M,share=on";
    let maps = "7f0000000000-7f0001000000 rw-s 00000000 00:01 1033 /memfd:memory-backend-memfd (deleted)\n\
                7f0002000000-7f0004000000 rw-s 00000000 00:01 1034 /memfd:memory-backend-memfd (deleted)\n";
    let found = find(&command(line), maps);
    assert_eq!(found["b"].addresses.start, 0x7f00_0200_0000);
    assert_eq!((found["a"].kind, found["a"].evidence), (RegionKind::Memfd, RegionEvidence::Size));
}

#[test]
fn a_private_mapping_of_a_file_is_nobodys_memory_to_move() {
    let line = "qemu -object memory-backend-file,id=m0,share=off,mem-path=/lib/libc.so,size=16M";
    // Two devices; a mount namespace of its own shows a library under the name of a pool, or as a
    // memory file.
    for path in ["/lib/libc.so", "/dev/hugepages/x", "/memfd:memory-backend-memfd (deleted)", "/dev/zero"] {
        let maps = format!("7f0000000000-7f0001000000 rw-p 00000000 08:01 41 {path}\n");
        let found = |is_pool: bool, line: &str| find_any(&command(line), &maps, |device| is_pool && device == "08:01");
        let why = found(false, line).blocks["m0"].clone().unwrap_err().to_string();
        assert!(why.starts_with("backend m0 (16 MiB) is a private mapping of /") && why.contains("shared"), "{why}");
        let memfd = "qemu -object memory-backend-memfd,id=m,size=16M";
        for (line, id) in [("qemu -m 16 -mem-path /lib", ""), ("qemu -m 16", ""), (memfd, "m")] {
            assert!(matches!(found(false, line).blocks[id], Err(UnknownMemory::PrivateFile { .. })), "{line} {path}");
        }
        assert!(found(false, "qemu -m 8,slots=2,maxmem=1G").later.is_empty());
    }
    let pool = "7f0000000000-7f0001000000 rw-p 00000000 00:2f 41 /dev/hugepages/qemu_back_mem.m0.x (deleted)\n";
    let line = "qemu -object memory-backend-file,id=m0,mem-path=/dev/hugepages,size=16M";
    let found = find_any(&command(line), pool, |device| device == "00:2f");
    assert_eq!(found.blocks["m0"].as_ref().map(|region| region.kind), Ok(RegionKind::HugePages));
}

/// A block of so many MiB at an address in MiB, with its guard.
fn guarded(at: u64, mib: u64) -> String {
    let (start, end) = (at << 20, (at + mib) << 20);
    format!("{start:x}-{end:x} rw-p 00000000 00:00 0 \n{end:x}-{:x} ---p 00000000 00:00 0 \n", end + 4096)
}

#[test]
fn a_dimm_as_large_as_the_first_memory_needs_no_telling_apart_where_all_is_one_clients() {
    let maps = guarded(1000, 128) + &guarded(1200, 128) + &guarded(1400, 128);
    let of = |line: &str, is_one_clients| {
        let known = Beside { hints: &Hints::default(), is_one_clients };
        let found = super::find(&command(line), Ok(&maps), &known, |_| false);
        (found.blocks[""].as_ref().is_ok_and(|region| region.addresses.start >> 20 == 1400), found.later.len())
    };
    assert_eq!(of("qemu -m 128,slots=2,maxmem=1G", true), (true, 2));
    assert_eq!(of("qemu -m 128,slots=2,maxmem=256M", true), (true, 1), "no more than may be plugged in");
    assert_eq!(of("qemu -m 128,slots=2,maxmem=1G", false), (false, 3));
    assert_eq!(of("qemu -m 128", true), (false, 0), "nothing can be plugged in: they are QEMU's own");
}

#[test]
fn a_merged_block_is_not_taken_for_another_of_its_size() {
    let line = "qemu -m 256,slots=1,maxmem=1G -object memory-backend-ram,id=m0,size=128M -object \
                memory-backend-ram,id=m1,size=128M -numa node,memdev=m0 -numa node,memdev=m1";
    let two = guarded(1200, 128) + &guarded(1392, 136); // the upper with a stack of 8 MiB below
    let places =
        |maps: &str| find(&command(line), maps).values().map(|region| region.addresses.start >> 20).collect::<Vec<_>>();
    assert_eq!(places(&two), [1400, 1200]);
    assert!(places(&(two + &guarded(1000, 128))).is_empty(), "one was plugged in");
}

#[test]
fn what_an_earlier_look_knew_and_a_monitor_said_tells_a_dimm_from_the_rest() {
    let line = command(
        "qemu -m 256,slots=1,maxmem=1G -object memory-backend-ram,id=m0,size=128M -object \
         memory-backend-ram,id=m1,size=128M -numa node,memdev=m0 -numa node,memdev=m1",
    );
    let before = guarded(1200, 128) + &guarded(1400, 128);
    let after = guarded(1000, 128) + &before;
    let of = |hints: &Hints, maps: &str| {
        let found = super::find(&line, Ok(maps), &Beside { hints, is_one_clients: false }, |_| false);
        let place = |id| found.blocks[id].as_ref().ok().map(|region: &Region| region.addresses.start >> 20);
        (place("m0"), place("m1"), found.left_over.len())
    };
    let none = Hints::default();
    assert_eq!((of(&none, &before), of(&none, &after)), ((Some(1400), Some(1200), 0), (None, None, 3)));
    let client = VmClient { regions: find(&line, &before).into_values().collect(), ..VmClient::default() };
    let vm = RunningVm { clients: vec![client], ..RunningVm::default() };
    assert_eq!(of(&Hints::of(&vm, None), &after), (Some(1400), Some(1200), 1));
    // Another mapping is there now: then the size alone counts.
    assert_eq!(of(&Hints::of(&vm, None), &(guarded(900, 128) + &guarded(1100, 128))), (Some(1100), Some(900), 0));
    let device = |backend: Option<&str>, at: u64| PluggedMemory {
        backend: backend.map(str::to_owned),
        virtual_node: 0,
        address: at << 20,
        size: Bytes::from_mib(128),
        given: Bytes::from_mib(128),
    };
    let said = |blocks: &[PluggedMemory]| Hints::of(&RunningVm::default(), Some(blocks));
    assert_eq!(of(&said(&[device(Some("dimm"), 1200)]), &after), (Some(1400), Some(1000), 1));
    assert_eq!(of(&said(&[device(Some("m1"), 1000), device(None, 1400)]), &after), (Some(1200), Some(1000), 1));
    assert_eq!(of(&said(&[device(None, 5000)]), &after), (None, None, 3), "where nothing is mapped it is not believed");
}

#[test]
fn parts_of_one_block_are_known_as_one() {
    let line = command("qemu -m 256,slots=1,maxmem=1G -numa node,mem=128 -numa node,mem=128");
    let region = |at: u64| Region {
        backend: None,
        addresses: at << 20..(at + 128) << 20,
        kind: RegionKind::Anonymous,
        path: String::new(),
        page_size: None,
        evidence: RegionEvidence::Size,
        given: Given::All,
    };
    let clients = [region(1400), region(1528)].map(|region| VmClient { regions: vec![region], ..VmClient::default() });
    let vm = RunningVm { clients: clients.to_vec(), ..RunningVm::default() };
    let maps = guarded(1000, 256) + &guarded(1400, 256);
    let known = Beside { hints: &Hints::of(&vm, None), is_one_clients: false };
    let found = super::find(&line, Ok(&maps), &known, |_| false);
    assert_eq!(found.blocks[""].as_ref().map(|region| region.addresses.start >> 20), Ok(1400));
}

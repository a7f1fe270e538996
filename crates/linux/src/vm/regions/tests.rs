//! Texts of `maps` as QEMU's processes have them.

use super::*;

fn command(line: &str) -> CommandLine {
    CommandLine::parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>()).unwrap()
}

fn find(command: &CommandLine, maps: &str) -> BTreeMap<String, Region> {
    let found = super::find(command, Ok(maps), |_| false);
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
    let said = super::find(&command(TWO), Ok(&maps), |_| false).blocks["m1"].clone().unwrap_err().to_string();
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
    assert!(super::find(&command("qemu -m 32"), Ok(maps), |_| false).blocks[""].is_err());
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
        let found = super::find(&command("qemu -m 64,slots=2,maxmem=1G"), Ok(&maps), |_| false);
        let [late] = &found.later[..] else { panic!("{found:?}") };
        assert_eq!(late.addresses, start..end);
        // Nothing can be plugged in: then it is something else.
        assert!(super::find(&command("qemu -m 64"), Ok(&maps), |_| false).later.is_empty());
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
        let found =
            |is_pool: bool, line: &str| super::find(&command(line), Ok(&maps), |device| is_pool && device == "08:01");
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
    let found = super::find(&command(line), Ok(pool), |device| device == "00:2f");
    assert_eq!(found.blocks["m0"].as_ref().map(|region| region.kind), Ok(RegionKind::HugePages));
}

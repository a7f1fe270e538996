//! Moves of this process's own memory. Those that need two nodes run in the lab
//! (crates/linux/tests/lab/moving.sh) and wherever there are two.

use super::*;
use crate::residence;
use crate::sys::{MemoryBinding, bind_memory, pin};
use crate::vm::{Given, RegionEvidence};
use topology::NodeSet;

const MIB: u64 = 1 << 20;
const ZERO: NodeId = NodeId(0);
const ONE: NodeId = NodeId(1);

/// Memory on node 0, aligned to a huge page.
struct Held {
    memory: Vec<u8>,
    region: Region,
}

impl Held {
    /// `None`, with a word about it, where there are no two nodes.
    fn new(test: &str, mib: u64) -> Option<Self> {
        let two =
            ["node0", "node1"].iter().all(|node| std::path::Path::new("/sys/devices/system/node").join(node).exists());
        if !two {
            eprintln!("SKIPPED {test}: this machine has no two NUMA nodes");
            return None;
        }
        Some(Self::on_node_zero(mib))
    }

    fn on_node_zero(mib: u64) -> Self {
        let length = (mib * MIB) as usize;
        let mut memory = vec![0u8; length + (2 << 20)];
        let first = memory.as_ptr().align_offset(2 << 20);
        bind_memory(&memory[first..first + length], &MemoryBinding::Bind("0".parse::<NodeSet>().unwrap())).unwrap();
        memory[first..first + length].iter_mut().for_each(|byte| *byte = 7);
        let start = memory.as_ptr() as u64 + first as u64;
        let region = Region {
            backend: None,
            addresses: start..start + length as u64,
            kind: RegionKind::Anonymous,
            path: String::new(),
            page_size: None,
            evidence: RegionEvidence::Size,
            given: Given::All,
        };
        Self { memory, region }
    }

    /// MiB on nodes 0 and 1.
    fn on_nodes(&self) -> (u64, u64) {
        let found = residence::exact(0, std::slice::from_ref(&self.region.addresses)).unwrap();
        let of = |node| found.resident.get(&node).copied().unwrap_or_default().mib();
        (of(ZERO), of(ONE))
    }

    /// MiB of it in transparent huge pages.
    fn huge(&self) -> u64 {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let start = format!("{:x}-", self.region.addresses.start);
        let mut lines = smaps.lines().skip_while(|line| !line.starts_with(&start));
        let line = lines.find_map(|line| line.strip_prefix("AnonHugePages:")).unwrap_or("0");
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() / 1024
    }

    fn order(&self, at_most: u64, begin: u64) -> Move<'_> {
        let regions = std::slice::from_ref(&self.region);
        let pid = std::process::id();
        Move { pid, regions, from: ZERO, to: ONE, at_most: Bytes::from_mib(at_most), begin, threads: 4 }
    }

    fn carry_out(&self, at_most: u64, begin: u64, around: &mut Scripted) -> io::Result<Moved> {
        carry_out(&self.order(at_most, begin), &mut Pace::new(None), around)
    }
}

/// A process that is there, and a target with so much room.
struct Scripted {
    there: bool,
    room: Option<Bytes>,
}

const WIDE: Scripted = Scripted { there: true, room: None };

impl Surroundings for Scripted {
    fn is_there(&mut self) -> bool {
        self.there
    }

    fn room(&mut self, _: NodeId, _: Bytes) -> Option<Bytes> {
        self.room
    }
}

#[test]
fn a_part_moves_and_then_the_rest() {
    let Some(held) = Held::new("a_part_moves_and_then_the_rest", 32) else { return };
    let first = held.carry_out(10, 0, &mut { WIDE }).unwrap();
    assert_eq!((first.moved, first.left, first.complete), (Bytes::from_mib(10), Bytes(0), false));
    assert_eq!(held.on_nodes(), (22, 10)); // 32 - 10
    let rest = held.carry_out(100, first.next, &mut { WIDE }).unwrap();
    assert_eq!((rest.moved, rest.complete, rest.next), (Bytes::from_mib(22), true, 0));
    assert_eq!(held.on_nodes(), (0, 32));
    assert!(held.memory[(4 << 20)..(30 << 20)].iter().all(|&byte| byte == 7));
}

#[test]
fn huge_pages_stay_huge() {
    let Some(held) = Held::new("huge_pages_stay_huge", 32) else { return };
    let before = held.huge();
    if before < 16 {
        return eprintln!("SKIPPED huge_pages_stay_huge: the kernel gave {before} MiB of transparent huge pages");
    }
    let moved = held.carry_out(100, 0, &mut { WIDE }).unwrap();
    assert_eq!((moved.moved, moved.left), (Bytes::from_mib(32), Bytes(0)));
    assert_eq!((held.on_nodes(), held.huge()), ((0, 32), before));
}

#[test]
fn pinned_pages_are_left_and_counted() {
    let Some(held) = Held::new("pinned_pages_are_left_and_counted", 32) else { return };
    let first = held.memory.as_ptr().align_offset(2 << 20);
    let middle = &held.memory[first + (8 << 20)..first + (16 << 20)];
    let pinned = match pin(middle) {
        Ok(pinned) => pinned,
        Err(error) => return eprintln!("SKIPPED pinned_pages_are_left_and_counted: io_uring: {error}"),
    };
    let moved = held.carry_out(100, 0, &mut { WIDE }).unwrap();
    assert_eq!((moved.moved, moved.left, moved.complete), (Bytes::from_mib(24), Bytes::from_mib(8), true)); // 32 - 8
    assert_eq!(moved.because.as_deref(), Some("8 MiB stay on node 0: they are pinned or in use"));
    assert_eq!(held.on_nodes(), (8, 24));
    drop(pinned);
    // Dropping a ring lets go of its pages a moment later.
    let again = (0..50).find(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        held.carry_out(100, 0, &mut { WIDE }).unwrap().left == Bytes(0)
    });
    assert!(again.is_some());
    assert_eq!(held.on_nodes(), (0, 32));
}

#[test]
fn what_lies_elsewhere_or_nowhere_is_not_counted() {
    let Some(held) = Held::new("what_lies_elsewhere_or_nowhere_is_not_counted", 32) else { return };
    // Sizes in pages: the first block loses 3 of 512, all of which lie between those that are
    // looked at first; block 8 loses every page.
    let start = held.region.addresses.start;
    let page = |number: u64| start + number * PAGE;
    let few = [page(1), page(2), page(40)];
    let many: Vec<u64> = (8 * 512..9 * 512).map(page).collect();
    let pid = std::process::id();
    // A huge page that loses one page loses all of them.
    let expected = if held.huge() > 0 { 28 } else { 30 };
    for pages in [&few[..], &many[..]] {
        crate::sys::move_pages(pid, pages, ONE, crate::sys::Sharing::Private).unwrap();
    }
    let moved = held.carry_out(100, 0, &mut { WIDE }).unwrap();
    // Block 8 was seen to be there already: 32 - 2. The three were asked with their block, and
    // count with it.
    assert_eq!((moved.moved, moved.left, moved.complete), (Bytes::from_mib(expected), Bytes(0), true));
    assert_eq!(held.on_nodes(), (0, 32));
}

#[test]
fn a_full_target_stops_it() {
    let Some(held) = Held::new("a_full_target_stops_it", 32) else { return };
    let moved = held.carry_out(100, 0, &mut Scripted { there: true, room: Some(Bytes::from_mib(4)) }).unwrap();
    assert_eq!((moved.moved, moved.left, moved.complete), (Bytes::from_mib(4), Bytes(0), false));
    assert_eq!(moved.because.as_deref(), Some("node 1 can take only 4 MiB more"));
    assert_eq!(held.on_nodes(), (28, 4));
}

#[test]
fn a_limit_is_kept_within_five_percent() {
    let Some(held) = Held::new("a_limit_is_kept_within_five_percent", 32) else { return };
    let start = std::time::Instant::now();
    let mut pace = Pace::new(Some(Bytes::from_mib(8)));
    let moved = carry_out(&held.order(24, 0), &mut pace, &mut { WIDE }).unwrap();
    let rate = moved.moved.0 as f64 / MIB as f64 / start.elapsed().as_secs_f64();
    assert!((rate - 8.0).abs() < 0.4, "{rate} MiB a second"); // 5 % of 8
}

#[test]
fn a_process_that_is_another_now_is_not_touched() {
    let held = Held::on_node_zero(4);
    let error = held.carry_out(100, 0, &mut Scripted { there: false, room: None }).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
}

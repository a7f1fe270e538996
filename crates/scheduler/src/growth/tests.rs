use super::*;
use proptest::prelude::*;

/// A virtual node of so many possible vCPUs and blocks of memory, so many of them there at
/// power-on, and so many now.
#[derive(Clone, Copy, Debug)]
struct Draft {
    vcpus: [u32; 3],
    blocks: [u64; 3],
}

const BLOCK: u64 = 128 << 20;

fn mib(mib: u64) -> Bytes {
    Bytes::from_mib(mib)
}

fn of(drafts: &[Draft]) -> (VirtualTopology, Vec<NodeSize>) {
    let mut next = 0;
    let (mut nodes, mut now) = (Vec::new(), Vec::new());
    for (id, draft) in (0..).zip(drafts) {
        let [most, at_start, present] = draft.vcpus;
        let first = next;
        next += most;
        nodes.push(VirtualNode {
            id,
            vcpus: (first..next).collect(),
            absent: (first + at_start..next).collect(),
            memory: Bytes(draft.blocks[1] * BLOCK),
            growth: Bytes((draft.blocks[0] - draft.blocks[1]) * BLOCK),
        });
        let vcpus = (first..first + present).collect();
        now.push(NodeSize { virtual_node: id, vcpus, memory: Bytes(draft.blocks[2] * BLOCK) });
    }
    let (sockets, distances) = (nodes.len() as u32, vec![]);
    (
        VirtualTopology {
            exposed: true,
            nodes,
            sockets,
            cores_per_socket: 1,
            dies_per_socket: 1,
            threads_per_core: 1,
            distances,
        },
        now,
    )
}

fn want(vcpus: Option<u32>, memory: Option<Bytes>, nodes: Option<Vec<u32>>) -> Wanted {
    Wanted { vcpus, memory, nodes, block: Bytes(BLOCK), dimms: BTreeMap::new() }
}

/// Two nodes that may have 8 vCPUs and 8 GiB each, 1 and 1 GiB at power-on; now 3 and 1 vCPUs, 2
/// and 1 GiB.
fn two() -> (VirtualTopology, Vec<NodeSize>) {
    of(&[Draft { vcpus: [8, 1, 3], blocks: [64, 8, 16] }, Draft { vcpus: [8, 1, 1], blocks: [64, 8, 8] }])
}

fn text(want: &Wanted) -> String {
    let (topology, now) = two();
    grow(&topology, &now, want).expect_err("too much").to_string()
}

#[test]
fn what_is_added_goes_to_the_thinnest_and_what_is_taken_comes_from_the_thickest() {
    let (topology, now) = two();
    let grown = grow(&topology, &now, &want(Some(8), Some(mib(4096)), None)).expect("room");
    // 3 and 1 become 4 and 4; 2 and 1 GiB become 2 and 2.
    assert_eq!((grown.plug, grown.unplug), (vec![9, 10, 3, 11], vec![]));
    assert_eq!(grown.memory, BTreeMap::from([(1, mib(2048))]));
    let shrunk = grow(&topology, &now, &want(Some(2), Some(mib(2048 + 256)), None)).expect("plugged");
    assert_eq!((shrunk.plug, shrunk.unplug), (vec![], vec![2, 1]));
    assert_eq!(shrunk.memory, BTreeMap::from([(0, mib(1280))])); // 1280 + 1024
    assert!(grow(&topology, &now, &want(Some(4), Some(mib(3072)), None)).expect("nothing").is_empty());
}

#[test]
fn named_nodes_get_it_all() {
    let (topology, now) = two();
    let grown = grow(&topology, &now, &want(Some(6), Some(mib(4096)), Some(vec![0]))).expect("room");
    assert_eq!((grown.plug, grown.memory), (vec![3, 4], BTreeMap::from([(0, mib(3072))])));
}

#[test]
fn what_cannot_be_had_is_refused_with_what_would_be_valid() {
    let errors = [
        want(Some(17), None, None),
        want(Some(10), None, Some(vec![0])), // 8 of node 0 and 1 of node 1
        want(Some(1), None, None),
        want(Some(3), None, Some(vec![1])), // node 1 has only what it had at power-on
        want(None, Some(mib(16385)), None),
        want(None, Some(mib(9217)), Some(vec![0])),
        want(None, Some(mib(2047)), None),
        want(None, Some(mib(3073)), None),
        want(None, Some(Bytes(mib(3072).0 + 1)), None),
        want(Some(4), None, Some(vec![0, 2])),
    ]
    .map(|want| text(&want));
    insta::assert_snapshot!(errors.join("\n"));
}

/// [`two`], as the guest has no driver for virtio-mem: 1 GiB of node 0 is a DIMM.
fn with_a_dimm(mib: u64, block: u64) -> Result<Growth, String> {
    let (topology, now) = two();
    let want = want(None, Some(Bytes::from_mib(mib)), None);
    let want = Wanted { block: Bytes::from_mib(block), dimms: [(0, Bytes::GIB)].into(), ..want };
    grow(&topology, &now, &want).map_err(|error| error.to_string())
}

#[test]
fn a_dimm_is_never_taken_away() {
    // 2 and 1 GiB now, 1 and 1 at power-on; the GiB between is the DIMM.
    let error = with_a_dimm(2560, 2).expect_err("it stays");
    assert!(error.starts_with("memory = \"2560 MiB\": \"3 GiB\" is the least: "), "{error}");
    assert!(error.ends_with("can be taken away, and no DIMM: of those it has \"1 GiB\""), "{error}");
    // What is in virtio-mem beside it goes, and in its own blocks.
    let (topology, mut now) = two();
    now[1].memory = mib(1536);
    let want = Wanted { block: mib(2), dimms: [(0, Bytes::GIB)].into(), ..want(None, Some(mib(3330)), None) };
    assert_eq!(grow(&topology, &now, &want).expect("plugged").memory, BTreeMap::from([(1, mib(1282))]));
}

#[test]
fn what_is_added_to_a_guest_with_dimms_is_whole_dimms() {
    // Virtio-mem would give 1 GiB + 2 MiB; a DIMM is a multiple of 128 MiB.
    let error = with_a_dimm(3074, 2).expect_err("no DIMM of 2 MiB");
    assert!(error.contains("in blocks of 128 MiB; \"3 GiB\" and \"3200 MiB\" are the next"), "{error}");
    assert_eq!(with_a_dimm(3200, 2).expect("a DIMM").memory, BTreeMap::from([(1, mib(1152))]));
    // Huge pages of 1 GiB make larger ones.
    let error = with_a_dimm(3200, 1024).expect_err("no DIMM of 128 MiB");
    assert!(error.contains("in blocks of 1 GiB"), "{error}");
}

fn draft() -> impl Strategy<Value = Draft> {
    let of = |most: u64| {
        (1..=most)
            .prop_flat_map(move |most| (Just(most), 0..=most))
            .prop_flat_map(|(most, start)| (Just(most), Just(start), start..=most))
    };
    (of(5), of(5)).prop_map(|(v, b)| Draft { vcpus: [v.0 as u32, v.1 as u32, v.2 as u32], blocks: [b.0, b.1, b.2] })
}

/// The sum of has^2 / size, as a fraction over the product of all sizes; the mean level is the same
/// for all ways of giving out a total, so that this compares as the sum of squares about it does.
fn unevenness(has: &[u64], sizes: &[u64]) -> u64 {
    let product: u64 = sizes.iter().product();
    has.iter().zip(sizes).map(|(has, size)| has * has * (product / size)).sum()
}

/// All ways in which the nodes may have `total`, each from its first to its second number.
fn ways(bounds: &[(u64, u64)], total: u64) -> Vec<Vec<u64>> {
    let Some(((low, high), rest)) = bounds.split_first() else {
        return if total == 0 { vec![vec![]] } else { vec![] };
    };
    let with = |has: u64| {
        let others = total.checked_sub(has).map(|left| ways(rest, left)).unwrap_or_default();
        others.into_iter().map(move |others| [vec![has], others].concat())
    };
    (*low..=*high).flat_map(with).collect()
}

/// Whether `has` is as even as anything that can be reached from `now`: up only, or down only.
fn is_best(has: &[u64], now: &[u64], [least, sizes]: [&[u64]; 2], named: &[bool], total: u64) -> bool {
    let up = total >= now.iter().sum();
    let bounds = |index: usize| match (named[index], up) {
        (false, _) => (now[index], now[index]),
        (true, true) => (now[index], sizes[index]),
        (true, false) => (least[index], now[index]),
    };
    let bounds: Vec<(u64, u64)> = (0..now.len()).map(bounds).collect();
    let best = ways(&bounds, total).iter().map(|way| unevenness(way, sizes)).min();
    best == Some(unevenness(has, sizes))
        && has.iter().zip(&bounds).all(|(has, (low, high))| (low..=high).contains(&has))
}

fn applied(topology: &VirtualTopology, now: &[NodeSize], growth: &Growth) -> Vec<NodeSize> {
    let mut sizes = now.to_vec();
    for (size, node) in sizes.iter_mut().zip(&topology.nodes) {
        size.vcpus.extend(growth.plug.iter().filter(|vcpu| node.vcpus.contains(vcpu)));
        size.vcpus.retain(|vcpu| !growth.unplug.contains(vcpu));
        size.memory = growth.memory.get(&node.id).copied().unwrap_or(size.memory);
    }
    sizes
}

properties::properties! {
    #![cases(256)]

    #[test]
    fn no_other_way_is_more_even(
        drafts in prop::collection::vec(draft(), 1..4),
        vcpus in 0u32..16,
        blocks in 0u64..16,
        named in prop::collection::vec(any::<bool>(), 3),
    ) {
        let (topology, now) = of(&drafts);
        let nodes: Vec<u32> = (0..drafts.len() as u32).filter(|&node| named[node as usize]).collect();
        let some_named = Some(nodes).filter(|nodes| !nodes.is_empty());
        let may_change: Vec<bool> = if some_named.is_some() { named } else { vec![true; 3] };
        let column = |of: fn(&Draft) -> u64| drafts.iter().map(of).collect::<Vec<u64>>();
        if let Ok(growth) = grow(&topology, &now, &want(Some(vcpus), None, some_named.clone())) {
            let after = applied(&topology, &now, &growth);
            let after: Vec<u64> = after.iter().map(|size| size.vcpus.len() as u64).collect();
            let (least, sizes) = (column(|draft| draft.vcpus[1].into()), column(|draft| draft.vcpus[0].into()));
            let most = column(|draft| draft.vcpus[2].into());
            prop_assert!(is_best(&after, &most, [&least, &sizes], &may_change, vcpus.into()), "{after:?}");
        }
        if let Ok(growth) = grow(&topology, &now, &want(None, Some(Bytes(blocks * BLOCK)), some_named)) {
            let after: Vec<u64> = applied(&topology, &now, &growth).iter().map(|size| size.memory.0 / BLOCK).collect();
            let (least, sizes) = (column(|draft| draft.blocks[1]), column(|draft| draft.blocks[0]));
            let most = column(|draft| draft.blocks[2]);
            prop_assert!(is_best(&after, &most, [&least, &sizes], &may_change, blocks), "{after:?}");
        }
    }

    #[test]
    fn all_that_may_be_had_is_given_and_no_more(
        drafts in prop::collection::vec(draft(), 1..4),
        vcpus in 0u32..20,
        mibs in 0u64..2500,
    ) {
        let (topology, now) = of(&drafts);
        let sum = |of: fn(&Draft) -> u64| drafts.iter().map(of).sum::<u64>();
        let (least, most) = (sum(|draft| draft.vcpus[1].into()), sum(|draft| draft.vcpus[0].into()));
        let grown = grow(&topology, &now, &want(Some(vcpus), None, None));
        prop_assert_eq!(grown.is_ok(), (least..=most).contains(&u64::from(vcpus)));
        let bounds = sum(|draft| draft.blocks[1]) * 128..=sum(|draft| draft.blocks[0]) * 128;
        let grown = grow(&topology, &now, &want(None, Some(mib(mibs)), None));
        prop_assert_eq!(grown.is_ok(), bounds.contains(&mibs) && mibs % 128 == 0);
    }

    #[test]
    fn what_was_plugged_is_unplugged_in_the_opposite_order(
        drafts in prop::collection::vec(draft(), 1..4),
        more in 1u32..6,
    ) {
        let (topology, _) = of(&drafts);
        let start: Vec<NodeSize> = vm::Added::default().sizes(&topology);
        let had = start.iter().map(|size| size.vcpus.len() as u32).sum::<u32>();
        let Ok(grown) = grow(&topology, &start, &want(Some(had + more), None, None)) else { return Ok(()) };
        let after = applied(&topology, &start, &grown);
        let back = grow(&topology, &after, &want(Some(had), None, None)).expect("plugged");
        let mut plugged = grown.plug;
        plugged.reverse();
        // From an uneven start what was added is not always what is taken first.
        let even = drafts.iter().all(|draft| draft.vcpus[1] == 0);
        prop_assert!(!even || back.unplug == plugged, "{:?} {:?}", back.unplug, plugged);
        prop_assert_eq!(applied(&topology, &after, &back).iter().map(|size| size.vcpus.len() as u32).sum::<u32>(), had);
    }
}

use super::*;
use crate::Mobility;
use crate::growth::Moving;
use vm::VirtualNode;

fn gib(gib: u64) -> Bytes {
    Bytes(gib << 30)
}

/// Three nodes of 4 CPUs and 16 GiB.
fn machine() -> Machine {
    topology::read::from_synthetic("pack:3 [numa(memory=16GiB)] core:4 pu:1").expect("a machine")
}

fn key(name: &str) -> VmKey {
    VmKey { name: name.to_owned(), ..VmKey::default() }
}

/// A VM that is one client of so many vCPUs on a node, with all of its memory resident there.
fn vm_on(name: &str, vcpus: u32, node: u32, memory: u64) -> VmObservation {
    let cpus: topology::CpuSet = format!("{}-{}", node * 4, node * 4 + 3).parse().expect("CPUs");
    let client = ClientObservation {
        vcpus,
        cpus,
        memory_size: gib(memory),
        memory: Some(BTreeMap::from([(NodeId(node), gib(memory))])),
        ..ClientObservation::default()
    };
    VmObservation::of_clients(key(name), vec![client])
}

/// A VM "db" of one client on node 0: 2 vCPUs of 8, 4 GiB of 16.
struct Db {
    topology: VirtualTopology,
    placement: Placement,
    now: Vec<NodeSize>,
}

fn db() -> Db {
    let node =
        VirtualNode { id: 0, vcpus: (0..8).collect(), absent: (2..8).collect(), memory: gib(4), growth: gib(12) };
    let topology = VirtualTopology {
        exposed: false,
        nodes: vec![node],
        sockets: 1,
        cores_per_socket: 8,
        dies_per_socket: 1,
        threads_per_core: 1,
        distances: vec![vec![10]],
    };
    let client = Client {
        id: 0,
        virtual_nodes: vec![0],
        home: [NodeId(0)].into_iter().collect(),
        cpus: "0-3".parse().expect("CPUs"),
        memory_policy: MemoryPolicy::Bind,
        vcpu_cpus: BTreeMap::new(),
        groups: Vec::new(),
        far: Vec::new(),
    };
    let now = vm::Added::default().sizes(&topology);
    Db { topology, placement: Placement { clients: vec![client] }, now }
}

/// What is said when "db" is to get so many vCPUs and so much memory beside these VMs.
fn asked(db: &Db, vms: Vec<VmObservation>, plug: &[u32], memory: u64) -> Result<Vec<String>, NoRoom> {
    let (machine, vm) = (machine(), key("db"));
    let observation = Observation { vms, ..Observation::default() };
    let occupancy = Occupancy::of_observation(&observation, &machine);
    let growth = Growth { plug: plug.to_vec(), memory: BTreeMap::from([(0, gib(memory))]), ..Growth::default() };
    room(&Growing {
        vm: &vm,
        placement: &db.placement,
        now: &db.now,
        topology: &db.topology,
        growth: &growth,
        huge_pages: None,
        machine: &machine,
        occupancy: &occupancy,
        observation: &observation,
    })
}

#[test]
fn what_fits_is_not_spoken_of() {
    let vms = vec![vm_on("db", 2, 0, 4), vm_on("web", 2, 0, 4)];
    // 16 - 4 - 4 = 8 GiB are free; 2 + 2 vCPUs on 4 threads.
    assert_eq!(asked(&db(), vms, &[], 12), Ok(vec![]));
}

#[test]
fn more_vcpus_than_threads_are_a_warning() {
    let vms = vec![vm_on("db", 2, 0, 4), vm_on("web", 2, 0, 4)];
    let said = asked(&db(), vms, &[2], 4).expect("room");
    assert_eq!(said, ["node 0 will have 5 vCPUs on 4 hardware threads"]);
}

#[test]
fn a_full_home_is_said_with_the_moves_that_make_room_the_cheapest_first() {
    let vms = vec![vm_on("db", 2, 0, 4), vm_on("web", 1, 0, 3), vm_on("mail", 1, 0, 7), vm_on("other", 3, 1, 8)];
    let error = asked(&db(), vms, &[], 8).expect_err("full");
    // 16 - 4 - 3 - 7 = 2 GiB are free, 4 are wanted: 2 too few. web (3) and mail (7) free enough;
    // node 1 has 8 GiB free and 1 thread, node 2 has 16 GiB: db needs 2 threads and 8 GiB.
    let offered: Vec<_> =
        error.lacks[0].moves.iter().map(|to| (to.vm.name.as_str(), to.grows, to.to.0, to.bytes)).collect();
    assert_eq!(offered, [("web", false, 1, gib(3)), ("db", true, 2, gib(4)), ("mail", false, 1, gib(7))]);
    let said = "virtual node 0 is to get 4 GiB on node 0, which has 2 GiB free; this makes room: \
                `homenode vm move web --client 0 --to 1` (3 GiB to copy), or `homenode vm move db --client 0 --to 2` \
                (4 GiB to copy), or `homenode vm move mail --client 0 --to 1` (7 GiB to copy)";
    assert_eq!(error.to_string(), said);
}

#[test]
fn what_may_not_move_or_has_nowhere_to_go_is_not_offered() {
    let fixed =
        VmObservation { mobility: Mobility::MemoryFixed { because: "VFIO".to_owned() }, ..vm_on("nic", 1, 0, 6) };
    let tied = VmObservation { node_affinity: Some("0".parse().expect("nodes")), ..vm_on("tied", 1, 0, 4) };
    let full = [vm_on("b", 1, 1, 14), vm_on("c", 1, 2, 14)];
    let vms = [vec![vm_on("db", 2, 0, 4), fixed, tied, vm_on("small", 1, 0, 1)], full.to_vec()].concat();
    let error = asked(&db(), vms, &[], 8).expect_err("full");
    // 1 GiB is free, 4 are wanted. small frees 1 of the 3 that are short; db needs 8 elsewhere.
    let said = "virtual node 0 is to get 4 GiB on node 0, which has 1 GiB free; no move of one client makes room: add \
                less, let other virtual nodes grow, or stop a VM";
    assert_eq!(error.to_string(), said);
}

#[test]
fn memory_that_is_not_bound_comes_with_a_warning() {
    let mut db = db();
    db.placement.clients[0].memory_policy = MemoryPolicy::Preferred;
    let said = asked(&db, vec![vm_on("db", 2, 0, 4), vm_on("web", 1, 0, 10)], &[], 8).expect("no bound");
    assert_eq!(said, ["node 0 has 2 GiB free, and 4 GiB is to come there: a part of it will lie on other nodes"]);
    // 48 - 4 - 10 - 16 - 16 = 2 GiB are free in all.
    let full = vec![vm_on("db", 2, 0, 4), vm_on("a", 1, 0, 10), vm_on("b", 1, 1, 16), vm_on("c", 1, 2, 16)];
    let error = asked(&db, full, &[], 8).expect_err("full");
    assert!(
        error.to_string().starts_with("virtual node 0 is to get 4 GiB on nodes 0-2, which have 2 GiB free"),
        "{error}"
    );
}

#[test]
fn no_more_is_promised_than_the_machine_has() {
    let of = |memory| Shape { name: "db".to_owned(), memory: gib(memory), ..Shape::default() };
    assert_eq!(is_there(&machine(), &of(48), gib(4)), Ok(())); // 3 x 16
    let error = is_there(&machine(), &of(49), gib(4)).expect_err("it is not there").to_string();
    assert!(error.contains("memory = \"49 GiB\" is more than") && error.contains("(48 GiB)"), "{error}");
    // One that is larger already may shrink.
    assert_eq!(is_there(&machine(), &of(50), gib(60)), Ok(()));
}

#[test]
fn equal_parts_are_limited_by_the_fullest_node() {
    let mut db = db();
    db.placement.clients[0].home = "0-1".parse().expect("nodes");
    db.placement.clients[0].memory_policy = MemoryPolicy::Interleave;
    let vms = || vec![vm_on("web", 1, 0, 15), vm_on("mail", 1, 2, 4)];
    // 1 GiB is free on node 0 and 16 on node 1: 2 x 1.
    assert_eq!(asked(&db, vms(), &[], 6), Ok(vec![]));
    let error = asked(&db, vms(), &[], 8).expect_err("full");
    assert_eq!((error.lacks[0].wanted, error.lacks[0].free), (gib(4), gib(2)));
    db.placement.clients[0].memory_policy = MemoryPolicy::Bind;
    assert_eq!(asked(&db, vms(), &[], 16), Ok(vec![])); // 1 + 16 - 12
}

#[test]
fn huge_pages_come_from_their_pool() {
    let (db, mut machine, vm) = (db(), machine(), key("db"));
    let page_size = Bytes::from_mib(2);
    machine.nodes[0].huge_pages = vec![topology::HugePages { page_size, total: 1024, free: 768 }];
    // 1536 MiB are free, of which somebody was promised 512.
    let mut occupancy = Occupancy::default();
    occupancy.promise_pages(page_size, [(NodeId(0), Bytes::from_mib(512))]);
    let growth = Growth { memory: BTreeMap::from([(0, gib(6))]), ..Growth::default() };
    let error = room(&Growing {
        vm: &vm,
        placement: &db.placement,
        now: &db.now,
        topology: &db.topology,
        growth: &growth,
        huge_pages: Some(page_size),
        machine: &machine,
        occupancy: &occupancy,
        observation: &Observation::default(),
    });
    assert_eq!(error.expect_err("a pool of 1 GiB").lacks[0].free, gib(1));
}

#[test]
fn a_move_is_refused_with_its_reason() {
    let machine = machine();
    let refused = |vm: &VmObservation, to: u32, beside: Vec<VmObservation>| {
        let vms = [vec![vm.clone()], beside].concat();
        let occupancy = Occupancy::of_observation(&Observation { vms, ..Observation::default() }, &machine);
        let moving = Moving { vm, client: &vm.clients[0], machine: &machine, occupancy: &occupancy };
        moving.check(NodeId(to), (0, Bytes(0))).map_err(|error| error.to_string())
    };
    let web = vm_on("web", 2, 0, 4);
    assert_eq!(refused(&web, 1, vec![vm_on("mail", 2, 1, 12)]), Ok(())); // 2 + 2 vCPUs, 12 + 4 GiB
    let said = |vm: &VmObservation, to: u32, beside| refused(vm, to, beside).expect_err("it may not move");
    assert!(said(&web, 7, vec![]).contains("--to 7: no node") && said(&web, 7, vec![]).ends_with("0-2"));
    let said_of_memory = "--to 1: 4 GiB are to come there, and 3 GiB are free";
    assert_eq!(said(&web, 1, vec![vm_on("mail", 2, 1, 13)]), said_of_memory);
    let said_of_threads = "--to 1: it has 4 hardware threads, and would have 5 vCPUs";
    assert_eq!(said(&web, 1, vec![vm_on("mail", 3, 1, 1)]), said_of_threads);
    let mut bound = web.clone();
    bound.clients[0].cpus = "0-1".parse().expect("CPUs");
    assert!(said(&bound, 1, vec![]).contains("CPUs 0-1, a part of a node"));
    let tied = VmObservation { node_affinity: Some("0,2".parse().expect("nodes")), ..web.clone() };
    assert!(said(&tied, 1, vec![]).contains("nodes 0,2 only"));
    let mut unseen = web;
    unseen.clients[0].memory = None;
    assert_eq!(said(&unseen, 1, vec![]), "its memory cannot be seen");
}

#[test]
fn no_name_becomes_an_option_of_the_command() {
    let to = |name: &str| {
        let (vm, client) = (key(name), crate::ClientId(1));
        super::Move { vm, client, grows: false, to: NodeId(2), bytes: gib(1) }.to_string()
    };
    assert_eq!(to("a b"), "`homenode vm move 'a b' --client 1 --to 2` (1 GiB to copy)");
    assert_eq!(to("--help"), "`homenode vm move --client 1 --to 2 -- --help` (1 GiB to copy)");
}

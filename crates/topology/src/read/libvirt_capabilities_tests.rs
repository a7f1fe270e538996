//! What is refused, and worked examples of odd documents.

use super::*;
use crate::LlcId;
use crate::read::from_xml;
use proptest::prelude::*;

fn with(cells: &str, rest: &str) -> String {
    format!(
        "<capabilities><host>\n<topology><cells num='1'>\n{cells}\n</cells></topology>\n{rest}</host></capabilities>"
    )
}

fn read(text: &str) -> Machine {
    from_libvirt_capabilities(text, "caps.xml").expect(text)
}

fn error_of(text: &str) -> String {
    from_xml(text, "caps.xml").expect_err(text).to_string()
}

#[test]
fn what_is_not_libvirts_is_refused() {
    assert!(error_of("<capabilities").contains("caps.xml: not XML"));
    assert!(error_of("<html/>").contains("<html>: expected <topology> (`lstopo --of xml`) or <capabilities>"));
    assert!(error_of("<domain type='kvm'/>").contains("a VM of libvirt, not a machine; `homenode check`"));
    assert!(error_of("<!DOCTYPE a [<!ENTITY b \"c\">]><capabilities/>").contains("entities"));
    assert!(error_of("<capabilities/>").contains("line 1: <capabilities>: it has no <host>"));
    assert!(error_of("<capabilities><host/></capabilities>").contains("this libvirt driver does not say which CPUs"));
    assert!(error_of(&with("", "")).contains("no <cell> in it has a <cpu>"));
}

#[test]
fn a_value_that_cannot_be_is_named_with_its_element_and_line() {
    let cases = [
        ("<cell><cpus><cpu id='0'/></cpus></cell>", "line 3: <cell>: id is missing"),
        ("<cell id='x'/>", "line 3: <cell>: id=\"x\": expected a number under 8192"),
        ("<cell id='0'/>\n<cell id='0'/>", "line 4: <cell>: id=\"0\" is there twice"),
        ("<cell id='0'><cpus>\n<cpu id='70000'/></cpus></cell>", "line 4: <cpu>: id=\"70000\""),
        ("<cell id='0'><cpus>\n<cpu id='-1'/></cpus></cell>", "line 4: <cpu>: id=\"-1\""),
        ("<cell id='0'><cpus>\n<cpu id='1'/><cpu id='1'/></cpus></cell>", "line 4: <cpu>: id=\"1\" is there twice"),
        ("<cell id='0'><cpus><cpu id='1' socket_id='a'/></cpus></cell>", "<cpu>: socket_id=\"a\": expected a number"),
        ("<cell id='0'><cpus><cpu id='1' siblings='3-1'/></cpus></cell>", "<cpu>: siblings=\"3-1\": expected a list"),
        ("<cell id='0'><cpus><cpu id='1' siblings='0-65535'/></cpus></cell>", "of 1 to 256 CPUs"),
        ("<cell id='0'><memory unit='KiB'>-5</memory></cell>", "<memory>: says `-5`, unit `KiB`"),
        ("<cell id='0'><memory unit='KB'>5</memory></cell>", "<memory>: says `5`, unit `KB`"),
        ("<cell id='0'><memory unit='TiB'>99999999999</memory></cell>", "<memory>: says `99999999999`"),
        (
            "<cell id='0'><pages size='4' unit='KiB'>many</pages></cell>",
            "<pages>: says `many`: expected a number of pages",
        ),
        ("<cell id='0'><pages>1</pages></cell>", "<pages>: size is missing"),
        ("<cell id='0'><distances><sibling id='0'/></distances></cell>", "<sibling>: value is missing"),
        ("<cell id='0'><distances><sibling id='0' value='far'/></distances></cell>", "<sibling>: value=\"far\""),
    ];
    for (cells, expected) in cases {
        let error = error_of(&with(cells, ""));
        assert!(error.contains(expected), "{cells}: {error}");
    }
    let cpus = "<cell id='0'><cpus><cpu id='0'/><cpu id='1'/></cpus></cell>";
    let cases = [
        ("<bank level='300' cpus='0'/>", "<bank>: level=\"300\""),
        ("<bank level='3' cpus='0-'/>", "<bank>: cpus=\"0-\""),
        ("<bank level='3' size='big' unit='KiB' cpus='0'/>", "<bank>: says `big`"),
    ];
    for (banks, expected) in cases {
        let error = error_of(&with(cpus, &format!("<cache>{banks}</cache>")));
        assert!(error.contains(expected), "{banks}: {error}");
    }
}

#[test]
fn too_many_nodes_are_refused() {
    let cells: String = (0..1025).map(|id| format!("<cell id='{id}'/>")).collect();
    assert!(error_of(&with(&cells, "")).contains("1025 NUMA nodes are more than the 1024"));
}

#[test]
fn the_cache_of_the_highest_level_is_the_last() {
    let cpus = "<cell id='0'><cpus><cpu id='0'/><cpu id='1'/><cpu id='2'/></cpus></cell>";
    let banks = "<bank level='3' size='4' unit='MiB' cpus='0-2'/><bank level='4' type='data' cpus='0-1'/><bank \
        level='5' type='code' cpus='0'/>";
    let machine = read(&with(cpus, &format!("<cache>{banks}</cache>")));
    let llcs: Vec<_> = machine.threads.iter().map(|thread| thread.llc).collect();
    assert_eq!(llcs, [Some(LlcId(0)), Some(LlcId(0)), Some(LlcId(1))]);
    assert_eq!((machine.llcs[0].level, machine.llcs[0].size), (4, None));
    assert_eq!((machine.llcs[1].level, machine.llcs[1].size), (3, Some(Bytes::from_mib(4))));
}

#[test]
fn of_two_caches_of_one_level_the_first_that_holds_data_counts() {
    let cpus = "<cell id='0'><cpus><cpu id='0'/><cpu id='1'/></cpus></cell>";
    let code_and_data = "<bank level='3' type='code' size='1' unit='MiB' cpus='0-1'/><bank level='3' type='data' \
        size='2' unit='MiB' cpus='0-1'/>";
    let machine = read(&with(cpus, &format!("<cache>{code_and_data}</cache>")));
    assert_eq!(machine.llcs.iter().map(|llc| llc.size).collect::<Vec<_>>(), [Some(Bytes::from_mib(2))]);
    assert!(!machine.notes.iter().any(|note| note.contains("several caches")), "{:?}", machine.notes);
    // libvirt's own test of a host with two banks for one CPU has this.
    let twice = "<bank id='0' level='3' type='both' size='33' unit='MiB' cpus='0-1'/><bank id='1' level='3' \
        type='both' size='33' unit='MiB' cpus='1'/>";
    let machine = read(&with(cpus, &format!("<cache>{twice}</cache>")));
    assert_eq!((machine.llcs.len(), machine.threads[1].llc), (1, Some(LlcId(0))));
    assert!(
        machine.notes.iter().any(|note| note.contains("CPUs 1 several caches of one level")),
        "{:?}",
        machine.notes
    );
}

#[test]
fn without_siblings_a_core_is_its_numbers() {
    let cpu = |id, socket, die, core| format!("<cpu id='{id}' socket_id='{socket}' die_id='{die}' core_id='{core}'/>");
    let cpus = [cpu(0, 0, 0, 0), cpu(1, 0, 1, 0), cpu(2, 1, 0, 0), cpu(3, 0, 0, 0)].concat();
    let machine = read(&with(&format!("<cell id='0'><cpus>{cpus}</cpus></cell>"), ""));
    let cores: Vec<u32> = machine.threads.iter().map(|thread| thread.core.0).collect();
    assert_eq!(cores, [0, 1, 2, 0]); // CPUs 0 and 3 agree in all three numbers
}

#[test]
fn where_libvirt_tells_nothing_of_any_cpu_none_is_offline() {
    let machine = read(&with("<cell id='0'><cpus><cpu id='0'/><cpu id='1'/></cpus></cell>", ""));
    assert!(machine.threads.iter().all(|thread| thread.online));
    assert!(machine.notes.iter().any(|note| note.contains("No socket is given")), "{:?}", machine.notes);
    assert!(machine.notes.iter().any(|note| note.contains("names no cache")), "{:?}", machine.notes);
}

#[test]
fn distances_count_only_as_a_whole_table() {
    let cell = |id, rows: &str| {
        format!(
            "<cell id='{id}'><distances>{rows}</distances><cpus><cpu id='{id}' socket_id='0' \
            core_id='{id}'/></cpus></cell>"
        )
    };
    let whole = "<sibling id='0' value='10'/><sibling id='1' value='12'/>";
    let other = "<sibling id='0' value='12'/><sibling id='1' value='10'/>";
    let machine = read(&with(&(cell(0, whole) + &cell(1, other)), ""));
    assert_eq!(machine.distances.rows(), [[10, 12], [12, 10]]);
    // One is missing, one is under ACPI's least.
    for bad in ["<sibling id='0' value='12'/>", "<sibling id='0' value='0'/><sibling id='1' value='10'/>"] {
        let machine = read(&with(&(cell(0, whole) + &cell(1, bad)), ""));
        assert_eq!(machine.distances.rows(), [[10, 20], [20, 10]], "{bad}");
        assert!(machine.notes.iter().any(|note| note.contains("No complete and valid table")), "{bad}");
    }
}

/// Four cells of four CPUs, two threads a core, a cache a cell, cells and CPUs in the orders given.
fn shuffled(cells: &[u32], cpus: &[u32], banks: &[u32]) -> String {
    let cell = |&cell: &u32| {
        let cpu = |&offset: &u32| {
            let (id, first) = (cell * 4 + offset, cell * 4 + offset / 2 * 2);
            format!("<cpu id='{id}' socket_id='{}' core_id='{first}' siblings='{first}-{}'/>", cell / 2, first + 1)
        };
        let sibling = |&to: &u32| format!("<sibling id='{to}' value='{}'/>", 10 + cell.abs_diff(to));
        let (siblings, cpus): (String, String) = (cells.iter().map(sibling).collect(), cpus.iter().map(cpu).collect());
        let memory = format!("<memory unit='GiB'>{}</memory>", cell + 1);
        format!("<cell id='{cell}'><cpus>{cpus}</cpus><distances>{siblings}</distances>{memory}</cell>")
    };
    let bank = |&bank: &u32| format!("<bank id='0' level='3' cpus='{}-{}'/>", bank * 4, bank * 4 + 3);
    let (cells, banks): (String, String) = (cells.iter().map(cell).collect(), banks.iter().map(bank).collect());
    with(&cells, &format!("<cache>{banks}</cache>"))
}

properties::properties! {
    #[test]
    fn the_order_of_cells_and_cpus_does_not_matter(
        cells in Just(vec![0_u32, 1, 2, 3]).prop_shuffle(),
        cpus in Just(vec![0_u32, 1, 2, 3]).prop_shuffle(),
        banks in Just(vec![0_u32, 1, 2, 3]).prop_shuffle(),
    ) {
        let sorted = [0, 1, 2, 3];
        let expected = read(&shuffled(&sorted, &sorted, &sorted));
        // 4 cells x 2 cores; node 2 (3 GiB) has CPUs 8-11 of socket 1.
        prop_assert_eq!(expected.threads[11].core, CoreId(5));
        prop_assert_eq!((expected.threads[11].socket, expected.threads[11].llc), (SocketId(1), Some(LlcId(2))));
        prop_assert_eq!(expected.nodes[2].memory, Bytes(3 << 30));
        prop_assert_eq!(read(&shuffled(&cells, &cpus, &banks)), expected);
    }

    #[test]
    fn no_text_makes_it_fail_otherwise_than_by_an_error(text in "(<(capabilities|host|topology|cells|cell \
        id='[0-9-]{1,3}'|cpus|cpu id='[0-9]' (socket_id|siblings)='[0-9,-]{0,4}'/|memory|/cell|/cpus)>|[0-9]){0,24}") {
        let _ = from_xml(&text, "x");
        let _ = from_xml(&with(&text, ""), "x");
    }
}

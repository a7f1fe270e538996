//! Edits of domains: the change that was asked for, and no other byte.

use proptest::prelude::*;
use stacks::domain::{Edit, Step, apply, parse};

fn steps(path: &[&str]) -> Vec<Step> {
    path.iter().copied().map(Step::new).collect()
}

fn pin(vcpu: u32) -> Vec<Step> {
    vec![Step::new("cputune"), Step::keyed("vcpupin", "vcpu", vcpu)]
}

fn set(at: Vec<Step>, name: &str, value: &str) -> Edit {
    Edit::SetAttribute { at, name: name.to_owned(), value: value.to_owned() }
}

fn edited(text: &str, edits: &[Edit]) -> String {
    apply(text, "x.xml", edits).expect("an edit")
}

const MINE: &str = "<?xml version='1.0'?>
<!-- my VM -->
<domain type=\"kvm\"  xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
    <name>mine</name>   <!-- its name -->
    <memory unit = 'GiB'>4</memory>
    <vcpu>4</vcpu> <!-- four -->
    <os><type>hvm</type></os>
    <surprise kept='yes'><![CDATA[ a < b ]]></surprise>
    <devices/>
    <qemu:commandline><qemu:arg value='-x'/></qemu:commandline>
</domain>
";

#[test]
fn what_is_made_stands_where_libvirt_would_write_it() {
    let edits = [
        set(pin(1), "cpuset", "0-3"),
        set(pin(0), "cpuset", "0-3"),
        set(steps(&["cputune", "emulatorpin"]), "cpuset", "0-7"),
        set(steps(&["numatune", "memory"]), "mode", "strict"),
        set(steps(&["numatune", "memory"]), "nodeset", "0"),
        set(steps(&["vcpu"]), "placement", "static"),
        Edit::SetText { at: steps(&["iothreads"]), text: "1".to_owned() },
        set(steps(&["devices", "memballoon"]), "model", "none"),
    ];
    insta::assert_snapshot!(edited(MINE, &edits), @r#"
    <?xml version='1.0'?>
    <!-- my VM -->
    <domain type="kvm"  xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
        <name>mine</name>   <!-- its name -->
        <memory unit = 'GiB'>4</memory>
        <vcpu placement="static">4</vcpu> <!-- four -->
        <iothreads>1</iothreads>
        <cputune>
            <vcpupin vcpu="0" cpuset="0-3"/>
            <vcpupin vcpu="1" cpuset="0-3"/>
            <emulatorpin cpuset="0-7"/>
        </cputune>
        <numatune>
            <memory mode="strict" nodeset="0"/>
        </numatune>
        <os><type>hvm</type></os>
        <surprise kept='yes'><![CDATA[ a < b ]]></surprise>
        <devices>
            <memballoon model="none"/>
        </devices>
        <qemu:commandline><qemu:arg value='-x'/></qemu:commandline>
    </domain>
    "#);
}

#[test]
fn values_are_changed_where_they_stand() {
    let change = |edit| edited(MINE, &[edit]);
    assert_eq!(change(set(steps(&["memory"]), "unit", "MiB")), MINE.replace("unit = 'GiB'", "unit = 'MiB'"));
    let text = |at: &[&str], text: &str| Edit::SetText { at: steps(at), text: text.to_owned() };
    assert_eq!(change(text(&["vcpu"], "8")), MINE.replace(">4</vcpu> <!--", ">8</vcpu> <!--"));
    assert_eq!(change(text(&["os", "type"], "a<b&c")), MINE.replace("hvm", "a&lt;b&amp;c"));
    assert_eq!(change(text(&["surprise"], "x")), MINE.replace("<![CDATA[ a < b ]]>", "x"));
    assert_eq!(change(set(vec![], "type", "qemu")), MINE.replace("\"kvm\"", "\"qemu\""));
    assert_eq!(change(set(vec![], "type", "a\"b'\n")), MINE.replace("\"kvm\"", "\"a&quot;b'&#10;\""));
    let remove = |at: &[&str]| Edit::Remove { at: steps(at) };
    assert_eq!(change(remove(&["devices"])), MINE.replace("    <devices/>\n", ""));
    assert_eq!(change(remove(&["os", "type"])), MINE.replace("<type>hvm</type>", ""));
    // The comment on its line stays.
    assert_eq!(change(remove(&["vcpu"])), MINE.replace("<vcpu>4</vcpu>", ""));
    let unset = Edit::RemoveAttribute { at: steps(&["memory"]), name: "unit".to_owned() };
    assert_eq!(change(unset), MINE.replace(" unit = 'GiB'", ""));
    for not_there in [remove(&["nothing", "here"]), Edit::RemoveAttribute { at: vec![], name: "id".to_owned() }] {
        assert_eq!(change(not_there), MINE);
    }
}

#[test]
fn every_element_that_matches_is_removed() {
    let text = "<domain>\r\n\t<a>\r\n\t\t<page size='1'/>\r\n\t\t<page size='2'/>\r\n\t</a>\r\n</domain>";
    assert_eq!(edited(text, &[Edit::Remove { at: steps(&["a", "page"]) }]), "<domain>\r\n\t<a>\r\n\t</a>\r\n</domain>");
    let one = Edit::Remove { at: vec![Step::new("a"), Step::keyed("page", "size", 2)] };
    assert_eq!(edited(text, &[one]), text.replace("\t\t<page size='2'/>\r\n", ""));
    // Line ends and tabs are the file's.
    let made = edited(text, &[set(steps(&["a", "b", "c"]), "d", "e")]);
    assert!(made.contains("\r\n\t\t<b>\r\n\t\t\t<c d='e'/>\r\n\t\t</b>\r\n\t</a>"), "{made:?}");
}

#[test]
fn a_text_in_one_line_stays_in_one_line() {
    let text = "<domain type='kvm'><name>x</name><vcpu>2</vcpu></domain>";
    let made = edited(text, &[set(pin(0), "cpuset", "0")]);
    assert_eq!(made, text.replace("</domain>", "<cputune><vcpupin vcpu='0' cpuset='0'/></cputune></domain>"));
    // One of the first elements on the line of the parent does not make it a text in one line.
    let mixed = "<domain><name>x</name>\n    <vcpu>2</vcpu>\n</domain>";
    let after = "<vcpu>2</vcpu>\n    <cputune>\n        <vcpupin vcpu='0' cpuset='0'/>\n    </cputune>";
    assert_eq!(edited(mixed, &[set(pin(0), "cpuset", "0")]), mixed.replace("<vcpu>2</vcpu>", after));
    assert_eq!(edited("<domain/>", &[set(steps(&["vcpu"]), "a", "b")]), "<domain>\n  <vcpu a='b'/>\n</domain>");
    assert_eq!(edited("<domain></domain>", &[set(steps(&["vcpu"]), "a", "b")]), "<domain>\n  <vcpu a='b'/>\n</domain>");
}

#[test]
fn an_element_that_stands_twice_is_found_in_both() {
    let text =
        "<domain>\n <cputune>\n </cputune>\n <cputune>\n  <vcpupin vcpu='1' cpuset='1'/>\n </cputune>\n</domain>";
    assert_eq!(edited(text, &[set(pin(1), "cpuset", "2")]), text.replace("cpuset='1'", "cpuset='2'"));
    // libvirt's own elements only.
    let other = "<domain xmlns:q='u'>\n  <q:vcpu/>\n</domain>";
    assert_eq!(
        edited(other, &[set(steps(&["vcpu"]), "a", "b")]),
        other.replace("<q:vcpu/>", "<q:vcpu/>\n  <vcpu a='b'/>")
    );
}

#[test]
fn what_an_edit_makes_is_there_for_the_next() {
    let unset = |at| Edit::RemoveAttribute { at, name: "cpuset".to_owned() };
    for at in [steps(&["cputune", "vcpupin"]), steps(&["cputune", "emulatorpin"])] {
        let name = &at[1].element;
        for empty in ["<cputune/>", "<cputune></cputune>", "<cputune> </cputune>", "<cputune><!-- a --></cputune>"] {
            let text = format!("<domain>{empty}</domain>");
            let made = edited(&text, &[set(at.clone(), "cpuset", "3"), unset(at.clone())]);
            assert!(made.contains(&format!("<{name}/>")), "{made}");
            assert_eq!(
                edited(&text, &[set(at.clone(), "cpuset", "3"), Edit::Remove { at: at.clone() }])
                    .matches(name.as_str())
                    .count(),
                0
            );
        }
    }
}

#[test]
fn edits_that_no_xml_could_hold_are_refused() {
    let text = |text: &str| Edit::SetText { at: steps(&["name"]), text: text.to_owned() };
    for (edit, expected) in [
        (set(steps(&["a b"]), "x", "y"), "no name of an element"),
        (set(steps(&["vcpu"]), "x='", "y"), "no name of an element"),
        (set(steps(&["vcpu"]), "x", "\0"), "no character"),
        (text("\u{1b}"), "no character"),
        (set(pin(0), "vcpu", "1"), "tells the element from its siblings"),
        (Edit::Remove { at: vec![] }, "<domain> itself"),
        (Edit::SetText { at: steps(&["os"]), text: "x".to_owned() }, "line 7: domain/os: it has elements in it"),
    ] {
        let error = apply(MINE, "x.xml", std::slice::from_ref(&edit)).expect_err(expected).to_string();
        assert!(error.starts_with("x.xml: ") && error.contains(expected), "{error}");
    }
    assert!(apply("<domain>", "x.xml", &[]).is_err());
    assert!(apply("<network/>", "x.xml", &[]).is_err());
}

/// libvirt reads `vcpu=' 01'` as vCPU 1; a second pin of it would be refused.
#[test]
fn an_element_is_found_by_its_number_however_that_is_written() {
    let text = "<domain><cputune><vcpupin vcpu=' 01' cpuset='7'/></cputune></domain>";
    let after = edited(text, &[set(pin(1), "cpuset", "0-3")]);
    assert_eq!(after, "<domain><cputune><vcpupin vcpu=' 01' cpuset='0-3'/></cputune></domain>");
}

#[test]
fn cells_without_an_id_get_the_number_that_libvirt_gives_them_and_keep_all_else() {
    let text = "<domain><cpu><numa><cell memory='1'/><!-- b --><cell id='1'><cache/></cell><cell \
        cpus='3'/></numa></cpu></domain>";
    let edit = Edit::Number { at: steps(&["cpu", "numa", "cell"]), name: "id".to_owned() };
    let expected = "<domain><cpu><numa><cell memory='1' id='0'/><!-- b --><cell id='1'><cache/></cell><cell cpus='3' \
        id='2'/></numa></cpu></domain>";
    assert_eq!(edited(text, &[edit]), expected);
}

/// Domains as people might have them: elements in any order, comments, unknown ones, quotes of both
/// kinds, any indentation.
fn domains() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        Just("<cputune><vcpupin vcpu='1' cpuset=\"0\"/></cputune>"),
        Just("<cputune/>"),
        Just("<cputune>@@<vcpupin vcpu='0' cpuset='1'/><!-- a -->@@<vcpupin vcpu='2' cpuset='0'/>@</cputune>"),
        Just("<cputune>@@<!-- none --> </cputune>"),
        Just("<os><type arch='x'>hvm</type></os>"),
        Just("<!-- </cputune> ' -->"),
        Just("<strange a='&lt;\"&apos;'>&amp;<b/><![CDATA[</strange>]]></strange>"),
        Just("<?pi some='thing'?>"),
        Just("<q:own xmlns:q='u:v'><q:vcpupin vcpu='0'/></q:own>"),
        Just("<numatune>@@<memory mode='strict' nodeset='0'/>@</numatune>"),
        Just("<cpu mode=\"custom\"><model>x</model></cpu>"),
        Just("<devices>@</devices>"),
    ];
    let blank = prop_oneof![Just("\n  "), Just("\r\n\t"), Just(""), Just(" "), Just("\n\n    ")];
    (proptest::collection::vec((part, blank), 0..8), any::<bool>()).prop_map(|(parts, line)| {
        let mut text = "<domain type='kvm'><name>x</name><memory>1024</memory><vcpu>4</vcpu>".to_owned();
        for (part, blank) in parts {
            text += blank;
            text += &part.replace('@', blank);
        }
        text + if line { "\n</domain>\n" } else { "</domain>" }
    })
}

fn edits() -> impl Strategy<Value = Edit> {
    let value = "[0-9a-z<>&'\" -]{0,6}";
    let path = prop_oneof![
        (0..4_u32).prop_map(pin),
        Just(steps(&["cputune", "emulatorpin"])),
        Just(steps(&["numatune", "memory"])),
        Just(steps(&["cpu", "numa", "made"])),
        Just(steps(&["devices", "memballoon"])),
        Just(steps(&["title"])),
    ];
    (path, value, 0..5).prop_map(|(at, value, kind)| match kind {
        0 => Edit::RemoveAttribute { at, name: "cpuset".to_owned() },
        1 => Edit::Remove { at },
        2 => Edit::SetText { at, text: value },
        3 => Edit::Number { at, name: "id".to_owned() },
        _ => set(at, "cpuset", &value),
    })
}

/// How many elements of the path, from its first, lead to this one; none if it is no element of the
/// path.
fn depth_on_path(element: roxmltree::Node<'_, '_>, path: &[Step]) -> Option<usize> {
    let above: Vec<_> = element.ancestors().filter(roxmltree::Node::is_element).collect();
    let depth = above.len() - 1;
    let matches = |(element, step): (&roxmltree::Node<'_, '_>, &Step)| {
        element.tag_name().namespace().is_none()
            && element.tag_name().name() == step.element
            && step.key.as_ref().is_none_or(|(key, value)| element.attribute(key.as_str()) == Some(value))
    };
    let on_path = (1..=path.len()).contains(&depth) && above.iter().rev().skip(1).zip(path).all(matches);
    on_path.then_some(depth)
}

/// All that a text says, without blanks, but for the elements on the path and what is in the last
/// of them.
fn rest(text: &str, path: &[Step]) -> Vec<String> {
    let document = roxmltree::Document::parse(text).expect("XML");
    let in_target = |node: roxmltree::Node<'_, '_>| {
        node.ancestors().any(|above| above.is_element() && depth_on_path(above, path) == Some(path.len()))
    };
    let on_path = |node: roxmltree::Node<'_, '_>| node.is_element() && depth_on_path(node, path).is_some();
    let blank =
        |node: &roxmltree::Node<'_, '_>| node.is_text() && node.text().is_none_or(|text| text.trim().is_empty());
    let told = document.descendants().filter(|node| !blank(node) && !in_target(*node) && !on_path(*node));
    told.map(|node| {
        let attributes: Vec<_> = node.attributes().map(|a| (a.name().to_owned(), a.value().to_owned())).collect();
        let text = if node.is_element() { None } else { node.text().map(str::trim) };
        format!("{:?} {:?} {text:?} {attributes:?}", node.node_type(), node.tag_name())
    })
    .collect()
}

fn path_of(edit: &Edit) -> &[Step] {
    match edit {
        Edit::SetAttribute { at, .. }
        | Edit::RemoveAttribute { at, .. }
        | Edit::SetText { at, .. }
        | Edit::Number { at, .. }
        | Edit::Remove { at } => at,
    }
}

/// What the text says at the path: attributes without the key, and text.
fn said(text: &str, path: &[Step]) -> Option<(Vec<(String, String)>, String)> {
    let document = roxmltree::Document::parse(text).expect("XML");
    let mut here = vec![document.root_element()];
    for step in path {
        here = here
            .into_iter()
            .flat_map(|parent| parent.children())
            .filter(|child| {
                child.is_element() && child.tag_name().name() == step.element && child.tag_name().namespace().is_none()
            })
            .filter(|child| step.key.as_ref().is_none_or(|(key, value)| child.attribute(key.as_str()) == Some(value)))
            .collect();
    }
    let element = here.first()?;
    let attributes = element.attributes().map(|a| (a.name().to_owned(), a.value().to_owned())).collect();
    let text = element.children().filter_map(|c| if c.is_text() { c.text() } else { None }).collect();
    Some((attributes, text))
}

properties::properties! {
    #[test]
    fn no_edit_changes_no_byte(text in domains()) {
        prop_assert_eq!(edited(&text, &[]), text);
    }

    #[test]
    fn an_edit_does_what_it_says_and_no_more(text in domains(), edit in edits()) {
        let Ok(after) = apply(&text, "x", std::slice::from_ref(&edit)) else {
            // The one thing that may be refused here: a text for an element of elements.
            let text_refused = matches!(edit, Edit::SetText { .. });
            prop_assert!(text_refused);
            return Ok(());
        };
        let path = path_of(&edit);
        prop_assert_eq!(rest(&text, path), rest(&after, path), "{}", after);
        let now = said(&after, path);
        match &edit {
            Edit::SetAttribute { name, value, .. } => {
                let (attributes, _) = now.unwrap();
                prop_assert!(attributes.contains(&(name.clone(), value.clone())), "{}", after);
            }
            Edit::SetText { text, .. } => prop_assert_eq!(now.unwrap().1.trim().to_owned(), text.trim()),
            Edit::RemoveAttribute { name, .. } => prop_assert!(now.is_none_or(|(of, _)| of.iter().all(|(n, _)| n != name))),
            Edit::Number { name, .. } => prop_assert!(now.is_none_or(|(of, _)| of.iter().any(|(n, _)| n == name))),
            Edit::Remove { .. } => prop_assert!(now.is_none()),
        }
        prop_assert_eq!(edited(&after, std::slice::from_ref(&edit)), after, "twice is once");
    }

    #[test]
    fn edits_together_are_edits_one_after_the_other(text in domains(), edits in proptest::collection::vec(edits(), 0..8)) {
        let one_by_one = edits.iter().try_fold(text.clone(), |text, edit| apply(&text, "x", std::slice::from_ref(edit)));
        prop_assert_eq!(apply(&text, "x", &edits), one_by_one);
    }

    #[test]
    fn new_values_together_are_new_values_one_after_the_other(edits in proptest::collection::vec((0..3_u32, 0..3_u32, any::<bool>()), 0..8)) {
        let text = "<domain><cputune><vcpupin vcpu='0' cpuset='0'/><vcpupin vcpu='1' cpuset='1'/></cputune></domain>";
        let edit = |(vcpu, value, by_key): &(u32, u32, bool)| match by_key {
            true => set(pin(*vcpu), "cpuset", &value.to_string()),
            // The first, whichever that is; and what others are looked for by.
            false if *vcpu > 0 => set(steps(&["cputune", "vcpupin"]), "cpuset", &value.to_string()),
            false => set(steps(&["cputune", "vcpupin"]), "vcpu", &value.to_string()),
        };
        let edits: Vec<Edit> = edits.iter().map(edit).collect();
        let one_by_one = edits.iter().fold(text.to_owned(), |text, edit| edited(&text, std::slice::from_ref(edit)));
        prop_assert_eq!(edited(text, &edits), one_by_one);
    }

    #[test]
    fn pins_that_are_set_are_read_back(text in domains(), vcpu in 0..4_u32, first in 0..64_u32, count in 0..64_u32) {
        let list = format!("{first}-{}", first + count);
        let after = edited(&text, &[set(pin(vcpu), "cpuset", &list)]);
        // Two <cputune> of the text may name a vCPU twice, which is refused before and after.
        let (Ok(before), Ok(after)) = (parse(&text, "x"), parse(&after, "x")) else {
            prop_assert!(parse(&text, "x").is_err(), "{}", after);
            return Ok(());
        };
        let mut expected = before;
        expected.vcpu_pins.insert(vcpu, list.parse().expect("a list"));
        prop_assert_eq!(after, expected);
    }

    #[test]
    fn any_text_is_answered(text in "[<>/='\"a-c &;!\\[\\]-]{0,40}") {
        let _ = parse(&text, "x");
        let _ = apply(&format!("<domain>{text}</domain>"), "x", &[set(pin(0), "a", "b"), Edit::Remove { at: steps(&["a"]) }]);
    }
}

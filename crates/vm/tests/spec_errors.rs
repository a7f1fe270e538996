//! Every bad spec gives an error that names the file, the line, the field, the value and what would
//! be valid.

use vm::VmSpec;

/// The error's text for a spec whose lines after the usual three are `lines`.
fn error_of(name: &str, vcpus: &str, memory: &str, lines: &str) -> String {
    let text = format!("name = {name}\nvcpus = {vcpus}\nmemory = {memory}\n{lines}");
    VmSpec::from_toml(&text, "vm.toml").expect_err(&text).to_string()
}

fn with_lines(lines: &str) -> String {
    error_of("\"vm\"", "8", "\"4 GiB\"", lines)
}

#[test]
fn a_plain_spec_is_read_with_its_defaults() {
    let spec = VmSpec::from_toml("name = \"vm\"\nvcpus = 8\nmemory = \"4 GiB\"\n", "vm.toml").expect("valid");
    assert_eq!((spec.vcpus, spec.memory.mib()), (8, 4096));
    assert_eq!(spec.policy, vm::spec::Policy::default());
}

#[test]
fn unusable_sizes_are_refused() {
    let errors = [
        error_of("\"vm\"", "0", "\"4 GiB\"", ""),
        error_of("\"vm\"", "-2", "\"4 GiB\"", ""),
        error_of("\"vm\"", "5000", "\"4 GiB\"", ""),
        error_of("\"vm\"", "8", "\"4 GB\"", ""),
        error_of("\"vm\"", "8", "-4", ""),
        error_of("\"vm\"", "8", "4096", ""),
        error_of("\"vm\"", "8", "2097153", ""),
        error_of("\"vm\"", "8", "\"4.5 GiB\"", ""),
        error_of("\"vm\"", "\"eight\"", "\"4 GiB\"", ""),
    ];
    insta::assert_snapshot!(errors.join("\n"));
}

#[test]
fn unusable_backings_are_refused() {
    let errors = [
        "[memory]\nfill = \"on_touch\"",
        "[backing]\nfill = \"lazily\"",
        "[backing]\nhuge_pages = true",
        "[backing]\nhuge_pages = \"4 MiB\"",
        "[backing]\nhuge_page = \"2 MiB\"",
        "[backing]\nfill = \"on_touch\"\nhuge_pages = \"2 MiB\"",
        "[policy]\nvcpu_binding = \"socket\"",
        "[backing]\nhuge_pages = \"1 GiB\"\n[policy]\nvirtual_nodes = [{ vcpus = 4, memory = \"1536 MiB\" }, \
        { vcpus = 4, memory = \"2560 MiB\" }]",
    ];
    let mut errors = errors.map(with_lines).to_vec();
    let odd = "[backing]\nhuge_pages = \"1 GiB\"";
    errors.extend(["\"2560 MiB\"", "\"512 MiB\""].map(|memory| error_of("\"vm\"", "8", memory, odd)));
    insta::assert_snapshot!(errors.join("\n"));
}

#[test]
fn unusable_guests_are_refused() {
    let errors = [
        "[guest]\npackages = []",
        "[guest]\npackages = [\"hpcc\", \"LAMMPS\"]",
        "[guest]\npackages = [\"--mode=root\"]",
        "[guest]\npackages = [\"lammps\"]\nsuite = \"../x\"",
        "[guest]\npackages = [\"lammps\"]\nimage = \"x\"",
        "[guest]\nimage = \"x\"\nsuite = \"bookworm\"",
        "[guest]\npackages = [\"lammps\"]\nformat = \"raw\"",
        "[guest]\nimage = \"x\"\nformat = \"vmdk\"",
        "[guest]\nimages = \"x\"",
        "[guest]\npackages = [\"lammps\"]\n[boot]\nfrom = \"kernel\"\nkernel = \"bzImage\"",
        "[boot]\nfrom = \"tiny_guest\"\nroot = \"first_disk\"",
        "[boot]\nfrom = \"tiny_guest\"\nroot = \"/dev/vda\"",
    ];
    insta::assert_snapshot!(errors.map(with_lines).join("\n"));
}

#[test]
fn a_guest_is_read_and_written_again() {
    use vm::spec::{Boot, Guest, GuestRoot};
    let text = "name = \"vm\"\nvcpus = 8\nmemory = \"4 GiB\"\n[guest]\npackages = [\"lammps\", \"hpcc\"]\n";
    let mut spec = VmSpec::from_toml(text, "vm.toml").expect("valid");
    let packages = vec!["lammps".into(), "hpcc".into()];
    assert_eq!(spec.guest, Some(Guest { packages, ..Guest::default() }));
    let again =
        |spec: &VmSpec| serde_json::from_str::<VmSpec>(&serde_json::to_string(spec).expect("JSON")).expect("valid");
    assert_eq!(again(&spec), spec);
    // What becomes of it once it is built.
    spec.guest = None;
    spec.boot = Boot::TinyGuest { kernel: None, root: GuestRoot::FirstDisk };
    let disk = vm::spec::Disk {
        path: "/root.ext4".into(),
        format: vm::spec::DiskFormat::Raw,
        snapshot: true,
        read_only: false,
    };
    spec.disks = vec![disk];
    assert_eq!(again(&spec), spec);
    let text = "name = \"vm\"\nvcpus = 8\nmemory = \"4 GiB\"\n[guest]\nimage = \"cloud.qcow2\"\n";
    let spec = VmSpec::from_toml(text, "vm.toml").expect("valid");
    assert_eq!(again(&spec), spec);
    let image = spec.guest.and_then(|guest| guest.image()).expect("an image");
    assert_eq!((image.path.to_str(), image.format), (Some("cloud.qcow2"), vm::spec::DiskFormat::Qcow2));
}

#[test]
fn a_backing_is_read_and_written_again() {
    use vm::spec::{Backing, Fill};
    let text = "name = \"vm\"\nvcpus = 8\nmemory = \"4 GiB\"\n[backing]\nhuge_pages = \"1 GiB\"\n";
    let spec = VmSpec::from_toml(text, "vm.toml").expect("valid");
    let backing = Backing { fill: Fill::AtStart, huge_pages: Some(topology::Bytes::from_mib(1024)) };
    assert_eq!(spec.backing, backing);
    let written = serde_json::to_string(&spec).expect("JSON");
    assert_eq!(serde_json::from_str::<VmSpec>(&written).expect("valid"), spec);
}

#[test]
fn growth_that_cannot_be_is_refused() {
    let nodes = |first: &str, second: &str| {
        format!(
            "[policy]\nvirtual_nodes = [{{ vcpus = 4, memory = \"2 GiB\"{first} }}, {{ vcpus = 4, memory = \
            \"2 GiB\"{second} }}]"
        )
    };
    let grows = "max_vcpus = 12\nmax_memory = \"8 GiB\"\n";
    let errors = [
        "max_vcpus = 7".to_owned(),
        "max_vcpus = 4097".to_owned(),
        "max_vcpus = -1".to_owned(),
        "max_memory = \"3 GiB\"".to_owned(),
        "max_memory = \"4097 MiB\"".to_owned(),
        "max_memory = 4297064449".to_owned(),
        "max_memory = \"8 GB\"".to_owned(),
        "max_vcpus = 12\n[policy]\ncores_per_socket = 8".to_owned(),
        "max_vcpus = 1000\n[policy]\nmax_vcpus_per_node = 4".to_owned(),
        nodes(", max_vcpus = 3", ""),
        nodes(", max_memory = \"1 GiB\"", ""),
        nodes(", max_memory = \"3 GiB\"", ""),
        format!("{grows}{}", nodes("", "")),
        format!("{grows}{}", nodes(", max_vcpus = 8", "")),
        format!("max_vcpus = 12\n{}\nmax_vcpus_per_node = 6", nodes(", max_vcpus = 8", "")),
        format!("max_vcpus = 10\n{}\ncores_per_socket = 5", nodes(", max_vcpus = 6", "")),
    ]
    .map(|lines| with_lines(&lines));
    insta::assert_snapshot!(errors.join("\n"));
}

#[test]
fn growth_that_can_be_is_read_and_written_again() {
    let text = "name = \"vm\"\nvcpus = 8\nmax_vcpus = 12\nmemory = \"4 GiB\"\nmax_memory = \"8 \
        GiB\"\n[policy]\ncores_per_socket = 4\nvirtual_nodes = [{ vcpus = 4, memory = \"2 GiB\", max_vcpus = \
        8 }, { vcpus = 4, memory = \"2 GiB\", max_memory = \"6 GiB\" }]";
    let spec = VmSpec::from_toml(text, "vm.toml").expect("valid");
    assert_eq!((spec.most_vcpus(), spec.most_memory().mib(), spec.may_grow()), (12, 8192, true));
    let written = serde_json::to_string(&spec).expect("JSON");
    assert_eq!(serde_json::from_str::<VmSpec>(&written).expect("a spec"), spec);
}

#[test]
fn odd_names_are_refused() {
    let errors = ["\"\"", "\"a/b\"", "\"../up\"", "\"two words\"", "\"-rf\"", &format!("\"{}\"", "x".repeat(65)), "7"]
        .map(|name| error_of(name, "8", "\"4 GiB\"", ""));
    insta::assert_snapshot!(errors.join("\n"));
}

#[test]
fn unusable_policies_are_refused() {
    let errors = [
        "vcpu = 8",
        "run_as = 1000",
        "run_as = \"\"",
        "run_as = \"a:b\"",
        "[policy]\nprefer_htt = true",
        "[policy]\nprefer_ht = \"yes\"",
        "[policy]\ncores_per_socket = 3",
        "[policy]\ncores_per_socket = 0",
        "[policy]\nmax_vcpus_per_node = 0",
        "[policy]\nnode_affinity = \"\"",
        "[policy]\nnode_affinity = \"1-0\"",
        "[policy]\nnode_affinity = [0, 1]",
        "[policy]\nplacement = \"pack\"",
        "[policy]\nmemory = \"local\"",
        "[policy]\ncache = \"near\"",
        "[policy]\nvcpu_binding = \"core\"\ncache = \"own\"",
    ]
    .map(with_lines);
    insta::assert_snapshot!(errors.join("\n"));
}

#[test]
fn virtual_nodes_that_do_not_add_up_are_refused() {
    let errors = [
        "[policy]\nvirtual_nodes = []",
        "[policy]\nvirtual_nodes = [{ vcpus = 4, memory = \"2 GiB\" }]",
        "[policy]\nvirtual_nodes = [{ vcpus = 4, memory = \"2 GiB\" }, { vcpus = 4, memory = \"1 GiB\" }]",
        "[policy]\nvirtual_nodes = [{ vcpus = 8, memory = \"4 GiB\" }, { vcpus = 0, memory = \"0 B\" }]",
        "[policy]\nvirtual_nodes = [{ vcpus = 8, memory = \"4 GB\" }]",
        "[policy]\nvirtual_nodes = [{ cpus = 8, memory = \"4 GiB\" }]",
        "[policy]\nvnuma = false\nvirtual_nodes = [{ vcpus = 8, memory = \"4 GiB\" }]",
        "[policy]\ncores_per_socket = 4\nvirtual_nodes = [{ vcpus = 6, memory = \"3 GiB\" }, \
        { vcpus = 2, memory = \"1 GiB\" }]",
        "[policy]\nmax_vcpus_per_node = 4\nvirtual_nodes = [{ vcpus = 8, memory = \"4 GiB\" }]",
    ]
    .map(with_lines);
    insta::assert_snapshot!(errors.join("\n"));
}

#[test]
fn unusable_devices_are_refused() {
    let errors = [
        "[boot]\nfrom = \"disk\"",
        "[boot]\nfrom = \"floppy\"",
        "[boot]\nfrom = \"kernel\"",
        "[boot]\nfrom = \"kernel\"\nkernel = \"bzImage\"\ninitramfs = \"initrd\"",
        "[[disk]]\npath = \"a.img\"",
        "[[disk]]\npath = \"a.img\"\nformat = \"vmdk\"",
        "[[disk]]\npath = \"a.img\"\nformat = \"raw\"\n[[disk]]\npath = \"a.img\"\nformat = \"raw\"",
        "[[network]]\nkind = \"user\"\nforward = [{ host = 2222, guest = 22 }, { host = 2222, guest = 80 }]",
        "[[network]]\nkind = \"user\"\nforward = [{ host = 70000, guest = 22 }]",
        "[[network]]\nkind = \"switch\"",
        "[[network]]\nkind = \"switch\"\nswitch = \"LAN 1\"",
        "[[network]]\nkind = \"switch\"\nswitch = \"lan\"\nmodel = \"ne2000\"",
        "[[network]]\nkind = \"switch\"\nswitch = \"lan\"\nmodel = \"e1000\"\nqueues = 2",
        "[[network]]\nkind = \"switch\"\nswitch = \"lan\"\nqueues = 0",
        "[[network]]\nkind = \"switch\"\nswitch = \"lan\"\nmac = \"01:00:5e:00:00:01\"",
        "[console]\nto = \"printer\"",
        "[console]\nto = \"file\"",
        "name = \"twice\"",
        "[policy\n",
    ]
    .map(with_lines);
    insta::assert_snapshot!(errors.join("\n"));
}

#[test]
fn fields_beside_a_choice_that_has_none_are_refused() {
    for (field, problem) in [
        ("kernel = \"bzImage\"", "unknown field `kernel`, expected `firmware`"),
        ("firmware = \"OVMF.fd\"", "unknown variant `OVMF.fd`, expected `bios` or `uefi`"),
    ] {
        let disk = "[[disk]]\npath = \"a.img\"\nformat = \"raw\"";
        let error = with_lines(&format!("boot = {{ from = \"disk\", {field} }}\n{disk}"));
        assert!(error.contains("vm.toml:4: boot") && error.contains(problem), "{error}");
    }
    let error = with_lines("console = { to = \"terminal\", path = \"a.log\" }");
    assert!(error.contains("console.path = \"a.log\"") && error.contains("to = \"file\""), "{error}");
    let error = with_lines("console = { to = \"file\", path = \"\" }");
    assert!(error.contains("console.path") && error.contains("empty"), "{error}");
}

#[test]
fn more_disks_than_a_machine_has_room_for_are_refused_before_they_are_compared() {
    let disk = |number: u32| format!("[[disk]]\npath = \"d{number}\"\nformat = \"raw\"\n");
    let disks: String = (0..20_000).map(disk).collect();
    let text = format!("name = \"vm\"\nvcpus = 2\nmemory = \"1 GiB\"\n{disks}");
    let error = VmSpec::from_toml(&text, "vm.toml").expect_err("too many").to_string();
    assert!(error.contains("disk: a VM has at most 256 disks; 20000 are written"), "{error}");
}

#[test]
fn what_does_not_go_with_memory_by_bandwidth_is_refused() {
    for (lines, field) in [
        ("[policy]\nmemory = \"interleave\"", "policy.memory"),
        ("[policy]\n[backing]\nhuge_pages = \"2 MiB\"", "backing.huge_pages"),
        ("[policy]\n[backing]\nfill = \"on_touch\"", "backing.fill"),
        ("max_memory = \"8 GiB\"\n[policy]", "max_memory"),
    ] {
        let asked = lines.replace("[policy]", "[policy]\nfar_memory = \"by_bandwidth\"");
        let error = with_lines(&asked);
        assert!(error.contains(field) && error.contains("by_bandwidth"), "{error}");
        // Alone it is valid.
        let text = format!("name = \"vm\"\nvcpus = 8\nmemory = \"4 GiB\"\n{lines}\n");
        VmSpec::from_toml(&text, "vm.toml").expect(&text);
    }
    let error = with_lines("[policy]\nfar_memory = \"always\"");
    assert!(error.contains("never") && error.contains("by_bandwidth"), "{error}");
}

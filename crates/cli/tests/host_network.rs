//! Bridges and cards of the host, in a network namespace that stands for the host's: nothing of
//! this machine's own network is touched.

use crate::common::{Place, lacks, no_qemu, tiny_guest, unique, within_seconds};
use network::Fabric;
use network::host::Owner;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// Ends what a command said, and has its exit code.
const END: &str = "=of-the-command=";

/// A shell in a network namespace with a bridge `br0` and a cable from `c0` to `c1`.
pub(crate) struct Host {
    shell: Child,
    asks: ChildStdin,
    says: BufReader<ChildStdout>,
    pub(crate) place: Place,
}

impl Host {
    pub(crate) fn new(test: &str) -> Option<Self> {
        if ["unshare", "ip", "pkill", "bash"].iter().any(|program| lacks(test, program)) {
            return None;
        }
        let place = Place::new();
        let mut command = Command::new("unshare");
        let namespaces = if linux::sys::effective_user_id() == 0 { "-n" } else { "-Urn" };
        command.args([namespaces, "bash"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.env("HOMENODE_RUNTIME_DIR", place.runtime()).env_remove("HOMENODE_STATE_DIR");
        command.env("H", env!("CARGO_BIN_EXE_homenode"));
        let mut shell = command.spawn().expect("unshare");
        let (asks, says) = (shell.stdin.take().expect("piped"), shell.stdout.take().expect("piped"));
        let mut host = Self { shell, asks, says: BufReader::new(says), place };
        let made = host.says(
            "ip link add br0 type bridge && ip link set br0 up && ip link add c0 type veth peer name c1 && \
             ip link set c0 up && ip link set c1 up",
        );
        if made.0 != 0 {
            eprintln!("SKIPPED {test}: no network namespace with a bridge in it: {}", made.1);
            return None;
        }
        Some(host)
    }

    /// The exit code of a command in there, and what it said.
    pub(crate) fn says(&mut self, command: &str) -> (i32, String) {
        // A shell that has ended says nothing more.
        let _ = writeln!(self.asks, "{{ {command}; }} 2>&1 </dev/null; echo {END}$?");
        let (mut said, mut line) = (String::new(), String::new());
        loop {
            line.clear();
            if self.says.read_line(&mut line).expect("text") == 0 {
                return (-1, said);
            }
            if let Some((before, code)) = line.split_once(END) {
                said += before;
                return (code.trim().parse().expect("a code"), said);
            }
            said += &line;
        }
    }

    pub(crate) fn ok(&mut self, command: &str) -> String {
        let (code, said) = self.says(command);
        assert_eq!(code, 0, "{command}: {said}");
        said
    }

    pub(crate) fn refused(&mut self, command: &str, says: &str) {
        let (code, said) = self.says(command);
        assert!(code == 2 && said.contains(says), "{command}: {code}: {said}");
    }

    /// All interfaces. A bridge without ports is up or down by what it had before.
    pub(crate) fn interfaces(&mut self) -> String {
        self.ok("ip -br link show | awk '{print $1}' | sort")
    }

    pub(crate) fn spec(&self, vm: &str, lines: &str) -> PathBuf {
        let path = self.place.path(&format!("{vm}.toml"));
        let text = format!("name = \"{vm}\"\nvcpus = 1\nmemory = \"128 MiB\"\n\n[[network]]\n{lines}\n");
        std::fs::write(&path, text).expect("a file");
        path
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Keepers that a test left end when they see that their directory has gone.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// A card on a switch that `homenode switch create` made.
fn tap_of(directory: &Path, switch: &str) -> File {
    let mut fabric = Fabric::kept(directory).expect("a keeper").expect("switches");
    let mut taps = fabric.tap(&switch.parse().expect("a name"), "test/0", 1).expect("a tap");
    File::from(taps.remove(0))
}

/// Whether a question of ARP comes, while somebody makes the host ask.
fn arrives(mut tap: File, mut asks: impl FnMut() -> (i32, String)) -> bool {
    let mut frame = [0u8; 4096];
    within_seconds(20, || {
        asks();
        while linux::sys::wait_readable(&tap, Duration::from_millis(50)).expect("a tap that is open") {
            let bytes = tap.read(&mut frame).expect("a frame");
            // Behind the 10 bytes of virtio-net: two addresses of 6 bytes, and the protocol.
            if bytes >= 24 && frame[22..24] == [0x08, 0x06] {
                return true;
            }
        }
        false
    })
}

#[test]
fn switches_are_joined_to_bridges_and_cards_and_leave_nothing_when_their_keeper_is_killed() {
    let test = "switches_are_joined_to_bridges_and_cards_and_leave_nothing_when_their_keeper_is_killed";
    let Some(mut host) = Host::new(test) else { return };
    let before = host.interfaces();
    host.ok("$H switch create lan --bridge br0");
    let joined = host.ok("ip -o link show master br0");
    assert!(joined.contains("homenode:lan") || joined.contains("hn"), "{joined}");
    host.ok("$H switch create wan --card c0");
    let listed = host.ok("$H switch list");
    assert!(listed.contains("bridge br0") && listed.contains("card c0"), "{listed}");
    host.refused("$H switch create ring --uplink lan --bridge br0", "would make a ring");
    host.refused("$H switch create x --bridge br9", "bridge br9: this host has no such bridge; it has br0");
    host.refused("$H switch create x --card c9", "card c9: this host has no such card");
    host.refused("$H switch create x --card c0", "another switch or a macvtap device has it");
    host.ok("ip address add 198.51.100.1/24 dev c1");
    host.refused("$H switch create x --card c1", "the host has the address 198.51.100.1 on it");
    host.ok("ip address flush dev c1");
    for (switch, outside) in [("lan", "br0"), ("wan", "c1")] {
        let tap = tap_of(&host.place.runtime().join(".switches"), switch);
        // The host asks everybody for an address: that frame reaches a card on the switch.
        host.ok(&format!("ip address add 198.51.100.1/24 dev {outside}"));
        let asks = || host.says("ip neighbour flush all; exec 3<>/dev/udp/198.51.100.2/9; echo x >&3");
        assert!(arrives(tap, asks), "nothing comes from {outside} to {switch}");
        host.ok(&format!("ip address flush dev {outside}"));
    }
    let directory = host.place.runtime();
    host.ok(&format!("pkill -KILL -f 'switch keep {}'", directory.display()));
    assert!(within_seconds(20, || host.interfaces() == before), "{before}\n{}", host.interfaces());
    assert!(host.ok("$H switch list").starts_with("There is no switch."));
}

#[test]
fn a_vm_on_a_bridge_and_on_a_card_leaves_neither_device_when_it_is_killed() {
    let test = "a_vm_on_a_bridge_and_on_a_card_leaves_neither_device_when_it_is_killed";
    if no_qemu(test) || tiny_guest(test).is_none() {
        return;
    }
    let Some(mut host) = Host::new(test) else { return };
    let (before, vm) = (host.interfaces(), unique("host-network"));
    let cards = "kind = \"bridge\"\nbridge = \"br0\"\n\n[[network]]\nkind = \"macvtap\"\ncard = \"c0\"";
    let spec = host.spec(&vm, cards);
    let run = format!("$H run {} --daemonize", spec.display());
    let (code, said) = host.says(&run);
    if code != 0 && said.contains("/dev/tap") {
        return eprintln!("SKIPPED {test}: {said}");
    }
    assert_eq!(code, 0, "{said}");
    let on_bridge = host.ok("ip -o link show master br0");
    assert!(on_bridge.contains("hntap0"), "{on_bridge}");
    let on_card = host.ok("ip -o link show type macvtap");
    assert!(on_card.contains(&format!("homenode:{vm}/1")) || on_card.contains("hm"), "{on_card}");
    // Nothing is swept while it runs.
    host.ok("$H switch list");
    assert_eq!(host.ok("ip -o link show type macvtap"), on_card);
    host.ok(&format!("pkill -KILL -f -- '-name {vm},'"));
    let gone = |host: &mut Host| !host.ok("ip -o link").contains("hntap0");
    assert!(within_seconds(20, || gone(&mut host)), "the tap stays");
    // A macvtap device does not go by itself: whoever looks next takes it away.
    assert!(within_seconds(20, || {
        host.ok("$H switch list");
        host.interfaces() == before
    }));
    host.ok(&format!("$H vm delete {vm}"));
    for (lines, says) in [
        ("kind = \"bridge\"\nbridge = \"br9\"", "network[0].bridge: bridge br9: this host has no such bridge"),
        ("kind = \"macvtap\"\ncard = \"c9\"", "network[0].card: card c9: this host has no such card"),
    ] {
        let spec = host.spec(&vm, lines);
        host.refused(&format!("$H run {}", spec.display()), says);
    }
    assert_eq!(host.interfaces(), before);
}

#[test]
fn doctor_says_which_networks_there_are() {
    let Some(mut host) = Host::new("doctor_says_which_networks_there_are") else { return };
    let before = host.interfaces();
    let said = host.ok("$H doctor --network");
    for kind in ["kind = \"user\"", "kind = \"switch\"", "kind = \"bridge\"", "kind = \"macvtap\"", "vhost"] {
        assert!(said.contains(kind), "{said}");
    }
    let json = host.ok("$H doctor --network --json");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let kinds = json["kinds"].as_array().expect("a list");
    let bridge = kinds.iter().find(|kind| kind["name"] == "kind = \"bridge\"").expect("bridges");
    // There is one in here, and this user is root in here.
    assert_eq!(bridge["lacks"], serde_json::Value::Null, "{json}");
    assert_eq!(host.interfaces(), before);
}

#[test]
fn without_tap_devices_or_namespaces_it_is_said_what_works() {
    let test = "without_tap_devices_or_namespaces_it_is_said_what_works";
    if lacks(test, "setpriv") || lacks(test, "vde_switch") {
        return;
    }
    let Some(mut host) = Host::new(test) else { return };
    // Nobody in there makes a namespace any more.
    let without = "setpriv --bounding-set -sys_admin --inh-caps -sys_admin $H switch";
    let inside = |command: &str| {
        let none = "echo 0 >/proc/sys/user/max_user_namespaces";
        format!("unshare -Ur bash -c \"{none} && {command}\"")
    };
    let (code, said) = host.says(&inside(&format!("{without} create lan")));
    assert!(code == 1 && said.contains("cannot make a network namespace: "), "{code}: {said}");
    assert!(said.contains("user.max_user_namespaces above 0") && said.contains("kind \"vde\" needs neither"), "{said}");
    host.ok(&inside(&format!("{without} create lan --kind vde && {without} delete lan")));
    let guest = tiny_guest(test);
    if no_qemu(test) || guest.is_none() {
        return;
    }
    let vm = unique("no-tun");
    let spec = host.spec(&vm, "kind = \"switch\"\nswitch = \"lan\"");
    let commands = |create: &str, code: u32| {
        format!(
            "unshare -m bash -c \"mount -t tmpfs none /dev/net && {create} && $H run {} --daemonize; code=\\$?; \
             $H vm delete {vm} --force; $H switch delete lan; test \\$code = {code}\"",
            spec.display()
        )
    };
    let said = host.ok(&commands("$H switch create lan", 1));
    let expected = format!("cannot make a tap device for {vm}/0: /dev/net/tun: No such file or directory");
    assert!(said.contains(&expected) && said.contains("`modprobe tun` makes it; a switch of kind \"vde\""), "{said}");
    host.ok(&commands("$H switch create lan --kind vde", 0));
}

#[test]
fn an_address_that_another_vm_has_is_named_before_the_vm_starts() {
    let test = "an_address_that_another_vm_has_is_named_before_the_vm_starts";
    if no_qemu(test) || tiny_guest(test).is_none() {
        return;
    }
    let Some(mut host) = Host::new(test) else { return };
    host.ok("$H switch create lan");
    let directory = host.place.runtime().join(".switches");
    let mut fabric = Fabric::kept(&directory).expect("a keeper").expect("switches");
    let (lan, mac) = ("lan".parse().expect("a name"), "52:54:00:00:00:01");
    let owner = Owner { vm: "other", card: 2, mac: mac.parse().expect("an address"), queues: 1 };
    let tap = fabric.plug_card(&lan, owner).expect("a tap");
    // The keeper serves one at a time.
    drop(fabric);
    let lines = format!("kind = \"switch\"\nswitch = \"lan\"\nmac = \"{mac}\"");
    let spec = host.spec(&unique("taken"), &lines);
    let taken = "network[0].mac: 52:54:00:00:00:01 is the address of VM other/2 on switch lan";
    host.refused(&format!("$H run {} --daemonize", spec.display()), taken);
    host.refused("$H switch delete lan", "in use by VM other/2");
    drop(tap);
    assert!(within_seconds(20, || host.says("$H switch delete lan").0 == 0), "the switch stays in use");
}

/// QEMU's helper as an administrator makes it ready, beside the real one, and tap devices that are
/// open to all, as udev leaves them: only this test sees it.
const WITH_HELPER: &str = "mount --make-rprivate / && mount -t tmpfs none /mnt && \
    mknod -m 666 /mnt/tun c 10 200 && mount --bind /mnt/tun /dev/net/tun && \
    cp /usr/lib/qemu/qemu-bridge-helper /mnt/helper && chmod 4755 /mnt/helper && \
    mount --bind /mnt/helper /usr/lib/qemu/qemu-bridge-helper && \
    cp -r /etc /mnt/etc && mkdir -p /mnt/etc/qemu && echo \"allow $bridge\" >/mnt/etc/qemu/bridge.conf && \
    mount --bind /mnt/etc /etc && mkdir -m 777 /mnt/place";

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn a_user_without_rights_plugs_a_vm_into_a_bridge_by_qemus_helper() {
    let test = "a_user_without_rights_plugs_a_vm_into_a_bridge_by_qemus_helper";
    let helper = Path::new("/usr/lib/qemu/qemu-bridge-helper");
    if linux::sys::effective_user_id() != 0 || !helper.exists() || lacks(test, "setpriv") {
        return eprintln!("SKIPPED {test}: it needs root, setpriv and {}", helper.display());
    }
    let guest = tiny_guest(test);
    if no_qemu(test) || guest.is_none() {
        return;
    }
    let Some(mut host) = Host::new(test) else { return };
    let vm = unique("by-helper");
    let spec = host.spec(&vm, "kind = \"bridge\"\nbridge = \"br0\"");
    // Files of the build that another user may read.
    let files = "cp $H /mnt/homenode && cp -r $(dirname $H)/../guest /mnt/guest && chmod -R a+rX /mnt/guest";
    let user = "setpriv --reuid 4321 --regid 4321 --clear-groups env HOMENODE_RUNTIME_DIR=/mnt/place/runtime \
        HOMENODE_GUEST_DIR=/mnt/guest HOME=/mnt/place /mnt/homenode";
    let script = |bridge: &str, commands: &str| {
        format!(
            "bridge={bridge} unshare -m bash -c '{WITH_HELPER} && {files} && cp {} /mnt/vm.toml && {commands}'",
            spec.display()
        )
    };
    let said = host.ok(&script(
        "br0",
        &format!("{user} run /mnt/vm.toml --daemonize && ip -o link show master br0 && {user} vm delete {vm} --force"),
    ));
    assert!(said.contains("plugged into br0 by /usr/lib/qemu/qemu-bridge-helper"), "{said}");
    assert!(said.contains("tap0"), "{said}");
    let gone = |host: &mut Host| host.ok("ip -o link show master br0").is_empty();
    assert!(within_seconds(60, || gone(&mut host)), "the tap stays");
    let (code, said) = host.says(&script("br9", &format!("{user} run /mnt/vm.toml")));
    assert!(code != 0 && said.contains("access denied by acl file"), "{code}: {said}");
    assert!(said.contains("allow br0"), "{said}");
}

#[test]
fn a_bridge_of_open_vswitch_is_refused_with_what_joins_it() {
    let test = "a_bridge_of_open_vswitch_is_refused_with_what_joins_it";
    if ["ovsdb-server", "ovsdb-tool", "ovs-vsctl"].iter().any(|program| lacks(test, program)) {
        return;
    }
    let Some(mut host) = Host::new(test) else { return };
    let place = host.place.path("ovs").display().to_string();
    host.ok(&format!(
        "mkdir {place} && export OVS_RUNDIR={place} && \
         ovsdb-tool create {place}/conf.db /usr/share/openvswitch/vswitch.ovsschema"
    ));
    host.ok(&format!(
        "ovsdb-server {place}/conf.db --remote=punix:{place}/db.sock --unixctl={place}/control --pidfile={place}/pid \
         --detach --no-chdir"
    ));
    let end = |host: &mut Host| host.says(&format!("kill $(cat {place}/pid)"));
    let (code, said) = host.says("ovs-vsctl --no-wait init && ovs-vsctl --no-wait add-br ovs0");
    let before = host.interfaces();
    let refused = host.says("$H switch create lan --bridge ovs0");
    let other = host.says("$H switch create lan --bridge ovs1");
    let after = host.interfaces();
    end(&mut host);
    assert_eq!(code, 0, "{said}");
    assert_eq!(refused.0, 2, "{}", refused.1);
    assert!(refused.1.contains("bridge ovs0 is one of Open vSwitch"), "{}", refused.1);
    assert!(refused.1.contains("ovs-vsctl add-port ovs0 br-vms1"), "{}", refused.1);
    assert!(other.1.contains("bridge ovs1: this host has no such bridge; it has br0"), "{}", other.1);
    assert_eq!(after, before);
}

//! A real libvirtd with a real QEMU.

use crate::libvirtd::Libvirtd;
use libvirt::{Connection, DomainState, local_process};

const XML: &str = "<domain type='qemu'><name>NAME</name><memory unit='MiB'>64</memory><vcpu>2</vcpu>\
    <os><type arch='x86_64' machine='q35'>hvm</type></os>\
    <cpu mode='custom'><model>qemu64</model></cpu></domain>";

#[test]
fn a_domain_lives_from_definition_to_its_end() {
    let Some(libvirtd) = Libvirtd::start("a_domain_lives_from_definition_to_its_end") else { return };
    let connection = Connection::new(Some(&libvirtd.uri()));
    assert_eq!(connection.domains().unwrap(), []);
    // A name that needs care, and that no other run of the tests has.
    let name = format!("hn a;b {}", std::process::id());
    connection.define(&XML.replace("NAME", &name)).unwrap();
    let defined = connection.find(&name).unwrap().expect("it was defined");
    assert_eq!((defined.state, defined.id, defined.persistent), (DomainState::ShutOff, None, true));
    assert_eq!(local_process(&defined.uuid).unwrap(), None);

    connection.ask(&["start", "--domain", &defined.uuid, "--paused"]).unwrap();
    assert_eq!(connection.state(&defined.uuid).unwrap(), DomainState::Paused);
    connection.ask(&["resume", "--domain", &defined.uuid]).unwrap();
    let running = connection.find(&defined.uuid).unwrap().expect("it is there");
    assert_eq!((running.state, running.vcpus), (DomainState::Running, 2));
    assert!(running.id.is_some() && running.state.has_process());
    let process = local_process(&defined.uuid).unwrap().expect("its QEMU runs here");
    assert_eq!(process.key.name, name);
    assert_eq!(process.threads.vcpus.len(), 2, "{process:?}");
    assert!(connection.ask(&["start", "--domain", &defined.uuid]).is_err(), "it runs already");

    connection.destroy(&defined.uuid).unwrap();
    connection.ask(&["undefine", "--domain", &defined.uuid]).unwrap();
    assert_eq!(connection.domains().unwrap(), []);
}

//! A real `virsh` with libvirt's own test driver, which needs no daemon: two NUMA nodes and one
//! running domain, all of them invented.

use libvirt::{Connection, DomainState, LibvirtError};
use std::path::{Path, PathBuf};
use std::time::Duration;

fn no_virsh(test: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|directory| directory.join("virsh").exists());
    if !found {
        eprintln!("SKIPPED {test}: no virsh in PATH");
    }
    !found
}

/// A host of the test driver with these domains; each call of `virsh` begins with it anew.
fn host(directory: &Path, names: &[&str]) -> Connection {
    let domain = |(index, name): (usize, &&str)| {
        format!(
            "<domain type='test'><name>{name}</name><uuid>00000000-0000-0000-0000-{index:012}</uuid><memory>4096</memory>\
             <vcpu>2</vcpu><os><type>hvm</type></os></domain>"
        )
    };
    let domains: String = names.iter().enumerate().map(domain).collect();
    let path: PathBuf = directory.join("node.xml");
    std::fs::write(&path, format!("<node>{domains}</node>")).expect("a file");
    Connection::new(Some(&format!("test://{}", path.display())))
}

#[test]
fn the_domain_of_the_test_driver_is_listed() {
    if no_virsh("the_domain_of_the_test_driver_is_listed") {
        return;
    }
    let connection = Connection::new(Some("test:///default"));
    assert_eq!(connection.effective_uri().unwrap(), "test:///default");
    let domains = connection.domains().unwrap();
    let [domain] = domains.as_slice() else { panic!("{domains:?}") };
    assert_eq!((domain.name.as_str(), domain.state, domain.vcpus), ("test", DomainState::Running, 2));
    assert_eq!((domain.memory, domain.persistent), (topology::Bytes::from_mib(2048), true)); // 2097152 KiB
    assert!(connection.domain_xml(&domain.uuid).unwrap().contains("<name>test</name>"));
    assert_eq!(connection.state(&domain.uuid).unwrap(), DomainState::Running);
}

#[test]
fn names_with_odd_characters_mean_the_domain_that_has_them() {
    if no_virsh("names_with_odd_characters_mean_the_domain_that_has_them") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let names = ["2", "it's; list", "--all", " a &quot;b&quot; ", "ünï", "State: x"];
    let connection = host(directory.path(), &names);
    let found: Vec<String> = connection.domains().unwrap().into_iter().map(|domain| domain.name).collect();
    assert_eq!(found, [" a \"b\" ", "--all", "2", "State: x", "it's; list", "ünï"]);
    // Domain number 2 is another one than the domain named 2.
    assert_eq!(connection.find("2").unwrap().unwrap().uuid, "00000000-0000-0000-0000-000000000000");
    assert_eq!(connection.find("nobody").unwrap(), None);
}

#[test]
fn a_domain_cannot_end_its_own_answer() {
    if no_virsh("a_domain_cannot_end_its_own_answer") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    // What stands between answers may be read in homenode's source, but for a number.
    let connection = host(directory.path(), &["-- homenode: end of answer --", "error: failed to get domain"]);
    let domains = connection.domains().unwrap();
    assert_eq!(domains.len(), 2);
    let uuids: Vec<&str> = domains.iter().map(|domain| domain.uuid.as_str()).collect();
    let texts = connection.domain_xmls(&uuids).unwrap();
    assert!(texts.iter().zip(&uuids).all(|(text, uuid)| text.as_ref().unwrap().contains(*uuid)), "{texts:?}");
}

#[test]
fn a_batch_answers_command_by_command() {
    if no_virsh("a_batch_answers_command_by_command") {
        return;
    }
    let connection = Connection::new(Some("test:///default"));
    let words = |command: &[&str]| command.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    let mut commands = vec![words(&["domname", "1"]), words(&["domstate", "no such"]), words(&["echo", "it's; \"x\""])];
    commands.extend((0..2000).map(|index| words(&["echo", &format!("{index:0>60}")]))); // more than one batch
    let answers = connection.ask_all(&commands).unwrap();
    assert_eq!(answers.len(), 2003);
    assert_eq!(answers[0].as_deref().unwrap().trim(), "test");
    assert!(answers[1].as_ref().is_err_and(LibvirtError::is_no_such_domain), "{:?}", answers[1]);
    assert_eq!(answers[2].as_deref().unwrap(), "it's; \"x\"");
    assert!(
        answers.iter().skip(3).enumerate().all(|(index, answer)| answer.as_deref() == Ok(&format!("{index:0>60}")))
    );
}

#[test]
fn what_the_user_can_mend_is_told_apart() {
    if no_virsh("what_the_user_can_mend_is_told_apart") {
        return;
    }
    let failure = |uri: &str| Connection::new(Some(uri)).domains().unwrap_err();
    let bad = failure("::::");
    assert!(bad.is_bad_input(), "{bad}");
    let none = failure("qemu+unix:///session?socket=/no/such/socket");
    assert!(matches!(none, LibvirtError::NoDaemon { .. }), "{none}");
    let in_a_batch = Connection::new(Some("qemu+unix:///session?socket=/no/such/socket"));
    let in_a_batch = in_a_batch.domain_xmls(&["a", "b"]).unwrap_err();
    assert!(matches!(in_a_batch, LibvirtError::NoDaemon { .. }), "{in_a_batch}");
    let connection = Connection::new(Some("test:///default"));
    let gone = connection.domain_xml("nobody").unwrap_err();
    assert!(gone.is_no_such_domain(), "{gone}");
    let refused = connection.define("<domain type='test'><name>a</name></domain>").unwrap_err();
    assert!(matches!(refused, LibvirtError::Refused { .. }), "{refused}");
    let unknown = connection.ask_all(&[vec!["no-such-command".to_owned()]]).unwrap_err();
    assert!(unknown.to_string().contains("unknown command"), "{unknown}");
}

#[test]
fn a_libvirt_that_does_not_answer_is_given_up() {
    if no_virsh("a_libvirt_that_does_not_answer_is_given_up") {
        return;
    }
    // Somebody listens there and never says a word.
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let connection = Connection::new(Some(&format!("qemu+unix:///session?socket={}", socket.display())));
    let error = connection.with_limit(Duration::from_millis(500)).domains().unwrap_err();
    assert!(matches!(error, LibvirtError::Timeout { .. }), "{error}");
    assert!(error.to_string().contains("list --all --uuid: no answer"), "{error}");
}

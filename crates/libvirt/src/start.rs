//! Starting a VM through libvirt, so that either it runs and libvirt keeps it, or nothing of it is
//! left.

use crate::connection::STDIN;
use crate::domains::START;
use crate::{Connection, LibvirtError, ListedDomain};
use roxmltree::Document;
use stacks::domain::{DomainError, Edit, Step, apply};
use std::path::PathBuf;
use vm::{Accelerator, Stated, TcgThreads};

/// What runs the guests of this libvirt: the CPU itself only if its QEMU may use `/dev/kvm` and, on
/// this host, the CPU can.
///
/// # Errors
/// libvirt cannot be reached.
pub(crate) fn accelerator(connection: &Connection) -> Result<Accelerator, LibvirtError> {
    let because = match connection.ask(&["domcapabilities", "--virttype", "kvm", "--arch", "x86_64"]) {
        Ok(_) if qemu::cpu_can_virtualize() => return Ok(Accelerator::Kvm),
        Ok(_) => "libvirt offers KVM, but the CPU shows neither vmx nor svm".to_owned(),
        Err(LibvirtError::Refused { words, .. }) => format!("libvirt says: {words}"),
        Err(error) => return Err(error),
    };
    // libvirt cannot tell QEMU to run all vCPUs on one thread.
    Ok(Accelerator::Tcg { threads: TcgThreads::Multi, because })
}

/// What runs the guest of a domain of this type.
pub(crate) fn accelerator_of(kind: &str) -> Accelerator {
    match kind {
        "kvm" => Accelerator::Kvm,
        _ => Accelerator::Tcg { threads: TcgThreads::Multi, because: format!("the domain is of type {kind}") },
    }
}

/// A UUID for a domain that is to be started.
///
/// # Errors
/// The kernel gives none.
pub fn new_uuid() -> std::io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim().to_owned())
}

/// The domain with this UUID: whoever chose it can name the domain from its first moment on.
///
/// # Errors
/// The text is no domain.
pub(crate) fn with_uuid(xml: &str, uuid: &str) -> Result<String, DomainError> {
    apply(xml, "domain", &[Edit::SetText { at: vec![Step::new("uuid")], text: uuid.to_owned() }])
}

/// The domain with the mark that homenode wrote it, and what its spec states to its balancer:
/// libvirt hands it to QEMU, and the guest does not see it.
///
/// # Errors
/// The text is no domain.
pub(crate) fn with_mark(xml: &str, stated: &Stated) -> Result<String, DomainError> {
    let at = ["devices", "serial", "alias"].map(Step::new).to_vec();
    let value = stated.id(vm::stated::HOMENODE_LIBVIRT_MARK);
    let edit = Edit::SetAttribute { at, name: "name".to_owned(), value };
    apply(xml, "domain", &[edit])
}

/// The domain with a virtio-serial port of this name, whose socket libvirt makes.
///
/// # Errors
/// The text is no domain.
pub(crate) fn with_port(xml: &str, port: &str) -> Result<String, DomainError> {
    let channel = || vec![Step::new("devices"), Step::keyed("channel", "type", "unix")];
    let target = |name: &str, value: &str| Edit::SetAttribute {
        at: channel().into_iter().chain([Step::new("target")]).collect(),
        name: name.to_owned(),
        value: value.to_owned(),
    };
    apply(xml, "domain", &[target("type", "virtio"), target("name", port)])
}

/// A domain that runs and that libvirt does not keep yet. Dropped, it is ended; if this process is
/// killed, it runs on until it is ended or powers off, and is gone then: at no time is there a
/// definition that nobody started.
#[derive(Debug)]
pub(crate) struct NewDomain {
    connection: Connection,
    uuid: String,
    xml: String,
    ended_on_drop: bool,
}

impl NewDomain {
    /// Starts the domain of this XML, which has this UUID.
    ///
    /// # Errors
    /// libvirt refuses it, QEMU ends at once, or the connection breaks: then nothing is left, as
    /// far as libvirt can still be reached.
    pub(crate) fn start(connection: &Connection, xml: String, uuid: String) -> Result<Self, LibvirtError> {
        // Also where it says no: an answer that was lost on its way, or too late, may have been a
        // yes.
        let new = Self { connection: connection.clone(), uuid, xml, ended_on_drop: true };
        let created = connection.with_limit(START).ask_with(&["create", "--file", STDIN], Some(&new.xml));
        match created {
            Err(LibvirtError::Refused { libvirt, words, .. }) if words.contains("Permission denied") => {
                Err(LibvirtError::FileClosed { libvirt, words })
            }
            created => created.map(|_| new),
        }
    }

    /// Has libvirt keep it: from now on it stays when it is stopped.
    ///
    /// # Errors
    /// libvirt refuses; then it is ended.
    pub(crate) fn keep(mut self) -> Result<(), LibvirtError> {
        self.connection.define(&self.xml)?;
        self.ended_on_drop = false;
        Ok(())
    }
}

impl Drop for NewDomain {
    fn drop(&mut self) {
        if self.ended_on_drop {
            // It may have ended by itself. Not kept, it is gone with its process.
            let _ = self.connection.destroy(&self.uuid);
        }
    }
}

/// Refuses a name that a domain has already.
///
/// # Errors
/// There is one, or libvirt cannot be reached.
pub(crate) fn check_name(connection: &Connection, name: &str) -> Result<(), LibvirtError> {
    let Some(ListedDomain { uuid, state, .. }) = connection.find(name)? else { return Ok(()) };
    let cure = if state.has_process() { "destroy" } else { "undefine" };
    let virsh = connection.command_by_hand();
    let state = state.words();
    Err(LibvirtError::NameTaken {
        libvirt: connection.which(),
        name: name.to_owned(),
        state,
        cure: format!("{virsh} {cure} {uuid}"),
    })
}

/// `Running hypervisor: QEMU 7.2.22`.
pub(crate) fn qemu_version(connection: &Connection) -> Result<String, LibvirtError> {
    let text = connection.ask(&["version"])?;
    let version = text.lines().find_map(|line| line.strip_prefix("Running hypervisor: QEMU "));
    Ok(version.unwrap_or("(version unknown)").trim().to_owned())
}

pub(crate) fn socket_of(xml: &str, port: &str) -> Option<PathBuf> {
    let document = Document::parse(xml).ok()?;
    let channels = document.descendants().filter(|node| node.has_tag_name("channel"));
    let child = |channel: roxmltree::Node<'_, '_>, tag: &str, attribute: &str| {
        let child = channel.children().find(|child| child.has_tag_name(tag))?;
        child.attribute(attribute).map(str::to_owned)
    };
    let ours = |channel: &roxmltree::Node<'_, '_>| child(*channel, "target", "name").as_deref() == Some(port);
    channels.filter(ours).find_map(|channel| child(channel, "source", "path")).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_added_and_its_socket_found() {
        let xml =
            "<domain type='kvm'>\n  <name>a</name>\n  <devices>\n    <serial type='pty'/>\n  </devices>\n</domain>\n";
        let with = with_port(&with_uuid(xml, "6695eb01-f6a4-8304-79aa-97f2502e193f").unwrap(), "p.0").unwrap();
        assert!(with.contains("<uuid>6695eb01-f6a4-8304-79aa-97f2502e193f</uuid>"), "{with}");
        let document = Document::parse(&with).unwrap();
        let target = document.descendants().find(|node| node.has_tag_name("target")).unwrap();
        assert_eq!((target.attribute("type"), target.attribute("name")), (Some("virtio"), Some("p.0")));
        assert_eq!(socket_of(&with, "p.0"), None);
        let live = "<domain><devices><channel type='unix'><source mode='bind' path='/s'/><target type='virtio' \
            name='p.0'/></channel>\
                    </devices></domain>";
        assert_eq!(socket_of(live, "p.0"), Some("/s".into()));
        assert_eq!(socket_of(live, "other"), None);
    }

    #[test]
    fn every_uuid_is_new() {
        let (one, other) = (new_uuid().unwrap(), new_uuid().unwrap());
        assert!(one != other && one.len() == 36, "{one}");
    }
}

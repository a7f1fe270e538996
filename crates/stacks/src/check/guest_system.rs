//! The system that the guest of a domain runs, where the domain says.
//!
//! **Rule.** libosinfo's metadata (virt-manager, virt-install, Cockpit) name it. Without them
//! enlightenments of Hyper-V say that it is a Windows: nobody else is given them.
//!
//! Sources: libosinfo's identifiers (`http://microsoft.com/win/2k22`: a server begins with `2k`),
//! libvirt's formatdomain (`<hyperv>`, `hypervclock`).

use crate::domain;
use judge::GuestSystem;
use roxmltree::Node;

/// What libosinfo calls systems of Microsoft's.
const WINDOWS: &str = "microsoft.com/win/";

/// The system of a domain's guest.
pub(super) fn guest_system(root: Node<'_, '_>) -> GuestSystem {
    named(root).unwrap_or_else(|| if is_enlightened(root) { GuestSystem::Windows } else { GuestSystem::Unknown })
}

/// What libosinfo's metadata say. They are in a namespace of their own.
fn named(root: Node<'_, '_>) -> Option<GuestSystem> {
    let metadata = domain::at(root, &["metadata"]);
    let below = metadata.iter().flat_map(|metadata| metadata.descendants());
    let mut systems = below.filter(|element| element.tag_name().name() == "os");
    let id = systems.find_map(|system| system.attribute("id")).filter(|id| !id.trim().is_empty())?;
    let Some((_, version)) = id.split_once(WINDOWS) else { return Some(GuestSystem::Other) };
    // Windows 2000 (`2k`) was both.
    Some(match version.trim() {
        "2k" => GuestSystem::Windows,
        version if version.starts_with("2k") => GuestSystem::WindowsServer,
        _ => GuestSystem::WindowsDesktop,
    })
}

fn is_enlightened(root: Node<'_, '_>) -> bool {
    let hyperv = domain::at(root, &["features", "hyperv"]);
    let all = hyperv.iter().any(|hyperv| hyperv.attribute("mode") == Some("passthrough"));
    let on = |feature: Node<'_, '_>| feature.is_element() && feature.attribute("state") == Some("on");
    let clock = |timer: &Node<'_, '_>| {
        timer.attribute("name") == Some("hypervclock") && timer.attribute("present") != Some("no")
    };
    all || hyperv.iter().any(|hyperv| hyperv.children().any(on))
        || domain::at(root, &["clock", "timer"]).iter().any(clock)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(inside: &str) -> GuestSystem {
        let text = format!("<domain>{inside}</domain>");
        let document = roxmltree::Document::parse(&text).expect("XML");
        guest_system(document.root_element())
    }

    #[test]
    fn metadata_name_the_system_and_enlightenments_a_windows() {
        let named = |id: &str| {
            let os = format!("<o:libosinfo xmlns:o='http://libosinfo.org/xmlns/libvirt/domain/1.0'><o:os id='{id}'/>");
            system(&format!(
                "<metadata>{os}</o:libosinfo></metadata><features><hyperv><relaxed state='on'/></hyperv></features>"
            ))
        };
        assert_eq!(named("http://microsoft.com/win/11"), GuestSystem::WindowsDesktop);
        assert_eq!(named("http://microsoft.com/win/8.1"), GuestSystem::WindowsDesktop);
        assert_eq!(named("http://microsoft.com/win/2k22"), GuestSystem::WindowsServer);
        assert_eq!(named("http://microsoft.com/win/2k12r2"), GuestSystem::WindowsServer);
        assert_eq!(named("http://microsoft.com/win/2k"), GuestSystem::Windows);
        assert_eq!(named("http://debian.org/debian/12"), GuestSystem::Other);
        let relaxed =
            |state: &str| system(&format!("<features><hyperv><relaxed state='{state}'/></hyperv></features>"));
        assert_eq!((relaxed("on"), relaxed("off")), (GuestSystem::Windows, GuestSystem::Unknown));
        assert_eq!(system("<features><hyperv mode='passthrough'/></features>"), GuestSystem::Windows);
        assert_eq!(system("<clock><timer name='hypervclock' present='yes'/></clock>"), GuestSystem::Windows);
        assert_eq!(system("<clock><timer name='hypervclock' present='no'/></clock>"), GuestSystem::Unknown);
        assert_eq!(system(""), GuestSystem::Unknown);
    }
}

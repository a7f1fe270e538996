//! This guest's place in a network: the addresses of its cards, its name, and those of the others.

use anyhow::{Context, bail};
use linux::sys;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use workloads::protocol::{Address, Join, NamedAddress, PublicKeys};

const INTERFACES: &str = "/sys/class/net";
const HOSTS: &str = "/etc/hosts";
/// How long the driver of a card may take to announce it: a guest under TCG is slow.
const CARD_WITHIN: Duration = Duration::from_secs(20);

/// Brings up the cards, makes the names known, and keys where they are asked for.
pub(crate) fn join(join: &Join) -> anyhow::Result<Option<PublicKeys>> {
    sys::bring_up_loopback().context("cannot bring up the loopback interface")?;
    for card in &join.cards {
        let interface = interface(card)?;
        sys::set_address(&interface, card.address, card.prefix)
            .with_context(|| format!("card {interface}: cannot give it the address {}", card.address))?;
    }
    sys::set_host_name(&join.name).context("cannot set the host name")?;
    // The tiny guest has no such file, and no program that reads one.
    if let Ok(known) = fs::read_to_string(HOSTS) {
        fs::write(HOSTS, with_hosts(&known, &join.hosts)).context("cannot write /etc/hosts")?;
    }
    join.makes_keys.then(crate::logins::make_keys).transpose()
}

/// The interface with the card's Ethernet address, as soon as there is one.
fn interface(card: &Address) -> anyhow::Result<String> {
    let deadline = Instant::now() + CARD_WITHIN;
    loop {
        if let Some(found) = with_mac(Path::new(INTERFACES), &card.mac) {
            return Ok(found);
        }
        // A driver that is there has answered the bus before the agent ran; udev may rename it.
        if Instant::now() > deadline || !is_driver_possible(&card.model) {
            bail!("there is no network card {}: {}", card.mac, no_driver(&card.model));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn with_mac(interfaces: &Path, mac: &str) -> Option<String> {
    let named = fs::read_dir(interfaces).ok()?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let has_it = |name: &String| {
        let own = fs::read_to_string(interfaces.join(name).join("address"));
        own.is_ok_and(|own| own.trim().eq_ignore_ascii_case(mac))
    };
    let mut named = named.filter(has_it);
    named.next()
}

/// Whether a driver may still come: one that is neither in the kernel nor loaded will not.
fn is_driver_possible(model: &str) -> bool {
    let module = if model == "virtio" { "virtio_net" } else { model };
    Path::new("/sys/module").join(module).exists() || Path::new("/lib/modules").exists()
}

fn no_driver(model: &str) -> String {
    match model {
        "virtio" => "this guest's kernel has no driver for virtio cards (virtio_net)".to_owned(),
        model => format!(
            "this guest's kernel has no driver for {model} cards. Debian's kernels for clouds lack it, their full ones \
             have it (linux-image-amd64: `scripts/guest-image --kernel FILE`); or leave card.model = \"{model}\" out"
        ),
    }
}

/// What `/etc/hosts` says when these guests are known; names that it had before are theirs now.
fn with_hosts(known: &str, hosts: &[NamedAddress]) -> String {
    let is_ours = |word: &str| hosts.iter().any(|host| host.name == word);
    let kept = known.lines().filter(|line| !line.split_whitespace().skip(1).any(is_ours));
    let own = hosts.iter().map(|host| format!("{} {}", host.address, host.name));
    kept.map(str::to_owned).chain(own).map(|line| line + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_found_by_its_ethernet_address() {
        let directory = tempfile::tempdir().unwrap();
        for (name, address) in [("lo", "00:00:00:00:00:00"), ("eth0", "02:0a:0b:0c:0d:0e")] {
            fs::create_dir(directory.path().join(name)).unwrap();
            fs::write(directory.path().join(name).join("address"), format!("{address}\n")).unwrap();
        }
        assert_eq!(with_mac(directory.path(), "02:0A:0B:0C:0D:0E").as_deref(), Some("eth0"));
        assert_eq!(with_mac(directory.path(), "02:0A:0B:0C:0D:0F"), None);
    }

    #[test]
    fn a_card_without_a_driver_names_the_kernel_that_has_it() {
        let said = no_driver("e1000");
        assert!(said.contains("linux-image-amd64") && said.contains("e1000"), "{said}");
    }

    #[test]
    fn guests_are_known_once_by_their_own_addresses() {
        let hosts = [NamedAddress { name: "vm1".to_owned(), address: [10, 77, 0, 1].into() }];
        let known = "127.0.0.1 localhost\n127.0.0.1 vm1\n";
        let once = with_hosts(known, &hosts);
        assert_eq!(once, "127.0.0.1 localhost\n10.77.0.1 vm1\n");
        assert_eq!(with_hosts(&once, &hosts), once);
    }
}

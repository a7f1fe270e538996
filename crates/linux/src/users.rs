//! Users of the host by name and number, and whose VMs are taken at their word.
//!
//! Three kinds of users are believed in what their VMs say of themselves: root, with the users that
//! root's homenode gives its VMs ([`::vm::qemu_user`]); the users that system services run QEMU as,
//! which do what an administrator told them to; and whoever looks.
//! What a command line says of its manager proves nothing: any user can write it.

use crate::root::Root;
use ::vm::qemu_user::{ACCOUNT, is_of_root};
use std::collections::{BTreeMap, BTreeSet};
use topology::input::{self, LONGEST_TEXT};

/// Root.
const ROOT: u32 = 0;
/// Users that system services run QEMU as: libvirt's on Debian, Ubuntu and Arch, and on Fedora,
/// RHEL and SUSE.
const OF_SERVICES: [&str; 2] = ["libvirt-qemu", "qemu"];

/// Users by name, from `/etc/passwd`. Those that only a directory service knows are not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users(BTreeMap<String, u32>);

impl Users {
    /// Those of a host; none where the file cannot be read.
    pub fn read(root: &Root) -> Self {
        Self::parse(&input::text(root.join("etc/passwd"), LONGEST_TEXT).unwrap_or_default())
    }

    /// From the text of the file: `qemu:x:107:107:qemu user:/:/sbin/nologin`.
    pub fn parse(passwd: &str) -> Self {
        let user = |line: &str| {
            let mut fields = line.split(':');
            let (name, number) = (fields.next()?, fields.nth(1)?.parse().ok()?);
            (!name.is_empty()).then(|| (name.to_owned(), number))
        };
        // The first line of a name counts, as for everybody who asks the C library.
        Self(passwd.lines().rev().filter_map(user).collect())
    }

    /// The number of a user.
    pub fn number(&self, name: &str) -> Option<u32> {
        if name == "root" { Some(ROOT) } else { self.0.get(name).copied() }
    }

    /// Users whose VMs are taken at their word by `asker`.
    pub fn trusted_by(&self, asker: u32) -> Trusted {
        let services = OF_SERVICES.iter().filter_map(|name| self.number(name));
        Trusted { account: self.number(ACCOUNT), others: services.chain([asker]).collect() }
    }
}

/// Users whose VMs are taken at their word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trusted {
    account: Option<u32>,
    others: BTreeSet<u32>,
}

impl Trusted {
    /// Whether this user is one of them.
    pub fn has(&self, user: u32) -> bool {
        is_of_root(user, self.account) || self.others.contains(&user)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_libvirts_user_and_the_asker_are_believed() {
        let users = Users::parse(
            "root:x:0:0::/root:/bin/sh\nlibvirt-qemu:x:64055:64055::/:/bin/false\nalice:x:1000:1000\nbad:x:y\n:x:5:5\nalice:x:7:7\n",
        );
        assert_eq!((users.number("alice"), users.number("bad"), users.number("")), (Some(1000), None, None));
        let trusted = users.trusted_by(1000);
        assert_eq!([0, 1000, 64055, 1001, 7].map(|user| trusted.has(user)), [true, true, true, false, false]);
        let nobody_else = Users::default().trusted_by(7);
        assert_eq!([0, 7, 64055].map(|user| nobody_else.has(user)), [true, true, false]);
        assert_eq!(Users::default().number("root"), Some(0));
    }
}

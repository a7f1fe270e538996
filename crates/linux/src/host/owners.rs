//! Whom a process belongs to, when the work of a look is shared out.
//!
//! Looking costs time, and any user can start thousands of processes. So each user has a share
//! ([`Shares`](super::share::Shares)). Root, the users that root's VMs and libvirt's run as, and
//! the user who looks have no bound: their VMs are all VMs of many hosts. A user who may make users
//! of his own (`/etc/subuid`, for containers) has one share for all of them.

use crate::root::Root;
use crate::users::{Trusted, Users};
use crate::vm::owner;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;

/// The users of this host.
#[derive(Debug, Default)]
pub(super) struct Owners {
    trusted: Trusted,
    /// Users that belong to another one.
    made: Vec<(Range<u32>, u32)>,
    /// A captured tree is looked at without bounds.
    is_captured: bool,
}

impl Owners {
    /// Reads them; `looker` is who looks.
    pub(super) fn read(root: &Root, looker: u32) -> Self {
        let users = Users::read(root);
        let trusted = users.trusted_by(looker);
        let range = |line: &str| {
            let mut fields = line.trim().split(':');
            let (name, start, count) = (fields.next()?, fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
            let owner: u32 = name.parse().ok().or_else(|| users.number(name))?;
            // What root's containers do, root does not answer for.
            let owner = if trusted.has(owner) && (owner != looker || owner == 0) { start } else { owner };
            Some((start..start.saturating_add(count), owner))
        };
        let made = root.text("etc/subuid").unwrap_or_default().lines().filter_map(range).collect();
        Self { trusted, made, is_captured: !root.is_live() }
    }

    /// Whether a user's VMs are taken at their word.
    pub(super) fn trusts(&self, user: u32) -> bool {
        self.trusted.has(user)
    }

    /// Whose share a user's processes are looked at from; `None`: without bounds.
    pub(super) fn share_of(&self, user: u32) -> Option<u32> {
        let made_by = self.made.iter().find(|(made, _)| made.contains(&user)).map(|(_, owner)| *owner);
        let user = made_by.unwrap_or(user);
        (!self.is_captured && !self.trusted.has(user)).then_some(user)
    }

    /// The user that a process belongs to, and [`share_of`](Self::share_of) it; `None` where it
    /// ended.
    pub(super) fn of_process(&self, root: &Root, pid: u32) -> Option<(u32, Option<u32>)> {
        // The directory is its effective user's, or root's: then a setuid program may be behind it.
        let user = std::fs::metadata(root.process(pid, "")).ok()?.uid();
        if let Some(share) = self.share_of(user) {
            return Some((share, Some(share)));
        }
        let user = root.text(&format!("proc/{pid}/status")).ok().and_then(|status| owner::of(&status)).unwrap_or(user);
        let share = self.share_of(user);
        Some((share.unwrap_or(user), share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::testing::tree;

    #[test]
    fn users_that_a_user_made_are_his_and_root_and_libvirt_have_no_bound() {
        let (_directory, root) = tree(&[
            (
                "etc/passwd",
                "root:x:0:0::/:/bin/sh\nlibvirt-qemu:x:64055:64055::/:/bin/false\nann:x:1000:1000::/:/bin/sh\n",
            ),
            ("etc/subuid", "ann:100000:65536\nroot:1000000:65536\n1001:300000:10\nnobody here\n"),
        ]);
        let users = |looker| Owners { is_captured: false, ..Owners::read(&root, looker) };
        let of = |user| users(0).share_of(user);
        assert_eq!([0, 64055, 60_706].map(of), [None; 3]);
        assert_eq!([1000, 100_000, 165_535].map(of), [Some(1000); 3]);
        assert_eq!([165_536, 300_009, 300_010].map(of), [Some(165_536), Some(1001), Some(300_010)]);
        assert_eq!([1_000_000, 1_000_005].map(of), [Some(1_000_000); 2]); // containers of root: one share
        // Who looks, and what he made, is bounded by nobody.
        assert_eq!([1000, 100_007, 1001].map(|user| users(1000).share_of(user)), [None, None, Some(1001)]);
    }
}

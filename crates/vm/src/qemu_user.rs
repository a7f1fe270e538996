//! As whom the QEMU of a VM runs that root started.
//!
//! **Problem.** A guest that breaks out of QEMU has QEMU's rights: they must not be root's, nor
//! those of another VM.
//!
//! **Rule.** The VM's spec names the user (`run_as`); else it is the account [`ACCOUNT`], where the
//! host has one; else a user number of [`RESERVED`] that belongs to nobody else ([`of_its_own`]).
//!
//! **Properties.** The number follows from the VM's name, as long as nobody has it: its disks can
//! be given to it once. Only root can start a process with such a number: a VM that has one is
//! root's ([`is_of_root`]).
//!
//! **Example.** `web` gets 60879; while something runs as 60879, it gets 60880.

use std::ops::RangeInclusive;

/// The account that the QEMUs of root's VMs share, where somebody made it.
pub const ACCOUNT: &str = "homenode-vm";

/// User numbers that homenode takes for VMs. systemd's list of numbers leaves them unused
/// (60578-61183); its own dynamic users follow (61184-65519), which it would hand out again without
/// asking us. All are below 65536: a container rarely has more.
pub const RESERVED: RangeInclusive<u32> = 60_706..=61_183;

/// A number of [`RESERVED`] for the VM of this name that is not `taken`; `None` where all are.
pub fn of_its_own(name: &str, taken: impl Fn(u32) -> bool) -> Option<u32> {
    let (first, count) = (*RESERVED.start(), RESERVED.end() - RESERVED.start() + 1);
    // FNV-1a, whose result is the same on every host and with every compiler.
    let mix = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(16_777_619);
    let start = name.bytes().fold(2_166_136_261, mix) % count;
    (0..count).map(|step| first + (start + step) % count).find(|&user| !taken(user))
}

/// Whether a VM of this user is root's: root's own, or one that root's homenode gave a user of its
/// own. `account`: the number of [`ACCOUNT`], where there is one. A user that a spec names is not
/// known here: such a VM is that user's.
pub fn is_of_root(user: u32, account: Option<u32>) -> bool {
    user == 0 || RESERVED.contains(&user) || account == Some(user)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_a_number_of_its_own_and_the_next_one_where_that_is_taken() {
        let web = 60_879; // 60706 + 173: the hash of `web` is 173 modulo 478
        assert_eq!(of_its_own("web", |_| false), Some(web));
        assert_ne!(of_its_own("mail", |_| false), Some(web));
        assert_eq!(of_its_own("web", |user| user == web), Some(web + 1));
        assert_eq!(of_its_own("web", |user| user >= web), Some(60_706)); // after the last comes the first
        assert_eq!(of_its_own("web", |_| true), None);
    }

    #[test]
    fn whose_vms_are_roots() {
        let of_root = |user| is_of_root(user, Some(990));
        assert_eq!([0, 990, 60_706, 61_183].map(of_root), [true; 4]);
        assert_eq!([1, 1000, 60_705, 61_184].map(of_root), [false; 4]);
        assert!(!is_of_root(990, None));
    }
}

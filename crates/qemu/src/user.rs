//! As whom QEMU runs.
//!
//! **Problem.** A guest that breaks out of QEMU has QEMU's rights.
//!
//! **Rule.** Whoever is not root starts QEMU as itself. Root starts it as `run_as` of the spec
//! says; else as the account `homenode-vm`, where there is one; else as a user number that nobody
//! else has ([`vm::qemu_user`]). That user gets the groups of its account and the group of
//! `/dev/kvm`, and no capability.
//!
//! **Properties.** Before anything is started, that user is asked for all that it must open
//! ([`QemuUser::opens`]). Where root's own rights do not reach that far (a container without some
//! capability, a namespace of one user), QEMU runs as before, and a note says so.

use crate::QemuError;
use linux::capabilities::missing_to_start_as_another;
use linux::sys::{Account, Credentials, account_named, account_of, group_exists, groups_of, opens_as};
use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use vm::Launch;
use vm::qemu_user::{ACCOUNT, of_its_own};
use vm::spec::ROOT;

const KVM: &str = "/dev/kvm";

/// Whom QEMU runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QemuUser {
    /// Whoever starts it. With a sentence where its owner may expect another.
    Ourselves(Option<String>),
    /// Somebody else, with fewer rights.
    Other { credentials: Credentials, name: String },
}

impl QemuUser {
    /// For the VM that is to be started.
    ///
    /// # Errors
    /// The spec names a user that is not there, or whom we may not start it as.
    pub(crate) fn choose(launch: &Launch) -> Result<Self, QemuError> {
        let (vm, us) = (&launch.spec.name, linux::sys::effective_user_id());
        let refused = |problem| QemuError::Spec { vm: vm.clone(), problem };
        let ask = |error| QemuError::io(vm, "ask for the accounts of this host")(error);
        let Some(named) = &launch.spec.run_as else {
            return if us == 0 { of_root(vm) } else { Ok(Self::Ourselves(None)) };
        };
        let found = find(named).map_err(ask)?;
        let found = found.ok_or_else(|| refused(format!("run_as = {named:?}: this host has no such user")))?;
        if found.user == us {
            return Ok(Self::Ourselves(None));
        }
        let problem = match missing_to_start_as_another() {
            _ if us != 0 => "only root may start a VM as another user; leave it out".to_owned(),
            Some(missing) => format!("it takes {missing}, which this root lacks; write \"{ROOT}\""),
            None => return with_groups(found).map_err(ask),
        };
        Err(refused(format!("run_as = {named:?}: {problem}")))
    }

    /// For the process that is to become QEMU.
    pub(crate) fn credentials(&self) -> Option<Credentials> {
        match self {
            Self::Ourselves(_) => None,
            Self::Other { credentials, .. } => Some(credentials.clone()),
        }
    }

    /// What the VM's owner should know.
    pub(crate) fn note(&self) -> Option<&str> {
        match self {
            Self::Ourselves(note) => note.as_deref(),
            Self::Other { .. } => None,
        }
    }

    /// Where QEMU keeps what is written to disks with `snapshot=on`, and what helps where that is
    /// full, as sentences. Another user's QEMU is started without our TMPDIR.
    pub(crate) fn where_writes_go(&self) -> String {
        let own = match self {
            Self::Ourselves(_) => std::env::var_os("TMPDIR"),
            Self::Other { .. } => None,
        };
        let directory = own.map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
        let cure = match self {
            Self::Ourselves(_) => "free some space there, or name another directory by TMPDIR",
            Self::Other { .. } => "free some space there",
        };
        format!("Writes that are thrown away lie in {} until then: {cure}", directory.display())
    }

    /// Whether QEMU may open a file.
    ///
    /// # Errors
    /// It may not: the system's reason, who it is, and what to do.
    pub(crate) fn opens(&self, path: &Path, write: bool) -> io::Result<()> {
        let Self::Other { credentials, .. } = self else { return Ok(()) };
        opens_as(credentials, path, write).map_err(|error| {
            let rights = if write { "rw" } else { "r" };
            let (user, cure) = (credentials.user, format!("setfacl -m u:{}:{rights} FILE", credentials.user));
            let problem = format!(
                "{error}: QEMU runs as {self}; give it the file (chown {user} FILE, or {cure}) and a way there (x on \
                the directories above), or write run_as = \"{ROOT}\" or another user"
            );
            io::Error::new(error.kind(), problem)
        })
    }

    /// Whether QEMU may use KVM.
    ///
    /// # Errors
    /// It may not, and we may.
    pub(crate) fn uses_kvm(&self, vm: &str) -> Result<(), QemuError> {
        let Self::Other { credentials, .. } = self else { return Ok(()) };
        opens_as(credentials, Path::new(KVM), true).map_err(|error| {
            let cure = format!("chgrp kvm {KVM} && chmod 660 {KVM}, or run_as = \"{ROOT}\" in the spec");
            QemuError::io(vm, format!("use {KVM} as {self}, as whom QEMU runs ({cure})"))(error)
        })
    }
}

impl fmt::Display for QemuUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ourselves(_) => write!(f, "the user that starts it"),
            Self::Other { credentials, name } if name.is_empty() => write!(f, "user {}", credentials.user),
            Self::Other { credentials, name } => write!(f, "user {name} ({})", credentials.user),
        }
    }
}

/// The user of a VM of root whose spec names none.
fn of_root(vm: &str) -> Result<QemuUser, QemuError> {
    let stays = |why: &str| Ok(QemuUser::Ourselves(Some(format!("QEMU runs as root: {why}"))));
    if let Some(missing) = missing_to_start_as_another() {
        return stays(&format!("to start it as another user takes {missing}, which this root lacks"));
    }
    if let Some(account) =
        account_named(ACCOUNT).map_err(QemuError::io(vm, format!("look for the account {ACCOUNT}")))?
    {
        return with_groups(account).map_err(QemuError::io(vm, format!("ask for the groups of {ACCOUNT}")));
    }
    let running = linux::process::users().map_err(QemuError::host(vm))?;
    let maps = ["/proc/self/uid_map", "/proc/self/gid_map"].map(|map| std::fs::read_to_string(map).unwrap_or_default());
    let is_there = |user: u32| maps.iter().all(|map| is_mapped(map, user));
    // An account that cannot be asked for is one.
    let has_account = |user: u32| !matches!(account_of(user), Ok(None)) || group_exists(user);
    let Some(user) = of_its_own(vm, |user| !is_there(user) || running.contains(&user) || has_account(user)) else {
        return stays("no user number is left for it (docs/run.md)");
    };
    with_groups(Account { name: String::new(), user, group: user }).map_err(QemuError::io(vm, "ask for its groups"))
}

/// Whether a user namespace has this number (user_namespaces(7)): lines of the first number inside,
/// the first outside, how many.
fn is_mapped(map: &str, user: u32) -> bool {
    let lines = map.lines().filter_map(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        Some((numbers.next()?.ok()?, numbers.nth(1)?.ok()?))
    });
    let user = u64::from(user);
    lines.into_iter().any(|(first, count)| (first..first.saturating_add(count)).contains(&user))
}

/// The user that a spec names; a number need not have an account.
fn find(named: &str) -> io::Result<Option<Account>> {
    if let Some(account) = account_named(named)? {
        return Ok(Some(account));
    }
    // 2^32 - 1 means no user to the kernel.
    let number = if named == ROOT { Some(0) } else { named.parse().ok().filter(|&user| user != u32::MAX) };
    let Some(user) = number else { return Ok(None) };
    let nameless = || Account { name: String::new(), user, group: user };
    Ok(Some(account_of(user)?.unwrap_or_else(nameless)))
}

fn with_groups(account: Account) -> io::Result<QemuUser> {
    let mut groups = if account.name.is_empty() { Vec::new() } else { groups_of(&account)? };
    groups.extend(group_of_kvm());
    groups.retain(|&group| group != account.group);
    groups.sort_unstable();
    groups.dedup();
    let credentials = Credentials { user: account.user, group: account.group, groups };
    Ok(QemuUser::Other { credentials, name: account.name })
}

/// The group that may use KVM. Not root's group: it may read what has nothing to do with VMs.
fn group_of_kvm() -> Option<u32> {
    let device = Path::new(KVM).metadata().ok()?;
    (device.mode() & 0o060 == 0o060 && device.gid() != 0).then_some(device.gid())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn chosen(run_as: Option<&str>) -> Result<QemuUser, QemuError> {
        let (mut spec, plan) = (samples::spec("a", 1, 64), samples::plan("a", 1, 1, 64));
        spec.run_as = run_as.map(str::to_owned);
        let launch = Launch::new(spec, plan);
        QemuUser::choose(&launch)
    }

    #[test]
    fn ones_own_user_is_no_other() {
        let us = linux::sys::effective_user_id().to_string();
        assert_eq!(chosen(Some(&us)).unwrap(), QemuUser::Ourselves(None));
        if us == "0" {
            assert_eq!(chosen(Some(ROOT)).unwrap(), QemuUser::Ourselves(None));
        } else {
            assert_eq!(chosen(None).unwrap(), QemuUser::Ourselves(None));
            let error = chosen(Some(ROOT)).unwrap_err();
            assert!(error.is_bad_input() && error.to_string().contains("only root"), "{error}");
        }
    }

    #[test]
    fn a_user_that_is_not_there_is_bad_input() {
        let error = chosen(Some("nosuchuser")).unwrap_err();
        assert!(error.is_bad_input() && error.to_string().contains("run_as = \"nosuchuser\""), "{error}");
        assert!(chosen(Some("4294967295")).is_err());
    }

    #[test]
    fn a_number_without_an_account_has_its_own_group_and_kvms() {
        if linux::sys::effective_user_id() != 0 || missing_to_start_as_another().is_some() {
            return eprintln!("SKIPPED a_number_without_an_account_has_its_own_group_and_kvms: needs root");
        }
        let Credentials { user, group, groups } = chosen(Some("60999")).unwrap().credentials().unwrap();
        assert_eq!((user, group, groups), (60_999, 60_999, group_of_kvm().into_iter().collect()));
    }

    #[test]
    fn numbers_that_a_namespace_has() {
        let map = "         0       1000          1\n         1     100000      65536\n";
        let has = |user| is_mapped(map, user);
        assert!(has(0) && has(60_706) && has(65_536));
        assert!(!has(65_537) && !is_mapped("", 0)); // 1 + 65536 is the first that is not there
        assert!(is_mapped("0 0 4294967295\n", 4_294_967_294));
    }
}

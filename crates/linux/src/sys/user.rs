//! Acting as another user: what such a user may open, and becoming one for good before a program is
//! started (credentials(7)).

use super::checked;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// A user, with all the groups that it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// User number.
    pub user: u32,
    /// Its first group.
    pub group: u32,
    /// The other groups; nothing of ours stays.
    pub groups: Vec<u32>,
}

/// Opens a file as another user would, and closes it: what the kernel says to that user, with
/// access lists and the directories above. Needs `CAP_SETUID` and `CAP_SETGID`.
///
/// # Errors
/// That user may not, or the file cannot be opened by anybody.
pub fn opens_as(user: &Credentials, path: &Path, write: bool) -> io::Result<()> {
    // The kernel keeps these for each thread: no other thread of ours changes, and this one ends.
    let as_that_user = || {
        see_files_as(user)?;
        OpenOptions::new().read(true).write(write).custom_flags(libc::O_NONBLOCK).open(path).map(drop)
    };
    let gone = |_| io::Error::other("the thread that asked has ended");
    std::thread::scope(|scope| scope.spawn(as_that_user).join()).map_err(gone)?
}

/// Lets the calling thread, and no other, see files as a user does (setfsuid(2)). What root may do
/// to every file goes with it.
fn see_files_as(user: &Credentials) -> io::Result<()> {
    set_groups(&user.groups)?;
    let set = |call: libc::c_long, id: u32| {
        // SAFETY: both calls take a number and touch no memory. They return what was set before,
        // and never fail: asked again, they tell whether the first call was heard.
        let now = unsafe {
            libc::syscall(call, id);
            libc::syscall(call, u32::MAX)
        };
        if now == libc::c_long::from(id) { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EPERM)) }
    };
    set(libc::SYS_setfsgid, user.group)?;
    set(libc::SYS_setfsuid, user.user)
}

/// Becomes a user for good: all three users and groups, no capability, and no program that it
/// starts can win one. Async-signal-safe: for a process that was just forked.
pub(super) fn become_for_good(user: &Credentials) -> io::Result<()> {
    set_groups(&user.groups)?;
    let (uid, gid) = (user.user, user.group);
    // SAFETY: the three calls take numbers and touch no memory. The system calls themselves, since
    // libc's functions speak to other threads, which a forked process has not.
    unsafe {
        checked(libc::syscall(libc::SYS_setresgid, gid, gid, gid))?;
        checked(libc::syscall(libc::SYS_setresuid, uid, uid, uid))?;
        checked(libc::c_long::from(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)))?;
    }
    Ok(())
}

fn set_groups(groups: &[u32]) -> io::Result<()> {
    // SAFETY: the kernel reads as many numbers as it is told, which live through the call. Not
    // libc's function: that changes all threads.
    checked(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn another_user_opens_what_it_may_and_this_process_stays_who_it_is() {
        if crate::capabilities::missing_to_start_as_another().is_some() {
            return eprintln!("SKIPPED another_user_opens_what_it_may_and_this_process_stays_who_it_is: needs root");
        }
        let user = Credentials { user: 60_706, group: 60_706, groups: vec![60_707] };
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "").unwrap();
        let may = |mode: u32, above: u32, write: bool| {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(above)).unwrap();
            opens_as(&user, &path, write).is_ok()
        };
        assert!(may(0o644, 0o711, false) && may(0o666, 0o711, true));
        assert!(!may(0o644, 0o711, true) && !may(0o640, 0o711, false) && !may(0o666, 0o700, false));
        std::os::unix::fs::chown(&path, None, Some(60_707)).unwrap();
        assert!(may(0o660, 0o711, true)); // by its second group
        assert_eq!(super::super::effective_user_id(), 0);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o000)).unwrap();
        assert!(std::fs::File::open(&path).is_ok(), "root's own rights are gone");
    }
}

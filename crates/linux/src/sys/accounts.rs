//! Accounts of this host, wherever it keeps them (passwd, a directory service): getpwnam(3).

use std::ffi::{CStr, CString};
use std::io;

/// Room for the texts of one account; more than any that was seen.
const TEXTS_BYTES: usize = 64 << 10;
/// Most groups of one user that are asked for.
const MOST_GROUPS: usize = 1024;

/// An account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Its name.
    pub name: String,
    /// Its user number.
    pub user: u32,
    /// Its first group.
    pub group: u32,
}

/// The account of this name; `None` if there is none.
///
/// # Errors
/// The service that keeps accounts does not answer.
pub fn account_named(name: &str) -> io::Result<Option<Account>> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    // SAFETY: `name` is a C string that lives through the call; the rest as `look_up` promises.
    look_up(|entry, texts, result| unsafe {
        libc::getpwnam_r(name.as_ptr(), entry, texts.as_mut_ptr().cast(), texts.len(), result)
    })
}

/// The account with this user number; `None` if there is none.
///
/// # Errors
/// The service that keeps accounts does not answer.
pub fn account_of(user: u32) -> io::Result<Option<Account>> {
    // SAFETY: as `look_up` promises.
    look_up(|entry, texts, result| unsafe {
        libc::getpwuid_r(user, entry, texts.as_mut_ptr().cast(), texts.len(), result)
    })
}

/// Hands `ask` an entry, room for its texts, and where the answer's address goes: all live through
/// the call and are writable.
fn look_up(
    ask: impl FnOnce(*mut libc::passwd, &mut [u8], *mut *mut libc::passwd) -> libc::c_int,
) -> io::Result<Option<Account>> {
    let mut entry = std::mem::MaybeUninit::<libc::passwd>::uninit();
    let mut texts = vec![0u8; TEXTS_BYTES];
    let mut result = std::ptr::null_mut();
    match ask(entry.as_mut_ptr(), &mut texts, &raw mut result) {
        0 if result.is_null() => Ok(None),
        0 => {
            // SAFETY: with an answer the call has filled the entry.
            let entry = unsafe { entry.assume_init() };
            // SAFETY: the entry's name is a C string in `texts`, which still lives.
            let name = unsafe { CStr::from_ptr(entry.pw_name) }.to_string_lossy().into_owned();
            Ok(Some(Account { name, user: entry.pw_uid, group: entry.pw_gid }))
        }
        // What some services say for "none" (getpwnam(3)).
        libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM => Ok(None),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// All groups of an account, its first one among them (getgrouplist(3)).
pub fn groups_of(account: &Account) -> io::Result<Vec<u32>> {
    let name = CString::new(account.name.as_str())?;
    let mut groups = vec![0; MOST_GROUPS];
    let mut count = MOST_GROUPS as libc::c_int;
    // SAFETY: `name` is a C string, and `groups` holds `count` numbers; both live through the call.
    let found = unsafe { libc::getgrouplist(name.as_ptr(), account.group, groups.as_mut_ptr(), &raw mut count) };
    if found < 0 {
        return Err(io::Error::other(format!("{} has more than {MOST_GROUPS} groups", account.name)));
    }
    groups.truncate(usize::try_from(count).unwrap_or_default());
    Ok(groups)
}

/// Whether a group has this number.
pub fn group_exists(group: u32) -> bool {
    let mut entry = std::mem::MaybeUninit::<libc::group>::uninit();
    let mut texts = vec![0u8; TEXTS_BYTES];
    let mut result = std::ptr::null_mut();
    // SAFETY: all that is pointed to lives through the call and is writable, and the length is that
    // of `texts`.
    let answer =
        unsafe { libc::getgrgid_r(group, entry.as_mut_ptr(), texts.as_mut_ptr().cast(), texts.len(), &raw mut result) };
    // One with more members than there is room for is there, too.
    answer == libc::ERANGE || !result.is_null()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_found_by_name_and_by_number() {
        let Some(root) = account_of(0).unwrap() else {
            return eprintln!("SKIPPED accounts_are_found_by_name_and_by_number: no accounts here");
        };
        assert_eq!(account_named(&root.name).unwrap().unwrap(), root);
        assert!(groups_of(&root).unwrap().contains(&root.group) && group_exists(root.group));
        assert_eq!(account_named("no such\0account").unwrap(), None);
        assert_eq!((account_named("nosuchaccount").unwrap(), account_of(3_999_999_999).unwrap()), (None, None));
        assert!(!group_exists(3_999_999_999));
    }
}

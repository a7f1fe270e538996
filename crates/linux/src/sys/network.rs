//! Network namespaces (network_namespaces(7), user_namespaces(7)) and tap devices (the kernel's
//! Documentation/networking/tuntap.rst).

use super::checked;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Most bytes of an interface's name, its end counted (`IFNAMSIZ`).
const NAME_BYTES: usize = libc::IFNAMSIZ;

/// Moves this process into a new network namespace, with nothing in it but a loopback device that
/// is down. With `user` into a new user namespace too, in which it is root: that needs no right
/// where the host allows it, and that this process has one thread.
///
/// # Errors
/// `EPERM` without CAP_SYS_ADMIN, or where the host forbids user namespaces; `EINVAL` with `user`
/// in a process of several threads.
pub fn leave_network(user: bool) -> io::Result<()> {
    let (uid, gid) = (super::effective_user_id(), effective_group_id());
    let flags = libc::CLONE_NEWNET | if user { libc::CLONE_NEWUSER } else { 0 };
    // SAFETY: unshare takes a number and touches no memory of ours.
    checked(libc::c_long::from(unsafe { libc::unshare(flags) }))?;
    if user {
        // Without that the kernel lets nobody but root write a map of groups.
        std::fs::write("/proc/self/setgroups", "deny")?;
        std::fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
        std::fs::write("/proc/self/gid_map", format!("0 {gid} 1"))?;
    }
    Ok(())
}

fn effective_group_id() -> u32 {
    // SAFETY: getegid takes no argument, touches no memory and cannot fail.
    unsafe { libc::getegid() }
}

/// Makes a tap device in this process's network namespace: Ethernet frames, each behind the header
/// that virtio-net knows. One descriptor for each of its queues. It goes when the last one is
/// closed, however that happens.
///
/// # Errors
/// `/dev/net/tun` cannot be opened, the name is taken (`EBUSY`), or CAP_NET_ADMIN lacks (`EPERM`).
pub fn tap(name: &str, queues: u32) -> io::Result<Vec<OwnedFd>> {
    if name.is_empty() || name.len() >= NAME_BYTES {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    (0..queues.max(1)).map(|_| queue(name, queues > 1)).collect()
}

fn queue(name: &str, one_of_several: bool) -> io::Result<OwnedFd> {
    let device = File::options().read(true).write(true).open("/dev/net/tun")?;
    // SAFETY: ifreq is numbers only, of which each may be zero.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero: `tap` lets no longer name through.
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let several = if one_of_several { libc::IFF_MULTI_QUEUE } else { 0 };
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | several;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: the request is a whole `ifreq` with a name that ends, and lives through the call.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
    checked(libc::c_long::from(result))?;
    Ok(device.into())
}

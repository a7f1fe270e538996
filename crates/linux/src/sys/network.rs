//! Network namespaces (network_namespaces(7), user_namespaces(7)) and tap devices (the kernel's
//! Documentation/networking/tuntap.rst).

use super::checked;
use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

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
    let (uid, gid) = (super::effective_user_id(), super::effective_group_id());
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

/// A tap device.
#[derive(Debug)]
pub struct TapDevice {
    /// Its name in its namespace.
    pub name: String,
    /// A descriptor for each of its queues.
    pub queues: Vec<OwnedFd>,
}

/// The network namespace that this process is in, to come back to.
pub fn own_network() -> io::Result<File> {
    File::open("/proc/self/ns/net")
}

/// Moves this thread into the network namespace of a descriptor of [`own_network`].
///
/// # Errors
/// `EPERM` without CAP_SYS_ADMIN over both.
pub fn enter_network(namespace: &File) -> io::Result<()> {
    // SAFETY: setns takes two numbers and touches no memory of ours; the descriptor is open.
    checked(libc::c_long::from(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) })).map(drop)
}

/// Makes a tap device in this process's network namespace: Ethernet frames, each behind the header
/// that virtio-net knows. It goes when the last descriptor is closed, however that happens. Of a
/// name with `%d` the kernel makes the first one that is free.
///
/// # Errors
/// `/dev/net/tun` cannot be opened, the name is taken (`EBUSY`), or CAP_NET_ADMIN lacks (`EPERM`).
pub fn tap(name: &str, queues: u32) -> io::Result<TapDevice> {
    if name.is_empty() || name.len() >= NAME_BYTES {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let (name, first) = queue(name, queues > 1)?;
    let more = (1..queues).map(|_| queue(&name, true).map(|(_, queue)| queue));
    let queues = std::iter::once(Ok(first)).chain(more).collect::<io::Result<_>>()?;
    Ok(TapDevice { name, queues })
}

/// The name of the device that a descriptor of a tap or macvtap device belongs to.
///
/// # Errors
/// It is of no such device.
pub fn tap_name(tap: &OwnedFd) -> io::Result<String> {
    // SAFETY: ifreq is numbers only, of which each may be zero.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one `ifreq`, which lives through the call.
    let result = unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNGETIFF as _, &raw mut request) };
    checked(libc::c_long::from(result))?;
    Ok(name_in(&request))
}

fn name_in(request: &libc::ifreq) -> String {
    let letters = request.ifr_name.iter().map(|&letter| letter as u8);
    letters.take_while(|&letter| letter != 0).map(char::from).collect()
}

/// A queue of a tap device, and the device's name.
fn queue(name: &str, one_of_several: bool) -> io::Result<(String, OwnedFd)> {
    let device = File::options().read(true).write(true).open("/dev/net/tun")?;
    let mut request = named_request(name)?;
    let several = if one_of_several { libc::IFF_MULTI_QUEUE } else { 0 };
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | several;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: the request is a whole `ifreq` with a name that ends, and lives through the call.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
    checked(libc::c_long::from(result))?;
    Ok((name_in(&request), device.into()))
}

/// Gives an interface of this network namespace an address, and switches it on (netdevice(7)).
///
/// # Errors
/// There is no such interface, or CAP_NET_ADMIN lacks (`EPERM`).
pub fn set_address(interface: &str, address: Ipv4Addr, prefix: u8) -> io::Result<()> {
    let mask = u32::MAX.checked_shl(32u32.saturating_sub(prefix.into())).unwrap_or(0);
    let mut request = named_request(interface)?;
    request.ifr_ifru.ifru_addr = socket_address(address);
    ask(libc::SIOCSIFADDR, &mut request)?;
    request.ifr_ifru.ifru_netmask = socket_address(Ipv4Addr::from(mask));
    ask(libc::SIOCSIFNETMASK, &mut request)?;
    bring_up(interface)
}

/// Switches the loopback interface on: programs of one machine that talk over sockets need it.
pub fn bring_up_loopback() -> io::Result<()> {
    bring_up("lo")
}

fn bring_up(interface: &str) -> io::Result<()> {
    let mut request = named_request(interface)?;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    ask(libc::SIOCSIFFLAGS, &mut request)
}

fn ask(number: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: socket takes three numbers.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    let socket = checked(libc::c_long::from(socket))?;
    // SAFETY: the descriptor was just opened and belongs to nobody else.
    let socket = unsafe { OwnedFd::from_raw_fd(socket as i32) };
    // SAFETY: the request is a whole `ifreq` with a name that ends, and lives through the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), number as _, std::ptr::from_mut(request)) };
    checked(libc::c_long::from(result)).map(drop)
}

/// A request about an interface.
fn named_request(interface: &str) -> io::Result<libc::ifreq> {
    if interface.is_empty() || interface.len() >= NAME_BYTES {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    // SAFETY: ifreq is numbers only, of which each may be zero.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero: no longer name comes through.
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    // SAFETY: sockaddr is numbers only, of which each may be zero.
    let mut socket: libc::sockaddr = unsafe { std::mem::zeroed() };
    socket.sa_family = libc::AF_INET as libc::sa_family_t;
    // sockaddr_in: two bytes of port, then the address in network order.
    for (to, from) in socket.sa_data[2..6].iter_mut().zip(address.octets()) {
        *to = from as libc::c_char;
    }
    socket
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_network_order_behind_the_port() {
        let socket = socket_address(Ipv4Addr::new(10, 77, 0, 3));
        assert_eq!(socket.sa_data[..6], [0, 0, 10, 77, 0, 3]);
        assert_eq!(i32::from(socket.sa_family), libc::AF_INET);
    }

    #[test]
    fn an_interface_that_is_not_there_has_no_address() {
        assert!(set_address("no-such-card", Ipv4Addr::LOCALHOST, 16).is_err());
        assert!(set_address("a-name-that-is-too-long", Ipv4Addr::LOCALHOST, 16).is_err());
    }
}

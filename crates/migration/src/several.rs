//! A guest that goes over several connections: who carries each, and how each comes in.
//!
//! **Problem.** A connection of ssh's is as fast as one CPU ciphers. QEMU makes several where it is
//! told to, at both ends by itself ([`qemu::migration::Arriving`]), and one that is before 8.0
//! knows the first one by nothing but that it is the first.
//!
//! **Rule.** Each connection that QEMU makes at the source becomes standard input and output of a
//! program of its own, `vm receive --data NAME --connection K` at the destination, numbered in
//! their order. The homenode that waits there connects to its QEMU once for each, K = 0 before all
//! others, and gives the connection to that program, which copies. Where any of them is cut, QEMU
//! fails at both ends, and the guest stays.
//!
//! **Example.** With three connections K goes from 0 to 3; where 2 comes in first, it waits for 0.

use crate::MigrationError;
use crate::door::{COMES, Door, at_door, carry};
use crate::link::{Helper, Link, To};
use crate::protocol::FromSource;
use linux::sys::{receive_descriptor, send_descriptor};
use qemu::{QemuError, RuntimeDir};
use std::io::{Error, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;
use vm::BackendError;

/// The programs that carry a guest, which end with the value.
pub(crate) struct Carriers<'a> {
    to: &'a To,
    vm: &'a str,
    programs: Vec<Helper>,
}

impl<'a> Carriers<'a> {
    pub(crate) fn of(vm: &'a str, to: &'a To) -> Self {
        Self { to, vm, programs: Vec::new() }
    }

    /// Starts the one for the next connection.
    pub(crate) fn carry(&mut self, socket: OwnedFd) -> Result<(), BackendError> {
        let number = self.programs.len().to_string();
        let program = self.to.carry_on(&["vm", "receive", "--data", self.vm, "--connection", &number], socket);
        let failed = |error| BackendError::new(vm::backend::ErrorKind::Failed, error);
        self.programs.push(program.map_err(failed)?);
        Ok(())
    }
}

/// Waits until all programs have come in that carry a guest, and gives each a connection to the
/// QEMU that waits for it.
pub(crate) fn wait_for_all(
    door: &Door,
    link: &mut Link<FromSource>,
    count: usize,
    connect: impl Fn() -> Result<UnixStream, QemuError>,
) -> Result<(), MigrationError> {
    let deadline = Instant::now() + COMES;
    let (mut came, mut waiting, mut given) = (vec![false; count], Vec::new(), 0);
    while given < count {
        let (mut program, mut number) = (door.next(link, deadline)?, [0u8]);
        // One that ends without a word, or says another number, is none of them.
        if program.read_exact(&mut number).is_err() {
            continue;
        }
        let number = usize::from(number[0]);
        match came.get_mut(number) {
            Some(came) if !*came => *came = true,
            _ => continue,
        }
        waiting.insert(if number == 0 { 0 } else { waiting.len() }, program);
        if came[0] {
            for program in waiting.drain(..) {
                let socket = connect()?;
                send_descriptor(&program, b"x", socket.as_fd())
                    .map_err(MigrationError::io("give QEMU a connection"))?;
                given += 1;
            }
        }
    }
    Ok(())
}

/// `vm receive --data NAME --connection K`: carries one of several connections to the QEMU that
/// waits for the guest.
///
/// # Errors
/// Nobody waits for it, or it was cut.
pub fn pass_one_on(
    directory: &RuntimeDir,
    vm: &str,
    number: u8,
    input: OwnedFd,
    output: OwnedFd,
) -> Result<(), MigrationError> {
    let mut door = at_door(directory, vm)?;
    let pass = || {
        door.write_all(&[number])?;
        let gone = || Error::new(ErrorKind::ConnectionAborted, "the homenode that waits for it has ended");
        let socket = receive_descriptor(&door)?.ok_or_else(gone)?;
        carry(socket.into(), input, output)
    };
    pass().map_err(MigrationError::io("pass a part of the guest on"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol;
    use std::os::unix::net::UnixListener;

    /// QEMU 7.2 took the first that came for the one that it reads first, and waited for ever.
    #[test]
    fn the_first_connection_reaches_qemu_first_whichever_comes_in_first() {
        let place = tempfile::tempdir().unwrap();
        let door = Door::open(place.path().join("door")).unwrap();
        let qemu = UnixListener::bind(place.path().join("qemu")).unwrap();
        let (_theirs, ours) = UnixStream::pair().unwrap();
        let mut link = Link::over("b", ours.try_clone().unwrap(), ours, protocol::from_source);
        // Each says its number over what it is given; 9 is none of them, and 1 comes twice.
        let programs: Vec<_> = [2, 1, 9, 1, 0]
            .into_iter()
            .map(|number: u8| {
                let mut program = UnixStream::connect(place.path().join("door")).unwrap();
                program.write_all(&[number]).unwrap();
                (number, program)
            })
            .collect();
        wait_for_all(&door, &mut link, 3, || Ok(UnixStream::connect(place.path().join("qemu")).unwrap())).unwrap();
        let mut carried = Vec::new();
        for (number, program) in programs {
            if let Ok(Some(socket)) = receive_descriptor(&program) {
                UnixStream::from(socket).write_all(&[number]).unwrap();
                carried.push(number);
            }
        }
        assert_eq!(carried, [2, 1, 0], "the one that came twice is taken once");
        let numbers = (0..3).map(|_| {
            let mut number = [0u8];
            qemu.accept().unwrap().0.read_exact(&mut number).unwrap();
            number[0]
        });
        assert_eq!(numbers.collect::<Vec<_>>(), [0, 2, 1]);
    }
}

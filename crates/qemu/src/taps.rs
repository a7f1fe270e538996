//! Tap devices that a QEMU inherits: copies of the caller's, so that a start that failed may be
//! tried again. With each queue of a virtio card goes the kernel's own server of it (vhost-net),
//! where there is one: homenode opens it, so that QEMU's user need not be allowed to.

use crate::QemuError;
use crate::command_line::TapNumbers;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use vm::spec::{Card, CardModel, Network, Vhost};
use vm::{Carries, Launch, Tap};

const VHOST_NET: &str = "/dev/vhost-net";

/// By card.
pub(crate) struct Inherited(BTreeMap<usize, Copied>);

struct Copied {
    queues: Vec<OwnedFd>,
    vhost: Vec<OwnedFd>,
    lock: Option<OwnedFd>,
    carries: Carries,
}

impl Inherited {
    /// # Errors
    /// Too many files are open, or a card is to be served by a kernel that does not.
    pub(crate) fn of(launch: &Launch) -> Result<Self, QemuError> {
        let vm = &launch.spec.name;
        let copy = |(index, tap): (&usize, &Tap)| {
            let queues = tap.queues.iter().map(|queue| queue.try_clone()).collect::<Result<Vec<_>, _>>();
            let queues = queues.map_err(QemuError::io(vm, "copy a tap device"))?;
            let lock = tap.lock.as_ref().map(|lock| lock.try_clone()).transpose();
            let lock = lock.map_err(QemuError::io(vm, "copy a tap device's lock"))?;
            let vhost = match launch.spec.networks.get(*index) {
                Some(Network::Plugged { card, .. }) if tap.carries == Carries::Datagrams => alone(vm, *index, card)?,
                Some(Network::Plugged { card, .. }) => servers(vm, *index, card)?,
                _ => Vec::new(),
            };
            Ok((*index, Copied { queues, vhost, lock, carries: tap.carries }))
        };
        launch.taps.iter().map(copy).collect::<Result<_, _>>().map(Self)
    }

    /// Their numbers, which QEMU's command line says.
    pub(crate) fn numbers(&self) -> BTreeMap<usize, TapNumbers> {
        let numbers = |files: &[OwnedFd]| files.iter().map(AsRawFd::as_raw_fd).collect();
        let of = |copied: &Copied| TapNumbers {
            queues: numbers(&copied.queues),
            vhost: numbers(&copied.vhost),
            carries: copied.carries,
        };
        self.0.iter().map(|(card, copied)| (*card, of(copied))).collect()
    }

    pub(crate) fn descriptors(self) -> impl Iterator<Item = OwnedFd> {
        self.0.into_values().flat_map(|copied| copied.queues.into_iter().chain(copied.vhost).chain(copied.lock))
    }
}

/// No server: QEMU itself moves the frames of a socket, by one queue.
fn alone(vm: &str, index: usize, card: &Card) -> Result<Vec<OwnedFd>, QemuError> {
    let fault = |field: &str, value: String, valid: &str| {
        let problem = format!(
            "network[{index}].{field} = {value}: its switch is of kind \"vde\", whose frames QEMU moves by one queue; \
             {valid}, or a switch of kind \"kernel\""
        );
        Err(QemuError::Spec { vm: vm.to_owned(), problem })
    };
    if card.vhost == Vhost::On {
        return fault("vhost", "\"on\"".to_owned(), "\"auto\" or \"off\" there");
    }
    if card.queues > 1 {
        return fault("queues", card.queues.to_string(), "1 there");
    }
    Ok(Vec::new())
}

/// The kernel's servers of a card, one for each queue; none where QEMU serves it.
fn servers(vm: &str, index: usize, card: &Card) -> Result<Vec<OwnedFd>, QemuError> {
    if card.vhost == Vhost::Off || card.model != CardModel::Virtio {
        return Ok(Vec::new());
    }
    let open = |_| File::options().read(true).write(true).open(VHOST_NET).map(OwnedFd::from);
    match (0..card.queues).map(open).collect::<Result<Vec<_>, _>>() {
        Ok(servers) => Ok(servers),
        Err(_) if card.vhost == Vhost::Auto => Ok(Vec::new()),
        Err(error) => Err(QemuError::Spec {
            vm: vm.to_owned(),
            problem: format!(
                "network[{index}].vhost = \"on\": {VHOST_NET}: {error}. `modprobe vhost_net` makes it, and who starts \
                 the VM must be allowed to open it (Debian: the group kvm); \"auto\" does without"
            ),
        }),
    }
}

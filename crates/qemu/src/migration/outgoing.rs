//! The source: a QEMU whose guest leaves.

use super::{CONNECTION, End, Progress, Status, Tuning, next, progress, run_state, take_disks_back};
use crate::background::{connect, find, stop};
use crate::qmp::Qmp;
use crate::runtime_dir::{MONITOR, RuntimeDir};
use crate::saved::run_by;
use crate::{BackgroundVm, QemuError};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use topology::Bytes;
use vm::{Added, Manifest, VirtualTopology, VmSpec};

/// How long the monitor of a VM that runs may take to greet.
const GREETING: Duration = Duration::from_secs(10);
/// How long a migration that is called off may take to say so.
const CANCELLED: Duration = Duration::from_secs(20);
/// For so long before the end of that time it is called off after all where its devices are on
/// their way.
const LEFT_ALONE: Duration = Duration::from_secs(10);

/// A VM in the background that may be sent, with a connection to its monitor.
#[derive(Debug)]
pub struct Outgoing {
    directory: RuntimeDir,
    state: BackgroundVm,
    pid: u32,
    qmp: Qmp,
    switched_over: bool,
}

/// How fast a guest writes to its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirtyRate {
    /// Bytes in a second, each page counted once.
    pub per_second: Bytes,
    /// Seconds that it was watched.
    pub seconds: u64,
}

impl Outgoing {
    /// Connects to the monitor of a VM in the background.
    ///
    /// # Errors
    /// There is no such VM, or it does not answer.
    pub fn connect(directory: &RuntimeDir, name: &str) -> Result<Self, QemuError> {
        let (path, state) = find(directory, name)?;
        let missing = || QemuError::NoSuchVm { vm: name.to_owned(), cleaned: None };
        let qemu = state.qemu.filter(|qemu| qemu.is_alive()).ok_or_else(missing)?;
        let qmp = Qmp::handshake(name, connect(name, &path.join(MONITOR))?, GREETING)?;
        Ok(Self { directory: directory.clone(), state, pid: qemu.pid, qmp, switched_over: false })
    }

    /// QEMU's process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// What another QEMU must agree on to take its guest over.
    ///
    /// # Errors
    /// It has ended, or does not say.
    pub fn manifest(
        &mut self,
        spec: &VmSpec,
        topology: &VirtualTopology,
        added: &Added,
    ) -> Result<Manifest, QemuError> {
        let hardware = self.state.accelerator.is_hardware();
        Ok(Manifest::of(spec, topology, added, run_by(&mut self.qmp, self.pid, spec, hardware)?))
    }

    /// Whether its vCPUs run.
    ///
    /// # Errors
    /// It has ended.
    pub fn runs(&mut self) -> Result<bool, QemuError> {
        run_state(&mut self.qmp).map(|(runs, _)| runs)
    }

    /// Why it cannot be sent, in QEMU's words; empty where it can. QEMU before 6.0 does not say.
    ///
    /// # Errors
    /// It has ended.
    pub fn blocked(&mut self) -> Result<Vec<String>, QemuError> {
        progress(&mut self.qmp).map(|progress| progress.blocked)
    }

    /// Watches for some seconds how fast its guest writes to its memory; `None` where QEMU cannot
    /// say.
    ///
    /// # Errors
    /// It has ended.
    pub fn dirty_rate(&mut self, seconds: u64) -> Result<Option<DirtyRate>, QemuError> {
        if !self.runs()? {
            return Ok(Some(DirtyRate { per_second: Bytes(0), seconds: 0 }));
        }
        if let Err(error) = self.qmp.execute("calc-dirty-rate", &json!({ "calc-time": seconds })) {
            return if matches!(error, QemuError::Refused { .. }) { Ok(None) } else { Err(error) };
        }
        let deadline = Instant::now() + Duration::from_secs(seconds + 10);
        while Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(100));
            let answer = self.qmp.execute("query-dirty-rate", &json!({}))?;
            // In MiB; without the field it is still at it.
            if let (Some("measured"), Some(mib)) = (answer["status"].as_str(), answer["dirty-rate"].as_u64()) {
                return Ok(Some(DirtyRate { per_second: Bytes::from_mib(mib), seconds }));
            }
        }
        Ok(None)
    }

    /// Tells QEMU how to send.
    ///
    /// # Errors
    /// QEMU refuses.
    pub fn prepare(&mut self, tuning: &Tuning) -> Result<(), QemuError> {
        take_disks_back(&mut self.qmp)?;
        tuning.set(&mut self.qmp, End::Sends)
    }

    /// Begins to send the guest into a connected socket.
    ///
    /// # Errors
    /// QEMU refuses, and says why.
    pub fn send(&mut self, socket: OwnedFd) -> Result<(), QemuError> {
        self.qmp.give(CONNECTION, socket.as_fd())?;
        drop(socket);
        self.qmp.execute("migrate", &json!({ "uri": format!("fd:{CONNECTION}") })).map(drop)
    }

    /// Lets the rest of a guest go that stands still ([`Status::Ready`]).
    ///
    /// # Errors
    /// QEMU refuses.
    pub fn switch_over(&mut self) -> Result<(), QemuError> {
        self.switched_over = true;
        self.qmp.execute("migrate-continue", &json!({ "state": "pre-switchover" })).map(drop)
    }

    /// Lets the memory that was not sent yet follow after the guest, which goes now.
    ///
    /// # Errors
    /// QEMU refuses.
    pub fn follow_later(&mut self) -> Result<(), QemuError> {
        self.qmp.execute("migrate-start-postcopy", &json!({})).map(drop)
    }

    /// Goes on over another connected socket where it was interrupted ([`Status::Interrupted`]).
    ///
    /// # Errors
    /// QEMU refuses, and says why.
    pub fn resume(&mut self, socket: OwnedFd) -> Result<(), QemuError> {
        self.qmp.give(CONNECTION, socket.as_fd())?;
        drop(socket);
        let arguments = json!({ "uri": format!("fd:{CONNECTION}"), "resume": true });
        self.qmp.execute("migrate", &arguments).map(drop)
    }

    /// How far it has come.
    ///
    /// # Errors
    /// QEMU has ended.
    pub fn progress(&mut self) -> Result<Progress, QemuError> {
        progress(&mut self.qmp)
    }

    /// Waits up to `within` until it has come further, and says how far.
    ///
    /// # Errors
    /// QEMU has ended.
    pub fn next(&mut self, within: Duration) -> Result<Progress, QemuError> {
        next(&mut self.qmp, within)
    }

    /// Calls it off, and waits until it is over. It may have come to its end before.
    ///
    /// # Errors
    /// QEMU has ended, or does not get to an end.
    pub fn cancel(&mut self) -> Result<(), QemuError> {
        let deadline = Instant::now() + CANCELLED;
        loop {
            let status = progress(&mut self.qmp)?.status;
            if status == Status::None || status.is_over() {
                return Ok(());
            }
            // Once switched over it comes to its end by itself, whether the other one lives or not.
            let left_alone = self.switched_over && Instant::now() + LEFT_ALONE < deadline;
            if !left_alone {
                self.qmp.execute("migrate_cancel", &json!({}))?;
            }
            if !next(&mut self.qmp, Duration::from_millis(100))?.status.is_over() && !left_alone {
                self.release()?;
            }
            if Instant::now() > deadline {
                let what = "calling its migration off".to_owned();
                return Err(QemuError::Timeout { vm: self.state.name.clone(), what, seconds: CANCELLED.as_secs() });
            }
        }
    }

    /// Where it was called off in the very moment in which it began to wait for
    /// [`Outgoing::switch_over`], QEMU waits on for ever, and its guest stands still (seen with 7.2
    /// on a busy machine, 1 of 12). Elsewhere this changes nothing.
    fn release(&mut self) -> Result<(), QemuError> {
        match self.qmp.execute("migrate-continue", &json!({ "state": "cancelling" })) {
            // It is not being called off any more.
            Err(QemuError::Refused { .. }) => Ok(()),
            released => released.map(drop),
        }
    }

    /// Lets a guest go on that has been sent, or was about to be. Only where nobody has it
    /// elsewhere. One that runs already may be told too: it takes back disks that are not its own.
    ///
    /// # Errors
    /// QEMU has ended, or refuses.
    pub fn go_on(&mut self) -> Result<(), QemuError> {
        self.qmp.execute("cont", &json!({})).map(drop)
    }

    /// Ends its process, where it has not ended by itself, and removes what it left: it runs
    /// elsewhere.
    ///
    /// # Errors
    /// The process cannot be ended.
    pub fn end(self) -> Result<(), QemuError> {
        let Self { directory, state, qmp, .. } = self;
        // QEMU serves one visitor at a time.
        drop(qmp);
        match stop(&directory, &state.name, Duration::ZERO) {
            Err(QemuError::NoSuchVm { .. }) => Ok(()),
            ended => ended.map(drop),
        }
    }
}

//! The source: a QEMU whose guest leaves.

use super::blocker::blocker;
use super::channels::Leaving;
use super::{
    CONNECTION, End, Look, Status, look, next, once_tidied_up, run_state, take_disks_back, tidied_up, tune, untune,
};
use crate::QemuError;
use crate::qmp::Qmp;
use serde_json::json;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use topology::Bytes;
use vm::backend::{BackendError, ErrorKind, Watch};
use vm::sending::{DirtyRate, Progress, Rest, Sent, Tuning};
use vm::{Manifest, MemoryDeviceKind};

/// How often is asked how far it has come; that it is ready or over QEMU says at once.
const LOOK: Duration = Duration::from_millis(50);
/// How often is asked how much memory has followed.
const LOOK_AT_REST: Duration = Duration::from_millis(50);
/// How long a migration that is called off may take to say so.
const CANCELLED: Duration = Duration::from_secs(20);
/// For so long before the end of that time it is called off after all where its devices are on
/// their way.
const LEFT_ALONE: Duration = Duration::from_secs(10);

/// That QEMU sends its guest. QEMU before 6.0 does not say what keeps it from that.
pub(crate) fn check(qmp: &mut Qmp, manifest: &Manifest) -> Result<(), BackendError> {
    // Before anything is made at the other end for it.
    tidied_up(qmp)?;
    let name = &manifest.spec.name;
    let blocked = look(qmp)?.blocked;
    if !blocked.is_empty() {
        let because = blocked.iter().map(|words| blocker(words)).collect::<Vec<_>>().join("; ");
        let problem = format!("VM {name} cannot be sent as it is: {because}");
        return Err(BackendError::new(ErrorKind::BadInput, problem));
    }
    check_emulated(manifest)
}

/// QEMU 10 under emulation was seen to end, by an assertion of its own
/// (`tlb_reset_dirty_range_all`), while it sent a guest that had virtio-mem plugged in: two of
/// three that also had vCPUs plugged in. The guest is lost then.
fn check_emulated(manifest: &Manifest) -> Result<(), BackendError> {
    let has_virtio_mem = manifest.added.memory.iter().any(|device| device.kind == MemoryDeviceKind::VirtioMem);
    if manifest.run_by.hardware || !has_virtio_mem {
        return Ok(());
    }
    let problem = format!(
        "VM {name} cannot be sent while it runs: its guest is emulated (TCG) and has memory plugged in, and \
        QEMU may end while it sends such a guest; `homenode vm suspend {name}` and `homenode vm resume {name}` \
        give it other homes",
        name = manifest.spec.name
    );
    Err(BackendError::new(ErrorKind::BadInput, problem))
}

/// Watches for some seconds how fast its guest writes to its memory; `None` where QEMU cannot say.
pub(crate) fn dirty_rate(qmp: &mut Qmp, seconds: u64) -> Result<Option<DirtyRate>, QemuError> {
    if !run_state(qmp)?.0 {
        return Ok(Some(DirtyRate { per_second: Bytes(0), seconds: 0 }));
    }
    if let Err(error) = qmp.execute("calc-dirty-rate", &json!({ "calc-time": seconds })) {
        return if matches!(error, QemuError::Refused { .. }) { Ok(None) } else { Err(error) };
    }
    let deadline = Instant::now() + Duration::from_secs(seconds + 10);
    while Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(100));
        let answer = qmp.execute("query-dirty-rate", &json!({}))?;
        // In MiB; without the field it is still at it.
        if let (Some("measured"), Some(mib)) = (answer["status"].as_str(), answer["dirty-rate"].as_u64()) {
            return Ok(Some(DirtyRate { per_second: Bytes::from_mib(mib), seconds }));
        }
    }
    Ok(None)
}

/// What a guest goes over.
pub(crate) enum Over<'a> {
    /// A connected socket.
    One(OwnedFd),
    /// Connections that QEMU makes, each of which is given away.
    Several(Leaving, &'a mut dyn FnMut(OwnedFd) -> Result<(), BackendError>),
}

/// Sends the guest until all of it is there, or follows it.
/// `switched_over`: whether it was told to send the rest of a guest that stands still.
pub(crate) fn send(
    qmp: &mut Qmp,
    (over, tuning): (Over<'_>, &Tuning),
    switched_over: &mut bool,
    watch: &mut Watch<'_>,
) -> Result<Sent, BackendError> {
    *switched_over = false;
    tidied_up(qmp)?;
    take_disks_back(qmp)?;
    tune(qmp, tuning, End::Sends)?;
    match over {
        Over::One(socket) => begin(qmp, socket, false)?,
        Over::Several(leaving, give) => begin_over_several(qmp, leaving, tuning, give)?,
    }
    let mut may_follow = tuning.postcopy;
    loop {
        let mut look = next(qmp, LOOK)?;
        match look.status {
            Status::Completed => return Ok(Sent::AllThere(look.progress)),
            Status::Follows => return Ok(Sent::Follows),
            Status::Interrupted => return Err(failed("the link was cut".to_owned())),
            Status::Failed | Status::Cancelled => return Err(failed(why(look))),
            Status::None | Status::Underway | Status::Ready => {}
        }
        if may_follow && look.sent_all_once() {
            qmp.execute("migrate-start-postcopy", &json!({}))?;
            may_follow = false;
        }
        look.progress.switches = *switched_over;
        if !watch(&look.progress) {
            return Err(BackendError::new(ErrorKind::CalledOff, "it was called off"));
        }
        if look.status == Status::Ready && !*switched_over {
            *switched_over = true;
            qmp.execute("migrate-continue", &json!({ "state": "pre-switchover" }))?;
        }
    }
}

fn failed(because: String) -> BackendError {
    BackendError::new(ErrorKind::Failed, because)
}

fn why(look: Look) -> String {
    look.error.unwrap_or_else(|| "QEMU says that it failed".to_owned())
}

/// Gives QEMU the socket and begins; or goes on where another one was cut (`resume`).
fn begin(qmp: &mut Qmp, socket: OwnedFd, resume: bool) -> Result<(), QemuError> {
    qmp.give(CONNECTION, socket.as_fd())?;
    drop(socket);
    let mut arguments = json!({ "uri": format!("fd:{CONNECTION}") });
    if resume {
        arguments["resume"] = json!(true);
    }
    once_tidied_up(qmp, "migrate", &arguments)
}

fn begin_over_several(
    qmp: &mut Qmp,
    leaving: Leaving,
    tuning: &Tuning,
    give: &mut dyn FnMut(OwnedFd) -> Result<(), BackendError>,
) -> Result<(), BackendError> {
    let uri = leaving.uri(qmp)?;
    qmp.execute("migrate", &json!({ "uri": uri }))?;
    match leaving.all(qmp, tuning)? {
        Some(all) => all.into_iter().try_for_each(give),
        None => Err(failed(look(qmp)?.error.unwrap_or_else(|| "QEMU does not make its connections".to_owned()))),
    }
}

/// Waits until the memory has gone that follows its guest, over this socket where the last one was
/// cut.
pub(crate) fn send_rest(
    qmp: &mut Qmp,
    over: Option<OwnedFd>,
    watch: &mut dyn FnMut(&Progress),
) -> Result<Rest, BackendError> {
    over.map(|socket| begin(qmp, socket, true)).transpose()?;
    let mut resumed = false;
    loop {
        let look = next(qmp, LOOK_AT_REST)?;
        watch(&look.progress);
        match look.status {
            Status::Completed => return Ok(Rest::Went(look.progress)),
            Status::Interrupted => return Ok(Rest::Interrupted { progress: look.progress, resumed }),
            Status::Failed | Status::Cancelled | Status::None => {
                return Err(BackendError::new(ErrorKind::Gone, why(look)));
            }
            Status::Follows => resumed = true,
            Status::Underway | Status::Ready => {}
        }
    }
}

/// Whether memory follows its guest.
pub(crate) fn follows(qmp: &mut Qmp) -> Result<bool, QemuError> {
    Ok(matches!(look(qmp)?.status, Status::Follows | Status::Interrupted))
}

/// Calls off what was begun, lets the guest go on where `runs`, and takes back how it was sent. One
/// that runs already may be told too: it takes back disks that are not its own.
pub(crate) fn stay(qmp: &mut Qmp, switched_over: bool, runs: bool) -> Result<(), QemuError> {
    cancel(qmp, switched_over)?;
    if runs {
        once_tidied_up(qmp, "cont", &json!({}))?;
    }
    match tidied_up(qmp).and_then(|()| untune(qmp)) {
        // The guest goes on all the same, and the next one that is sent is told how.
        Err(QemuError::Refused { .. } | QemuError::NotTidiedUp { .. }) => Ok(()),
        untuned => untuned,
    }
}

/// Calls it off, and waits until it is over. It may have come to its end before.
fn cancel(qmp: &mut Qmp, switched_over: bool) -> Result<(), QemuError> {
    let deadline = Instant::now() + CANCELLED;
    loop {
        let status = look(qmp)?.status;
        if status == Status::None || status.is_over() {
            return Ok(());
        }
        // Once switched over it comes to its end by itself, whether the other one lives or not.
        let left_alone = switched_over && Instant::now() + LEFT_ALONE < deadline;
        if !left_alone {
            qmp.execute("migrate_cancel", &json!({}))?;
        }
        if !next(qmp, Duration::from_millis(100))?.status.is_over() && !left_alone {
            release(qmp)?;
        }
        if Instant::now() > deadline {
            let (vm, what) = (qmp.vm().to_owned(), "calling its migration off".to_owned());
            return Err(QemuError::Timeout { vm, what, seconds: CANCELLED.as_secs() });
        }
    }
}

/// Where it was called off in the very moment in which it began to wait for `migrate-continue`,
/// QEMU waits on for ever, and its guest stands still (seen with 7.2 on a busy machine, 1 of 12).
/// Elsewhere this changes nothing.
fn release(qmp: &mut Qmp) -> Result<(), QemuError> {
    match qmp.execute("migrate-continue", &json!({ "state": "cancelling" })) {
        // It is not being called off any more.
        Err(QemuError::Refused { .. }) => Ok(()),
        released => released.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emulated_guest_with_virtio_mem_is_not_sent() {
        // It has a virtio-mem device plugged in, and runs under KVM.
        let text = include_str!("../../../../fuzz/seeds/manifest/web.json");
        let kvm = Manifest::from_text(text.trim_end()).unwrap();
        assert!(check_emulated(&kvm).is_ok());
        let mut emulated = kvm;
        emulated.run_by.hardware = false;
        let error = check_emulated(&emulated).unwrap_err();
        assert!(error.is_bad_input() && error.to_string().contains("vm suspend web"), "{error}");
        emulated.added.memory.clear();
        assert!(check_emulated(&emulated).is_ok());
    }
}

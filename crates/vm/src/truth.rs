//! What is kept of a VM's life, compared with what runs.
//!
//! **Problem.** A record says what somebody wrote last. Since then the guest may have powered
//! itself off, QEMU may have been killed, the host may have gone down; and whoever was at work on
//! the VM may have been killed half way.
//!
//! **Rule.** What runs is the truth; whoever looks while nobody is at work on the VM brings its
//! record up to it:
//!
//! ```text
//! record says                    its process     the record becomes
//! starting, migrating in         runs            running: the start was complete
//!                                came paused     paused
//!                                is not there    what it was before; nothing where nothing was
//! running, paused                is not there    stopped where somebody had asked it to end,
//!                                                else lost
//! migrating out                  is not there    lost, if it was not handed over yet
//! running                        its vCPUs wait  paused
//! paused                         they run        running
//! paused to be suspended         they wait       running: they are let go on, as if it had failed
//! anything else                  -               stays: that is for whoever goes on with it
//! ```
//!
//! A manager that others use, too (libvirt), knows more, and what it says goes before the record:
//!
//! ```text
//! stopped, lost, planned         is there        running: somebody started it through its manager
//! suspended                      is there        running: somebody let it go on from its file, or
//!                                                started it anew; the file is too old for it
//! running, paused                was ended       stopped: its guest powered off, or it was stopped
//! paused, and in which file      is in the file  suspended
//! ```
//!
//! Otherwise nothing tells afterwards how a process ended whose parent has gone: a guest that
//! powers itself off and a QEMU that is killed look the same. So a VM that ended without being
//! asked to is *lost*, and what is known of its end is said with it. A VM that is lost starts again
//! as one that was stopped.
//!
//! **Example.** The host was restarted while `web` ran: `homenode vm list` says `lost`, and
//! `homenode vm start web` starts it with the virtual topology that it had.

use crate::history::{Life, LifeEvent};
use crate::life::{State, Step};

/// What is seen of a VM's process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Process {
    /// It is there, and its start is complete.
    Runs,
    /// The same of a guest that was paused when it came from elsewhere.
    CamePaused,
    /// It is there, and so says a manager that others use, too.
    Managed {
        /// Whether its vCPUs wait.
        paused: bool,
    },
    /// Somebody who lives is at work on it.
    Starts,
    /// It is not there, and that was on purpose, as its manager says.
    Ended,
    /// It is not there, and its manager has written its guest to the end of the file that its
    /// record names.
    InFile,
    /// It is not there.
    Gone {
        /// What is known of its end, as a sentence.
        because: String,
    },
    /// Who could say it does not answer.
    Unknown,
}

/// What has to become of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mend {
    /// The start was complete: it runs.
    Complete {
        /// It came paused, and stays so.
        paused: bool,
    },
    /// The start was cut short: back to what was before.
    CallBack,
    /// Somebody else started it.
    Started,
    /// A step was taken that nobody wrote down.
    Step(Step, LifeEvent),
    /// Its vCPUs wait for somebody who is gone: let them go on, and take that step.
    LetGoOn(LifeEvent),
}

/// What has to become of a record of a VM that nobody is at work on; `None` where it is right.
pub fn mend(life: &Life, process: &Process) -> Option<Mend> {
    match (life.state, process) {
        (State::Starting | State::MigratingIn, Process::Runs) => Some(Mend::Complete { paused: false }),
        (State::Starting | State::MigratingIn, Process::CamePaused) => Some(Mend::Complete { paused: true }),
        (State::Starting | State::MigratingIn, Process::Managed { paused }) => Some(Mend::Complete { paused: *paused }),
        (State::Starting | State::MigratingIn, Process::Gone { .. } | Process::Ended | Process::InFile) => {
            Some(Mend::CallBack)
        }
        (State::Running | State::Paused, Process::Managed { paused }) => mend_vcpus(life, !paused),
        (State::Planned | State::Stopped | State::Lost | State::Suspended, Process::Managed { .. }) => {
            Some(Mend::Started)
        }
        (State::Paused, Process::InFile) => {
            let file = life.suspended_in.clone().unwrap_or_default();
            Some(Mend::Step(Step::Suspend, LifeEvent::Suspended { file, id: String::new() }))
        }
        (State::Running | State::Paused, Process::Ended) => Some(Mend::Step(Step::Stop, LifeEvent::Stopped)),
        (State::Running | State::Paused, Process::Gone { because }) => Some(match life.asked_to_end {
            true => Mend::Step(Step::Stop, LifeEvent::Stopped),
            false => Mend::Step(Step::Vanished, LifeEvent::Lost { because: because.clone() }),
        }),
        // Once it was handed over, the other host alone knows whether it runs there.
        (State::MigratingOut, Process::Gone { because }) if life.handed_over.is_none() => {
            Some(Mend::Step(Step::Vanished, LifeEvent::Lost { because: because.clone() }))
        }
        _ => None,
    }
}

/// What has to become of a record of a VM that is there and that nobody is at work on, where its
/// vCPUs run or wait; `None` where it is right. QEMU itself stops them too, for example where a
/// disk is full.
pub fn mend_vcpus(life: &Life, run: bool) -> Option<Mend> {
    let cut_short = || LifeEvent::Failed { because: "homenode ended while it suspended this VM".to_owned() };
    match (life.state, run) {
        (State::Running, false) => Some(Mend::Step(Step::Pause, LifeEvent::Paused)),
        (State::Paused, true) if life.is_paused_to_suspend() => Some(Mend::Step(Step::Continue, cut_short())),
        (State::Paused, true) => Some(Mend::Step(Step::Continue, LifeEvent::Continued)),
        (State::Paused, false) if life.is_paused_to_suspend() => Some(Mend::LetGoOn(cut_short())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::ReachedBy;
    use crate::history::{HandedOver, UnixSeconds};

    fn gone() -> Process {
        Process::Gone { because: "the host was restarted".to_owned() }
    }

    fn life(state: State, asked_to_end: bool) -> Life {
        Life { state, asked_to_end, ..Life::planned(ReachedBy::Qemu, UnixSeconds(1)) }
    }

    #[test]
    fn a_vm_that_ended_is_stopped_if_it_was_asked_to_and_lost_otherwise() {
        for state in [State::Running, State::Paused] {
            assert_eq!(mend(&life(state, true), &gone()), Some(Mend::Step(Step::Stop, LifeEvent::Stopped)));
            let lost = LifeEvent::Lost { because: "the host was restarted".to_owned() };
            assert_eq!(mend(&life(state, false), &gone()), Some(Mend::Step(Step::Vanished, lost)));
            assert_eq!(mend(&life(state, false), &Process::Runs), None);
        }
    }

    #[test]
    fn what_a_manager_was_told_by_others_goes_before_the_record() {
        let (runs, waits) = (Process::Managed { paused: false }, Process::Managed { paused: true });
        assert_eq!(mend(&life(State::Running, false), &runs), None);
        assert_eq!(mend(&life(State::Running, false), &waits), Some(Mend::Step(Step::Pause, LifeEvent::Paused)));
        assert_eq!(mend(&life(State::Paused, false), &waits), None);
        assert_eq!(mend(&life(State::Paused, false), &runs), Some(Mend::Step(Step::Continue, LifeEvent::Continued)));
        // `virsh start`, of a VM that was stopped; `virsh shutdown`, of one that ran.
        assert_eq!(mend(&life(State::Stopped, false), &runs), Some(Mend::Started));
        // `virsh restore`, of one that is in a file.
        assert_eq!(mend(&life(State::Suspended, false), &waits), Some(Mend::Started));
        assert_eq!(
            mend(&life(State::Running, false), &Process::Ended),
            Some(Mend::Step(Step::Stop, LifeEvent::Stopped))
        );
        for state in [State::Starting, State::Running, State::Stopped] {
            assert_eq!(mend(&life(state, false), &Process::Unknown), None);
        }
    }

    #[test]
    fn a_vm_that_its_manager_wrote_to_the_end_is_in_its_file() {
        let mut paused = life(State::Running, false);
        paused.pause_to_suspend(UnixSeconds(2)).unwrap();
        paused.suspended_in = Some("/web".into());
        let Some(Mend::Step(step, event)) = mend(&paused, &Process::InFile) else { panic!("it is not mended") };
        paused.step(step, Some(event), UnixSeconds(3)).unwrap();
        assert_eq!((paused.state, paused.suspended_in.as_deref()), (State::Suspended, Some("/web".as_ref())));
        // While it is resumed it is in that file, too.
        paused.step(Step::Resume, None, UnixSeconds(4)).unwrap();
        assert_eq!(mend(&paused, &Process::InFile), Some(Mend::CallBack));
    }

    #[test]
    fn a_start_that_was_cut_short_was_complete_or_is_called_back() {
        let starting = life(State::Starting, false);
        assert_eq!(mend(&starting, &Process::Runs), Some(Mend::Complete { paused: false }));
        let arriving = life(State::MigratingIn, false);
        assert_eq!(mend(&arriving, &Process::CamePaused), Some(Mend::Complete { paused: true }));
        assert_eq!(mend(&starting, &Process::Starts), None);
        assert_eq!(mend(&starting, &gone()), Some(Mend::CallBack));
    }

    #[test]
    fn a_vm_that_was_handed_over_is_for_the_other_host_to_tell() {
        let mut sent = life(State::MigratingOut, false);
        assert!(matches!(mend(&sent, &gone()), Some(Mend::Step(Step::Vanished, _))));
        sent.handed_over = Some(HandedOver { to: "ssh:b".to_owned(), receipt: "r".to_owned(), placement: None });
        assert_eq!(mend(&sent, &gone()), None);
    }

    #[test]
    fn vcpus_that_run_or_wait_are_what_the_record_becomes() {
        let (running, paused) = (life(State::Running, false), life(State::Paused, false));
        assert_eq!((mend_vcpus(&running, true), mend_vcpus(&paused, false)), (None, None));
        assert_eq!(mend_vcpus(&running, false), Some(Mend::Step(Step::Pause, LifeEvent::Paused)));
        assert_eq!(mend_vcpus(&paused, true), Some(Mend::Step(Step::Continue, LifeEvent::Continued)));
        // Nobody asked for more than that it be suspended.
        let mut cut = running;
        cut.pause_to_suspend(UnixSeconds(2)).unwrap();
        assert!(matches!(mend_vcpus(&cut, false), Some(Mend::LetGoOn(_))));
        assert!(matches!(mend_vcpus(&cut, true), Some(Mend::Step(Step::Continue, _))));
        assert_eq!(mend_vcpus(&life(State::MigratingOut, false), false), None);
    }

    #[test]
    fn a_step_that_mends_is_one_that_can_be_taken() {
        for state in [State::Running, State::Paused] {
            for asked in [true, false] {
                let mut life = life(state, asked);
                let Some(Mend::Step(step, event)) = mend(&life, &gone()) else { panic!("{state} is not mended") };
                life.step(step, Some(event), UnixSeconds(2)).unwrap();
                assert_eq!(mend(&life, &gone()), None);
            }
        }
    }
}

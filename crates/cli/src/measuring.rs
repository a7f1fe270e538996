//! What every command that measures needs: the program that carries out jobs, and a way to be
//! stopped.

use anyhow::Context;
use evaluate::real::ThisHost;
use qemu::TinyGuest;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// `homenode-guest`: from the tiny guest's files, or, where no VM is wanted, beside this program.
pub(crate) fn agent_program(runs_vms: bool) -> anyhow::Result<PathBuf> {
    match TinyGuest::locate(None) {
        Ok(guest) => Ok(guest.agent_program().to_owned()),
        Err(error) => {
            let beside = std::env::current_exe().ok().map(|program| program.with_file_name("homenode-guest"));
            let is_ours = |program: &PathBuf| linux::named_file::check_only_ours(program).is_ok();
            beside.filter(|program| !runs_vms && program.is_file() && is_ours(program)).ok_or_else(|| error.into())
        }
    }
}

/// This host, with VMs of QEMU.
pub(crate) fn this_host(agent: PathBuf) -> anyhow::Result<ThisHost> {
    let homenode = std::env::current_exe().context("find this program")?;
    Ok(ThisHost::new(agent, homenode, Box::new(qemu::Attached)))
}

/// Becomes true when somebody wants homenode to stop.
pub(crate) fn stop_wanted() -> anyhow::Result<Arc<AtomicBool>> {
    let wanted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // The second one ends homenode at once; the kernel then ends its VMs.
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&wanted))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&wanted)))
            .context("cannot listen for signals")?;
    }
    Ok(wanted)
}

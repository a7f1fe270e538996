//! Guests of a configuration become a network: addresses and names, and, where one program spans
//! them, keys that are made for this run.
//!
//! Each guest makes keys of its own, whose secret halves never leave its memory. It says the other
//! halves; then all learn the first guest's user and each other's host keys, so that nothing is
//! taken on trust. The first guest logs in everywhere once, before anything is measured.

use crate::errors::RunError;
use crate::resolve::ResolvedConfiguration;
use crate::switching::{first_network, host_name};
use crate::team::Team;
use workloads::protocol::{FromAgent, PublicKeys, ToAgent, Trust};

/// Does nothing where the guests have no cards in switches.
pub(crate) fn join(team: &mut Team, configuration: &ResolvedConfiguration, seconds: u32) -> Result<(), RunError> {
    let Some(joins) = configuration.joins() else { return Ok(()) };
    let awaited = "network cards";
    for (member, join) in joins.into_iter().enumerate() {
        team.send(member, &ToAgent::Join(join), awaited)?;
    }
    let joined = |message| match message {
        FromAgent::Joined { keys } => Some(keys),
        _ => None,
    };
    let keys = team.await_all(awaited, seconds, joined)?;
    let keys: Vec<PublicKeys> = keys.into_iter().filter_map(|(_, keys)| keys).collect();
    let Some(first) = keys.first().filter(|_| configuration.is_span) else { return Ok(()) };
    let host = |(vm, keys): (usize, &PublicKeys)| (host_name(vm as u32), keys.host.clone());
    let trust = |tries: bool| {
        let hosts = keys.iter().enumerate().map(host).collect();
        ToAgent::Trust(Trust { user: first.user.clone(), hosts, network: first_network(), tries })
    };
    let trusted = |message| matches!(message, FromAgent::Trusted).then_some(());
    let awaited = "logins";
    let all = 0..team.members.len();
    all.clone().skip(1).try_for_each(|member| team.send(member, &trust(false), awaited))?;
    team.await_of(1..all.end, awaited, seconds, trusted)?;
    team.send(0, &trust(true), awaited)?;
    team.await_of(0..1, awaited, seconds, trusted).map(drop)
}

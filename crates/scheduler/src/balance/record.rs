//! What became of a decision: the state is corrected where the host could not carry it out.

use super::state::{ClientMemory, Stuck, Trouble};
use super::{BalancePolicy, BalanceState, Decision};
use crate::{Action, ActionError, Done, Moment};
use topology::{Bytes, NodeId};

/// What was given up is tried again after this time.
const GIVEN_UP_MS: u64 = 3_600_000;

/// Tells the state what became of a decision: what failed is tried again later and later, then
/// given up with a reason; memory that would not move is not asked again every period.
pub fn record(
    policy: &BalancePolicy,
    state: &mut BalanceState,
    decision: &Decision,
    outcome: &Result<Done, ActionError>,
) {
    let at = state.at;
    let vm = decision.action.vm();
    let Ok(index) = state.vms.binary_search_by(|known| known.vm.cmp(vm)) else { return };
    if matches!(outcome, Err(ActionError::Gone { .. })) {
        state.vms.remove(index);
        return;
    }
    let id = decision.action.client();
    let Some(client) = state.vms[index].clients.iter_mut().find(|known| known.id == id) else { return };
    match (&decision.action, outcome) {
        (Action::Bind { .. }, Ok(_)) => (client.trouble, client.pending) = (None, None),
        (Action::Bind { .. }, Err(error)) => undo_bind(policy, client, at, &error.to_string()),
        (Action::MoveMemory { from, .. }, Ok(done)) => moved(policy, client, at, *from, done),
        (Action::MoveMemory { from, at_most, .. }, Err(error)) => {
            stick(policy, client, at, *from, *at_most, &error.to_string());
        }
    }
}

/// The client is where it was, and is not asked again before some time.
fn undo_bind(policy: &BalancePolicy, client: &mut ClientMemory, at: Moment, because: &str) {
    if let Some(home) = client.pending.take() {
        if !home.is_empty() && home != client.home {
            client.moves = client.moves.saturating_sub(1);
            // It never left: what it left before still counts.
            client.left = client.pending_left.take();
        }
        client.home = home;
        client.bound = None;
    }
    let failures = client.trouble.as_ref().map_or(0, |trouble| trouble.failures) + 1;
    client.trouble = Some(trouble(policy, failures, at, because));
}

fn moved(policy: &BalancePolicy, client: &mut ClientMemory, at: Moment, from: NodeId, done: &Done) {
    if done.left > done.moved {
        let because = done.because.clone().unwrap_or_else(|| "its pages did not move".to_owned());
        stick(policy, client, at, from, done.left, &because);
    } else {
        client.stuck.retain(|stuck| stuck.from != from);
    }
}

fn stick(policy: &BalancePolicy, client: &mut ClientMemory, at: Moment, from: NodeId, bytes: Bytes, because: &str) {
    match client.stuck.iter_mut().find(|stuck| stuck.from == from) {
        // A second chunk of the same period is no second attempt.
        Some(stuck) if stuck.trouble.until > at => stuck.bytes = stuck.bytes.saturating_add(bytes),
        Some(stuck) => {
            stuck.trouble = trouble(policy, stuck.trouble.failures + 1, at, because);
            stuck.bytes = stuck.bytes.max(bytes);
        }
        None => client.stuck.push(Stuck { from, bytes, trouble: trouble(policy, 1, at, because) }),
    }
}

fn trouble(policy: &BalancePolicy, failures: u32, at: Moment, because: &str) -> Trouble {
    let given_up = failures >= policy.give_up_after;
    let wait = if given_up { GIVEN_UP_MS } else { backoff_ms(policy, failures) };
    Trouble { failures, until: Moment(at.0.saturating_add(wait)), given_up, because: because.to_owned() }
}

/// Time before the next attempt after so many failures in a row, in milliseconds.
pub(super) fn backoff_ms(policy: &BalancePolicy, failures: u32) -> u64 {
    let first = policy.period_ms.saturating_mul(policy.retry_periods.into());
    first.saturating_mul(1 << failures.saturating_sub(1).min(20)).min(GIVEN_UP_MS)
}

/// `failed 2 times, tried again in 20 s: REASON`.
pub(super) fn sentence(trouble: &Trouble, at: Moment) -> String {
    let seconds = trouble.until.0.saturating_sub(at.0) / 1000;
    let what = if trouble.given_up { "given up" } else { "failed" };
    format!("{what} after {} attempts, tried again in {seconds} s: {}", trouble.failures, trouble.because)
}

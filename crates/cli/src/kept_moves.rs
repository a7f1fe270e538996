//! What a balancer did to a VM since its record was written: a client that it moved lives
//! elsewhere.
//!
//! **Rule.** The balancer knows nothing of records. Whoever looks writes down where the balancer
//! had each client last, where the kernel says that it is there still: somebody else may have moved
//! it since (`homenode vm move`). How often it moved meanwhile is the balancer's to say (`homenode
//! top`).

use crate::args_balance::StateArguments;
use crate::source::Remembered;
use crate::{backend, kept, kept_thread};
use daemon::{ClientRecord, VmRecord};
use inventory::{Inventory, InventoryError, Record};
use scheduler::Observation;
use topology::NodeSet;
use vm::history::LifeEvent;
use vm::life::State;
use vm::{Client, Placement};

/// The record with the homes that a balancer gave its clients; written where that can be.
///
/// # Errors
/// The processes of this host cannot be looked at.
pub(crate) fn brought_up(inventory: &Inventory, record: Record) -> anyhow::Result<Record> {
    if !matches!(record.life.state, State::Running | State::Paused) || record.placement.is_none() {
        return Ok(record);
    }
    kept_thread::free(inventory, &record);
    let Some(records) = Remembered::of_this_host(&StateArguments { state: None }).records else { return Ok(record) };
    let pid = backend::pid(&record);
    let Some(mut done) = records.into_iter().find(|done| done.vm.name == record.spec.name && Some(done.vm.pid) == pid)
    else {
        return Ok(record);
    };
    if moves(&record, &done).is_empty() {
        return Ok(record);
    }
    keep_true(&mut done, &linux::examine_this_host()?);
    if moves(&record, &done).is_empty() {
        return Ok(record);
    }
    match inventory.hold_now(&record.spec.name) {
        Ok(mut held) => {
            // It may have been changed before it was ours.
            let now = told(held.record().clone(), &done);
            let written = held
                .set_placement(now.placement.clone())
                .and_then(|()| held.change_life(|life| life.history.clone_from(&now.life.history)));
            // What cannot be written is shown all the same.
            Ok(written.map_or_else(|_| told(record, &done), |()| held.record().clone()))
        }
        Err(InventoryError::Busy { .. }) => Ok(record),
        Err(_) => Ok(told(record, &done)),
    }
}

/// Forgets of what a balancer did that which is not so any more.
fn keep_true(done: &mut VmRecord, seen: &Observation) {
    let Some(vm) = seen.vms.iter().find(|seen| seen.vm == done.vm) else { return };
    let is_so = |known: &ClientRecord| {
        vm.clients.iter().find(|client| client.id == known.client).is_none_or(|client| client.cpus == known.may_use())
    };
    done.clients.retain(is_so);
}

/// A change of home.
struct Move {
    client: u32,
    to: Client,
    event: LifeEvent,
}

/// Clients that a balancer has elsewhere than the record. A balancer's client is a virtual node;
/// one of the record that carries several stays as it is.
fn moves(record: &Record, done: &VmRecord) -> Vec<Move> {
    let clients: &[Client] = record.placement.as_ref().map_or(&[], |kept| &kept.placement.clients);
    let of = |client: &Client| {
        let [node] = client.virtual_nodes[..] else { return None };
        let known = done.clients.iter().find(|known| known.client.0 == node)?;
        let nowhere = NodeSet::new();
        if known.home == nowhere || known.home == client.home {
            return None;
        }
        let event = LifeEvent::Moved { client: client.id, from: client.home.clone(), to: known.home.clone() };
        let (home, cpus) = (known.home.clone(), known.set.clone());
        // The balancer binds a client's threads to all CPUs of its home.
        let to = Client { home, cpus, vcpu_cpus: Default::default(), groups: Vec::new(), ..client.clone() };
        Some(Move { client: client.id, to, event })
    };
    clients.iter().filter_map(of).collect()
}

fn told(mut record: Record, done: &VmRecord) -> Record {
    let moves = moves(&record, done);
    let Some(kept) = &mut record.placement else { return record };
    let Placement { clients } = &mut kept.placement;
    for Move { client, to, event } in moves {
        clients.iter_mut().filter(|known| known.id == client).for_each(|known| *known = to.clone());
        record.life.tell(event, kept::now());
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;
    use inventory::Kept;
    use scheduler::{ClientId, ClientObservation, VmKey, VmObservation};
    use std::collections::BTreeMap;
    use vm::history::{Life, UnixSeconds};
    use vm::{Added, MemoryPolicy, VmSpec};

    fn client(id: u32, virtual_nodes: Vec<u32>, home: &str) -> Client {
        let (home, cpus) = (home.parse().unwrap(), "0-3".parse().unwrap());
        Client {
            id,
            virtual_nodes,
            home,
            cpus,
            vcpu_cpus: Default::default(),
            groups: Vec::new(),
            far: Vec::new(),
            memory_policy: MemoryPolicy::Bind,
        }
    }

    #[test]
    fn a_client_lives_where_the_balancer_brought_it() {
        let clients = vec![client(0, vec![0], "0"), client(1, vec![1, 2], "1")];
        let placement = Some(Kept { host: "a".to_owned(), placement: Placement { clients }, added: Added::default() });
        let life = Life::planned(Default::default(), UnixSeconds(1));
        let record = Record { spec: VmSpec::default(), topology: None, placement, life };
        let mut done = VmRecord::new(VmKey { name: String::new(), pid: 7, started: 1 });
        let known = |client: u32, home: &str| ClientRecord {
            client: ClientId(client),
            before: "0-3".parse().unwrap(),
            set: "4-7".parse().unwrap(),
            pending: None,
            before_groups: Vec::new(),
            set_groups: Vec::new(),
            pending_groups: Vec::new(),
            home: home.parse().unwrap(),
            followers: BTreeMap::new(),
        };
        // Virtual node 1 is one of two that a client carries, and node 0 stays first.
        done.clients = vec![known(0, "0"), known(1, "3")];
        assert_eq!(told(record.clone(), &done), record);
        done.clients[0] = known(0, "2");
        // Somebody else brought it back since.
        let key = done.vm.clone();
        let seen = |cpus: &str| {
            let client = ClientObservation { cpus: cpus.parse().unwrap(), ..ClientObservation::default() };
            let vms = vec![VmObservation::of_clients(key.clone(), vec![client])];
            Observation { vms, ..Observation::default() }
        };
        let mut brought_back = done.clone();
        keep_true(&mut brought_back, &seen("0-3"));
        assert_eq!(told(record.clone(), &brought_back), record);
        let before = done.clone();
        keep_true(&mut done, &seen("4-7"));
        assert_eq!(done, before);
        let told = told(record, &done);
        let clients = &told.placement.as_ref().unwrap().placement.clients;
        assert_eq!((clients[0].home.to_string(), clients[0].cpus.to_string()), ("2".into(), "4-7".into()));
        assert_eq!(clients[1].home.to_string(), "1");
        let last = told.life.history.last().map(crate::life_words::event);
        assert_eq!(last.as_deref(), Some("client 0 moved from node 0 to node 2"));
        assert!(moves(&told, &done).is_empty());
    }
}

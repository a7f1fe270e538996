//! The administrator's rules, applied to what was observed before anything is decided.

use crate::policy_file::{MemoryRule, VmRule};
use scheduler::{Mobility, Observation, SaidBy, VmKey, VmObservation};
use std::collections::BTreeMap;

/// The rules, and which of them each VM that runs falls under.
pub struct Rules {
    rules: Vec<VmRule>,
    // A VM's name and UUID never change, so that each is looked up once for each owner that it has
    // had.
    found: BTreeMap<VmKey, Found>,
}

/// The rule that a VM of an owner falls under.
struct Found {
    owner: (Option<u32>, bool),
    rule: Option<usize>,
}

impl Rules {
    /// These rules.
    pub fn new(rules: Vec<VmRule>) -> Self {
        Self { rules, found: BTreeMap::new() }
    }

    /// Changes the observation to what the rules allow.
    pub fn apply(&mut self, observation: &mut Observation) {
        self.found.retain(|known, _| observation.vms.iter().any(|seen| seen.vm == *known));
        for seen in &mut observation.vms {
            if let Some(index) = self.rule_of(seen) {
                restrict(seen, &self.rules[index], index);
            }
        }
    }

    fn rule_of(&mut self, seen: &VmObservation) -> Option<usize> {
        let owner = (seen.owner_uid, seen.stranger);
        if let Some(known) = self.found.get(&seen.vm).filter(|known| known.owner == owner) {
            return known.rule;
        }
        let rule = self.rules.iter().position(|rule| rule.matches(seen));
        self.found.insert(seen.vm.clone(), Found { owner, rule });
        rule
    }
}

fn restrict(seen: &mut VmObservation, rule: &VmRule, index: usize) {
    // One that is never moved counts all the same.
    if let Some(is_it) = rule.latency_sensitive {
        seen.latency_sensitive = is_it.then(|| format!("its administrator says so (rule {} of the policy)", index + 1));
    }
    if rule.opt_out {
        seen.mobility =
            Mobility::Fixed { because: format!("its administrator opted out (rule {} of the policy)", index + 1) };
        return;
    }
    let by = SaidBy::Rule(index);
    if let Some(nodes) = &rule.node_affinity {
        (seen.stated_nodes, seen.said.node_affinity) = (Some(nodes.clone()), by);
    }
    seen.shares = rule.shares.unwrap_or(seen.shares);
    if let Some(placement) = rule.placement {
        (seen.placement, seen.said.placement) = (placement, by);
    }
    if let Some(bandwidth) = rule.bandwidth {
        (seen.bandwidth, seen.said.bandwidth) = (bandwidth, by);
    }
    if let Some(near) = rule.near_device {
        (seen.near_device, seen.said.near_device) = (Some(near), by);
    }
    if let Some(prefers) = rule.prefer_ht {
        (seen.prefer_ht, seen.said.prefer_ht) = (prefers, by);
    }
    if let Some(most) = rule.max_vcpus_per_node {
        (seen.max_vcpus_per_node, seen.said.max_vcpus_per_node) = (Some(most), by);
    }
    if rule.memory == MemoryRule::Stay && seen.mobility == Mobility::Movable {
        let because = format!("its administrator wants its memory to stay (rule {} of the policy)", index + 1);
        seen.mobility = Mobility::MemoryFixed { because };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ScriptedHost, vm};
    use scheduler::Observe;
    use vm::Stated;
    use vm::spec::{BandwidthNeed, Spread};

    fn rule(change: impl FnOnce(&mut VmRule)) -> VmRule {
        let mut rule = VmRule::default();
        change(&mut rule);
        rule
    }

    #[test]
    fn the_first_rule_that_matches_counts() {
        let out = rule(|rule| (rule.name, rule.opt_out) = (Some("vm1".into()), true));
        let stay = rule(|rule| {
            (rule.name, rule.memory, rule.shares) = (Some("vm*".into()), MemoryRule::Stay, Some(2048));
            rule.node_affinity = Some("1".parse().unwrap());
            (rule.placement, rule.bandwidth) = (Some(Spread::Apart), Some(BandwidthNeed::High));
        });
        let mut observation = ScriptedHost::two_nodes(&[vm(1), vm(2)]).observe().unwrap();
        Rules::new(vec![out, stay]).apply(&mut observation);
        let [first, second] = &observation.vms[..] else { panic!() };
        assert!(matches!(&first.mobility, Mobility::Fixed { because } if because.contains("rule 1")));
        assert_eq!((first.shares, &first.stated_nodes), (1024, &None));
        assert_eq!((first.placement, second.placement), (Spread::Auto, Spread::Apart));
        assert_eq!(second.bandwidth, BandwidthNeed::High);
        assert_eq!((second.said.placement, second.said.near_device), (SaidBy::Rule(1), SaidBy::Nobody));
        assert!(matches!(&second.mobility, Mobility::MemoryFixed { because } if because.contains("rule 2")));
        assert_eq!((second.shares, second.stated_nodes.as_ref().unwrap().to_string()), (2048, "1".into()));
    }

    #[test]
    fn a_rule_says_that_a_vm_is_latency_sensitive_or_is_not() {
        let says = |is_it: bool, name: &str| {
            rule(|rule| (rule.name, rule.latency_sensitive) = (Some(name.into()), Some(is_it)))
        };
        let mut out = says(true, "vm3");
        out.opt_out = true;
        let mut observation = ScriptedHost::two_nodes(&[vm(1), vm(2), vm(3)]).observe().unwrap();
        observation.vms[1].latency_sensitive = Some("it has real-time threads".to_owned());
        Rules::new(vec![says(true, "vm1"), says(false, "vm2"), out]).apply(&mut observation);
        let [first, second, third] = &observation.vms[..] else { panic!() };
        assert!(first.latency_sensitive.as_ref().is_some_and(|because| because.contains("rule 1")));
        assert_eq!(second.latency_sensitive, None);
        // One that is never moved counts all the same.
        assert!(third.counts_full() && matches!(third.mobility, Mobility::Fixed { .. }));
    }

    #[test]
    fn a_rule_overrules_what_the_spec_says_field_by_field() {
        let says = rule(|rule| {
            (rule.name, rule.placement, rule.near_device) = (Some("vm1".into()), Some(Spread::Auto), Some(false));
            rule.node_affinity = Some("1".parse().unwrap());
            (rule.prefer_ht, rule.max_vcpus_per_node) = (Some(false), Some(2));
        });
        let mut observation = ScriptedHost::two_nodes(&[vm(1), vm(2)]).observe().unwrap();
        let machine = ScriptedHost::two_nodes(&[]).machine().clone();
        let spec = Stated {
            placement: Spread::Apart,
            bandwidth: BandwidthNeed::Low,
            node_affinity: Some("0".parse().unwrap()),
            near_device: true,
            prefer_ht: true,
            ..Stated::default()
        };
        observation.vms.iter_mut().for_each(|vm| vm.takes_over(&spec));
        Rules::new(vec![says]).apply(&mut observation);
        let [first, second] = &observation.vms[..] else { panic!() };
        assert_eq!((first.placement, first.said.placement), (Spread::Auto, SaidBy::Rule(0)));
        assert_eq!((first.near_device, first.said.near_device), (Some(false), SaidBy::Rule(0)));
        assert_eq!((first.prefer_ht, first.said.prefer_ht), (false, SaidBy::Rule(0)));
        assert_eq!((first.max_vcpus_per_node, first.said.max_vcpus_per_node), (Some(2), SaidBy::Rule(0)));
        assert_eq!((second.prefer_ht, second.said.prefer_ht), (true, SaidBy::Spec));
        // Of its traffic the rule says nothing.
        assert_eq!((first.bandwidth, first.said.bandwidth), (BandwidthNeed::Low, SaidBy::Spec));
        // Both name one node, and it is another: the administrator's counts.
        assert_eq!(first.allowed(&machine).unwrap().to_string(), "1");
        assert_eq!((second.placement, second.said.placement), (Spread::Apart, SaidBy::Spec));
        assert_eq!(second.allowed(&machine).unwrap().to_string(), "0");
    }

    #[test]
    fn nobody_gets_a_rule_by_a_name_or_by_becoming_somebody_else() {
        let shares = rule(|rule| (rule.name, rule.shares) = (Some("vm*".into()), Some(4096)));
        let mut rules = Rules::new(vec![shares]);
        let mut shares_of = |stranger: bool| {
            let mut observation = ScriptedHost::two_nodes(&[vm(1)]).observe().unwrap();
            observation.vms[0].stranger = stranger;
            rules.apply(&mut observation);
            observation.vms[0].shares
        };
        assert_eq!([shares_of(true), shares_of(false), shares_of(true)], [1024, 4096, 1024]);
    }

    #[test]
    fn a_rule_finds_a_vm_by_its_uuid_however_that_is_written() {
        let by_uuid = rule(|rule| {
            (rule.uuid, rule.opt_out) = (Some("3f2504e0-4f89-11d3-9a0c-0305e82c3301".into()), true);
        });
        let mut observation = ScriptedHost::two_nodes(&[vm(1), vm(2)]).observe().unwrap();
        observation.vms[0].uuid = Some("3F2504E0-4F89-11D3-9A0C-0305E82C3301".into());
        Rules::new(vec![by_uuid]).apply(&mut observation);
        assert!(matches!(observation.vms[0].mobility, Mobility::Fixed { .. }));
        assert!(matches!(observation.vms[1].mobility, Mobility::Movable));
    }
}

//! What must hold of both solvers on every network.

use crate::networks::{group, networks};
use crate::reference;
use crate::reference::Dense;
use proptest::prelude::*;
use simulator::{Amva, Group, MaxMin, RateSolver, SolveError, StationId};

/// The queueing network, close enough for equalities.
fn amva() -> Amva {
    Amva::new(1e-9, 100_000)
}

fn near(one: f64, other: f64, share: f64) -> bool {
    (one - other).abs() <= share * one.abs().max(other.abs())
}

properties::properties! {
    #![cases(150)]

    #[test]
    fn no_station_serves_more_than_all_the_time_and_no_rate_is_above_its_bound((stations, groups) in networks(40, 64)) {
        for solver in [&mut Amva::default() as &mut dyn RateSolver, &mut MaxMin::default()] {
            let solution = solver.solve(stations, &groups).expect("rates");
            for (station, busy) in solution.utilisation.iter().enumerate() {
                prop_assert!(*busy <= 1.0 + 1e-9, "{}: station {station} is busy {busy}", solver.name());
            }
            for (group, rate) in groups.iter().zip(&solution.lines_per_ns) {
                prop_assert!(*rate > 0.0 && *rate <= group.bound() * (1.0 + 1e-12), "{}: {rate}", solver.name());
            }
        }
    }

    #[test]
    fn newton_finds_the_fixed_point_of_the_damped_steps((stations, groups) in networks(12, 12)) {
        let fast = amva().solve(stations, &groups).expect("rates");
        let mut dense = Dense::default();
        let plain = dense.solve(stations, &groups, 1e-11, 200_000).expect("rates");
        for (fast, plain) in fast.lines_per_ns.iter().zip(plain) {
            prop_assert!(near(*fast, *plain, 1e-7), "{fast} against {plain}");
        }
    }

    #[test]
    fn max_min_is_that_of_the_plain_rounds((stations, groups) in networks(40, 64)) {
        let fast = MaxMin::default().solve(stations, &groups).expect("rates");
        for (fast, plain) in fast.lines_per_ns.iter().zip(reference::max_min(stations, &groups)) {
            prop_assert!(near(*fast, plain, 1e-9), "{fast} against {plain}");
        }
    }

    #[test]
    fn the_last_result_changes_where_the_search_starts_but_not_where_it_ends(
        (stations, groups) in networks(12, 12), others in networks(12, 12),
    ) {
        let stations = stations.max(others.0);
        let mut classes = simulator::Classes::new(stations);
        let mut active = |groups: &[Group]| {
            let mut active: Vec<_> = groups
                .iter()
                .map(|group| simulator::Active { class: classes.add(group).expect("valid"), actors: group.actors })
                .collect();
            active.sort_by_key(|active| active.class);
            active.dedup_by_key(|active| active.class);
            active
        };
        let (first, second) = (active(&groups), active(&others.1));
        let (mut warm, mut fresh) = (amva(), amva());
        let (mut from_there, mut from_nothing) = (Vec::new(), Vec::new());
        warm.rates(&classes, &first, &mut from_there).expect("rates");
        warm.rates(&classes, &second, &mut from_there).expect("rates");
        fresh.rates(&classes, &second, &mut from_nothing).expect("rates");
        for (warm, fresh) in from_there.iter().zip(&from_nothing) {
            prop_assert!(near(*warm, *fresh, 1e-8), "{warm} against {fresh}");
        }
    }

    #[test]
    fn the_order_of_groups_and_stations_does_not_matter((stations, groups) in networks(20, 20), seed in any::<u64>()) {
        let order = shuffled(groups.len(), seed);
        let numbers = shuffled(stations, seed.rotate_left(17));
        let moved: Vec<Group> = order.iter().map(|&at| groups[at].clone()).collect();
        let renamed: Vec<Group> = moved.iter().map(|group| renamed(group, &numbers)).collect();
        for solver in [&mut amva() as &mut dyn RateSolver, &mut MaxMin::default()] {
            let as_is = solver.solve(stations, &groups).expect("rates");
            let moved = solver.solve(stations, &moved).expect("rates");
            let renamed = solver.solve(stations, &renamed).expect("rates");
            for (place, &from) in order.iter().enumerate() {
                let bits = moved.lines_per_ns[place].to_bits();
                prop_assert_eq!(bits, as_is.lines_per_ns[from].to_bits(), "{}: order of groups", solver.name());
                let (one, other) = (renamed.lines_per_ns[place], as_is.lines_per_ns[from]);
                prop_assert!(near(one, other, 1e-8), "{}: order of stations: {one} {other}", solver.name());
            }
        }
    }

    #[test]
    fn identical_actors_have_identical_rates((stations, mut groups) in networks(20, 20), parts in 2..5usize) {
        let of_one = groups.len() - 1;
        let part = Group { actors: groups[of_one].actors / parts as f64, ..groups[of_one].clone() };
        let whole = groups.clone();
        groups.pop();
        groups.extend(std::iter::repeat_n(part, parts));
        for solver in [&mut amva() as &mut dyn RateSolver, &mut MaxMin::default()] {
            let split = solver.solve(stations, &groups).expect("rates").lines_per_ns;
            prop_assert!(split[of_one..].iter().all(|rate| rate.to_bits() == split[of_one].to_bits()));
            // As one group of the sum they have the same rates too.
            let whole = solver.solve(stations, &whole).expect("rates").lines_per_ns;
            prop_assert!(near(split[of_one], whole[of_one], 1e-8), "{}: {split:?} {whole:?}", solver.name());
        }
    }

    #[test]
    fn more_lines_in_flight_never_lower_the_rate_of_a_single_class(one in group(9), factor in 1.0..8.0f64) {
        let more = Group { lines_in_flight: one.lines_in_flight * factor, ..one.clone() };
        for solver in [&mut amva() as &mut dyn RateSolver, &mut MaxMin::default()] {
            let few = solver.solve(9, std::slice::from_ref(&one)).expect("rates").lines_per_ns[0];
            let many = solver.solve(9, std::slice::from_ref(&more)).expect("rates").lines_per_ns[0];
            prop_assert!(many >= few * (1.0 - 1e-9), "{}: {few} then {many}", solver.name());
        }
    }

    #[test]
    fn queues_never_make_a_single_class_faster_than_max_min(mut one in group(9), actors in 1..64u32) {
        one.actors = f64::from(actors);
        let queueing = amva().solve(9, std::slice::from_ref(&one)).expect("rates").lines_per_ns[0];
        let fluid = MaxMin::default().solve(9, std::slice::from_ref(&one)).expect("rates").lines_per_ns[0];
        prop_assert!(queueing <= fluid * (1.0 + 1e-9), "{queueing} above {fluid}");
    }

    #[test]
    fn far_below_the_knee_the_solvers_agree(mut one in group(9)) {
        // Load on the busiest station 0.1 %: what waits there is 0.1 % of a line.
        let busiest = one.demands.iter().map(|(_, ns)| *ns).fold(0.0, f64::max);
        one.actors = 1.0;
        one.core_ns = 0.0;
        one.latency_ns += 1000.0 * one.lines_in_flight * busiest;
        let queueing = amva().solve(9, std::slice::from_ref(&one)).expect("rates").lines_per_ns[0];
        let fluid = MaxMin::default().solve(9, std::slice::from_ref(&one)).expect("rates").lines_per_ns[0];
        prop_assert!(near(queueing, fluid, 0.002), "{queueing} {fluid}");
    }

    #[test]
    fn far_above_the_knee_the_solvers_agree(mut one in group(9)) {
        // A thousand actors: the busiest station never rests.
        prop_assume!(!one.demands.is_empty());
        one.demands.truncate(1);
        one.demands[0].1 = one.demands[0].1.max(1.0);
        one.actors = 1000.0;
        one.lines_in_flight = one.lines_in_flight.max(10.0);
        one.core_ns = one.core_ns.min(20.0);
        let queueing = amva().solve(9, std::slice::from_ref(&one)).expect("rates").lines_per_ns[0];
        let fluid = MaxMin::default().solve(9, std::slice::from_ref(&one)).expect("rates").lines_per_ns[0];
        prop_assert!(near(queueing, fluid, 0.01), "{queueing} {fluid}");
    }

    #[test]
    fn a_search_that_is_cut_short_is_an_error((stations, mut groups) in networks(20, 20)) {
        // Two groups that wait for each other: no first guess is right.
        let meeting = |actors| Group {
            actors,
            lines_in_flight: 10.0,
            latency_ns: 60.0 + actors,
            core_ns: 0.0,
            demands: vec![(StationId(0), 5.0)],
        };
        groups.extend([meeting(3.0), meeting(4.0)]);
        let result = Amva::new(1e-6, 1).solve(stations, &groups);
        prop_assert!(matches!(result, Err(SolveError::NoConvergence { iterations: 1, .. })), "{result:?}");
    }
}

fn renamed(group: &Group, numbers: &[usize]) -> Group {
    let demands = group.demands.iter().map(|(station, ns)| (StationId(numbers[station.index()] as u32), *ns));
    Group { demands: demands.collect(), ..group.clone() }
}

/// 0 to `count` in an order that the seed decides (Fisher-Yates).
fn shuffled(count: usize, mut seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for at in (1..count).rev() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(at, (seed >> 33) as usize % (at + 1));
    }
    order
}

fn meeting_at_the_first() -> Group {
    let demands = vec![(StationId(0), 3.0)];
    Group { actors: 1.0, lines_in_flight: 10.0, latency_ns: 60.0, core_ns: 0.0, demands }
}

#[test]
fn impossible_groups_are_named() {
    let valid = meeting_at_the_first();
    let cases = [
        (Group { actors: 0.0, ..valid.clone() }, "actors"),
        (Group { lines_in_flight: 0.5, ..valid.clone() }, "lines_in_flight"),
        (Group { latency_ns: f64::NAN, ..valid.clone() }, "latency_ns"),
        (Group { latency_ns: 2.0, ..valid.clone() }, "latency_ns"),
        (Group { core_ns: -1.0, ..valid.clone() }, "core_ns"),
        (Group { demands: vec![(StationId(0), -3.0)], ..valid.clone() }, "demands"),
        (Group { demands: vec![(StationId(1), 3.0)], ..valid }, "demands"),
    ];
    for (wrong, name) in cases {
        let groups = [meeting_at_the_first(), wrong];
        for solver in [&mut amva() as &mut dyn RateSolver, &mut MaxMin::default()] {
            match solver.solve(1, &groups) {
                Err(SolveError::Group { group: 1, field, .. }) => assert_eq!(field, name),
                other => panic!("{name}: {other:?}"),
            }
        }
    }
}

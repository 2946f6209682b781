//! The contract of drivers, under the simulation.

use std::rc::Rc;

use weir_reactor::SharedSection;
use weir_reactor::sim::{Config, Simulation, seed_from_env_or_random};

use crate::contract::{self, Ground, Place};

const SEEDS: u64 = 4;

#[test]
fn contract_holds() {
    let first = seed_from_env_or_random();
    for seed in (0..SEEDS).map(|number| first.wrapping_add(number)) {
        let config = Config {
            seed,
            ..Config::default()
        };
        let simulation = Rc::new(Simulation::new(config));
        let place = Place {
            system: simulation.system(0),
            address: "127.0.0.1:0".parse().expect("an address"),
            directory: "/tests".into(),
        };
        let driven = Rc::clone(&simulation);
        let ground = Ground {
            place,
            drive: Box::new(move |done| driven.run_until(done)),
        };
        contract::suite(&ground);
    }
}

/// A panic of an isolated task is its result; one in a shared section goes through it, and ends the simulation as it would end
/// the process.
#[test]
#[should_panic(expected = "what others use broke")]
fn a_panic_in_a_shared_section_is_not_contained() {
    let simulation = Simulation::new(Config {
        seed: seed_from_env_or_random(),
        ..Config::default()
    });
    simulation.run(0, |reactor| async move {
        let task = reactor.spawn_isolated(async {
            let _section = SharedSection::enter();
            panic!("what others use broke");
        });
        let result: Result<(), _> = task.await;
        unreachable!("it was contained: {result:?}");
    });
}

//! Lost connections: what was acknowledged stays, and nothing is carried out late.

use std::sync::Arc;
use std::time::Duration;

use weir_block::Volume;
use weir_iscsi_target::Lun;
use weir_reactor::Reactor;
use weir_reactor::sim::World;
use weir_testing::initiator::{self, Client, pattern, some_connection};
use weir_testing::late::Late;

use crate::scene::*;

/// Registers over two sessions.
async fn registers(reactor: Reactor, served: Served, world: World, trouble: fn(&Reactor, &World)) {
    let mut options = served.options();
    options.sessions = Some(2);
    let volume = host(2).open(&reactor, options, false).await;
    let volume: Arc<dyn Volume> = volume.expect("it opens");
    initiator::registers(reactor, volume, served.volume.clone(), world, trouble).await;
}

#[test]
fn acknowledged_writes_stay_when_connections_are_cut() {
    simulated(Shape::default(), |reactor, served, world| async move {
        registers(reactor, served, world, |reactor, world| {
            if let Some(connection) = some_connection(reactor, world, CLIENT) {
                world.cut(&connection);
            }
        })
        .await;
    });
}

#[test]
fn acknowledged_writes_stay_when_connections_fall_silent() {
    simulated(Shape::default(), |reactor, served, world| async move {
        registers(reactor, served, world, |reactor, world| {
            if reactor.random() % 20 == 0
                && let Some(connection) = some_connection(reactor, world, CLIENT)
            {
                world.silence(&connection);
            }
        })
        .await;
    });
}

#[test]
fn acknowledged_writes_stay_when_the_network_is_parted() {
    simulated(Shape::default(), |reactor, served, world| async move {
        registers(reactor, served, world, |reactor, world| {
            match reactor.random() % 10 {
                0 => world.partition(SERVER, CLIENT),
                1..=4 => world.heal_all(),
                _ => {}
            }
        })
        .await;
    });
}

/// At a target whose writes take as long as each likes, and that keeps nothing back: it lets the initiator in again when what its lost
/// sessions left has ended.
#[test]
fn acknowledged_writes_stay_when_writes_are_late() {
    simulated(Shape::default(), |reactor, served, world| async move {
        let late = Late::over(Arc::clone(&served.volume), Duration::from_millis(400));
        let luns = vec![Lun::new(0, late, [7; 16])];
        served.apply(|target| target.luns = luns).await;
        registers(reactor, served, world, |reactor, world| {
            if let Some(connection) = some_connection(reactor, world, CLIENT) {
                world.cut(&connection);
            }
        })
        .await;
    });
}

#[test]
fn queues_on_several_reactors_share_a_unit() {
    let simulation = simulation();
    let servers = start_reactors(&simulation.system(SERVER), 2);
    let workers = start_reactors(&simulation.system(CLIENT), 3);
    let server = std::net::SocketAddr::new(simulation.address(SERVER), 3260);
    let world = simulation.world();
    simulation.run(CLIENT, move |reactor| async move {
        let served = serve(&servers, server, &Shape::default()).await;
        let mut options = served.options();
        options.sessions = Some(6);
        let volume = host(3).open(&reactor, options, false).await;
        let volume: Arc<dyn Volume> = volume.expect("it opens");
        let call = |(number, worker): (usize, &weir_reactor::Remote)| {
            let volume = Arc::clone(&volume);
            worker.call(move |on: Reactor| async move {
                let mut client = Client::new(&volume, &on, 16);
                for round in 0..30u8 {
                    let lba = number as u64 * 1000 + u64::from(round) * 20;
                    let data = pattern(20 * 512, round);
                    client.write(lba, &data, 512).await.unwrap();
                    assert!(client.read(lba, 20).await.unwrap() == data);
                    on.sleep(Duration::from_millis(20)).await;
                }
            })
        };
        let calls: Vec<_> = workers.iter().enumerate().map(call).collect();
        // All of them lose their association together.
        reactor.sleep(Duration::from_millis(200)).await;
        let connection = some_connection(&reactor, &world, CLIENT).expect("there are some");
        world.cut(&connection);
        for call in calls {
            call.await.expect("the reactor runs");
        }
    });
}

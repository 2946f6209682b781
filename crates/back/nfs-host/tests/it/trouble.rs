//! Lost connections and servers: what was acknowledged stays, nothing is carried out late, and what was flushed is on the disk.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use weir_block::{Operation, VolumeError};
use weir_nfs_host::Version;
use weir_reactor::Reactor;
use weir_reactor::sim::{Crash, World};
use weir_testing::initiator::{Client, some_connection};

use crate::scene::*;

const LANES: usize = 6;
/// Numbers that each lane writes; more where trouble shows rarely.
const NUMBERS: u32 = 20;
const MANY_NUMBERS: u32 = 60;
const BLOCK: usize = 4096;

fn block(number: u32, blocks: usize) -> Vec<u8> {
    number.to_le_bytes().repeat(blocks * BLOCK / 4)
}

/// Each lane writes growing numbers to blocks of its own, each after the one before was acknowledged, reads them back, and flushes now
/// and then. At the end, after a flush, the file holds the last of each, past the server.
async fn registers(
    (version, numbers): (Version, u32),
    reactor: Reactor,
    server: Server,
    world: World,
    trouble: impl AsyncFn(&Reactor, &Server, &World) + 'static,
) {
    let mut options = server.options();
    options.connections = Some(3);
    options.version = version;
    let volume = open(&reactor, options).await;
    let lanes = (0..LANES).map(|lane| {
        let (volume, on) = (volume.clone(), reactor.clone());
        reactor.spawn(async move {
            let mut client = Client::new(&volume, &on, 4);
            let lba = lane as u64 * 100;
            let blocks = if lane % 2 == 0 { 1 } else { 100 };
            for number in 1..=numbers {
                let data = block(number, blocks);
                client
                    .write(lba, &data, BLOCK)
                    .await
                    .expect("it is written");
                on.sleep(Duration::from_millis(on.random() % 300)).await;
                let found = client.read(lba, blocks as u32).await;
                assert!(
                    found.expect("it is read") == data,
                    "lane {lane}: {number} is not read back"
                );
                if on.random().is_multiple_of(8) {
                    let flushed = client.call(Operation::Flush).await.result;
                    assert_eq!(flushed, Ok(()), "lane {lane}: a flush");
                }
            }
        })
    });
    let lanes: Vec<_> = lanes.collect();
    let done = Rc::new(RefCell::new(false));
    let (stop, on, with) = (Rc::clone(&done), reactor.clone(), server.clone());
    let mischief = reactor.spawn(async move {
        while !*stop.borrow() {
            let pause = 200 + on.random() % 4000;
            on.sleep(Duration::from_millis(pause)).await;
            trouble(&on, &with, &world).await;
        }
        world.heal_all();
    });
    for lane in lanes {
        lane.await;
    }
    *done.borrow_mut() = true;
    mischief.await;
    let mut client = Client::new(&volume, &reactor, 4);
    assert_eq!(client.call(Operation::Flush).await.result, Ok(()));
    let content = server.behind().await;
    for lane in 0..LANES {
        let at = lane * 100 * BLOCK;
        let blocks = if lane % 2 == 0 { 1 } else { 100 };
        assert!(
            content[at..at + blocks * BLOCK] == block(numbers, blocks),
            "lane {lane}: the file does not hold what was flushed"
        );
    }
}

/// Runs [`registers`] with trouble, by a version with sessions and by the one without, and on a volume that is served as a file, where
/// writes take up to `delay`.
fn troubled(delay: Duration, trouble: impl AsyncFn(&Reactor, &Server, &World) + Clone + 'static) {
    for (version, serves) in [
        (Version::V42, Serves::File),
        (Version::V3, Serves::File),
        (Version::V42, Serves::Volume),
    ] {
        let trouble = trouble.clone();
        simulated_with(config(), serves, move |reactor, server, world| async move {
            world.change_faults(|faults| faults.write_delay = Duration::ZERO..=delay);
            let numbers = match delay {
                Duration::ZERO => NUMBERS,
                _ => MANY_NUMBERS,
            };
            registers((version, numbers), reactor, server, world, trouble).await;
        });
    }
}

async fn cut(reactor: &Reactor, _: &Server, world: &World) {
    if let Some(connection) = some_connection(reactor, world, CLIENT) {
        world.cut(&connection);
    }
}

#[test]
fn acknowledged_writes_stay_when_connections_are_cut() {
    troubled(Duration::ZERO, cut);
}

/// The server goes on with writes whose connections are gone; what is written after them waits for them.
#[test]
fn acknowledged_writes_stay_when_writes_are_late() {
    troubled(Duration::from_millis(800), cut);
}

#[test]
fn acknowledged_writes_stay_when_connections_fall_silent() {
    troubled(
        Duration::ZERO,
        async |reactor: &Reactor, _: &Server, world: &World| {
            if let Some(connection) = some_connection(reactor, world, CLIENT) {
                world.silence(&connection);
            }
        },
    );
}

#[test]
fn acknowledged_writes_stay_when_the_network_is_parted() {
    troubled(
        Duration::ZERO,
        async |reactor: &Reactor, _: &Server, world: &World| match reactor.random() % 4 {
            0 => world.partition(SERVER, CLIENT),
            _ => world.heal_all(),
        },
    );
}

#[test]
fn acknowledged_writes_stay_when_the_server_is_killed() {
    troubled(
        Duration::ZERO,
        async |reactor: &Reactor, server: &Server, _: &World| {
            server.crash(reactor, Crash::Process).await;
        },
    );
}

/// Writes that the server had not committed are gone with its power, and written again.
#[test]
fn acknowledged_writes_stay_when_the_servers_power_fails() {
    troubled(
        Duration::ZERO,
        async |reactor: &Reactor, server: &Server, _: &World| {
            server.crash(reactor, Crash::Power).await;
        },
    );
}

/// A sync that failed once may have lost what no later one can bring back: no flush succeeds any more.
#[test]
fn no_flush_succeeds_after_one_that_failed() {
    simulated(config(), |reactor, server, world| async move {
        let volume = open(&reactor, server.options()).await;
        let mut client = Client::new(&volume, &reactor, 4);
        let flush = async |client: &mut Client| client.call(Operation::Flush).await.result;
        client
            .write(0, &block(1, 4), BLOCK)
            .await
            .expect("it is written");
        assert_eq!(flush(&mut client).await, Ok(()));
        client
            .write(0, &block(2, 4), BLOCK)
            .await
            .expect("it is written");
        world.change_faults(|faults| faults.sync_error_probability = 1.0);
        assert_eq!(flush(&mut client).await, Err(VolumeError::Medium));
        world.change_faults(|faults| faults.sync_error_probability = 0.0);
        assert_eq!(flush(&mut client).await, Err(VolumeError::Medium));
        assert!(client.read(0, 4).await.is_ok());
    });
}

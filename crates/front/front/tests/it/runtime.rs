//! The runtime with a protocol that is not NVMe, in the simulator and over sockets.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use weir_block::Volume;
use weir_front::{Front, HubLimits, Hubs, Limits, ListenAt};
use weir_memory::{Gather, View};
use weir_reactor::{SocketOptions, TcpStream};
use weir_testing::world::{World, everywhere};
use weir_volume::{
    Access, Guard, GuardConfig, LimitedVolume, Limits as Rates, MemVolume, RateLimit,
};

use crate::lines::{BLOCK, Exported, LinesSession, Served};

fn memory() -> Arc<Guard> {
    let url = "mem:?size=1M&block_size=4096".parse().expect("a URL");
    let volume = MemVolume::open(&url, Access { read_only: false }).expect("memory");
    Guard::new(volume, GuardConfig::default()).expect("a guard")
}

/// A volume that does so many requests a second.
fn slow(per_second: u64) -> Arc<dyn Volume> {
    let limits = Rates {
        total_iops: RateLimit::new(per_second, Some(2)).ok(),
        ..Rates::default()
    };
    LimitedVolume::new(memory(), limits)
}

fn exported(number: u32, volume: &Arc<dyn Volume>, hosts: &[&str]) -> Exported {
    Exported {
        number,
        volume: Arc::clone(volume),
        hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
    }
}

/// A front end that serves these, and its address. A connection may have `bytes_max` in flight.
async fn serve(
    world: &World,
    bytes_max: u64,
    exports: Vec<Exported>,
) -> (Front<LinesSession>, SocketAddr) {
    let hubs = Hubs::new(&world.remotes, &HubLimits::default()).expect("reactors run");
    serve_on(world, &hubs, Limits::default(), bytes_max, exports).await
}

/// As [`serve`], on these hubs and within these limits.
async fn serve_on(
    world: &World,
    hubs: &Hubs,
    limits: Limits,
    bytes_max: u64,
    exports: Vec<Exported>,
) -> (Front<LinesSession>, SocketAddr) {
    let front = Front::<LinesSession>::new(hubs, limits, Arc::new(bytes_max));
    let front = front.await.expect("it starts");
    let listening = front.add_listener(ListenAt {
        address: SocketAddr::new(world.ip, 0),
        options: SocketOptions::default(),
        port: (),
        inherited: None,
    });
    let address = listening.await.expect("it listens");
    let served = Arc::new(Served(exports));
    front.apply(served).await.expect("it serves");
    (front, address)
}

/// One connection of a host.
struct Host {
    stream: TcpStream,
    came: VecDeque<u8>,
}

impl Host {
    async fn connect(world: &World, address: SocketAddr) -> Self {
        let options = SocketOptions::default();
        let stream = TcpStream::connect(&world.reactor, address, &options).await;
        Host {
            stream: stream.expect("it connects"),
            came: VecDeque::new(),
        }
    }

    /// A host that was let in, on that reactor.
    async fn on(world: &World, address: SocketAddr, name: &str, reactor: usize) -> Self {
        let mut host = Host::connect(world, address).await;
        host.say(&format!("hello {name} {reactor}"), &[]).await;
        assert_eq!(host.line().await.as_deref(), Some("welcome"));
        host
    }

    async fn say(&self, line: &str, data: &[u8]) {
        let mut gather = Gather::new();
        gather.push_header(format!("{line}\n").as_bytes());
        gather.push_view(View::copy_of(data));
        self.stream.send(gather).await.0.expect("connected");
    }

    async fn bytes(&mut self, until: impl Fn(&VecDeque<u8>) -> Option<usize>) -> Option<Vec<u8>> {
        loop {
            if let Some(count) = until(&self.came) {
                return Some(self.came.drain(..count).collect());
            }
            let view = self.stream.receive().await.ok()?;
            if view.is_empty() {
                return None;
            }
            self.came.extend(view.iter());
        }
    }

    /// The next line; none: the connection has ended.
    async fn line(&mut self) -> Option<String> {
        let end = |came: &VecDeque<u8>| Some(came.iter().position(|&byte| byte == b'\n')? + 1);
        let line = String::from_utf8(self.bytes(end).await?).expect("text");
        Some(line.trim_end().to_owned())
    }

    async fn expect(&mut self, line: &str) {
        assert_eq!(self.line().await.as_deref(), Some(line));
    }

    async fn block(&mut self) -> Vec<u8> {
        let all = |came: &VecDeque<u8>| (came.len() >= BLOCK).then_some(BLOCK);
        self.bytes(all).await.expect("a block")
    }
}

/// Nothing is in flight any more, and nobody is connected.
async fn all_gone(world: &World, front: &Front<LinesSession>) {
    world
        .eventually("the end", async || front.stats().connections == 0)
        .await;
    let all = || front.stats().bytes_in_flight.iter().sum::<u64>();
    world
        .eventually("an empty account", async || all() == 0)
        .await;
    assert_eq!(front.stats().half_open, 0);
    assert!(front.revoked().await.is_empty());
}

#[test]
fn data_that_comes_with_a_command_and_data_that_is_asked_for_is_written() {
    everywhere(async |world: World| {
        let volume: Arc<dyn Volume> = memory();
        let exports = vec![exported(1, &volume, &["one"])];
        let (front, address) = serve(&world, 1 << 20, exports).await;
        for reactor in 0..2 {
            let mut host = Host::on(&world, address, "one", reactor).await;
            let connections = front.connections().await;
            assert_eq!(connections[0].reactor, reactor, "it moved there");
            assert_eq!(connections[0].about, "one");

            host.say("write 1 1 5", &[7; BLOCK]).await;
            host.expect("done 1").await;
            host.say("offer 2 1 6", &[]).await;
            host.expect("send 2").await;
            host.say("bring 2", &[8; BLOCK]).await;
            host.expect("done 2").await;
            for (lba, byte) in [(5, 7), (6, 8)] {
                host.say(&format!("read 3 1 {lba}"), &[]).await;
                host.expect("data 3").await;
                assert_eq!(host.block().await, [byte; BLOCK]);
            }
            host.say("read 4 2 0", &[]).await;
            host.expect("fail 4 no such block").await;
            drop(host);
            all_gone(&world, &front).await;
        }
        let latency = front.volume_latencies(&[volume]).await.remove(0);
        let writes = latency.kind(weir_front::CommandKind::Write);
        assert_eq!(writes.map(weir_front::StageTimes::count), Some(4));
    });
}

#[test]
fn a_command_that_waits_for_room_can_be_aborted_and_goes_on_otherwise() {
    everywhere(async |world: World| {
        let volume: Arc<dyn Volume> = memory();
        let exports = vec![exported(1, &volume, &["one"])];
        let (front, address) = serve(&world, BLOCK as u64, exports).await;
        let mut host = Host::on(&world, address, "one", 1).await;
        host.say("offer 1 1 0", &[]).await;
        host.expect("send 1").await;
        for tag in 2..4 {
            host.say(&format!("offer {tag} 1 {tag}"), &[]).await;
        }
        host.say("abort 2", &[]).await;
        host.expect("fail 2 aborted").await;
        host.say("bring 1", &[1; BLOCK]).await;
        host.expect("done 1").await;
        host.expect("send 3").await;
        assert!(front.stats().reactors[1].own_waits > 0, "it had to wait");
        host.say("bring 3", &[3; BLOCK]).await;
        host.expect("done 3").await;
        drop(host);
        all_gone(&world, &front).await;
    });
}

#[test]
fn a_right_that_is_lost_under_load_ends_what_waits_and_is_told_of_what_runs() {
    everywhere(async |world: World| {
        const DEPTH: u32 = 16;
        let (limited, free) = (slow(50), memory() as Arc<dyn Volume>);
        let both = || {
            vec![
                exported(1, &limited, &["one"]),
                exported(2, &free, &["one"]),
            ]
        };
        let (front, address) = serve(&world, 1 << 20, both()).await;
        let mut host = Host::on(&world, address, "one", 1).await;
        for tag in 0..DEPTH {
            let line = format!("write {tag} 1 {tag}");
            host.say(&line, &[tag as u8; BLOCK]).await;
        }
        // The first has ended, and the others wait for their turn.
        host.expect("done 0").await;
        let without = vec![
            exported(1, &limited, &["two"]),
            exported(2, &free, &["one"]),
        ];
        let served = Arc::new(Served(without));
        front.apply(served).await.expect("it serves");
        let under_way = front.revoked().await;
        let requests: u64 = under_way.iter().map(|(_, _, requests)| requests).sum();
        assert!(requests < u64::from(DEPTH), "{requests} requests");
        assert!(
            under_way
                .iter()
                .all(|(host, number, _)| host == "one" && *number == 1)
        );
        let mut denied = 0;
        for _ in 1..DEPTH {
            let line = host.line().await.expect("connected");
            let words: Vec<_> = line.split(' ').collect();
            // What was answered by then was still on its way.
            assert!(
                matches!(
                    words[..],
                    ["done", _] | ["fail", _, "denied"] | ["fail", _, "no", ..]
                ),
                "{line}"
            );
            denied += u32::from(words[0] == "fail");
        }
        assert!(denied > 0, "none was denied");
        host.say("write 90 1 0", &[9; BLOCK]).await;
        host.expect("fail 90 no such block").await;
        host.say("write 91 2 0", &[9; BLOCK]).await;
        host.expect("done 91").await;
        world
            .eventually("nothing revoked", async || front.revoked().await.is_empty())
            .await;
        drop(host);
        all_gone(&world, &front).await;
    });
}

#[test]
fn a_connection_that_is_lost_under_load_leaves_nothing_behind() {
    everywhere(async |world: World| {
        let volume = slow(200);
        let exports = vec![exported(1, &volume, &["one"])];
        let (front, address) = serve(&world, 1 << 20, exports).await;
        for reactor in 0..2 {
            let host = Host::on(&world, address, "one", reactor).await;
            for tag in 0..16 {
                host.say(&format!("write {tag} 1 {tag}"), &[1; BLOCK]).await;
            }
            host.say("offer 20 1 20", &[]).await;
            drop(host);
        }
        all_gone(&world, &front).await;
    });
}

#[test]
fn who_says_nothing_or_nonsense_is_put_out() {
    everywhere(async |world: World| {
        let limits = Limits {
            handshake_timeout: Duration::from_secs(1),
            ..Limits::default()
        };
        let hubs = Hubs::new(&world.remotes, &HubLimits::default()).expect("reactors run");
        let (front, address) = serve_on(&world, &hubs, limits, 1 << 20, Vec::new()).await;
        let mut silent = Host::connect(&world, address).await;
        let mut confused = Host::connect(&world, address).await;
        confused.say("gibberish", &[]).await;
        assert_eq!(confused.line().await, None);
        assert_eq!(silent.line().await, None);
        all_gone(&world, &front).await;
        let reactors = front.stats().reactors;
        let sum =
            |of: fn(&weir_front::ConnectionCounts) -> u64| reactors.iter().map(of).sum::<u64>();
        assert_eq!(sum(|counts| counts.handshake_timeouts), 1);
        assert_eq!(sum(|counts| counts.terminated), 1);
    });
}

#[test]
fn front_ends_on_one_reactor_share_its_memory_and_its_volumes() {
    everywhere(async |world: World| {
        let limits = HubLimits {
            bytes_in_flight: 2 * BLOCK as u64,
            ..HubLimits::default()
        };
        let hubs = Hubs::new(&world.remotes, &limits).expect("reactors run");
        let volume: Arc<dyn Volume> = memory();
        let mut served = Vec::new();
        for _ in 0..2 {
            let exports = vec![exported(1, &volume, &["one"])];
            served.push(serve_on(&world, &hubs, Limits::default(), 1 << 20, exports).await);
        }
        let [(first, first_at), (second, second_at)] = &served[..] else {
            unreachable!("there are two");
        };
        let mut one = Host::on(&world, *first_at, "one", 1).await;
        let mut other = Host::on(&world, *second_at, "one", 1).await;
        one.say("offer 1 1 0", &[]).await;
        one.expect("send 1").await;
        other.say("offer 1 1 1", &[]).await;
        other.expect("send 1").await;
        other.say("offer 2 1 2", &[]).await;
        let waits = || second.stats().reactors[1].buffer_waits;
        world.eventually("a wait", async || waits() > 0).await;
        one.say("bring 1", &[1; BLOCK]).await;
        one.expect("done 1").await;
        other.expect("send 2").await;
        for tag in 1..=2 {
            other.say(&format!("bring {tag}"), &[2; BLOCK]).await;
            other.expect(&format!("done {tag}")).await;
        }
        other.say("read 3 1 0", &[]).await;
        other.expect("data 3").await;
        assert_eq!(other.block().await, [1; BLOCK]);
        drop((one, other));
        all_gone(&world, first).await;
        all_gone(&world, second).await;
    });
}

#[test]
fn front_ends_on_one_reactor_share_the_limit_of_connections_and_their_numbers() {
    everywhere(async |world: World| {
        let hubs = Hubs::new(&world.remotes, &HubLimits::default()).expect("reactors run");
        let limits = Limits {
            max_connections: 2,
            ..Limits::default()
        };
        let volume: Arc<dyn Volume> = memory();
        let mut served = Vec::new();
        for _ in 0..2 {
            let exports = vec![exported(1, &volume, &["one"])];
            served.push(serve_on(&world, &hubs, limits.clone(), 1 << 20, exports).await);
        }
        let [(first, first_at), (second, second_at)] = &served[..] else {
            unreachable!("there are two");
        };
        let one = Host::on(&world, *first_at, "one", 0).await;
        let other = Host::on(&world, *second_at, "one", 0).await;
        let (first_id, second_id) = (
            first.connections().await[0].id,
            second.connections().await[0].id,
        );
        assert_ne!(first_id, second_id);
        for (front, at) in &served {
            let mut third = Host::connect(&world, *at).await;
            assert_eq!(third.line().await, None, "there are two");
            let full: u64 = front
                .stats()
                .reactors
                .iter()
                .map(|of| of.over_connections)
                .sum();
            assert_eq!(full, 1);
        }
        drop(one);
        all_gone(&world, first).await;
        let again = Host::on(&world, *second_at, "one", 0).await;
        drop((other, again));
        all_gone(&world, second).await;
    });
}

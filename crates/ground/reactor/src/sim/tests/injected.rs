//! Faults are recorded when they are carried out: each with its place and its time.

use super::*;

/// The record, in whole seconds.
fn recorded(world: &World) -> Vec<Injected> {
    let whole = |time: Duration| Duration::from_secs(time.as_secs());
    let of_one = |fault: Injected| Injected {
        from: whole(fault.from),
        until: fault.until.map(whole),
        ..fault
    };
    world.injected().into_iter().map(of_one).collect()
}

fn fault(kind: FaultKind, hosts: (usize, usize), from: u64, until: Option<u64>) -> Injected {
    Injected {
        kind,
        hosts: (HostId(hosts.0), HostId(hosts.1)),
        path: None,
        from: Duration::from_secs(from),
        until: until.map(Duration::from_secs),
    }
}

#[test]
fn what_is_done_to_hosts_and_paths_is_recorded() {
    for_seeds(4, |config| {
        let simulation = Simulation::new(config);
        let (address, _) = start_echo(&simulation, 0, 7);
        let world = simulation.world();
        simulation.run(1, move |reactor| async move {
            let second = || reactor.sleep(Duration::from_secs(1));
            let stream = connect(&reactor, address).await.unwrap();
            second().await;
            assert_eq!(recorded(&world), []);
            world.partition(1, 0);
            second().await;
            world.heal(0, 1);
            let parted = fault(FaultKind::Partition, (1, 0), 1, Some(2));
            assert_eq!(recorded(&world), vec![parted.clone()]);
            world.silence(&world.connections()[0]);
            second().await;
            // Its other end is still held.
            stream.abort();
            drop(stream);
            second().await;
            let silent = |until| fault(FaultKind::Silence, (1, 0), 2, until);
            assert_eq!(recorded(&world), [parted.clone(), silent(None)]);
            let held_until = || world.accepted()[0].until.map(|until| until.as_secs());
            assert_eq!(held_until(), None);
            world.crash(0, Crash::Power);
            second().await;
            world.restart(0);
            let crash = fault(FaultKind::Crash, (0, 0), 4, Some(5));
            assert_eq!(recorded(&world), [parted, silent(Some(4)), crash]);
            assert_eq!((world.accepted().len(), held_until()), (1, Some(4)));
        });
    });
}

#[test]
fn what_goes_wrong_by_chance_is_recorded() {
    for_seeds(4, |mut config| {
        config.faults = Faults {
            read_error_probability: 1.0,
            write_error_probability: 1.0,
            sync_error_probability: 1.0,
            disk_stall_probability: 1.0,
            delay_spike_probability: 1.0,
            ..Faults::default()
        };
        let simulation = Simulation::new(config);
        let system = simulation.system(0);
        let world = simulation.world();
        simulation.run(0, move |reactor| async move {
            let (file, _) = open(&system, "/file", &create(4096)).unwrap();
            write(&file, &reactor, 0, &[1; 512], false)
                .await
                .unwrap_err();
            read(&file, &reactor, 0, 512).await.unwrap_err();
            file.sync(&reactor).await.unwrap_err();
            use FaultKind::{DiskStall, ReadError, SyncError, WriteError};
            let faults = world.injected();
            let kinds: Vec<FaultKind> = faults.iter().map(|fault| fault.kind).collect();
            let expected = [
                DiskStall, WriteError, DiskStall, ReadError, DiskStall, SyncError,
            ];
            assert_eq!(kinds, expected);
            for fault in faults {
                assert_eq!(fault.path.as_deref(), Some(Path::new("/file")));
                let lasts = fault.until.is_some_and(|until| until > fault.from);
                assert_eq!(lasts, fault.kind == DiskStall, "{fault:?}");
            }
            let before = world.injected().len();
            let (client, _server) = pair(&reactor, &options()).await;
            send_all(&client, b"late").await.unwrap();
            let spikes = world.injected().split_off(before);
            let is_spike = |fault: &Injected| fault.kind == FaultKind::DelaySpike;
            assert!(
                !spikes.is_empty() && spikes.iter().all(is_spike),
                "{spikes:?}"
            );
        });
    });
}

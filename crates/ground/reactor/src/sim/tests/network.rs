//! Connections, their buffers, their ends and their faults.

use super::*;

#[test]
fn bytes_arrive_in_order_whatever_the_segments() {
    for_seeds(8, |mut config| {
        let length = match config.seed % 4 {
            0 => {
                config.faults.segment_bytes_max = 1;
                20_000
            }
            _ => 1_000_000,
        };
        let simulation = Simulation::new(config);
        let (address, _) = start_echo(&simulation, 0, 7);
        let sent = pattern(simulation.seed(), length);
        let expected = sent.clone();
        let received = simulation.run(1, move |reactor| async move {
            let stream = connect(&reactor, address).await.unwrap();
            assert_eq!(stream.peer_address(), address);
            stream.start_send(gather(&sent));
            let received = receive_exactly(&stream, sent.len()).await.unwrap();
            let sending = std::future::poll_fn(|context| stream.poll_sent(context));
            sending.await.0.unwrap();
            stream.shutdown(Shutdown::Write);
            assert!(stream.receive().await.unwrap().is_empty());
            received
        });
        assert!(received == expected, "what was echoed is what was sent");
    });
}

#[test]
fn nobody_listening_refuses_and_nobody_there_is_unreachable() {
    let simulation = Simulation::new(Config::default());
    let there = simulation.address(0);
    simulation.run(1, move |reactor| async move {
        let refused = connect(&reactor, SocketAddr::new(there, 9)).await;
        assert_eq!(
            refused.unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
        let nowhere = SocketAddr::new("192.0.2.1".parse().unwrap(), 9);
        let unreachable = connect(&reactor, nowhere).await.unwrap_err();
        assert_eq!(number(&unreachable), libc::EHOSTUNREACH);
    });
}

#[test]
fn connecting_outlives_a_short_partition_and_not_a_long_one() {
    for_seeds(4, |config| {
        let simulation = Simulation::new(config);
        let (address, _) = start_echo(&simulation, 0, 7);
        let _ = simulation.system(1);
        simulation.partition(0, 1);
        let world = simulation.world();
        simulation.run(1, move |reactor| async move {
            let began = reactor.now();
            let error = connect(&reactor, address).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert_eq!(reactor.now() - began, Duration::from_secs(127));
            let healer = {
                let reactor = reactor.clone();
                async move {
                    reactor.sleep(Duration::from_secs(5)).await;
                    world.heal(1, 0);
                }
            };
            reactor.spawn(healer).detach();
            let stream = connect(&reactor, address).await.unwrap();
            send_all(&stream, b"hello").await.unwrap();
            assert_eq!(receive_exactly(&stream, 5).await.unwrap(), b"hello");
        });
    });
}

#[test]
fn a_slow_reader_holds_the_sender_up() {
    for_seeds(8, |config| {
        let simulation = Simulation::new(config);
        simulation.run(0, |reactor| async move {
            let small = SocketOptions {
                send_buffer: Some(8192),
                receive_buffer: Some(4096),
                ..options()
            };
            let (client, server) = pair(&reactor, &small).await;
            let report = client.report().unwrap();
            assert_eq!((report.send_buffer, report.receive_buffer), (16384, 8192));
            let sent = pattern(3, 1 << 20);
            client.start_send(gather(&sent));
            reactor.sleep(Duration::from_secs(10)).await;
            assert!(client.is_sending());
            let waker = &mut std::task::Context::from_waker(std::task::Waker::noop());
            assert!(client.poll_sent(waker).is_pending(), "nobody reads");
            let mut received = Vec::new();
            while received.len() < sent.len() {
                let view = server.receive().await.unwrap();
                assert!((1..=16384).contains(&view.len()));
                received.extend_from_slice(&view);
            }
            assert!(received == sent);
            let sending = std::future::poll_fn(|context| client.poll_sent(context));
            sending.await.0.unwrap();
        });
    });
}

#[test]
fn a_cut_connection_resets_both_ends() {
    for_seeds(8, |config| {
        let simulation = Simulation::new(config);
        let world = simulation.world();
        simulation.run(0, move |reactor| async move {
            let (client, server) = pair(&reactor, &options()).await;
            send_all(&client, b"on its way").await.unwrap();
            let connections = world.connections();
            assert_eq!(connections.len(), 1);
            assert_eq!(connections[0].client, client.local_address().unwrap());
            assert_eq!(connections[0].server, client.peer_address());
            world.cut(&connections[0]);
            for end in [&client, &server] {
                let error = loop {
                    match end.receive().await {
                        Ok(view) => assert!(!view.is_empty(), "a cut is not an end"),
                        Err(error) => break error,
                    }
                };
                assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
                let late = send_all(end, b"late").await.unwrap_err();
                assert_eq!(late.kind(), io::ErrorKind::BrokenPipe);
            }
            assert_eq!(world.connections(), []);
        });
    });
}

#[test]
fn random_cuts_are_seen_by_both_ends() {
    for_seeds(8, |mut config| {
        config.faults.cut_probability = 0.05;
        let simulation = Simulation::new(config);
        simulation.run(0, |reactor| async move {
            for _ in 0..20 {
                let (client, server) = pair(&reactor, &options()).await;
                let server_end = reactor.spawn(async move { echo(&server).await.map(drop) });
                let mut result = Ok(());
                for _ in 0..1000 {
                    result = send_all(&client, b"ping").await;
                    if result.is_ok() {
                        result = receive_exactly(&client, 4).await.map(drop);
                    }
                    if result.is_err() {
                        break;
                    }
                }
                assert!(result.is_err(), "a thousand round trips are cut");
                assert!(server_end.await.is_err());
            }
        });
    });
}

#[test]
fn silence_is_noticed_by_the_sender_alone() {
    for_seeds(4, |config| {
        let simulation = Simulation::new(config);
        let world = simulation.world();
        simulation.run(0, move |reactor| async move {
            let patient = SocketOptions {
                user_timeout: Some(Duration::from_secs(7)),
                ..options()
            };
            let (client, server) = pair(&reactor, &patient).await;
            world.silence(&world.connections()[0]);
            server.start_receive(ReceiveInto::Ring(crate::Amount::Usual));
            send_all(&client, b"hello?").await.unwrap();
            let began = reactor.now();
            let error = client.receive().await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            let waited = reactor.now() - began;
            assert!(waited >= Duration::from_secs(6) && waited < Duration::from_secs(8));
            reactor.sleep(Duration::from_secs(3600)).await;
            let waker = &mut std::task::Context::from_waker(std::task::Waker::noop());
            assert!(server.poll_received(waker).is_pending());
        });
    });
}

#[test]
fn a_partition_delays_and_loses_nothing() {
    for_seeds(8, |config| {
        let simulation = Simulation::new(config);
        let (address, _) = start_echo(&simulation, 0, 7);
        let world = simulation.world();
        simulation.run(1, move |reactor| async move {
            let stream = connect(&reactor, address).await.unwrap();
            for round in 0..20 {
                let sent = pattern(round, 100_000);
                stream.start_send(gather(&sent));
                let pause = Duration::from_micros(world.random() % 500);
                reactor.sleep(pause).await;
                world.partition(0, 1);
                reactor.sleep(Duration::from_secs(30)).await;
                world.heal_all();
                assert!(receive_exactly(&stream, sent.len()).await.unwrap() == sent);
                let sending = std::future::poll_fn(|context| stream.poll_sent(context));
                sending.await.0.unwrap();
            }
        });
    });
}

#[test]
fn a_killed_process_ends_its_connections_and_a_power_failure_does_not() {
    for crash in [Crash::Process, Crash::Power] {
        for_seeds(4, |config| {
            let simulation = Simulation::new(config);
            let (address, _) = start_echo(&simulation, 0, 7);
            let world = simulation.world();
            simulation.run(1, move |reactor| async move {
                let stream = connect(&reactor, address).await.unwrap();
                send_all(&stream, b"one").await.unwrap();
                receive_exactly(&stream, 3).await.unwrap();
                world.crash(0, crash);
                if crash == Crash::Process {
                    match stream.receive().await {
                        Ok(view) => assert!(view.is_empty()),
                        Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
                    }
                    let refused = connect(&reactor, address).await.unwrap_err();
                    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
                    return;
                }
                send_all(&stream, b"two").await.unwrap();
                stream.start_receive(ReceiveInto::Ring(crate::Amount::Usual));
                reactor.sleep(Duration::from_secs(60)).await;
                let waker = &mut std::task::Context::from_waker(std::task::Waker::noop());
                assert!(stream.poll_received(waker).is_pending());
                world.restart(0);
                let received = std::future::poll_fn(|context| stream.poll_received(context));
                let error = received.await.unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
                let refused = connect(&reactor, address).await.unwrap_err();
                assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
            });
        });
    }
}

#[test]
fn closing_with_bytes_unread_resets_and_otherwise_ends() {
    for_seeds(8, |config| {
        let simulation = Simulation::new(config);
        simulation.run(0, |reactor| async move {
            let (client, server) = pair(&reactor, &options()).await;
            send_all(&client, b"last words").await.unwrap();
            drop(client);
            assert_eq!(receive_exactly(&server, 10).await.unwrap(), b"last words");
            assert!(server.receive().await.unwrap().is_empty());
            assert!(server.receive().await.unwrap().is_empty());

            let (client, server) = pair(&reactor, &options()).await;
            send_all(&client, b"unread").await.unwrap();
            reactor.sleep(Duration::from_secs(1)).await;
            drop(server);
            let error = client.receive().await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);

            let (client, server) = pair(&reactor, &options()).await;
            drop(server);
            assert!(client.receive().await.unwrap().is_empty());
            // The first bytes to nobody are answered with a reset, which the next operation sees.
            send_all(&client, b"too late").await.unwrap();
            reactor.sleep(Duration::from_secs(1)).await;
            let error = send_all(&client, b"too late").await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        });
    });
}

#[test]
fn an_aborted_connection_is_reset() {
    for_seeds(8, |config| {
        let simulation = Simulation::new(config);
        simulation.run(0, |reactor| async move {
            let (client, server) = pair(&reactor, &options()).await;
            client.start_send(gather(&[1; 10 << 20]));
            reactor.sleep(Duration::from_millis(10)).await;
            client.abort();
            let sending = std::future::poll_fn(|context| client.poll_sent(context));
            let error = sending.await.0.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
            let late = send_all(&client, b"late").await.unwrap_err();
            assert_eq!(late.kind(), io::ErrorKind::BrokenPipe);
            drop(client);
            let error = loop {
                match server.receive().await {
                    Ok(view) => assert!(!view.is_empty(), "a reset is not an end"),
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        });
    });
}

#[test]
fn nothing_of_an_aborted_connection_arrives_late() {
    for_seeds(8, |config| {
        let simulation = Simulation::new(config);
        let world = simulation.world();
        let server = simulation.system(0);
        let listener = listen(&server, 7);
        let address = SocketAddr::new(simulation.address(0), 7);
        let main: crate::ReactorMain = Box::new(move |reactor| {
            Box::pin(async move {
                let stream = TcpListener::new(&reactor, listener).accept().await.unwrap();
                assert_eq!(receive_exactly(&stream, 5).await.unwrap(), b"early");
                stream.start_receive(ReceiveInto::Ring(crate::Amount::Usual));
                reactor.sleep(Duration::from_secs(1000)).await;
                let waker = &mut std::task::Context::from_waker(std::task::Waker::noop());
                assert!(stream.poll_received(waker).is_pending());
                // The reset was lost with the rest; the next word is answered with another.
                send_all(&stream, b"still there?").await.unwrap();
                let received = std::future::poll_fn(|context| stream.poll_received(context));
                let error = received.await.unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
            })
        });
        let started = server
            .start_reactor(ReactorConfig::default(), main)
            .unwrap();
        simulation.run(1, move |reactor| async move {
            let stream = connect(&reactor, address).await.unwrap();
            send_all(&stream, b"early").await.unwrap();
            reactor.sleep(Duration::from_secs(1)).await;
            let still_travels = world.random().is_multiple_of(2);
            if still_travels {
                send_all(&stream, b"late").await.unwrap();
            }
            world.partition(0, 1);
            if !still_travels {
                send_all(&stream, b"late").await.unwrap();
                reactor
                    .sleep(Duration::from_millis(world.random() % 2))
                    .await;
            }
            stream.abort();
            let late = send_all(&stream, b"late").await.unwrap_err();
            assert_eq!(late.kind(), io::ErrorKind::ConnectionReset);
            if world.random().is_multiple_of(2) {
                reactor.sleep(Duration::from_secs(1)).await;
            }
            let late = send_all(&stream, b"late").await.unwrap_err();
            assert_eq!(late.kind(), io::ErrorKind::BrokenPipe);
            drop(stream);
            reactor.sleep(Duration::from_secs(60)).await;
            world.heal(0, 1);
        });
        started.join();
    });
}

#[test]
fn each_direction_ends_alone() {
    let simulation = Simulation::new(Config::default());
    simulation.run(0, |reactor| async move {
        let (client, server) = pair(&reactor, &options()).await;
        client.shutdown(Shutdown::Write);
        let error = send_all(&client, b"x").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        assert!(server.receive().await.unwrap().is_empty());
        send_all(&server, b"still here").await.unwrap();
        assert_eq!(receive_exactly(&client, 10).await.unwrap(), b"still here");
        // A segment is filled, unless the stream ends first.
        send_all(&server, b"short").await.unwrap();
        server.shutdown(Shutdown::Write);
        assert_eq!(receive_exactly(&client, 100).await.unwrap(), b"short");
    });
}

#[test]
fn dropping_a_stream_in_the_middle_of_things_ends_it() {
    for_seeds(8, |config| {
        let simulation = Simulation::new(config);
        let world = simulation.world();
        simulation.run(0, move |reactor| async move {
            let (client, server) = pair(&reactor, &options()).await;
            client.start_receive(ReceiveInto::Ring(crate::Amount::Usual));
            client.start_send(gather(&[7; 10 << 20]));
            reactor.sleep(Duration::from_millis(5)).await;
            drop(client);
            let mut received = 0;
            while let Ok(view) = server.receive().await {
                if view.is_empty() {
                    break;
                }
                received += view.len();
            }
            assert!(received < 10 << 20);
            drop(server);
            reactor.sleep(Duration::from_secs(1)).await;
            assert_eq!(world.connections(), []);
        });
    });
}

#[test]
fn a_full_backlog_makes_connections_wait() {
    for_seeds(4, |config| {
        let simulation = Simulation::new(config);
        simulation.run(0, |reactor| async move {
            let short = SocketOptions {
                backlog: Some(2),
                ..options()
            };
            let any = SocketAddr::new("127.0.0.1".parse().unwrap(), 0);
            let listener = Arc::clone(reactor.system()).listen(any, &short).unwrap();
            let listener = TcpListener::new(&reactor, listener);
            let address = listener.address();
            let clients: Vec<_> = (0..5)
                .map(|_| {
                    let there = reactor.clone();
                    reactor.spawn(async move { connect(&there, address).await.unwrap() })
                })
                .collect();
            reactor.sleep(Duration::from_millis(500)).await;
            let done = clients.iter().filter(|client| client.is_finished()).count();
            assert_eq!(done, 2);
            let mut accepted = Vec::new();
            for _ in 0..5 {
                accepted.push(listener.accept().await.unwrap());
            }
            for client in clients {
                client.await;
            }
        });
    });
}

#[test]
fn a_cancelled_accept_loses_no_connection_and_a_failed_one_neither() {
    for_seeds(8, |mut config| {
        config.faults.accept_error_probability = 0.5;
        let simulation = Simulation::new(config);
        simulation.run(0, |reactor| async move {
            let any = SocketAddr::new("127.0.0.1".parse().unwrap(), 0);
            let listener = Arc::clone(reactor.system())
                .listen(any, &options())
                .unwrap();
            let listener = Rc::new(TcpListener::new(&reactor, listener));
            let accepting = Rc::clone(&listener);
            let task = reactor.spawn(async move { accepting.accept().await.map(drop) });
            reactor.sleep(Duration::from_millis(1)).await;
            drop(task);
            let client = connect(&reactor, listener.address()).await.unwrap();
            let server = loop {
                match listener.accept().await {
                    Ok(server) => break server,
                    Err(error) => assert_eq!(number(&error), libc::EMFILE),
                }
            };
            send_all(&client, b"here").await.unwrap();
            assert_eq!(receive_exactly(&server, 4).await.unwrap(), b"here");
        });
    });
}

#[test]
fn a_cancelled_receive_takes_no_bytes() {
    for_seeds(16, |config| {
        let simulation = Simulation::new(config);
        simulation.run(0, |reactor| async move {
            let (client, server) = pair(&reactor, &options()).await;
            let mut received = Vec::new();
            client.start_send(gather(&pattern(5, 50_000)));
            while received.len() < 50_000 {
                server.start_receive(ReceiveInto::Ring(crate::Amount::Usual));
                if reactor.random().is_multiple_of(2) {
                    server.cancel_receive();
                }
                let result = std::future::poll_fn(|context| server.poll_received(context)).await;
                match result {
                    Ok(Received::Ring(view)) => received.extend_from_slice(&view),
                    Ok(Received::Segment(..)) => unreachable!("a ring receive"),
                    Err(error) => assert_eq!(number(&error), libc::ECANCELED),
                }
                reactor.sleep(Duration::from_micros(10)).await;
            }
            assert!(received == pattern(5, 50_000));
        });
    });
}

#[test]
fn a_receive_waits_for_a_buffer() {
    // There is one.
    let simulation = Simulation::new(Config {
        receive_buffer: weir_memory::Pool::CHUNK,
        receive_pool_bytes: weir_memory::Pool::CHUNK,
        ..Config::default()
    });
    let world = simulation.world();
    simulation.run(0, move |reactor| async move {
        let (client, server) = pair(&reactor, &options()).await;
        send_all(&client, b"x").await.unwrap();
        let held = server.receive().await.unwrap();
        assert_eq!(held[..], *b"x");
        send_all(&client, b"hello").await.unwrap();
        server.start_receive(ReceiveInto::Ring(crate::Amount::Usual));
        reactor.sleep(Duration::from_secs(1)).await;
        assert_eq!(world.receive_bytes_held(0), weir_memory::Pool::CHUNK);
        let waker = &mut std::task::Context::from_waker(std::task::Waker::noop());
        assert!(server.poll_received(waker).is_pending());
        drop(held);
        let received = std::future::poll_fn(|context| server.poll_received(context)).await;
        let Ok(Received::Ring(view)) = received else {
            panic!("bytes, once there is a buffer")
        };
        assert!(b"hello".starts_with(&view) && !view.is_empty());
        drop(view);
        reactor.sleep(Duration::from_secs(1)).await;
        assert_eq!(world.receive_bytes_held(0), 0);
    });
}

#[test]
fn what_was_received_is_gone_with_its_reactor() {
    for crash in [None, Some(Crash::Process), Some(Crash::Power)] {
        let simulation = Simulation::new(Config::default());
        let main: crate::ReactorMain = Box::new(|reactor| {
            Box::pin(async move {
                let (client, server) = pair(&reactor, &options()).await;
                send_all(&client, b"x").await.unwrap();
                let _held = server.receive().await.unwrap();
                // Nothing is in flight when it ends.
                std::future::pending::<()>().await;
            })
        });
        let system = simulation.system(0);
        let thread = system.start_reactor(ReactorConfig::default(), main);
        simulation.run_for(Duration::from_secs(1));
        let world = simulation.world();
        assert!(world.receive_bytes_held(0) > 0);
        match crash {
            Some(crash) => simulation.crash(0, crash),
            None => thread.unwrap().remote.stop(),
        }
        simulation.run_for(Duration::from_secs(1));
        assert_eq!(world.receive_bytes_held(0), 0, "{crash:?}");
    }
}

#[test]
fn addresses_are_taken_once_and_found_by_name() {
    let simulation = Simulation::new(Config::default());
    let (alpha, beta) = (simulation.host("alpha"), simulation.host("beta"));
    let at = |address: &str| address.parse::<SocketAddr>().unwrap();
    let on = |system: &Arc<dyn System>, address: &str, only_v6| {
        let wanted = SocketOptions {
            only_v6,
            ..options()
        };
        Arc::clone(system).listen(at(address), &wanted)
    };
    let first = on(&alpha, "0.0.0.0:4420", None).unwrap();
    let taken = on(&alpha, "10.0.0.1:4420", None).unwrap_err();
    assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    let taken = on(&alpha, "[::]:4420", None).unwrap_err();
    assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    let _six = on(&alpha, "[::]:4420", Some(true)).unwrap();
    let _other_host = on(&beta, "10.0.0.2:4420", None).unwrap();
    let foreign = on(&beta, "10.0.0.1:4420", None).unwrap_err();
    assert_eq!(foreign.kind(), io::ErrorKind::AddrNotAvailable);
    drop(first);
    let _again = on(&alpha, "10.0.0.1:4420", None).unwrap();

    let found = alpha.resolve("beta", 80).unwrap();
    assert_eq!(found, [at("10.0.0.2:80"), at("[fd00::2]:80")]);
    assert_eq!(alpha.resolve("10.1.2.3", 1).unwrap(), [at("10.1.2.3:1")]);
    assert_eq!(alpha.resolve("[::1]", 1).unwrap(), [at("[::1]:1")]);
    let unknown = alpha.resolve("gamma", 1).unwrap_err();
    assert_eq!(unknown.kind(), io::ErrorKind::NotFound);
}

#[test]
fn one_listener_takes_both_families() {
    let simulation = Simulation::new(Config::default());
    let (four, six) = (simulation.address(0), simulation.address_v6(0));
    let system = simulation.system(0);
    let listener = Arc::clone(&system)
        .listen("[::]:0".parse().unwrap(), &options())
        .unwrap();
    let port = listener.address().port();
    let main: crate::ReactorMain = Box::new(move |reactor| {
        Box::pin(async move {
            let listener = TcpListener::new(&reactor, listener);
            let first = listener.accept().await.unwrap();
            let mapped = first.local_address().unwrap().ip();
            assert_eq!(mapped.to_string(), "::ffff:10.0.0.1");
            assert_eq!(first.peer_address().ip().to_string(), "::ffff:10.0.0.2");
            drop(first);
            let second = listener.accept().await.unwrap();
            assert_eq!(second.peer_address().ip().to_string(), "fd00::2");
        })
    });
    let started = system
        .start_reactor(ReactorConfig::default(), main)
        .unwrap();
    simulation.run(1, move |reactor| async move {
        for ip in [four, six] {
            let stream = connect(&reactor, SocketAddr::new(ip, port)).await.unwrap();
            assert!(stream.receive().await.unwrap().is_empty());
        }
    });
    started.join();
}

#[test]
fn options_are_read_back_and_wrong_ones_refused() {
    let simulation = Simulation::new(Config::default());
    simulation.run(0, |reactor| async move {
        let (client, _server) = pair(&reactor, &options()).await;
        let wanted = SocketOptions {
            congestion_control: Some("reno".to_owned()),
            dscp: Some(46),
            priority: Some(6),
            user_timeout: Some(Duration::from_secs(30)),
            ..options()
        };
        client.set_options(&wanted).unwrap();
        let report = client.report().unwrap();
        assert_eq!(report.congestion_control, "reno");
        assert_eq!((report.dscp, report.priority), (46, 6));
        assert_eq!(report.user_timeout, Duration::from_secs(30));
        assert!(report.no_delay);
        let unknown = SocketOptions {
            congestion_control: Some("warp".to_owned()),
            ..options()
        };
        let error = client.set_options(&unknown).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let wide = SocketOptions {
            dscp: Some(64),
            ..options()
        };
        let error = client.set_options(&wide).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    });
}

#[test]
fn delay_spikes_are_as_long_as_they_are_said_to_be() {
    let round_trip = |faults: Faults| {
        let simulation = Simulation::new(Config {
            faults,
            ..Config::default()
        });
        simulation.run(0, |reactor| async move {
            let (client, server) = pair(&reactor, &options()).await;
            let began = reactor.now();
            send_all(&client, b"x").await.unwrap();
            receive_exactly(&server, 1).await.unwrap();
            reactor.now() - began
        })
    };
    assert!(round_trip(Faults::default()) <= Duration::from_micros(200));
    assert_eq!(round_trip(Faults::none()), Duration::ZERO);
    let spiked = round_trip(Faults {
        delay_spike_probability: 1.0,
        ..Faults::default()
    });
    assert!((10..=2001).contains(&spiked.as_millis()), "{spiked:?}");
}

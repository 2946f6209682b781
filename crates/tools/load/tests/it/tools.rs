//! The tools on volumes in the simulation: they see what is there, and name what is wrong.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use weir_block::{Operation, ReadBuffers, Request, Token, Volume};
use weir_load::bench::{self, Arrivals, BenchConfig, BenchError, BenchReport, Load};
use weir_load::copy::{self, CopyConfig, CopyError};
use weir_load::verify::{self, Until, VerifyConfig, VerifyError};
use weir_load::workload::{Access as Blocks, Kind, Workload};
use weir_load::{Fault, PlanError, Stop};
use weir_reactor::Reactor;
use weir_testing::failing::failing;

use crate::common::{open, simulate, simulate_on_slow_disk};

fn verify_config(until: Until) -> VerifyConfig {
    VerifyConfig {
        request_bytes: 8192,
        depth: 7,
        queues: 3,
        range_bytes: None,
        seed: 99,
        until,
        check_only: false,
        passes_made: 0,
        stop: Stop::new(),
    }
}

async fn run_verify(
    reactor: &Reactor,
    volume: &Arc<dyn Volume>,
    config: &VerifyConfig,
) -> Result<verify::VerifyReport, VerifyError> {
    verify::run(reactor, &[reactor.remote()], volume, config, |_| {}).await
}

/// A volume that fails the writes of one block.
fn failing_at(block: u64, inner: Arc<dyn Volume>) -> Arc<dyn Volume> {
    failing(inner, move |operation| {
        matches!(operation, Operation::Write { lba, blocks, .. }
            if (*lba..*lba + u64::from(*blocks)).contains(&block))
    })
}

#[test]
fn verify_finds_nothing_wrong_with_sound_volumes() {
    for url in [
        "mem:?size=1M",
        "mem:?size=1000k&block_size=512",
        "file:/image?size=1M",
        "file:/image?size=600k&block_size=512",
    ] {
        let report = simulate(move |reactor| async move {
            let volume = open(&reactor, url).await;
            run_verify(&reactor, &volume, &verify_config(Until::Passes(3))).await
        });
        let report = report.unwrap_or_else(|error| panic!("{url}: {error}"));
        let length = if url.contains("600k") {
            600 << 10
        } else if url.contains("1000k") {
            1000 << 10
        } else {
            1 << 20
        };
        assert_eq!(
            (report.passes, report.written_bytes),
            (3, 3 * length),
            "{url}"
        );
        assert!(
            report.compared_bytes > 3 * length,
            "{url}: spot checks happen besides the whole comparisons"
        );
    }
}

#[test]
fn verify_reports_a_failed_request_as_such() {
    let outcome = simulate(|reactor| async move {
        let inner = open(&reactor, "mem:?size=1M").await;
        let volume = failing_at(5, inner);
        run_verify(&reactor, &volume, &verify_config(Until::Passes(1))).await
    });
    assert!(matches!(outcome, Err(VerifyError::Lane(_))), "{outcome:?}");
}

#[test]
fn a_later_check_knows_an_earlier_run_and_no_other() {
    simulate(|reactor| async move {
        let volume = open(&reactor, "mem:?size=1M").await;
        run_verify(&reactor, &volume, &verify_config(Until::Passes(2)))
            .await
            .expect("the run is sound");
        let check = VerifyConfig {
            check_only: true,
            queues: 1,
            ..verify_config(Until::Passes(1))
        };
        let report = run_verify(&reactor, &volume, &check)
            .await
            .expect("the check finds what the run left");
        assert_eq!((report.written_bytes, report.compared_bytes), (0, 1 << 20));
        let other = VerifyConfig { seed: 98, ..check };
        let error = run_verify(&reactor, &volume, &other)
            .await
            .expect_err("another run's blocks are wrong");
        assert!(
            matches!(&error, VerifyError::Wrong { findings, .. } if findings[0].lba == 0 && findings[0].fault == Fault::ForeignData),
            "{error}"
        );
    });
}

#[test]
fn a_verification_that_is_stopped_compares_what_it_wrote() {
    let report = simulate(|reactor| async move {
        let volume = open(&reactor, "file:/image?size=16M").await;
        let config = verify_config(Until::Elapsed(Duration::from_secs(3600)));
        let stop = config.stop.clone();
        let sleeper = reactor.clone();
        let stopping = async move {
            sleeper.sleep(Duration::from_millis(20)).await;
            stop.stop();
        };
        reactor.spawn(stopping).detach();
        run_verify(&reactor, &volume, &config).await
    });
    let report = report.expect("nothing is wrong");
    assert!(report.compared_bytes >= report.written_bytes.min(16 << 20));
}

async fn read_all(reactor: &Reactor, volume: &Arc<dyn Volume>) -> Vec<u8> {
    let geometry = volume.geometry();
    let sink = weir_block::Completions::new();
    let mut queue = Arc::clone(volume)
        .open_queue(reactor, 1, sink.clone())
        .expect("a queue opens");
    let mut bytes = Vec::new();
    for lba in (0..geometry.blocks).step_by(16) {
        let blocks = (geometry.blocks - lba).min(16) as u32;
        let operation = Operation::Read {
            lba,
            blocks,
            buffers: ReadBuffers::Lend,
        };
        let mut batch = VecDeque::from([Request {
            token: Token::default(),
            operation,
        }]);
        sink.submit(&mut *queue, &mut batch);
        assert!(batch.is_empty());
        let completion = sink.next().await;
        completion.result.expect("a read succeeds");
        let Operation::Read {
            buffers: ReadBuffers::Filled(data),
            ..
        } = completion.operation
        else {
            panic!("a read is filled")
        };
        data.iter().for_each(|view| bytes.extend_from_slice(view));
    }
    bytes
}

#[test]
fn a_copy_holds_the_same_bytes_and_zeroes_are_not_sent() {
    for (from, to) in [
        ("mem:?size=1M&block_size=512", "file:/copy?size=2M"),
        ("file:/source?size=1M", "mem:?size=1M&block_size=512"),
    ] {
        simulate(move |reactor| async move {
            let source = open(&reactor, from).await;
            let config = VerifyConfig {
                range_bytes: Some(512 << 10),
                queues: 1,
                ..verify_config(Until::Passes(1))
            };
            run_verify(&reactor, &source, &config)
                .await
                .expect("the source is written");
            let target = open(&reactor, to).await;
            let config = CopyConfig {
                request_bytes: 64 << 10,
                depth: 3,
            };
            let report = copy::run(&reactor, &source, &target, &config, &Stop::new(), |_| {}).await;
            let report = report.unwrap_or_else(|error| panic!("{from} to {to}: {error}"));
            assert_eq!(
                (report.copied_bytes, report.zero_bytes),
                (1 << 20, 512 << 10)
            );
            let (original, copied) = (
                read_all(&reactor, &source).await,
                read_all(&reactor, &target).await,
            );
            assert_eq!(original.len(), 1 << 20);
            assert!(
                original[..] == copied[..1 << 20],
                "{from} to {to}: the copy differs"
            );
            assert!(copied[1 << 20..].iter().all(|&byte| byte == 0));
        });
    }
}

#[test]
fn a_copy_onto_too_small_a_volume_is_refused_before_it_starts() {
    simulate(|reactor| async move {
        let source = open(&reactor, "mem:?size=2M").await;
        let target = open(&reactor, "mem:?size=1M").await;
        let outcome = copy::run(
            &reactor,
            &source,
            &target,
            &CopyConfig::default(),
            &Stop::new(),
            |_| {},
        )
        .await;
        assert!(
            matches!(outcome, Err(CopyError::TooSmall { .. })),
            "{outcome:?}"
        );
    });
}

#[test]
fn a_copy_ends_with_the_first_error() {
    simulate(|reactor| async move {
        let source = open(&reactor, "mem:?size=1M").await;
        let config = VerifyConfig {
            queues: 1,
            ..verify_config(Until::Passes(1))
        };
        run_verify(&reactor, &source, &config)
            .await
            .expect("the source is written");
        let inner = open(&reactor, "mem:?size=1M").await;
        let target = failing_at(200, inner);
        let config = CopyConfig {
            request_bytes: 4096,
            depth: 4,
        };
        let outcome = copy::run(&reactor, &source, &target, &config, &Stop::new(), |_| {}).await;
        assert!(matches!(outcome, Err(CopyError::Lane(_))), "{outcome:?}");
    });
}

fn bench_config() -> BenchConfig {
    BenchConfig {
        workload: Workload::simple(4096, 70, Blocks::Random),
        load: Load::Closed { depth: 8 },
        queues: 3,
        among: None,
        duration: Duration::from_millis(300),
        ramp: Duration::from_millis(50),
        interval: Duration::from_millis(100),
        seed: 5,
        stop: Stop::new(),
    }
}

fn offered(rate: u64) -> Load {
    Load::Open {
        rate,
        arrivals: Arrivals::Uniform,
        depth_max: 8,
    }
}

#[test]
fn bench_counts_what_the_volume_did() {
    for access in [Blocks::Random, Blocks::Sequential] {
        let report = simulate_on_slow_disk(move |reactor| async move {
            let volume = open(&reactor, "file:/image?size=4M").await;
            let config = BenchConfig {
                workload: Workload::simple(4096, 70, access),
                ..bench_config()
            };
            bench::run(&reactor, &[reactor.remote()], &volume, &config, |_| {}).await
        });
        let report = report.expect("the run is sound");
        assert_eq!(report.errors(), 0, "{:?}", report.first_error);
        assert_eq!(report.elapsed, Duration::from_millis(300));
        for kind in [Kind::Read, Kind::Write] {
            let of = report.of(kind);
            assert!(of.requests > 0);
            assert_eq!(of.bytes, of.requests * 4096);
            assert_eq!(of.service_ns.len(), of.requests);
            assert!(of.response_ns.is_none());
        }
        let reads = report.of(Kind::Read).requests as f64 / report.requests() as f64;
        assert!(
            (0.6..0.8).contains(&reads),
            "{reads} of the requests were reads"
        );
        // Little's law: what was in flight is throughput times latency. The window cuts off a request's length at each end.
        let in_flight = report.iops() * report.latency_ns().mean() / 1e9;
        assert!(
            (20.0..=24.5).contains(&in_flight),
            "{in_flight} in flight on average, of 24"
        );
    }
}

#[test]
fn an_offered_rate_is_kept_and_nothing_else() {
    let report = simulate(move |reactor| async move {
        let volume = open(&reactor, "null:?size=1G").await;
        let config = BenchConfig {
            load: offered(10_000),
            ..bench_config()
        };
        bench::run(&reactor, &[reactor.remote()], &volume, &config, |_| {}).await
    });
    let report = report.expect("the run is sound");
    // 300 ms of 10,000 a second; the first of each queue in the window may lie on its edge.
    let requests = report.requests();
    assert!((2_997..=3_003).contains(&requests), "{requests}");
    assert_eq!((report.errors(), report.unsent), (0, 0));
    assert_eq!(report.elapsed, Duration::from_millis(300));
}

#[test]
fn what_is_late_by_overload_counts_as_late_and_what_was_not_sent_is_told() {
    let overloaded = |load| -> BenchReport {
        let report = simulate_on_slow_disk(move |reactor| async move {
            let volume = open(&reactor, "file:/image?size=4M").await;
            let config = BenchConfig {
                load,
                ramp: Duration::ZERO,
                ..bench_config()
            };
            bench::run(&reactor, &[reactor.remote()], &volume, &config, |_| {}).await
        });
        report.expect("the run is sound")
    };
    let closed = overloaded(Load::Closed { depth: 8 });
    let capacity = closed.iops();
    let rate = (capacity * 2.0) as u64;
    let open = overloaded(offered(rate));
    let sent = open.requests();
    let due = rate * 300 / 1000;
    assert!(open.unsent > 0 && sent > 0);
    assert!(
        (sent + open.unsent).abs_diff(due) <= 3,
        "{sent} and {} of {due}",
        open.unsent
    );
    // Half of what is due is served, so that what is sent last was due half of the time before.
    assert!(
        open.latency_ns().max() > 100_000_000,
        "{}",
        open.latency_ns().max()
    );
    assert!(
        closed.latency_ns().max() < 100_000_000,
        "{}",
        closed.latency_ns().max()
    );
}

#[test]
fn bench_reports_failures_and_goes_on() {
    let report = simulate_on_slow_disk(|reactor| async move {
        let inner = open(&reactor, "file:/image?size=1M").await;
        let volume = failing_at(3, inner);
        bench::run(
            &reactor,
            &[reactor.remote()],
            &volume,
            &bench_config(),
            |_| {},
        )
        .await
    });
    let report = report.expect("failures are counted, not fatal");
    let requests = |kind| report.of(kind).requests;
    assert!(report.errors() > 0 && requests(Kind::Read) > 0 && requests(Kind::Write) > 0);
    assert_eq!(report.of(Kind::Write).errors, report.errors());
    assert!(
        report
            .first_error
            .is_some_and(|error| error.contains("writing of 1 blocks at block 3"))
    );
}

#[test]
fn bench_refuses_what_the_volume_cannot_do() {
    simulate(|reactor| async move {
        let volume = open(&reactor, "mem:?size=1M").await;
        for request_bytes in [512, 5000, 2 << 20, 1 << 30] {
            let config = BenchConfig {
                workload: Workload::simple(request_bytes, 70, Blocks::Random),
                ..bench_config()
            };
            let outcome = bench::run(&reactor, &[reactor.remote()], &volume, &config, |_| {}).await;
            assert!(
                matches!(
                    outcome,
                    Err(BenchError::Plan(PlanError::RequestSize { .. }))
                ),
                "{request_bytes}: {outcome:?}"
            );
        }
        let config = BenchConfig {
            queues: 0,
            ..bench_config()
        };
        let outcome = bench::run(&reactor, &[reactor.remote()], &volume, &config, |_| {}).await;
        assert!(
            matches!(outcome, Err(BenchError::Plan(PlanError::Zero { .. }))),
            "{outcome:?}"
        );
    });
}

//! The canned responder satisfies Weir's own initiator.

use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use weir_limit::canned::{self, CannedReport};
use weir_load::Stop;
use weir_load::bench::{self, BenchConfig, BenchReport, INTERVAL, Load};
use weir_load::workload::{Access as Blocks, Kind, Workload};
use weir_nvme_host::{HostIdentity, NvmeHost, SCHEME};
use weir_reactor::linux::{LinuxConfig, LinuxSystem};
use weir_reactor::{LocalFuture, ReactorConfig, System};
use weir_volume::{Access, Registry, VolumeUrl};

/// Runs the load against `url`, as `weir bench` does, and disconnects.
fn drive(url: &VolumeUrl, config: BenchConfig) -> BenchReport {
    let system = LinuxSystem::new(LinuxConfig::default()).unwrap();
    let main = Box::new(|_| -> LocalFuture<()> { Box::pin(std::future::pending()) });
    let thread = system
        .start_reactor(ReactorConfig::default(), main)
        .unwrap();
    let identity = HostIdentity::from_texts(None, None, [7; 16]).unwrap();
    let host = NvmeHost::new(identity, 2);
    let mut registry = Registry::standard();
    registry.register(SCHEME, host.factory());
    let (url, remote, closing) = (url.clone(), thread.remote.clone(), Arc::clone(&host));
    let report = thread
        .remote
        .call_blocking(move |reactor| async move {
            let access = Access::READ_WRITE;
            let volume = registry.open(&reactor, &url, access).await.unwrap();
            assert_eq!(volume.geometry().length_bytes(), canned::NAMESPACE_BYTES);
            let report = bench::run(&reactor, &[remote], &volume, &config, |_| {}).await;
            drop(volume);
            closing.close_all().await;
            report.unwrap()
        })
        .unwrap();
    thread.remote.stop();
    thread.join();
    report
}

/// For longer and longer, until there are so many requests that reads and writes are among them: the machine may stand still meanwhile.
fn measure(request_bytes: u64, read_percent: u8) -> (BenchReport, CannedReport) {
    const REQUESTS_MIN: u64 = 64;
    let mut duration = Duration::from_millis(200);
    loop {
        let measured = measure_for(duration, request_bytes, read_percent);
        if measured.0.requests() >= REQUESTS_MIN || duration > Duration::from_secs(60) {
            return measured;
        }
        duration *= 4;
    }
}

fn measure_for(
    duration: Duration,
    request_bytes: u64,
    read_percent: u8,
) -> (BenchReport, CannedReport) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = canned::url(listener.local_addr().unwrap()).parse().unwrap();
    let (stop, stopping) = UnixStream::pair().unwrap();
    let responder = std::thread::spawn(move || canned::respond(&listener, &stopping).unwrap());
    let report = drive(
        &url,
        BenchConfig {
            workload: Workload::simple(request_bytes, read_percent, Blocks::Random),
            load: Load::Closed { depth: 16 },
            queues: 2,
            among: None,
            duration,
            ramp: Duration::ZERO,
            interval: INTERVAL,
            seed: 1,
            stop: Stop::new(),
        },
    );
    drop(stop);
    (report, responder.join().unwrap())
}

#[test]
fn reads_and_writes_of_all_sizes_are_answered_and_counted() {
    for (request_bytes, read_percent) in [
        (4 << 10, 100),
        (4 << 10, 0),
        (16 << 10, 70),
        (128 << 10, 50),
        (1 << 20, 50),
    ] {
        let (driven, canned) = measure(request_bytes, read_percent);
        assert_eq!((driven.errors(), &driven.first_error), (0, &None));
        let operations = driven.requests();
        assert!(operations > 0, "{request_bytes} {read_percent}");
        // What ended after the measured time is not in the report of the load: at most two batches of each queue.
        assert!(canned.operations >= operations);
        assert!(
            canned.operations <= operations + 2 * 2 * 16,
            "{canned:?} {operations}"
        );
        assert!(
            canned.elapsed_seconds > 0.0 && canned.busy_share > 0.0,
            "{canned:?}"
        );
        assert_eq!(driven.of(Kind::Read).requests == 0, read_percent == 0);
    }
}

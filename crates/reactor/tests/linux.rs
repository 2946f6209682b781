//! The io_uring driver and the real system, on the real kernel.

mod contract;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use contract::{Ground, Place};
use weir_reactor::linux::{LinuxConfig, LinuxSystem};

fn ground_on(config: LinuxConfig, directory: &tempfile::TempDir) -> Ground {
    let system: Arc<LinuxSystem> = LinuxSystem::new(config).expect("io_uring works here");
    Ground {
        place: Place {
            system,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            directory: directory.path().to_owned(),
        },
        drive: Box::new(|done| {
            while !done() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }),
    }
}

#[test]
fn contract_holds() {
    let directory = tempfile::tempdir().expect("a directory");
    contract::suite(&ground_on(LinuxConfig::default(), &directory));
}

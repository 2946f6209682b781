//! What the NVMe drive below a device says of itself: Identify Controller, the SMART / Health Information log, and the extended one that the Open Compute Project
//! defines, where the drive has it.
//!
//! A field that the specification lets mean that nothing is reported is not known, and not 0.

use std::io;
use std::sync::{Arc, Mutex};

use weir_block::{Health, HealthReport};
use weir_nvme::command::{AdminCommand, GetLogPage, Identify};
use weir_nvme::identify::{
    Cns, ControllerAttributes, IDENTIFY_SIZE, IdentifyController, uuid_index,
};
use weir_nvme::log::{LogId, OCP_UUID, OcpSmart, SmartHealth};
use weir_nvme::{SglDescriptor, Status, ascii_text};
use weir_reactor::{AdminQuery, File};

use crate::support::lock;

const NANOSECONDS: u64 = 1_000_000_000;

/// A drive, with what of it does not change while it is open.
pub(super) struct Drive {
    file: Arc<File>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    controller: Option<Box<Controller>>,
    extended: Extended,
}

/// What Identify Controller says.
struct Controller {
    identify: IdentifyController,
    name: String,
}

/// Whether the drive has the extended log.
#[derive(Default)]
enum Extended {
    #[default]
    NotAsked,
    /// It has, under this UUID index.
    Has(u8),
    /// It has not: so it is told, and the drive is not asked again, for what it refuses it counts as an error.
    HasNot(String),
}

impl Drive {
    pub(super) fn new(file: Arc<File>) -> Self {
        Drive {
            file,
            known: Mutex::default(),
        }
    }

    /// Asks it. Blocks until it has answered.
    pub(super) fn report(&self) -> HealthReport {
        let mut ask = |query: &AdminQuery, data: &mut [u8]| {
            let status = self.file.query_nvme(query, data)?;
            Ok(Status::from_bits(status))
        };
        lock(&self.known).report(&mut ask)
    }
}

/// Carries a query out.
type Ask<'a> = &'a mut dyn FnMut(&AdminQuery, &mut [u8]) -> io::Result<Status>;

/// Why a query yields nothing.
enum Refused {
    /// By the drive.
    Drive(Status),
    /// Before it came there.
    System(io::Error),
}

impl Refused {
    /// Whether the drive does not have what it was asked for, and so would answer the same again.
    fn is_for_good(&self) -> bool {
        let Refused::Drive(status) = self else {
            return false;
        };
        let known = [
            Status::INVALID_LOG_PAGE,
            Status::INVALID_FIELD_IN_COMMAND,
            Status::INVALID_COMMAND_OPCODE,
        ];
        status.do_not_retry() || known.iter().any(|known| status.is(*known))
    }

    fn words(&self) -> String {
        match self {
            Refused::Drive(status) => format!("the drive answers {status}"),
            Refused::System(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                format!("the process may not ask the drive ({error}); with CAP_SYS_ADMIN it may")
            }
            Refused::System(error) => error.to_string(),
        }
    }
}

fn query(ask: Ask<'_>, command: AdminCommand, data: &mut [u8]) -> Result<(), Refused> {
    let sqe = command.sqe(0, SglDescriptor::default());
    let query = AdminQuery {
        opcode: sqe.opcode,
        nsid: sqe.nsid,
        dwords: [
            sqe.cdw10, sqe.cdw11, sqe.cdw12, sqe.cdw13, sqe.cdw14, sqe.cdw15,
        ],
    };
    match ask(&query, data) {
        Ok(status) if status.is_success() => Ok(()),
        Ok(status) => Err(Refused::Drive(status)),
        Err(error) => Err(Refused::System(error)),
    }
}

fn identify(ask: Ask<'_>, cns: Cns) -> Result<Box<[u8; IDENTIFY_SIZE]>, Refused> {
    let mut data = Box::new([0; IDENTIFY_SIZE]);
    query(
        ask,
        AdminCommand::Identify(Identify::new(cns, 0)),
        &mut *data,
    )?;
    Ok(data)
}

/// Reads the controller's log, and leaves the events that it stands for to the kernel.
fn log_page<const N: usize>(ask: Ask<'_>, log: LogId, uuid_index: u8) -> Result<[u8; N], Refused> {
    let mut data = [0; N];
    let command = GetLogPage {
        retain_asynchronous_event: true,
        uuid_index,
        ..GetLogPage::new(log, 0, N as u64)
    };
    query(ask, AdminCommand::GetLogPage(command), &mut data)?;
    Ok(data)
}

impl Known {
    fn report(&mut self, ask: Ask<'_>) -> HealthReport {
        let controller = match &self.controller {
            Some(controller) => controller,
            None => match Controller::ask(ask) {
                Ok(controller) => self.controller.insert(Box::new(controller)),
                Err(refused) => return HealthReport::unknown(refused.words()),
            },
        };
        let mut report = HealthReport {
            drives: vec![controller.name.clone()],
            ..HealthReport::default()
        };
        let mut health = match log_page(ask, LogId::SmartHealth, 0) {
            Ok(page) => health(&SmartHealth::decode(&page), &controller.identify),
            Err(refused) => {
                let words = refused.words();
                let reason = format!("its SMART / Health Information log cannot be read: {words}");
                report.unknown.push(reason);
                return report;
            }
        };
        match self.extended.log(controller.identify.attributes, ask) {
            Ok(smart) => {
                health.media_bytes_written = Some(in_bytes(smart.media_bytes_written, 1));
                health.throttling_level = Some(smart.throttling_status)
                    .filter(|&level| level <= OcpSmart::THROTTLING_MAX);
            }
            Err(reason) => report.unknown.push(reason),
        }
        report.health = Some(health);
        report
    }
}

impl Controller {
    fn ask(ask: Ask<'_>) -> Result<Self, Refused> {
        let identify = IdentifyController::decode(&*identify(ask, Cns::Controller)?);
        let name = format!(
            "{}, firmware {}, serial number {}",
            ascii_text(&identify.model_number),
            ascii_text(&identify.firmware_revision),
            ascii_text(&identify.serial_number).trim_start(),
        );
        Ok(Controller { identify, name })
    }
}

impl Extended {
    /// The extended log, or why there is none.
    fn log(&mut self, attributes: ControllerAttributes, ask: Ask<'_>) -> Result<OcpSmart, String> {
        let index = match self {
            Extended::HasNot(reason) => return Err(reason.clone()),
            Extended::Has(index) => *index,
            Extended::NotAsked => ocp_index(attributes, ask),
        };
        let reason = match log_page(ask, OcpSmart::LOG, index) {
            Ok(page) => {
                let smart = OcpSmart::decode(&page);
                if smart.is_known() {
                    *self = Extended::Has(index);
                    return Ok(smart);
                }
                "what it has at C0h is something else".to_owned()
            }
            Err(refused) if refused.is_for_good() => refused.words(),
            Err(refused) => return Err(without_extended(&refused.words())),
        };
        let reason = without_extended(&reason);
        *self = Extended::HasNot(reason.clone());
        Err(reason)
    }
}

/// The UUID index that means the Open Compute Project's logs. What is in no list may be there by the index that means nobody's in particular.
fn ocp_index(attributes: ControllerAttributes, ask: Ask<'_>) -> u8 {
    if !attributes.contains(ControllerAttributes::UUID_LIST) {
        return 0;
    }
    let list = identify(ask, Cns::UuidList).ok();
    list.and_then(|list| uuid_index(&list, OCP_UUID))
        .unwrap_or(0)
}

fn without_extended(reason: &str) -> String {
    format!(
        "what is written to its medium: its SMART / Health Information Extended log (OCP, C0h) cannot be read: {reason}"
    )
}

/// In bytes, as many as can be told.
fn in_bytes(units: u128, bytes: u128) -> u64 {
    u64::try_from(units.saturating_mul(bytes)).unwrap_or(u64::MAX)
}

fn health(smart: &SmartHealth, controller: &IdentifyController) -> Health {
    let count = |count: u128| Some(in_bytes(count, 1));
    // 0 means that it is not reported, where there were commands; and else that nothing was written or read.
    let data = |units: u128, commands: u128| {
        (units > 0 || commands == 0).then(|| in_bytes(units, SmartHealth::DATA_UNIT_BYTES))
    };
    // What the drive does not do, or has no threshold for, it counts as 0.
    let manages = controller.manages_temperature();
    let has_thresholds =
        controller.warning_temperature_kelvin > 0 && controller.critical_temperature_kelvin > 0;
    let sum = |counts: [u32; 2]| counts.into_iter().map(u64::from).sum::<u64>();
    Health {
        data_units_written_bytes: data(smart.data_units_written, smart.host_writes),
        data_units_read_bytes: data(smart.data_units_read, smart.host_reads),
        host_write_commands: count(smart.host_writes),
        host_read_commands: count(smart.host_reads),
        percentage_used: Some(f64::from(smart.percentage_used)),
        available_spare_percent: Some(f64::from(smart.available_spare)),
        temperature_kelvin: Some(smart.temperature_kelvin)
            .filter(|&kelvin| kelvin > 0)
            .map(f64::from),
        thermal_throttle_nanoseconds: manages.then(|| sum(smart.thermal_seconds) * NANOSECONDS),
        thermal_throttle_transitions: manages.then(|| sum(smart.thermal_transitions)),
        critical_warning: Some(smart.critical_warning.0),
        warning_temperature_minutes: has_thresholds
            .then(|| smart.warning_temperature_minutes.into()),
        critical_temperature_minutes: has_thresholds
            .then(|| smart.critical_temperature_minutes.into()),
        ..Health::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A drive that answers with pages that are made by hand.
    struct Fake {
        identify: [u8; 4096],
        uuids: Option<[u8; 4096]>,
        smart: Result<[u8; 512], io::ErrorKind>,
        /// By the UUID index that it is asked with.
        extended: Vec<(u8, [u8; 512])>,
        /// What it answers where it has no such page.
        refusal: Status,
        asked: Vec<AdminQuery>,
    }

    fn put(page: &mut [u8], offset: usize, bytes: &[u8]) {
        page[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// Identify Controller, by its offsets: serial number 4, model 24, firmware 64, CTRATT 96, WCTEMP 266, CCTEMP 268, HCTMA 322.
    fn identify_page() -> [u8; 4096] {
        let mut page = [b' '; 4096];
        page[72..].fill(0);
        put(&mut page, 4, b"  S1");
        put(&mut page, 24, b"A Drive");
        put(&mut page, 64, b"1.2");
        page[266..270].copy_from_slice(&[0x57, 1, 0x75, 1]);
        page[322] = 1;
        page
    }

    fn smart_page() -> [u8; 512] {
        let mut page = [0; 512];
        put(&mut page, 0, &[0b100, 0x2f, 0x01, 98, 10, 3]);
        put(&mut page, 32, &[2]);
        put(&mut page, 48, &[0, 1]);
        put(&mut page, 64, &[9]);
        put(&mut page, 80, &[0, 0, 1]);
        put(&mut page, 192, &[5, 0, 0, 0, 1]);
        put(&mut page, 216, &[4, 0, 0, 0, 1]);
        put(&mut page, 224, &[60, 0, 0, 0, 2]);
        page
    }

    /// The extended log: physical media units written 0, throttling status 97, version 494, GUID 496.
    fn extended_page(written: &[u8], level: u8) -> [u8; 512] {
        let mut page = [0; 512];
        put(&mut page, 0, written);
        page[97] = level;
        page[494] = 3;
        let guid = 0xafd5_14c9_7c6f_4f9c_a4f2_bfea_2810_afc5_u128;
        put(&mut page, 496, &guid.to_le_bytes());
        page
    }

    impl Fake {
        fn new() -> Self {
            Fake {
                identify: identify_page(),
                uuids: None,
                smart: Ok(smart_page()),
                extended: Vec::new(),
                refusal: Status::INVALID_LOG_PAGE,
                asked: Vec::new(),
            }
        }

        fn answer(&mut self, query: &AdminQuery, data: &mut [u8]) -> io::Result<Status> {
            self.asked.push(*query);
            assert!(query.is_one());
            let [cdw10, .., cdw14, _] = query.dwords;
            let page: Option<&[u8]> = match (query.opcode, cdw10 & 0xff) {
                (0x06, 0x01) => Some(&self.identify),
                (0x06, 0x17) => self.uuids.as_ref().map(|page| &page[..]),
                (0x02, 0x02) => Some(self.smart.as_ref().map_err(|&kind| kind)?),
                (0x02, 0xc0) => self
                    .extended
                    .iter()
                    .find(|(index, _)| u32::from(*index) == cdw14)
                    .map(|(_, page)| &page[..]),
                other => panic!("it is not to be asked for {other:x?}"),
            };
            if query.opcode == 0x02 {
                // The whole page, of all namespaces, and the event is kept.
                assert_eq!((cdw10 >> 8, query.nsid), (0x7f80, 0xffff_ffff));
            }
            match page {
                Some(page) => {
                    data.copy_from_slice(page);
                    Ok(Status::SUCCESS)
                }
                None => Ok(self.refusal),
            }
        }

        fn report(&mut self, known: &mut Known) -> HealthReport {
            known.report(&mut |query, data| self.answer(query, data))
        }

        fn health(&mut self) -> Health {
            self.report(&mut Known::default())
                .health
                .expect("it says something")
        }
    }

    #[test]
    fn what_the_smart_log_says_comes_in_bytes_and_nanoseconds() {
        let report = Fake::new().report(&mut Known::default());
        let health = Health {
            data_units_written_bytes: Some(256 * 512_000),
            data_units_read_bytes: Some(2 * 512_000),
            host_write_commands: Some(65_536),
            host_read_commands: Some(9),
            percentage_used: Some(3.0),
            available_spare_percent: Some(98.0),
            temperature_kelvin: Some(303.0),
            thermal_throttle_nanoseconds: Some(62_000_000_000),
            thermal_throttle_transitions: Some(5),
            critical_warning: Some(0b100),
            warning_temperature_minutes: Some(5),
            critical_temperature_minutes: Some(1),
            ..Health::default()
        };
        assert_eq!(report.health, Some(health));
        assert_eq!(report.drives, ["A Drive, firmware 1.2, serial number S1"]);
        let [reason] = &report.unknown[..] else {
            panic!("{:?}", report.unknown)
        };
        assert!(
            reason.starts_with("what is written to its medium"),
            "{reason}"
        );
        assert!(reason.contains("Invalid Log Page"), "{reason}");
    }

    #[test]
    fn what_is_not_reported_is_not_known_and_not_zero() {
        let mut drive = Fake::new();
        drive.identify[268] = 0;
        drive.identify[269] = 0;
        drive.identify[322] = 0;
        let mut page = smart_page();
        page[1..3].fill(0);
        page[48..64].fill(0);
        page[32..48].fill(0);
        page[64..80].fill(0);
        drive.smart = Ok(page);
        let health = drive.health();
        assert_eq!(health.temperature_kelvin, None);
        assert_eq!(health.warning_temperature_minutes, None);
        assert_eq!(health.critical_temperature_minutes, None);
        assert_eq!(health.thermal_throttle_nanoseconds, None);
        assert_eq!(health.thermal_throttle_transitions, None);
        // Commands wrote, and no data was written: that is not reported. None read, and none was read: that is.
        assert_eq!(health.data_units_written_bytes, None);
        assert_eq!(health.data_units_read_bytes, Some(0));
    }

    #[test]
    fn counters_beyond_what_can_be_told_stay_at_the_most() {
        let mut drive = Fake::new();
        let mut page = smart_page();
        page[48..64].fill(0xff);
        drive.smart = Ok(page);
        drive.extended = vec![(0, extended_page(&[0xff; 16], 0))];
        let health = drive.health();
        assert_eq!(health.data_units_written_bytes, Some(u64::MAX));
        assert_eq!(health.media_bytes_written, Some(u64::MAX));
    }

    #[test]
    fn the_extended_log_tells_what_the_medium_was_written_and_how_heat_slows_the_drive() {
        let mut drive = Fake::new();
        drive.extended = vec![(0, extended_page(&[0, 0, 0, 0, 1], 2))];
        let mut known = Known::default();
        for _ in 0..2 {
            let report = drive.report(&mut known);
            let health = report.health.expect("it says something");
            // It is in bytes.
            assert_eq!(health.media_bytes_written, Some(1 << 32));
            assert_eq!(health.throttling_level, Some(2));
            assert!(report.unknown.is_empty(), "{:?}", report.unknown);
        }
        let opcodes: Vec<_> = drive.asked.iter().map(|query| query.opcode).collect();
        assert_eq!(opcodes, [6, 2, 2, 2, 2], "who it is does not change");
        drive.extended[0].1[97] = 9;
        let reserved = drive.health();
        assert_eq!(reserved.throttling_level, None);
    }

    #[test]
    fn another_vendors_page_is_not_taken_for_it_and_not_asked_for_again() {
        let mut other = extended_page(&[1], 1);
        other[511] ^= 0x80;
        let mut first = extended_page(&[1], 1);
        first[494] = 1;
        for pages in [vec![(0, other)], vec![(0, first)], Vec::new()] {
            let mut drive = Fake::new();
            drive.extended = pages;
            let mut known = Known::default();
            for _ in 0..2 {
                let report = drive.report(&mut known);
                let health = report.health.expect("it says something");
                assert_eq!(health.media_bytes_written, None);
                assert_eq!(health.throttling_level, None);
                assert_eq!(report.unknown.len(), 1);
            }
            let asked = |query: &&AdminQuery| query.dwords[0] & 0xff == 0xc0;
            assert_eq!(drive.asked.iter().filter(asked).count(), 1);
        }
    }

    #[test]
    fn what_the_drive_refuses_for_now_is_asked_for_again() {
        let mut drive = Fake::new();
        let mut known = Known::default();
        for (refusal, times) in [
            (Status::INTERNAL_ERROR, 1),
            (Status::INTERNAL_ERROR, 2),
            (Status::INTERNAL_ERROR.with_do_not_retry(), 3),
            (Status::INTERNAL_ERROR, 3),
        ] {
            drive.refusal = refusal;
            let report = drive.report(&mut known);
            assert!(report.unknown[0].contains("Internal Error"), "{report:?}");
            let asked = |query: &&AdminQuery| query.dwords[0] & 0xff == 0xc0;
            assert_eq!(drive.asked.iter().filter(asked).count(), times);
        }
    }

    #[test]
    fn where_there_is_a_list_of_vendors_it_says_which_page_is_meant() {
        let mut drive = Fake::new();
        drive.identify[97] = 0b10;
        let mut list = [0; 4096];
        put(&mut list, 48, &[7; 16]);
        put(&mut list, 80, &OCP_UUID);
        drive.uuids = Some(list);
        drive.extended = vec![(0, [0; 512]), (2, extended_page(&[5], 0))];
        assert_eq!(drive.health().media_bytes_written, Some(5));
        // Without such a list, or an entry in it, the index that means none in particular is left.
        drive.extended = vec![(0, extended_page(&[6], 0))];
        drive.uuids = Some([0; 4096]);
        assert_eq!(drive.health().media_bytes_written, Some(6));
        drive.uuids = None;
        assert_eq!(drive.health().media_bytes_written, Some(6));
    }

    #[test]
    fn what_cannot_be_asked_is_not_known_and_it_is_said_why() {
        let mut drive = Fake::new();
        drive.smart = Err(io::ErrorKind::PermissionDenied);
        let report = drive.report(&mut Known::default());
        assert_eq!((report.health, report.drives.len()), (None, 1));
        assert!(report.unknown[0].contains("CAP_SYS_ADMIN"), "{report:?}");
        let mut known = Known::default();
        let nowhere = known.report(&mut |_, _| {
            let text = "/dev/loop0 is a loop device, not an NVMe drive";
            Err(io::Error::new(io::ErrorKind::Unsupported, text))
        });
        assert_eq!(nowhere.health, None);
        assert_eq!(
            nowhere.unknown,
            ["/dev/loop0 is a loop device, not an NVMe drive"]
        );
        // One that could not be reached once is asked again.
        assert!(Fake::new().report(&mut known).health.is_some());
    }
}

//! One SCSI command at a time, and what a logical unit answers about itself.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use weir_initiator::wire::Payload;
use weir_initiator::{Caller, EndReason, within};
use weir_iscsi::pdu::Residual;
use weir_scsi::cdb::{Command, ModeSense, PageControl, Reporting, opcode};
use weir_scsi::lun::Lun;
use weir_scsi::sense::{AdditionalSense, Sense, SenseKey, Status};
use weir_scsi::vpd::page;

use crate::nexus::{Answer, Nexus};
use crate::profile::{Answers, Profile, UnitError, expect_inquiry_of_disk, lists_page};

/// After how long a command is given up.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How often a command is sent again that met a unit attention, or a busy unit.
const TRIES: u32 = 10;
/// The pause before a busy unit is asked again.
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// Bytes that are asked for of an answer about the unit: more than any of those that are read has.
const ANSWER_BYTES: u32 = 1020;
/// Bytes of INQUIRY data that every unit takes as an allocation length.
const INQUIRY_BYTES: u32 = 96;
/// Bytes of READ CAPACITY (16).
const CAPACITY_BYTES: u32 = 32;
/// Bytes of MODE SENSE (10).
const MODE_BYTES: u32 = 252;
/// The caching mode page (SBC-3 section 6.5.5).
const CACHING_PAGE: u8 = 0x08;

/// Failure of a SCSI command about the unit or the session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandFailure {
    /// The target answered with another status than GOOD.
    #[error("{command}: {status}{}", sense_text(.sense.as_ref()))]
    Status {
        /// The command's name.
        command: &'static str,
        /// The status.
        status: Status,
        /// Its sense data.
        sense: Option<Sense>,
    },
    /// Its data was damaged or did not come.
    #[error("{command}: the data that came is damaged or incomplete")]
    Data {
        /// The command's name.
        command: &'static str,
    },
    /// There was no answer in time.
    #[error("{command}: no answer in {} ms", .timeout.as_millis())]
    TimedOut {
        /// The command's name.
        command: &'static str,
        /// The time.
        timeout: Duration,
    },
    /// The unit told of a change whenever it was asked.
    #[error("the unit changed each of the {times} times that it was asked what it is")]
    Unsteady {
        /// Number of times.
        times: u32,
    },
    /// The connection ended before the answer.
    #[error("{command}: the connection ended: {reason}")]
    Ended {
        /// The command's name.
        command: &'static str,
        /// The reason.
        reason: String,
    },
}

fn sense_text(sense: Option<&Sense>) -> String {
    match sense {
        Some(sense) => format!(", {:?}, {}", sense.key, sense.additional),
        None => String::new(),
    }
}

/// A session that is asked about one logical unit.
#[derive(Clone)]
pub(crate) struct Asking {
    pub(crate) caller: Caller<Nexus>,
    lun: u16,
    known: Rc<Known>,
}

/// Knowledge of a unit, and its age.
#[derive(Default)]
struct Known {
    /// Unit attentions that were met, whoever asked.
    attentions: Cell<u64>,
    /// Those that there had been when it was last learned what the unit is. None: it is not known.
    learned: Cell<Option<u64>>,
}

impl Asking {
    pub(crate) fn new(caller: Caller<Nexus>, lun: u16) -> Asking {
        Asking {
            caller,
            lun,
            known: Rc::default(),
        }
    }

    /// Sends a command that brings up to `receive` bytes; those that came. One that met a unit attention is sent again.
    async fn ask(
        &self,
        command: &'static str,
        cdb: Command,
        receive: u32,
    ) -> Result<Vec<u8>, CommandFailure> {
        let mut tries = 0;
        loop {
            tries += 1;
            let failure = match self.try_once(command, cdb, receive).await {
                Ok(data) => return Ok(data),
                Err(failure) => failure,
            };
            let CommandFailure::Status { status, sense, .. } = &failure else {
                return Err(failure);
            };
            let attention = sense.is_some_and(is_attention);
            let busy = matches!(status, Status::Busy | Status::TaskSetFull);
            if tries == TRIES || !attention && !busy {
                return Err(failure);
            }
            if busy {
                self.caller.reactor.sleep(BUSY_PAUSE).await;
            }
        }
    }

    async fn try_once(
        &self,
        command: &'static str,
        cdb: Command,
        receive: u32,
    ) -> Result<Vec<u8>, CommandFailure> {
        let lun = u64::from_be_bytes(Lun::Unit(self.lun).encode());
        let payload = match receive {
            0 => Payload::None,
            bytes => Payload::In(bytes),
        };
        let submit = |nexus: &mut Nexus, user| {
            nexus.submit_task(lun, cdb.encode(), payload, user);
        };
        let asked = self.caller.ask(receive as usize, submit);
        let answer = within(&self.caller.reactor, TIMEOUT, asked).await;
        let answer = answer.ok_or(CommandFailure::TimedOut {
            command,
            timeout: TIMEOUT,
        })?;
        let (answer, mut data) = answer.map_err(|reason| CommandFailure::Ended {
            command,
            reason: reason.to_string(),
        })?;
        match answer {
            Answer::Scsi {
                status: status @ 0,
                residual,
                ..
            } => {
                debug_assert_eq!(Status::from_value(status), Status::Good);
                if let Residual::Underflow(missing) = residual {
                    data.truncate(data.len().saturating_sub(missing as usize));
                }
                Ok(data)
            }
            Answer::Scsi { status, sense, .. } => {
                let met = u64::from(sense.is_some_and(is_attention));
                self.known.attentions.update(|before| before + met);
                Err(CommandFailure::Status {
                    command,
                    status: Status::from_value(status),
                    sense,
                })
            }
            _ => Err(CommandFailure::Data { command }),
        }
    }

    /// Asks as [`Asking::ask`] does; none where the unit does not have such a thing, or does not say so to those whom it is reserved
    /// from.
    async fn ask_for(
        &self,
        command: &'static str,
        cdb: Command,
        receive: u32,
    ) -> Result<Option<Vec<u8>>, ProfileError> {
        match self.ask(command, cdb, receive).await {
            Ok(data) => Ok(Some(data)),
            Err(CommandFailure::Status { status, sense, .. }) if is_no(status, sense) => Ok(None),
            // What it has is not known as long as it does not answer: a unit that came and went would stay without all of it.
            Err(failure) => Err(absent(self.lun, failure)),
        }
    }

    async fn page(&self, supported: &[u8], code: u8) -> Result<Option<Vec<u8>>, ProfileError> {
        if !lists_page(supported, code) {
            return Ok(None);
        }
        self.ask_for("INQUIRY", inquiry(Some(code), ANSWER_BYTES), ANSWER_BYTES)
            .await
    }

    async fn support(&self, code: u8) -> Result<Option<Vec<u8>>, ProfileError> {
        let cdb = Command::ReportSupportedOperationCodes {
            reporting: Reporting::Opcode(code),
            timeouts: false,
            allocation_length: ANSWER_BYTES,
        };
        self.ask_for("REPORT SUPPORTED OPERATION CODES", cdb, ANSWER_BYTES)
            .await
    }

    /// Asks whether the unit is ready.
    ///
    /// # Errors
    /// [`CommandFailure`].
    pub(crate) async fn test_unit_ready(&self) -> Result<(), CommandFailure> {
        self.try_once("TEST UNIT READY", Command::TestUnitReady, 0)
            .await
            .map(drop)
    }

    /// The unit as it is now. Where it changes meanwhile it is asked anew: else one answer would be of before and another of after, and
    /// nobody would be told once more.
    ///
    /// # Errors
    /// The unit is gone, cannot be a volume, cannot be asked, or changes all the time.
    pub(crate) async fn profile(&self) -> Result<Profile, ProfileError> {
        self.known.learned.set(None);
        for _ in 0..TRIES {
            let (profile, before) = self.profile_at_once().await?;
            if self.known.attentions.get() == before {
                self.known.learned.set(Some(before));
                return Ok(profile?);
            }
        }
        Err(CommandFailure::Unsteady { times: TRIES }.into())
    }

    /// Tells whether the unit may have changed since it was last learned what it is.
    pub(crate) fn is_outdated(&self) -> bool {
        self.known.learned.get() != Some(self.known.attentions.get())
    }

    /// The unit as it answers, and the attentions that there had been when it first did.
    async fn profile_at_once(&self) -> Result<(Result<Profile, UnitError>, u64), ProfileError> {
        let lun = self.lun;
        let standard = self
            .ask("INQUIRY", inquiry(None, INQUIRY_BYTES), INQUIRY_BYTES)
            .await
            .map_err(|failure| absent(lun, failure))?;
        expect_inquiry_of_disk(lun, &standard)?;
        let capacity = Command::ReadCapacity16 {
            allocation_length: CAPACITY_BYTES,
        };
        let capacity = self.ask("READ CAPACITY (16)", capacity, CAPACITY_BYTES);
        let capacity = capacity.await.map_err(|failure| absent(lun, failure))?;
        let before = self.known.attentions.get();
        let pages = inquiry(Some(page::SUPPORTED_PAGES), ANSWER_BYTES);
        let supported = self.ask_for("INQUIRY", pages, ANSWER_BYTES).await?;
        let supported = supported.unwrap_or_default();
        let caching = Command::ModeSense(ModeSense {
            is_long: true,
            no_descriptor: true,
            long_lba: false,
            control: PageControl::Current,
            page: CACHING_PAGE,
            subpage: 0,
            allocation_length: MODE_BYTES,
        });
        let serial = self.page(&supported, page::SERIAL_NUMBER).await?;
        let identification = self.page(&supported, page::DEVICE_IDENTIFICATION).await?;
        let block_limits = self.page(&supported, page::BLOCK_LIMITS).await?;
        let provisioning = self.page(&supported, page::PROVISIONING).await?;
        let mode = self.ask_for("MODE SENSE (10)", caching, MODE_BYTES).await?;
        let write_same = self.support(opcode::WRITE_SAME_16).await?;
        let verify = self.support(opcode::VERIFY_16).await?;
        let answers = Answers {
            lun,
            inquiry: &standard,
            capacity: &capacity,
            serial: serial.as_deref(),
            identification: identification.as_deref(),
            block_limits: block_limits.as_deref(),
            provisioning: provisioning.as_deref(),
            mode: mode.as_deref(),
            write_same: write_same.as_deref(),
            verify: verify.as_deref(),
        };
        Ok((answers.profile(), before))
    }

    /// Pings the target, within `timeout`.
    ///
    /// # Errors
    /// It did not answer, or the connection ended.
    pub(crate) async fn ping(&self, timeout: Duration) -> Result<(), CommandFailure> {
        let command = "NOP-Out";
        let submit = |nexus: &mut Nexus, user| nexus.submit_nop(user);
        let asked = self.caller.ask_at_once(0, submit);
        match within(&self.caller.reactor, timeout, asked).await {
            Some(Ok(_)) => Ok(()),
            Some(Err(reason)) => Err(ended(command, &reason)),
            None => Err(CommandFailure::TimedOut { command, timeout }),
        }
    }
}

/// Logs the session of a connection out, within `timeout`.
///
/// # Errors
/// The target did not answer, or the connection ended before.
pub(crate) async fn log_out(
    caller: &Caller<Nexus>,
    timeout: Duration,
) -> Result<(), CommandFailure> {
    let command = "Logout Request";
    let submit = |nexus: &mut Nexus, user| nexus.submit_logout(user);
    let asked = caller.ask_at_once(0, submit);
    match within(&caller.reactor, timeout, asked).await {
        Some(Ok(_)) => Ok(()),
        Some(Err(reason)) => Err(ended(command, &reason)),
        None => Err(CommandFailure::TimedOut { command, timeout }),
    }
}

fn ended(command: &'static str, reason: &EndReason) -> CommandFailure {
    CommandFailure::Ended {
        command,
        reason: reason.to_string(),
    }
}

fn inquiry(page: Option<u8>, allocation_length: u32) -> Command {
    Command::Inquiry {
        page,
        allocation_length,
    }
}

/// Failure to learn what a unit is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProfileError {
    /// It cannot be a volume.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// It cannot be asked.
    #[error(transparent)]
    Command(#[from] CommandFailure),
}

fn is_attention(sense: Sense) -> bool {
    sense.key == SenseKey::UnitAttention
}

/// Tells whether an answer says that what was asked for is not to be had, however often it is asked.
fn is_no(status: Status, sense: Option<Sense>) -> bool {
    match sense {
        Some(sense) => {
            sense.key == SenseKey::IllegalRequest
                && sense.additional != AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED
        }
        None => status == Status::ReservationConflict,
    }
}

/// A unit that refuses what every unit answers is not there.
fn absent(lun: u16, failure: CommandFailure) -> ProfileError {
    match &failure {
        CommandFailure::Status {
            sense: Some(sense), ..
        } if sense.key == SenseKey::IllegalRequest => UnitError::Absent { lun }.into(),
        _ => failure.into(),
    }
}

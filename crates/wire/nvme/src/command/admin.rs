//! Commands of the admin queue (NVMe Base 2.0c section 5).

use super::CommandError;
use crate::feature::FeatureId;
use crate::identify::Cns;
use crate::log::LogId;
use crate::opcode::AdminOpcode;
use crate::sgl::SglDescriptor;
use crate::sqe::Sqe;
use crate::wire::{bit, bits};

/// Identify (NVMe Base 2.0c section 5.17). Its data is always 4096 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identify {
    /// Controller or Namespace Structure (CNS).
    pub cns: Cns,
    /// NSID, as the CNS uses it.
    pub nsid: u32,
    /// Controller Identifier (CNTID).
    pub controller_id: u16,
    /// CNS Specific Identifier.
    pub cns_specific_id: u16,
    /// Command Set Identifier (CSI); 0 is the NVM command set.
    pub command_set: u8,
    /// UUID Index, 7 bits.
    pub uuid_index: u8,
}

impl Identify {
    /// An Identify of the NVM command set with no further selection.
    pub const fn new(cns: Cns, nsid: u32) -> Self {
        Self {
            cns,
            nsid,
            controller_id: 0,
            cns_specific_id: 0,
            command_set: 0,
            uuid_index: 0,
        }
    }
}

/// Get Log Page (NVMe Base 2.0c section 5.16).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GetLogPage {
    /// Log Page Identifier (LID).
    pub log_id: LogId,
    /// NSID: a namespace, or FFFFFFFFh or 0 for the controller.
    pub nsid: u32,
    /// Log Specific Field (LSP), 7 bits.
    pub log_specific: u8,
    /// Retain Asynchronous Event (RAE): reading does not unmask the event.
    pub retain_asynchronous_event: bool,
    /// Number of Dwords (NUMD), 0's based, as on the wire; see [`GetLogPage::length`].
    pub dwords_zero_based: u32,
    /// Log Specific Identifier (LSI).
    pub log_specific_id: u16,
    /// Log Page Offset (LPO): bytes, or an index where `offset_is_index` says so.
    pub offset: u64,
    /// Offset Type (OT): the offset is an index into a list.
    pub offset_is_index: bool,
    /// UUID Index, 7 bits.
    pub uuid_index: u8,
    /// Command Set Identifier (CSI).
    pub command_set: u8,
}

impl GetLogPage {
    /// A read of `length` bytes at `offset`, of the controller's log.
    ///
    /// Panics where the length is 0, above 16 GiB or no multiple of 4.
    pub fn new(log_id: LogId, offset: u64, length: u64) -> Self {
        let dwords = length / 4;
        assert!(
            length > 0 && length.is_multiple_of(4),
            "a log is read in dwords"
        );
        assert!(dwords <= 1 << 32, "NUMD has 32 bits");
        Self {
            log_id,
            nsid: 0xffff_ffff,
            log_specific: 0,
            retain_asynchronous_event: false,
            dwords_zero_based: (dwords - 1) as u32,
            log_specific_id: 0,
            offset,
            offset_is_index: false,
            uuid_index: 0,
            command_set: 0,
        }
    }

    /// Bytes asked for: 4 to 16 GiB, so a u64.
    pub const fn length(&self) -> u64 {
        (self.dwords_zero_based as u64 + 1) * 4
    }
}

/// Which value of a feature is asked for: SEL (NVMe Base 2.0c section 5.15).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FeatureSelect {
    /// 000b: the current value.
    #[default]
    Current,
    /// 001b: the default value.
    Default,
    /// 010b: the saved value.
    Saved,
    /// 011b: what the feature can do, as [`crate::feature::FeatureCapabilities`].
    SupportedCapabilities,
}

/// Get Features (NVMe Base 2.0c section 5.15).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GetFeatures {
    /// Feature Identifier (FID).
    pub feature: FeatureId,
    /// NSID, where the feature is a namespace's.
    pub nsid: u32,
    /// Select (SEL).
    pub select: FeatureSelect,
    /// CDW11, as the feature defines it.
    pub cdw11: u32,
    /// UUID Index, 7 bits.
    pub uuid_index: u8,
}

/// Set Features (NVMe Base 2.0c section 5.27).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SetFeatures {
    /// Feature Identifier (FID).
    pub feature: FeatureId,
    /// NSID, where the feature is a namespace's.
    pub nsid: u32,
    /// Save (SV): the value outlives resets and power cycles.
    pub save: bool,
    /// CDW11, as the feature defines it.
    pub cdw11: u32,
    /// CDW12, as the feature defines it.
    pub cdw12: u32,
    /// CDW13, as the feature defines it.
    pub cdw13: u32,
    /// UUID Index, 7 bits.
    pub uuid_index: u8,
    /// CDW15, as the feature defines it.
    pub cdw15: u32,
}

/// Abort (NVMe Base 2.0c section 5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Abort {
    /// Submission Queue Identifier (SQID) of the command to abort.
    pub sqid: u16,
    /// Command Identifier (CID) of the command to abort.
    pub cid: u16,
}

/// A command of the admin queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AdminCommand {
    /// Get Log Page.
    GetLogPage(GetLogPage),
    /// Identify.
    Identify(Identify),
    /// Abort.
    Abort(Abort),
    /// Set Features.
    SetFeatures(SetFeatures),
    /// Get Features.
    GetFeatures(GetFeatures),
    /// Asynchronous Event Request.
    AsynchronousEventRequest,
    /// Keep Alive.
    KeepAlive,
}

impl AdminCommand {
    /// Reads an entry as a command of the admin queue.
    ///
    /// # Errors
    /// The opcode is not one of this type's (Fabrics commands are read by
    /// [`FabricsCommand`](super::FabricsCommand)), or Get Features has a reserved SEL.
    pub fn parse(sqe: &Sqe) -> Result<Self, CommandError> {
        Ok(match AdminOpcode::from_value(sqe.opcode) {
            AdminOpcode::GetLogPage => Self::GetLogPage(GetLogPage::from_sqe(sqe)),
            AdminOpcode::Identify => Self::Identify(Identify::from_sqe(sqe)),
            AdminOpcode::Abort => Self::Abort(Abort {
                sqid: bits(sqe.cdw10, 15, 0) as u16,
                cid: bits(sqe.cdw10, 31, 16) as u16,
            }),
            AdminOpcode::SetFeatures => Self::SetFeatures(SetFeatures::from_sqe(sqe)),
            AdminOpcode::GetFeatures => Self::GetFeatures(GetFeatures::from_sqe(sqe)?),
            AdminOpcode::AsynchronousEventRequest => Self::AsynchronousEventRequest,
            AdminOpcode::KeepAlive => Self::KeepAlive,
            _ => return Err(CommandError::Opcode { opcode: sqe.opcode }),
        })
    }

    /// The command's opcode.
    pub const fn opcode(&self) -> AdminOpcode {
        match self {
            Self::GetLogPage(_) => AdminOpcode::GetLogPage,
            Self::Identify(_) => AdminOpcode::Identify,
            Self::Abort(_) => AdminOpcode::Abort,
            Self::SetFeatures(_) => AdminOpcode::SetFeatures,
            Self::GetFeatures(_) => AdminOpcode::GetFeatures,
            Self::AsynchronousEventRequest => AdminOpcode::AsynchronousEventRequest,
            Self::KeepAlive => AdminOpcode::KeepAlive,
        }
    }

    /// The entry for this command.
    ///
    /// Panics where a 7-bit field is out of its range.
    pub fn sqe(&self, cid: u16, sgl: SglDescriptor) -> Sqe {
        let mut sqe = Sqe {
            opcode: self.opcode().value(),
            cid,
            sgl,
            ..Sqe::default()
        };
        match self {
            Self::AsynchronousEventRequest | Self::KeepAlive => {}
            Self::Abort(abort) => {
                sqe.cdw10 = u32::from(abort.cid) << 16 | u32::from(abort.sqid);
            }
            Self::GetLogPage(command) => command.fill(&mut sqe),
            Self::Identify(command) => command.fill(&mut sqe),
            Self::SetFeatures(command) => command.fill(&mut sqe),
            Self::GetFeatures(command) => command.fill(&mut sqe),
        }
        sqe
    }
}

/// UUID Index, CDW14 bits 6:0.
fn uuid_index(sqe: &Sqe) -> u8 {
    bits(sqe.cdw14, 6, 0) as u8
}

fn seven_bits(value: u8) -> u32 {
    assert!(value <= 0x7f, "the field has seven bits");
    u32::from(value)
}

impl Identify {
    fn from_sqe(sqe: &Sqe) -> Self {
        Self {
            cns: Cns::from_value(bits(sqe.cdw10, 7, 0) as u8),
            nsid: sqe.nsid,
            controller_id: bits(sqe.cdw10, 31, 16) as u16,
            cns_specific_id: bits(sqe.cdw11, 15, 0) as u16,
            command_set: bits(sqe.cdw11, 31, 24) as u8,
            uuid_index: uuid_index(sqe),
        }
    }

    fn fill(&self, sqe: &mut Sqe) {
        sqe.nsid = self.nsid;
        sqe.cdw10 = u32::from(self.controller_id) << 16 | u32::from(self.cns.value());
        sqe.cdw11 = u32::from(self.command_set) << 24 | u32::from(self.cns_specific_id);
        sqe.cdw14 = seven_bits(self.uuid_index);
    }
}

impl GetLogPage {
    fn from_sqe(sqe: &Sqe) -> Self {
        Self {
            log_id: LogId::from_value(bits(sqe.cdw10, 7, 0) as u8),
            nsid: sqe.nsid,
            log_specific: bits(sqe.cdw10, 14, 8) as u8,
            retain_asynchronous_event: bit(sqe.cdw10, 15),
            dwords_zero_based: bits(sqe.cdw11, 15, 0) << 16 | bits(sqe.cdw10, 31, 16),
            log_specific_id: bits(sqe.cdw11, 31, 16) as u16,
            offset: u64::from(sqe.cdw13) << 32 | u64::from(sqe.cdw12),
            offset_is_index: bit(sqe.cdw14, 23),
            uuid_index: uuid_index(sqe),
            command_set: bits(sqe.cdw14, 31, 24) as u8,
        }
    }

    fn fill(&self, sqe: &mut Sqe) {
        sqe.nsid = self.nsid;
        sqe.cdw10 = bits(self.dwords_zero_based, 15, 0) << 16
            | u32::from(self.retain_asynchronous_event) << 15
            | seven_bits(self.log_specific) << 8
            | u32::from(self.log_id.value());
        sqe.cdw11 = u32::from(self.log_specific_id) << 16 | bits(self.dwords_zero_based, 31, 16);
        sqe.cdw12 = self.offset as u32;
        sqe.cdw13 = (self.offset >> 32) as u32;
        sqe.cdw14 = u32::from(self.command_set) << 24
            | u32::from(self.offset_is_index) << 23
            | seven_bits(self.uuid_index);
    }
}

impl GetFeatures {
    /// A Get Features of the controller's current value.
    pub const fn new(feature: FeatureId) -> Self {
        Self {
            feature,
            nsid: 0,
            select: FeatureSelect::Current,
            cdw11: 0,
            uuid_index: 0,
        }
    }

    fn from_sqe(sqe: &Sqe) -> Result<Self, CommandError> {
        let select = match bits(sqe.cdw10, 10, 8) {
            0 => FeatureSelect::Current,
            1 => FeatureSelect::Default,
            2 => FeatureSelect::Saved,
            3 => FeatureSelect::SupportedCapabilities,
            value => {
                return Err(CommandError::ReservedValue {
                    field: "Select",
                    value,
                    byte: 41,
                });
            }
        };
        Ok(Self {
            feature: FeatureId::from_value(bits(sqe.cdw10, 7, 0) as u8),
            nsid: sqe.nsid,
            select,
            cdw11: sqe.cdw11,
            uuid_index: uuid_index(sqe),
        })
    }

    fn fill(&self, sqe: &mut Sqe) {
        sqe.nsid = self.nsid;
        sqe.cdw10 = (self.select as u32) << 8 | u32::from(self.feature.value());
        sqe.cdw11 = self.cdw11;
        sqe.cdw14 = seven_bits(self.uuid_index);
    }
}

impl SetFeatures {
    /// A Set Features of the controller's value, not saved.
    pub const fn new(feature: FeatureId, cdw11: u32) -> Self {
        Self {
            feature,
            nsid: 0,
            save: false,
            cdw11,
            cdw12: 0,
            cdw13: 0,
            uuid_index: 0,
            cdw15: 0,
        }
    }

    fn from_sqe(sqe: &Sqe) -> Self {
        Self {
            feature: FeatureId::from_value(bits(sqe.cdw10, 7, 0) as u8),
            nsid: sqe.nsid,
            save: bit(sqe.cdw10, 31),
            cdw11: sqe.cdw11,
            cdw12: sqe.cdw12,
            cdw13: sqe.cdw13,
            uuid_index: uuid_index(sqe),
            cdw15: sqe.cdw15,
        }
    }

    fn fill(&self, sqe: &mut Sqe) {
        sqe.nsid = self.nsid;
        sqe.cdw10 = u32::from(self.save) << 31 | u32::from(self.feature.value());
        sqe.cdw11 = self.cdw11;
        sqe.cdw12 = self.cdw12;
        sqe.cdw13 = self.cdw13;
        sqe.cdw14 = seven_bits(self.uuid_index);
        sqe.cdw15 = self.cdw15;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DATA: SglDescriptor = SglDescriptor::Transport { length: 4096 };

    fn bytes(command: AdminCommand) -> [u8; 64] {
        command.sqe(0x0201, DATA).encode()
    }

    #[test]
    fn identify_is_laid_out_as_the_specification_says() {
        let command = AdminCommand::Identify(Identify {
            cns: Cns::CommandSetNamespace,
            nsid: 7,
            controller_id: 0x0102,
            cns_specific_id: 0x0304,
            command_set: 0x02,
            uuid_index: 0x7f,
        });
        let bytes = bytes(command);
        assert_eq!(bytes[..8], [0x06, 0x40, 0x01, 0x02, 7, 0, 0, 0]);
        assert_eq!(bytes[40..48], [0x05, 0, 0x02, 0x01, 0x04, 0x03, 0, 0x02]);
        assert_eq!(bytes[56..60], [0x7f, 0, 0, 0]);
        assert_eq!(AdminCommand::parse(&Sqe::decode(&bytes)), Ok(command));
    }

    #[test]
    fn get_log_page_is_laid_out_as_the_specification_says() {
        let command = GetLogPage {
            log_id: LogId::Discovery,
            nsid: 0,
            log_specific: 0x55,
            retain_asynchronous_event: true,
            dwords_zero_based: 0x0102_03ff,
            log_specific_id: 0x0a0b,
            offset: 0x1122_3344_5566_7788,
            offset_is_index: true,
            uuid_index: 0x11,
            command_set: 0x22,
        };
        let bytes = bytes(AdminCommand::GetLogPage(command));
        assert_eq!(bytes[0], 0x02);
        assert_eq!(bytes[40..44], [0x70, 0xd5, 0xff, 0x03]);
        assert_eq!(bytes[44..48], [0x02, 0x01, 0x0b, 0x0a]);
        assert_eq!(
            bytes[48..56],
            [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]
        );
        assert_eq!(bytes[56..60], [0x11, 0, 0x80, 0x22]);
        assert_eq!(
            AdminCommand::parse(&Sqe::decode(&bytes)),
            Ok(AdminCommand::GetLogPage(command))
        );
    }

    #[test]
    fn log_page_lengths_reach_sixteen_gibibytes() {
        let longest = GetLogPage::new(LogId::Discovery, 0, 1 << 34);
        assert_eq!(longest.dwords_zero_based, u32::MAX);
        assert_eq!(longest.length(), 1 << 34);
        assert_eq!(GetLogPage::new(LogId::Discovery, 0, 4).length(), 4);
    }

    #[test]
    fn features_are_laid_out_as_the_specification_says() {
        let get = AdminCommand::GetFeatures(GetFeatures {
            feature: FeatureId::NumberOfQueues,
            nsid: 1,
            select: FeatureSelect::SupportedCapabilities,
            cdw11: 0x0102_0304,
            uuid_index: 5,
        });
        let get_bytes = bytes(get);
        assert_eq!(get_bytes[0], 0x0a);
        assert_eq!(get_bytes[40..48], [0x07, 0x03, 0, 0, 4, 3, 2, 1]);
        assert_eq!(get_bytes[56], 5);

        let set = AdminCommand::SetFeatures(SetFeatures {
            feature: FeatureId::KeepAliveTimer,
            nsid: 0,
            save: true,
            cdw11: 11,
            cdw12: 12,
            cdw13: 13,
            uuid_index: 14,
            cdw15: 15,
        });
        let set_bytes = bytes(set);
        assert_eq!(set_bytes[0], 0x09);
        assert_eq!(set_bytes[40..44], [0x0f, 0, 0, 0x80]);
        for (offset, value) in [(44, 11), (48, 12), (52, 13), (56, 14), (60, 15)] {
            assert_eq!(set_bytes[offset..offset + 4], [value, 0, 0, 0]);
        }
    }

    #[test]
    fn abort_and_the_bare_commands_are_laid_out_as_the_specification_says() {
        let abort = bytes(AdminCommand::Abort(Abort {
            sqid: 0x0102,
            cid: 0x0304,
        }));
        assert_eq!(
            (abort[0], &abort[40..44]),
            (0x08, &[0x02, 0x01, 0x04, 0x03][..])
        );
        assert_eq!(bytes(AdminCommand::AsynchronousEventRequest)[0], 0x0c);
        assert_eq!(bytes(AdminCommand::KeepAlive)[0], 0x18);
    }

    #[test]
    fn reserved_selects_and_other_opcodes_are_refused() {
        for select in 4..8 {
            let sqe = Sqe {
                opcode: 0x0a,
                cdw10: select << 8 | 7,
                ..Sqe::default()
            };
            let error = AdminCommand::parse(&sqe).expect_err("a reserved value");
            assert_eq!(
                error.status(),
                crate::Status::INVALID_FIELD_IN_COMMAND.with_do_not_retry()
            );
            assert_eq!(error.byte(), 41);
        }
        for opcode in [0x00, 0x01, 0x03, 0x10, 0x7f, 0x80, 0xc0] {
            let error = AdminCommand::parse(&Sqe {
                opcode,
                ..Sqe::default()
            });
            assert_eq!(error, Err(CommandError::Opcode { opcode }));
        }
    }

    /// Command dwords 10 to 15.
    fn command_dwords(sqe: &Sqe) -> [u32; 6] {
        [
            sqe.cdw10, sqe.cdw11, sqe.cdw12, sqe.cdw13, sqe.cdw14, sqe.cdw15,
        ]
    }

    /// Bits of command dwords 10 to 15 that the command's table defines.
    fn defined_bits(command: &AdminCommand) -> [u32; 6] {
        const ALL: u32 = u32::MAX;
        match command {
            AdminCommand::Identify(_) => [0xffff_00ff, 0xff00_ffff, 0, 0, 0x7f, 0],
            AdminCommand::GetLogPage(_) => [ALL, ALL, ALL, ALL, 0xff80_007f, 0],
            AdminCommand::GetFeatures(_) => [0x7ff, ALL, 0, 0, 0x7f, 0],
            AdminCommand::SetFeatures(_) => [0x8000_00ff, ALL, ALL, ALL, 0x7f, ALL],
            AdminCommand::Abort(_) => [ALL, 0, 0, 0, 0, 0],
            AdminCommand::AsynchronousEventRequest | AdminCommand::KeepAlive => [0; 6],
        }
    }

    proptest! {
        #[test]
        fn any_entry_is_refused_or_survives(
            opcode in prop_oneof![0_u8..0x20, any::<u8>()],
            nsid: u32,
            cdw: [u32; 6],
        ) {
            let [cdw10, cdw11, cdw12, cdw13, cdw14, cdw15] = cdw;
            let sqe = Sqe { opcode, nsid, cdw10, cdw11, cdw12, cdw13, cdw14, cdw15, ..Sqe::default() };
            if let Ok(command) = AdminCommand::parse(&sqe) {
                let built = command.sqe(3, DATA);
                prop_assert_eq!(built.opcode, opcode);
                prop_assert_eq!(AdminCommand::parse(&built), Ok(command));
                let kept = core::array::from_fn(|index| cdw[index] & defined_bits(&command)[index]);
                prop_assert_eq!(command_dwords(&built), kept);
            }
        }
    }
}

//! REPORT TARGET PORT GROUPS data (SPC-4 section 6.37).

#[cfg(test)]
mod tests;

use weir_open_enum::open_enum;

use crate::wire::{TooShort, at_least, bit, flag, length_32, put, u16_at, u32_at};

const GROUP_LENGTH: usize = 8;
const PORT_LENGTH: usize = 4;

open_enum! {
    /// ASYMMETRIC ACCESS STATE (SPC-4 table 319), four bits.
    pub enum AccessState: u8 {
        /// The group is the one to use.
        ActiveOptimized = 0x0 => "active/optimized",
        /// The group can be used, and another is better.
        ActiveNonOptimized = 0x1 => "active/non-optimized",
        /// Media cannot be accessed through the group.
        Standby = 0x2 => "standby",
        /// Nothing but questions about the unit is answered.
        Unavailable = 0x3 => "unavailable",
        /// It depends on the block.
        LogicalBlockDependent = 0x4 => "logical block dependent",
        /// The ports cannot be reached.
        Offline = 0xe => "offline",
        /// The state changes just now.
        Transitioning = 0xf => "transitioning",
    }
}

/// Access states that a group can have: byte 1 of its descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SupportedStates {
    /// T_SUP.
    pub transitioning: bool,
    /// O_SUP.
    pub offline: bool,
    /// LBD_SUP.
    pub logical_block_dependent: bool,
    /// U_SUP.
    pub unavailable: bool,
    /// S_SUP.
    pub standby: bool,
    /// AN_SUP.
    pub active_non_optimized: bool,
    /// AO_SUP.
    pub active_optimized: bool,
}

impl SupportedStates {
    const fn encode(self) -> u8 {
        flag(self.transitioning, 7)
            | flag(self.offline, 6)
            | flag(self.logical_block_dependent, 4)
            | flag(self.unavailable, 3)
            | flag(self.standby, 2)
            | flag(self.active_non_optimized, 1)
            | flag(self.active_optimized, 0)
    }

    const fn decode(byte: u8) -> Self {
        Self {
            transitioning: bit(byte, 7),
            offline: bit(byte, 6),
            logical_block_dependent: bit(byte, 4),
            unavailable: bit(byte, 3),
            standby: bit(byte, 2),
            active_non_optimized: bit(byte, 1),
            active_optimized: bit(byte, 0),
        }
    }
}

open_enum! {
    /// STATUS CODE of a group: why its state is as it is.
    pub enum StateChange: u8 {
        /// No status available.
        None = 0x00 => "no status available",
        /// SET TARGET PORT GROUPS has changed it.
        Explicit = 0x01 => "altered by SET TARGET PORT GROUPS",
        /// The target has changed it.
        Implicit = 0x02 => "altered by implicit asymmetric access",
    }
}

/// A target port group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortGroup {
    /// TARGET PORT GROUP.
    pub group: u16,
    /// ASYMMETRIC ACCESS STATE.
    pub state: AccessState,
    /// The group is preferred (PREF).
    pub preferred: bool,
    /// States that the group can have.
    pub supported: SupportedStates,
    /// STATUS CODE.
    pub change: StateChange,
    /// Relative target port identifiers, at most 255.
    pub ports: Vec<u16>,
}

/// Format of the data, by PARAMETER DATA FORMAT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GroupsFormat {
    /// 000b: a header of the length alone.
    LengthOnly,
    /// 001b: a header with IMPLICIT TRANSITION TIME in seconds; zero says nothing.
    Extended {
        /// IMPLICIT TRANSITION TIME.
        implicit_transition_seconds: u8,
    },
}

/// REPORT TARGET PORT GROUPS data.
pub fn report_groups(groups: &[PortGroup], format: GroupsFormat) -> Vec<u8> {
    let mut data = vec![0; 4];
    if let GroupsFormat::Extended {
        implicit_transition_seconds,
    } = format
    {
        data.extend([0x10, implicit_transition_seconds, 0, 0]);
    }
    for group in groups {
        let ports = &group.ports[..group.ports.len().min(usize::from(u8::MAX))];
        let [high, low] = group.group.to_be_bytes();
        data.extend([
            flag(group.preferred, 7) | group.state.value() & 0xf,
            group.supported.encode(),
            high,
            low,
            0,
            group.change.value(),
            0,
            ports.len() as u8,
        ]);
        for port in ports {
            let [high, low] = port.to_be_bytes();
            data.extend([0, 0, high, low]);
        }
    }
    let length = length_32(data.len() - 4);
    put(&mut data, 0, length);
    data
}

/// Reads REPORT TARGET PORT GROUPS data in the format that was asked for. Groups that are cut are
/// left out.
///
/// # Errors
/// The data ends within its header.
pub fn parse_groups(bytes: &[u8], extended: bool) -> Result<Vec<PortGroup>, TooShort> {
    let header = if extended { 8 } else { 4 };
    at_least("target port groups", bytes, header)?;
    let end = bytes.len().min(4 + u32_at(bytes, 0) as usize);
    let mut rest = bytes.get(header..end).unwrap_or_default();
    let mut groups = Vec::new();
    while let Some((head, after)) = rest.split_at_checked(GROUP_LENGTH) {
        let Some((ports, after)) = after.split_at_checked(usize::from(head[7]) * PORT_LENGTH)
        else {
            break;
        };
        groups.push(PortGroup {
            group: u16_at(head, 2),
            state: AccessState::from_value(head[0] & 0xf),
            preferred: bit(head[0], 7),
            supported: SupportedStates::decode(head[1]),
            change: StateChange::from_value(head[5]),
            ports: ports
                .chunks_exact(PORT_LENGTH)
                .map(|port| u16_at(port, 2))
                .collect(),
        });
        rest = after;
    }
    Ok(groups)
}

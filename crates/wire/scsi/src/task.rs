//! REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS data (SPC-4 section 6.36).

#[cfg(test)]
mod tests;

use crate::wire::{TooShort, at_least, bit, flag, put, u32_at};

/// Bytes of the basic format.
pub const BASIC_LENGTH: usize = 4;
/// Bytes of the extended format (REPD).
pub const EXTENDED_LENGTH: usize = 16;

/// Times of task management functions, for the extended format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TaskTimeouts {
    /// TASK MANAGEMENT FUNCTIONS LONG TIMEOUT, in units of 100 ms; 0 says nothing.
    pub long: u32,
    /// TASK MANAGEMENT FUNCTIONS SHORT TIMEOUT, in units of 100 ms; 0 says nothing.
    pub short: u32,
}

/// Task management functions that a unit has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TaskFunctions {
    /// ABORT TASK (ATS).
    pub abort_task: bool,
    /// ABORT TASK SET (ATSS).
    pub abort_task_set: bool,
    /// CLEAR ACA (CACAS).
    pub clear_aca: bool,
    /// CLEAR TASK SET (CTSS).
    pub clear_task_set: bool,
    /// LOGICAL UNIT RESET (LURS).
    pub logical_unit_reset: bool,
    /// QUERY TASK (QTS).
    pub query_task: bool,
    /// TARGET RESET (TRS).
    pub target_reset: bool,
    /// QUERY ASYNCHRONOUS EVENT (QAES).
    pub query_asynchronous_event: bool,
    /// QUERY TASK SET (QTSS).
    pub query_task_set: bool,
    /// I_T NEXUS RESET (ITNRS).
    pub i_t_nexus_reset: bool,
}

impl TaskFunctions {
    /// Data of the basic format.
    pub fn encode(&self) -> [u8; BASIC_LENGTH] {
        let first = flag(self.abort_task, 7)
            | flag(self.abort_task_set, 6)
            | flag(self.clear_aca, 5)
            | flag(self.clear_task_set, 4)
            | flag(self.logical_unit_reset, 3)
            | flag(self.query_task, 2)
            | flag(self.target_reset, 1);
        let second = flag(self.query_asynchronous_event, 2)
            | flag(self.query_task_set, 1)
            | flag(self.i_t_nexus_reset, 0);
        [first, second, 0, 0]
    }

    /// Data of the extended format. Without timeouts, TMFTMOV is zero.
    pub fn encode_extended(&self, timeouts: Option<TaskTimeouts>) -> [u8; EXTENDED_LENGTH] {
        let mut bytes = [0; EXTENDED_LENGTH];
        put(&mut bytes, 0, self.encode());
        bytes[3] = (EXTENDED_LENGTH - BASIC_LENGTH) as u8;
        if let Some(timeouts) = timeouts {
            bytes[4] = 1;
            put(&mut bytes, 8, timeouts.long.to_be_bytes());
            put(&mut bytes, 12, timeouts.short.to_be_bytes());
        }
        bytes
    }

    /// Reads data of either format, with the timeouts where there are some.
    ///
    /// # Errors
    /// The data is too short.
    pub fn parse(bytes: &[u8]) -> Result<(Self, Option<TaskTimeouts>), TooShort> {
        at_least("task management functions", bytes, BASIC_LENGTH)?;
        let functions = Self {
            abort_task: bit(bytes[0], 7),
            abort_task_set: bit(bytes[0], 6),
            clear_aca: bit(bytes[0], 5),
            clear_task_set: bit(bytes[0], 4),
            logical_unit_reset: bit(bytes[0], 3),
            query_task: bit(bytes[0], 2),
            target_reset: bit(bytes[0], 1),
            query_asynchronous_event: bit(bytes[1], 2),
            query_task_set: bit(bytes[1], 1),
            i_t_nexus_reset: bit(bytes[1], 0),
        };
        let extended = bytes.len() >= EXTENDED_LENGTH && bytes[3] >= 12 && bit(bytes[4], 0);
        let timeouts = extended.then(|| TaskTimeouts {
            long: u32_at(bytes, 8),
            short: u32_at(bytes, 12),
        });
        Ok((functions, timeouts))
    }
}

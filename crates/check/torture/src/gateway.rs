//! What a gateway under our own control is asked for: its resources, and changes of its configuration.

use std::fmt;

/// What a gateway holds at a moment at which no command is in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resources {
    /// Connections.
    pub connections: u64,
    /// Connections that have not finished their Connect.
    pub half_open: u64,
    /// Controllers.
    pub controllers: u64,
    /// Commands in flight of all connections.
    pub commands: u64,
    /// Requests in flight on volumes.
    pub requests: u64,
    /// Bytes of data buffers in use.
    pub buffer_bytes: u64,
    /// File descriptors.
    pub descriptors: u64,
    /// Resident memory in bytes, without what is held for data buffers to come.
    pub resident_bytes: u64,
    /// Connections that a broken invariant ended, ever.
    pub panics: u64,
}

impl Resources {
    /// Lists what differs from `before`; resident memory may have grown by `growth_max` bytes, and descriptors and buffers may have become
    /// fewer: whoever looks has some of the ones, and what was written first some of the others, which may have been there still when
    /// `before` was looked at.
    pub fn compare(&self, before: &Self, growth_max: u64) -> Vec<String> {
        let exact = [
            ("connections", self.connections, before.connections),
            ("half-open connections", self.half_open, before.half_open),
            ("controllers", self.controllers, before.controllers),
            ("commands in flight", self.commands, before.commands),
            ("requests in flight", self.requests, before.requests),
            (
                "bytes of buffers in use",
                self.buffer_bytes.max(before.buffer_bytes),
                before.buffer_bytes,
            ),
            (
                "descriptors",
                self.descriptors.max(before.descriptors),
                before.descriptors,
            ),
            ("panics", self.panics, before.panics),
        ];
        let mut differences: Vec<String> = exact
            .into_iter()
            .filter(|(_, now, then)| now != then)
            .map(|(name, now, then)| format!("{now} {name} where {then} were"))
            .collect();
        let grown = self.resident_bytes.saturating_sub(before.resident_bytes);
        if grown > growth_max {
            differences.push(format!(
                "{grown} bytes more of resident memory, above the bound of {growth_max}"
            ));
        }
        differences
    }
}

impl fmt::Display for Resources {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} connections, {} controllers, {} descriptors, {} bytes resident",
            self.connections, self.controllers, self.descriptors, self.resident_bytes
        )
    }
}

/// A gateway that may be looked at and changed. Errors are sentences for people.
pub trait Gateway: Send {
    /// What it holds now.
    ///
    /// # Errors
    /// It cannot be asked: it is gone.
    fn resources(&mut self) -> Result<Resources, String>;

    /// Runs a command of `weir` on it, such as `["namespace", "list"]`; what it prints.
    ///
    /// # Errors
    /// The command failed; what it says.
    fn weir(&mut self, arguments: &[&str]) -> Result<String, String>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_behind_is_named() {
        let before = Resources {
            connections: 2,
            resident_bytes: 1000,
            ..Resources::default()
        };
        let after = Resources {
            connections: 3,
            resident_bytes: 1100,
            ..before
        };
        assert_eq!(before.compare(&before, 0), Vec::<String>::new());
        assert_eq!(after.compare(&before, 100), ["3 connections where 2 were"]);
        assert_eq!(after.compare(&before, 99).len(), 2);
        let looked_at = |descriptors| Resources {
            descriptors,
            ..before
        };
        let fewer = looked_at(20).compare(&looked_at(21), 0);
        assert_eq!(fewer, Vec::<String>::new());
        let more = looked_at(22).compare(&looked_at(21), 0);
        assert_eq!(more, ["22 descriptors where 21 were"]);
    }
}

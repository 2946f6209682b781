//! Serial number arithmetic, and the window of commands that a target accepts (RFC 7143 sections 4.2.2.1 and 4.2.2, RFC 1982).

use crate::wire::named_fields;
use core::fmt;

/// A CmdSN, StatSN, DataSN or R2TSN: 32 bits that wrap around (RFC 7143 section 4.2.2.1).
///
/// It has no `Ord`: of two numbers that are 2^31 apart neither is first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Serial(pub u32);

named_fields!(Serial);

impl Serial {
    /// The number after this one.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Self {
        self.plus(1)
    }

    /// The number `count` after this one; `count` is at most 2^31 - 1 where the two are compared later.
    #[inline]
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count))
    }

    /// The number `count` before this one.
    #[inline]
    #[must_use]
    pub const fn minus(self, count: u32) -> Self {
        Self(self.0.wrapping_sub(count))
    }

    /// Steps from `earlier` to this number, around the wrap.
    #[inline]
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Returns whether this number comes before `other`. False both ways where they are 2^31 apart, which RFC 1982 leaves undefined.
    #[inline]
    pub const fn is_before(self, other: Self) -> bool {
        let steps = other.since(self);
        steps != 0 && steps < 1 << 31
    }
}

impl fmt::Debug for Serial {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Serial({:#x})", self.0)
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:#x}", self.0)
    }
}

/// A command's place in the order of commands (RFC 7143 section 4.2.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandOrder {
    /// The next: it is delivered now, and ExpCmdSN advances.
    Next,
    /// In the window, `gap` commands ahead of the next: those come first. Never 0.
    Ahead {
        /// Commands that are missing before it.
        gap: u32,
    },
    /// Before ExpCmdSN: it was delivered, and is ignored.
    Duplicate,
    /// Beyond MaxCmdSN: it is ignored.
    Outside,
}

/// ExpCmdSN and MaxCmdSN of a session: which commands a target accepts (RFC 7143 section 4.2.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandWindow {
    expected: Serial,
    maximum: Serial,
}

impl CommandWindow {
    /// Most commands of a window, so that all of its numbers can be compared.
    pub const SIZE_MAX: u32 = (1 << 31) - 1;

    /// A window of `size` commands that begins with `expected`, the CmdSN of a session's first command: that of its Login
    /// Requests, which are immediate and do not advance it. Panics where `size` is above [`CommandWindow::SIZE_MAX`].
    pub const fn new(expected: Serial, size: u32) -> Self {
        assert!(size <= Self::SIZE_MAX, "a window's numbers can be compared");
        Self {
            expected,
            maximum: expected.plus(size).minus(1),
        }
    }

    /// ExpCmdSN: the next command.
    #[inline]
    pub const fn expected(&self) -> Serial {
        self.expected
    }

    /// MaxCmdSN: the last command that is accepted; one before ExpCmdSN when the window is closed.
    #[inline]
    pub const fn maximum(&self) -> Serial {
        self.maximum
    }

    /// Commands that are accepted beyond those that came.
    #[inline]
    pub const fn size(&self) -> u32 {
        self.maximum.next().since(self.expected)
    }

    /// A command's place, judged by its CmdSN. Immediate commands (I bit) have none: they are delivered at once, whatever their
    /// CmdSN is, and are not given here.
    #[inline]
    pub const fn order(&self, cmd_sn: Serial) -> CommandOrder {
        if cmd_sn.0 == self.expected.0 && self.size() > 0 {
            return CommandOrder::Next;
        }
        if self.maximum.is_before(cmd_sn) {
            return CommandOrder::Outside;
        }
        let gap = cmd_sn.since(self.expected);
        if gap < self.size() {
            CommandOrder::Ahead { gap }
        } else {
            CommandOrder::Duplicate
        }
    }

    /// Takes the next command: ExpCmdSN advances by one and the window shrinks. Panics where it is closed.
    #[inline]
    pub const fn advance(&mut self) {
        assert!(self.size() > 0, "the window is closed");
        self.expected = self.expected.next();
    }

    /// Opens the window to `size` commands from ExpCmdSN on, never less far than was told: MaxCmdSN does not go back.
    /// Panics where `size` is above [`CommandWindow::SIZE_MAX`].
    #[inline]
    pub const fn open(&mut self, size: u32) {
        assert!(size <= Self::SIZE_MAX, "a window's numbers can be compared");
        let maximum = self.expected.plus(size).minus(1);
        if self.maximum.is_before(maximum) {
            self.maximum = maximum;
        }
    }
}

#[cfg(test)]
mod tests;

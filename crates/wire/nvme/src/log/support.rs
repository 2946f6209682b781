//! Which log pages and commands a controller supports: pages 00h and 05h (NVMe Base 2.0c sections
//! 5.16.1.1 and 5.16.1.6).

use crate::opcode::{AdminOpcode, NvmOpcode};
use crate::wire::{flags, wire_struct};

use super::LogId;

flags! {
    /// LID Supported and Effects, one per log page.
    pub struct LogSupport: u32 {
        /// Bit 0: the page is supported (LSUPP).
        SUPPORTED = 1 << 0,
        /// Bit 1: the page can be read by index (IOS).
        INDEX_OFFSET = 1 << 1,
    }
}

wire_struct! {
    /// Supported Log Pages, 00h (NVMe Base 2.0c section 5.16.1.1): by log page identifier.
    pub struct SupportedLogPages[1024] {
        /// Support of page 0 to 255.
        0 => pages: [LogSupport; 256],
    }
}

impl SupportedLogPages {
    /// The page for a controller with these log pages.
    pub fn of(pages: &[LogId]) -> Self {
        let mut supported = Self::default();
        for page in pages {
            supported.pages[usize::from(page.value())] = LogSupport::SUPPORTED;
        }
        supported
    }

    /// Whether a log page is supported.
    pub fn supports(&self, page: LogId) -> bool {
        self.pages[usize::from(page.value())].contains(LogSupport::SUPPORTED)
    }
}

flags! {
    /// What a command does, one per opcode (NVMe Base 2.0c section 5.16.1.6).
    pub struct CommandEffects: u32 {
        /// Bit 0: the command is supported (CSUPP).
        SUPPORTED = 1 << 0,
        /// Bit 1: it may change the content of logical blocks (LBCC).
        CHANGES_BLOCKS = 1 << 1,
        /// Bit 2: it may change a namespace's capabilities (NCC).
        CHANGES_NAMESPACE = 1 << 2,
        /// Bit 3: it may change the inventory of namespaces (NIC).
        CHANGES_INVENTORY = 1 << 3,
        /// Bit 4: it may change the controller's capabilities (CCC).
        CHANGES_CONTROLLER = 1 << 4,
        /// Bits 18:16 = 001b: no other command for the same namespace meanwhile (CSE).
        EXCLUSIVE_IN_NAMESPACE = 1 << 16,
        /// Bits 18:16 = 010b: no other command for any namespace meanwhile (CSE).
        EXCLUSIVE_IN_SUBSYSTEM = 2 << 16,
    }
}

wire_struct! {
    /// Commands Supported and Effects, 05h (NVMe Base 2.0c section 5.16.1.6): by opcode.
    pub struct CommandsSupportedAndEffects[4096] {
        /// Admin commands (ACS).
        0 => admin: [CommandEffects; 256],
        /// I/O commands (IOCS).
        1024 => io: [CommandEffects; 256],
    }
}

impl CommandsSupportedAndEffects {
    /// Sets the effects of an admin command.
    pub fn set_admin(&mut self, opcode: AdminOpcode, effects: CommandEffects) {
        self.admin[usize::from(opcode.value())] = effects;
    }

    /// Sets the effects of an I/O command.
    pub fn set_io(&mut self, opcode: NvmOpcode, effects: CommandEffects) {
        self.io[usize::from(opcode.value())] = effects;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::check::round_trip;

    #[test]
    fn supported_pages_are_laid_out_as_the_specification_says() {
        let pages = SupportedLogPages::of(&[LogId::SmartHealth, LogId::Discovery]);
        let mut bytes = [0; 1024];
        bytes[8] = 1;
        bytes[0x70 * 4] = 1;
        assert_eq!(pages.encode(), bytes);
        assert!(pages.supports(LogId::Discovery) && !pages.supports(LogId::ErrorInformation));
    }

    #[test]
    fn effects_are_laid_out_as_the_specification_says() {
        let mut effects = CommandsSupportedAndEffects::default();
        effects.set_admin(AdminOpcode::Identify, CommandEffects::SUPPORTED);
        effects.set_io(
            NvmOpcode::Write,
            CommandEffects::SUPPORTED
                | CommandEffects::CHANGES_BLOCKS
                | CommandEffects::EXCLUSIVE_IN_SUBSYSTEM,
        );
        let mut bytes = vec![0; 4096];
        bytes[24] = 1;
        bytes[1028..1032].copy_from_slice(&[3, 0, 2, 0]);
        assert_eq!(effects.encode()[..], bytes[..]);
    }

    #[test]
    fn structures_survive() {
        round_trip::<SupportedLogPages>();
        round_trip::<CommandsSupportedAndEffects>();
    }
}

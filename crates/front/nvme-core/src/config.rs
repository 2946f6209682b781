//! What controllers of every transport are bounded by.

use std::time::Duration;

use weir_nvme::identify::SglSupport;
use weir_nvme::log::TransportType;

/// Bytes of a memory page as Identify counts them (CAP.MPSMIN is 0).
pub const PAGE_BYTES: u32 = 4096;

/// The limits of controllers and their queues, and what their transport is like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoreConfig {
    /// The transport, as discovery tells of it.
    pub transport: TransportType,
    /// The kinds of SGL descriptor that its commands may bring.
    pub sgl_support: SglSupport,
    /// Entries of a queue at most (MQES + 1).
    pub queue_depth: u16,
    /// I/O queues of one controller at most.
    pub io_queues_max: u16,
    /// Controllers at most that one host has on one subsystem.
    pub controllers_per_host_max: u16,
    /// Controllers at most, of all hosts and subsystems.
    pub controllers_max: u32,
    /// In-capsule data of an I/O command, in bytes: a multiple of 16.
    pub in_capsule_bytes: u32,
    /// In-capsule data of an admin or Fabrics command, in bytes.
    pub admin_in_capsule_bytes: u32,
    /// The longest transfer of one command (MDTS), in bytes: a power of two of pages.
    pub mdts_bytes: u32,
    /// The shortest keep-alive timeout that is used; shorter ones are lengthened to it.
    pub keep_alive_min: Duration,
    /// The longest keep-alive timeout that is accepted.
    pub keep_alive_max: Duration,
}

impl CoreConfig {
    /// MDTS of Identify Controller: the longest transfer in pages, as the exponent of a power of two.
    pub(crate) fn mdts(&self) -> u8 {
        (self.mdts_bytes / PAGE_BYTES).trailing_zeros() as u8
    }
}

#[cfg(test)]
impl CoreConfig {
    /// One as a TCP target has it.
    pub(crate) fn example() -> Self {
        CoreConfig {
            transport: TransportType::Tcp,
            sgl_support: SglSupport::SUPPORTED,
            queue_depth: 128,
            io_queues_max: 128,
            controllers_per_host_max: 16,
            controllers_max: 1024,
            in_capsule_bytes: 16_384,
            admin_in_capsule_bytes: 8192,
            mdts_bytes: 1 << 20,
            keep_alive_min: Duration::from_secs(1),
            keep_alive_max: Duration::from_secs(3600),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mdts_is_a_power_of_pages() {
        assert_eq!(CoreConfig::example().mdts(), 8);
    }
}

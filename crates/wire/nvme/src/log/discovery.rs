//! Discovery, page 70h: the subsystems and ports that a host may connect to (NVMe Base 2.0c section
//! 5.16.1.23).
//!
//! The page is a header and an array of entries, 1024 bytes each. Its generation counter lets a
//! reader of several chunks see that the page changed in between.

use crate::nqn::{NQN_FIELD_SIZE, Nqn, NqnError};
use crate::wire::{ascii, ascii_text, flags, open_enum, wire_struct};

open_enum! {
    /// Transport Type (TRTYPE).
    pub enum TransportType: u8 {
        /// 00h: not reported.
        NotReported = 0 => "not reported",
        /// 01h.
        Rdma = 1 => "RDMA",
        /// 02h.
        FibreChannel = 2 => "Fibre Channel",
        /// 03h.
        Tcp = 3 => "TCP",
        /// FEh.
        IntraHost = 254 => "Intra-host",
    }
}

open_enum! {
    /// Address Family (ADRFAM).
    pub enum AddressFamily: u8 {
        /// 01h: TRADDR is dotted decimal.
        Ipv4 = 1 => "IPv4",
        /// 02h: TRADDR is in the form of RFC 5952.
        Ipv6 = 2 => "IPv6",
        /// 03h.
        InfiniBand = 3 => "InfiniBand",
        /// 04h.
        FibreChannel = 4 => "Fibre Channel",
        /// FEh.
        IntraHost = 254 => "Intra-host",
    }
}

open_enum! {
    /// Subsystem Type (SUBTYPE).
    pub enum SubsystemType: u8 {
        /// 01h: a referral to another discovery service.
        Referral = 1 => "referral to a discovery subsystem",
        /// 02h: an NVM subsystem.
        Nvm = 2 => "NVM subsystem",
        /// 03h: the discovery subsystem that this log comes from.
        CurrentDiscovery = 3 => "current discovery subsystem",
    }
}

open_enum! {
    /// Security Type, byte 0 of TSAS for TCP (NVMe/TCP Transport 1.0c section 3.1).
    pub enum SecurityType: u8 {
        /// 00h.
        None = 0 => "no security",
        /// 01h: TLS 1.2 or older.
        Tls12 = 1 => "TLS 1.2",
        /// 02h.
        Tls13 = 2 => "TLS 1.3",
    }
}

flags! {
    /// Transport Requirements (TREQ).
    pub struct TransportRequirements: u8 {
        /// Bits 1:0 = 01b: a secure channel is required.
        SECURE_CHANNEL_REQUIRED = 0b01,
        /// Bits 1:0 = 10b: a secure channel is not required.
        SECURE_CHANNEL_NOT_REQUIRED = 0b10,
        /// Bit 2: submission queue flow control can be off.
        SQ_FLOW_CONTROL_CAN_BE_OFF = 1 << 2,
    }
}

flags! {
    /// Entry Flags (EFLAGS).
    pub struct EntryFlags: u16 {
        /// Bit 0: the same information can be had elsewhere (DUPRETINFO).
        DUPLICATE = 1 << 0,
        /// Bit 1: explicit persistent connections are supported (EPCSD).
        PERSISTENT_CONNECTION = 1 << 1,
        /// Bit 2: there is no connectivity to a central discovery controller (NCC).
        NO_CENTRAL_CONTROLLER = 1 << 2,
    }
}

wire_struct! {
    /// The header of the Discovery log.
    pub struct DiscoveryLogHeader[1024] {
        /// Generation Counter (GENCTR): changes with every change of the page.
        0 => generation: u64,
        /// Number of Records (NUMREC).
        8 => records: u64,
        /// Record Format (RECFMT); only 0 is defined.
        16 => record_format: u16,
    }
}

wire_struct! {
    /// An entry of the Discovery log. Text fields are ASCII; see [`DiscoveryLogEntry::set_address`].
    pub struct DiscoveryLogEntry[1024] {
        /// Transport Type (TRTYPE).
        0 => transport_type: TransportType,
        /// Address Family (ADRFAM).
        1 => address_family: AddressFamily,
        /// Subsystem Type (SUBTYPE).
        2 => subsystem_type: SubsystemType,
        /// Transport Requirements (TREQ).
        3 => requirements: TransportRequirements,
        /// Port ID (PORTID).
        4 => port_id: u16,
        /// Controller ID (CNTLID): FFFFh for the dynamic controller model.
        6 => controller_id: u16,
        /// Admin Max SQ Size (ASQSZ), at least 32.
        8 => admin_queue_entries: u16,
        /// Entry Flags (EFLAGS).
        10 => flags: EntryFlags,
        /// Transport Service Identifier (TRSVCID): the port number in decimal.
        32 => service: [u8; 32],
        /// Subsystem NQN (SUBNQN), NUL-terminated.
        256 => subsystem_nqn: [u8; NQN_FIELD_SIZE],
        /// Transport Address (TRADDR).
        512 => address: [u8; 256],
        /// Transport Specific Address Subtype (TSAS) for TCP: the security type.
        768 => security_type: SecurityType,
    }
}

impl DiscoveryLogEntry {
    /// Sets TRADDR and TRSVCID, padded with spaces.
    pub fn set_address(&mut self, address: &str, service: &str) {
        self.address = ascii(address);
        self.service = ascii(service);
    }

    /// TRADDR; padding of spaces or NULs is dropped, as peers use either.
    pub fn address_text(&self) -> String {
        ascii_text(up_to_nul(&self.address))
    }

    /// TRSVCID; padding of spaces or NULs is dropped.
    pub fn service_text(&self) -> String {
        ascii_text(up_to_nul(&self.service))
    }

    /// The subsystem's name.
    ///
    /// # Errors
    /// The field holds no valid name.
    pub fn subsystem(&self) -> Result<Nqn, NqnError> {
        Nqn::parse_field(&self.subsystem_nqn)
    }
}

fn up_to_nul(field: &[u8]) -> &[u8] {
    field.split(|&byte| byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::check::round_trip;

    fn set(bytes: &mut [u8], offset: usize, value: &[u8]) {
        bytes[offset..offset + value.len()].copy_from_slice(value);
    }

    #[test]
    fn the_header_is_laid_out_as_the_specification_says() {
        let mut bytes = [0; 1024];
        set(
            &mut bytes,
            0,
            &[1, 0, 0, 0, 0, 0, 0, 2, 3, 0, 0, 0, 0, 0, 0, 4, 5, 6],
        );
        let header = DiscoveryLogHeader {
            generation: 0x0200_0000_0000_0001,
            records: 0x0400_0000_0000_0003,
            record_format: 0x0605,
        };
        assert_eq!(header.encode(), bytes);
        assert_eq!(DiscoveryLogHeader::decode(&bytes), header);
    }

    #[test]
    fn an_entry_is_laid_out_as_the_specification_says() {
        let mut bytes = [0; 1024];
        set(
            &mut bytes,
            0,
            &[
                3, 1, 2, 0x06, 0x01, 0x02, 0xff, 0xff, 0x20, 0x00, 0x02, 0x00,
            ],
        );
        set(&mut bytes, 32, b"4420                            ");
        set(&mut bytes, 256, b"nqn.2024-01.com.example");
        set(&mut bytes, 512, &[b' '; 256]);
        set(&mut bytes, 512, b"192.0.2.1");
        set(&mut bytes, 768, &[2]);
        let name = Nqn::new("nqn.2024-01.com.example").expect("a name");
        let mut entry = DiscoveryLogEntry {
            transport_type: TransportType::Tcp,
            address_family: AddressFamily::Ipv4,
            subsystem_type: SubsystemType::Nvm,
            requirements: TransportRequirements::SECURE_CHANNEL_NOT_REQUIRED
                | TransportRequirements::SQ_FLOW_CONTROL_CAN_BE_OFF,
            port_id: 0x0201,
            controller_id: 0xffff,
            admin_queue_entries: 32,
            flags: EntryFlags::PERSISTENT_CONNECTION,
            subsystem_nqn: name.to_field(),
            security_type: SecurityType::Tls13,
            ..DiscoveryLogEntry::default()
        };
        entry.set_address("192.0.2.1", "4420");
        assert_eq!(entry.encode(), bytes);
        assert_eq!(DiscoveryLogEntry::decode(&bytes), entry);
        assert_eq!(entry.subsystem(), Ok(name));
        assert_eq!(
            (entry.address_text(), entry.service_text()),
            ("192.0.2.1".into(), "4420".into())
        );
    }

    #[test]
    fn text_may_be_padded_with_nuls() {
        let mut entry = DiscoveryLogEntry::default();
        entry.address[..10].copy_from_slice(b"::1\0garbag");
        entry.service[..4].copy_from_slice(b"8009");
        assert_eq!(
            (entry.address_text(), entry.service_text()),
            ("::1".into(), "8009".into())
        );
    }

    #[test]
    fn structures_survive() {
        round_trip::<DiscoveryLogHeader>();
        round_trip::<DiscoveryLogEntry>();
    }
}

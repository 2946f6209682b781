//! Identify data: what a controller says of itself and its namespaces (NVMe Base 2.0c section 5.17;
//! NVM Command Set 1.0c section 4.1.5).
//!
//! Every structure is 4096 bytes. Which CNS a controller answers, and for which NSID, is the command
//! core's decision.

mod controller;
mod lists;
mod namespace;

pub use controller::{
    AnaCapabilities, AsynchronousEventsSupported, ControllerAttributes, ControllerMultipath,
    ControllerType, FabricsAttributes, FirmwareUpdates, FusedOperations, IdentifyController,
    LogPageAttributes, OptionalAdminCommands, OptionalFabricsCommands, OptionalNvmCommands,
    PowerState, SglSupport, VolatileCache,
};
pub use lists::{
    CommandSetCombination, CommandSetVector, DescriptorError, NAMESPACE_LIST_ENTRIES,
    NamespaceDescriptors, decode_namespace_list, encode_namespace_list, uuid_index,
};
pub use namespace::{
    CommandSetController, CommandSetNamespace, DeallocateFeatures, IdentifyNamespace,
    IndependentNamespace, LBA_FORMATS, LbaFormat, MultipathCapabilities, NamespaceAttributes,
    NamespaceFeatures, NamespaceStatus,
};

use crate::wire::open_enum;

/// Bytes of the data of every Identify command.
pub const IDENTIFY_SIZE: usize = 4096;

/// The NSID that means all namespaces.
pub const NSID_ALL: u32 = 0xffff_ffff;

/// Command Set Identifier (CSI) of the NVM command set.
pub const COMMAND_SET_NVM: u8 = 0;

open_enum! {
    /// Controller or Namespace Structure, CNS (NVMe Base 2.0c section 5.17.1).
    pub enum Cns: u8 {
        /// 00h; see [`IdentifyNamespace`].
        Namespace = 0x00 => "Identify Namespace",
        /// 01h; see [`IdentifyController`].
        Controller = 0x01 => "Identify Controller",
        /// 02h; see [`encode_namespace_list`].
        ActiveNamespaceList = 0x02 => "Active Namespace ID list",
        /// 03h; see [`NamespaceDescriptors`].
        NamespaceDescriptors = 0x03 => "Namespace Identification Descriptor list",
        /// 04h.
        NvmSetList = 0x04 => "NVM Set List",
        /// 05h; see [`CommandSetNamespace`].
        CommandSetNamespace = 0x05 => "I/O Command Set specific Identify Namespace",
        /// 06h; see [`CommandSetController`].
        CommandSetController = 0x06 => "I/O Command Set specific Identify Controller",
        /// 07h: as 02h, of one command set.
        CommandSetActiveNamespaceList = 0x07 => "I/O Command Set specific Active Namespace ID list",
        /// 08h; see [`IndependentNamespace`].
        IndependentNamespace = 0x08 => "I/O Command Set Independent Identify Namespace",
        /// 09h.
        NamespaceUserDataFormat = 0x09 => "Identify Namespace for a User Data Format",
        /// 0Ah.
        CommandSetNamespaceUserDataFormat = 0x0a =>
            "I/O Command Set specific Identify Namespace for a User Data Format",
        /// 10h.
        AllocatedNamespaceList = 0x10 => "Allocated Namespace ID list",
        /// 11h.
        AllocatedNamespace = 0x11 => "Identify Namespace of an Allocated Namespace ID",
        /// 12h.
        AttachedControllerList = 0x12 => "Namespace Attached Controller list",
        /// 13h.
        ControllerList = 0x13 => "Controller list",
        /// 14h.
        PrimaryControllerCapabilities = 0x14 => "Primary Controller Capabilities",
        /// 15h.
        SecondaryControllerList = 0x15 => "Secondary Controller list",
        /// 16h.
        NamespaceGranularityList = 0x16 => "Namespace Granularity List",
        /// 17h; see [`uuid_index`].
        UuidList = 0x17 => "UUID List",
        /// 18h.
        DomainList = 0x18 => "Domain List",
        /// 19h.
        EnduranceGroupList = 0x19 => "Endurance Group List",
        /// 1Ah.
        CommandSetAllocatedNamespaceList = 0x1a => "I/O Command Set specific Allocated Namespace ID list",
        /// 1Bh.
        CommandSetAllocatedNamespace = 0x1b => "I/O Command Set specific Identify Namespace of an Allocated Namespace ID",
        /// 1Ch; see [`CommandSetVector`].
        CommandSetVector = 0x1c => "Identify I/O Command Set data structure",
    }
}

//! What Identify says, as a geometry and as limits for commands.

use weir_block::{BlockSize, DeallocatedRead, Geometry};
use weir_memory::Pool;
use weir_nvme::identify::{
    CommandSetController, DeallocateFeatures, FusedOperations, IDENTIFY_SIZE, IdentifyController,
    IdentifyNamespace, NamespaceAttributes, NamespaceDescriptors, NamespaceFeatures,
    OptionalNvmCommands, VolatileCache,
};
use weir_nvme::property::Capabilities;

use weir_initiator::plan::Limits;

/// The longest command that moves data, whatever more the controller takes, in bytes.
const TRANSFER_BYTES_MAX: u64 = Pool::LONGEST as u64;

/// Why a namespace cannot be a volume.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NamespaceError {
    /// It is not there: not attached to this controller, or not visible to this host.
    #[error(
        "namespace {nsid} is not there, or not for this host; see the subsystem's namespaces on the target"
    )]
    Absent {
        /// Its identifier.
        nsid: u32,
    },
    /// Its block size is not one of Weir's.
    #[error("namespace {nsid} has blocks of {bytes} bytes; Weir takes 512 and 4096")]
    BlockSize {
        /// Its identifier.
        nsid: u32,
        /// Its block size.
        bytes: u64,
    },
    /// It has metadata.
    #[error("namespace {nsid} has {bytes} bytes of metadata per block; Weir takes none")]
    Metadata {
        /// Its identifier.
        nsid: u32,
        /// Metadata per block.
        bytes: u16,
    },
    /// Another namespace is there than before.
    #[error(
        "namespace {nsid} is another one than before: its identifiers or its block size changed"
    )]
    Other {
        /// Its identifier.
        nsid: u32,
    },
    /// It claims to be longer than any volume can be.
    #[error("namespace {nsid} claims {blocks} blocks, which are more bytes than can be counted")]
    Size {
        /// Its identifier.
        nsid: u32,
        /// How many blocks it claims.
        blocks: u64,
    },
    /// The controller's longest transfer is shorter than a block.
    #[error("namespace {nsid} has blocks longer than the controller's longest transfer")]
    Transfer {
        /// Its identifier.
        nsid: u32,
    },
}

/// What tells a namespace from others, wherever it is found. What is absent is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    uuid: Option<[u8; 16]>,
    nguid: Option<[u8; 16]>,
    eui64: Option<[u8; 8]>,
}

impl Identity {
    fn new(namespace: &IdentifyNamespace, descriptors: &NamespaceDescriptors) -> Identity {
        let nguid = Some(namespace.nguid).filter(|nguid| *nguid != [0; 16]);
        let eui64 = Some(namespace.eui64).filter(|eui64| *eui64 != [0; 8]);
        Identity {
            uuid: descriptors.uuid,
            nguid: nguid.or(descriptors.nguid),
            eui64: eui64.or(descriptors.eui64),
        }
    }
}

/// A namespace as a volume.
pub(crate) type Profile = weir_initiator::Profile<Identity>;

/// The most blocks that NLB of a Read, Write, Compare, Verify or Write Zeroes can say (NVM Command Set 1.0 section 3.2).
pub(crate) const NLB_MAX: u32 = 1 << 16;

/// What Identify and CAP said.
pub(crate) struct Identified<'data> {
    pub(crate) nsid: u32,
    pub(crate) capabilities: Capabilities,
    pub(crate) controller: &'data IdentifyController,
    /// Where the controller has it (CNS 06h).
    pub(crate) command_set: Option<&'data CommandSetController>,
    pub(crate) namespace: &'data IdentifyNamespace,
    /// Empty where the controller has none (CNS 03h).
    pub(crate) descriptors: NamespaceDescriptors,
}

impl Identified<'_> {
    /// The volume that the namespace is.
    ///
    /// # Errors
    /// [`NamespaceError`].
    pub(crate) fn profile(&self) -> Result<Profile, NamespaceError> {
        let Identified {
            nsid,
            controller,
            namespace,
            ..
        } = *self;
        if namespace.size == 0 {
            return Err(NamespaceError::Absent { nsid });
        }
        let block_size = block_size(nsid, namespace)?;
        if namespace.size > u64::MAX >> block_size.shift() {
            let blocks = namespace.size;
            return Err(NamespaceError::Size { nsid, blocks });
        }
        let limits = limits(self, block_size);
        if limits.transfer_blocks_max == 0 {
            return Err(NamespaceError::Transfer { nsid });
        }
        let (atomic, atomic_power_fail) = atomic_blocks(controller, namespace);
        let optimal = namespace
            .features
            .contains(NamespaceFeatures::OPTIMAL_PERFORMANCE);
        let granularity = |zero_based: u16| match optimal {
            true => u32::from(zero_based) + 1,
            false => 1,
        };
        let reads_zeroes =
            namespace.deallocate_features.0 & 0b111 == DeallocateFeatures::READS_ZEROES.0;
        let geometry = Geometry {
            generation: 0,
            block_size,
            blocks: namespace.size,
            transfer_blocks_max: limits.transfer_blocks_max,
            transfer_blocks_optimal: granularity(namespace.preferred_write_granularity),
            memory_alignment: 1,
            deallocate_blocks: match limits.deallocate_blocks_max {
                0 => 0,
                _ => granularity(namespace.preferred_deallocate_granularity),
            },
            deallocated_read: match reads_zeroes {
                true => DeallocatedRead::Zeroes,
                false => DeallocatedRead::Unknown,
            },
            volatile_cache: controller
                .volatile_write_cache
                .contains(VolatileCache::PRESENT),
            read_only: namespace
                .attributes
                .contains(NamespaceAttributes::WRITE_PROTECTED),
            atomic_blocks: atomic.min(limits.transfer_blocks_max),
            atomic_blocks_power_fail: atomic_power_fail.min(limits.transfer_blocks_max),
            compare_write_blocks: limits.compare_write_blocks_max,
        };
        Ok(Profile {
            identity: Identity::new(namespace, &self.descriptors),
            geometry,
            limits,
        })
    }
}

/// What a volume is like that a target describes with these structures: CAP, and CNS 01h, 06h, 00h and 03h. For fuzzing.
#[doc(hidden)]
#[must_use]
pub fn geometry_of(
    capabilities: u64,
    [controller, command_set, namespace, descriptors]: [&[u8; IDENTIFY_SIZE]; 4],
) -> Option<Geometry> {
    let profile = Identified {
        nsid: 1,
        capabilities: Capabilities(capabilities),
        controller: &IdentifyController::decode(controller),
        command_set: Some(&CommandSetController::decode(command_set)),
        namespace: &IdentifyNamespace::decode(namespace),
        descriptors: NamespaceDescriptors::decode(descriptors).ok()?,
    }
    .profile();
    Some(profile.ok()?.geometry)
}

fn block_size(nsid: u32, namespace: &IdentifyNamespace) -> Result<BlockSize, NamespaceError> {
    let format = namespace.format();
    if format.metadata_size != 0 {
        return Err(NamespaceError::Metadata {
            nsid,
            bytes: format.metadata_size,
        });
    }
    let bytes = format.block_size().unwrap_or(0);
    BlockSize::from_bytes(bytes).ok_or(NamespaceError::BlockSize { nsid, bytes })
}

fn limits(identified: &Identified<'_>, block_size: BlockSize) -> Limits {
    let Identified {
        capabilities,
        controller,
        command_set,
        namespace,
        ..
    } = *identified;
    let page_size_minimum = capabilities.memory_page_size_minimum();
    let blocks = |bytes: u64| (bytes >> block_size.shift()).min(NLB_MAX.into()) as u32;
    let transfer_bytes = controller
        .maximum_transfer_bytes(page_size_minimum)
        .unwrap_or(u64::MAX);
    let transfer_blocks_max = blocks(transfer_bytes.min(TRANSFER_BYTES_MAX));
    let supported = |command| controller.optional_nvm_commands.contains(command);
    // A controller without the structure says nothing of these commands: MDTS is the safe limit.
    let sized = |exponent: Option<u8>| match exponent {
        None => transfer_blocks_max,
        Some(0) => NLB_MAX,
        Some(exponent) => {
            let shift = u32::from(exponent) + 12 + u32::from(page_size_minimum);
            blocks(1u64.checked_shl(shift).unwrap_or(u64::MAX)).max(1)
        }
    };
    let compare = supported(OptionalNvmCommands::COMPARE);
    let fused = controller
        .fused_operations
        .contains(FusedOperations::COMPARE_AND_WRITE);
    Limits {
        block_size,
        transfer_blocks_max,
        write_zeroes_blocks_max: match supported(OptionalNvmCommands::WRITE_ZEROES) {
            true => sized(command_set.map(|set| set.write_zeroes_size_limit)),
            false => 0,
        },
        write_zeroes_deallocates: namespace
            .deallocate_features
            .contains(DeallocateFeatures::WRITE_ZEROES_DEALLOCATES),
        write_zeroes_without_data: true,
        verify_blocks_max: match supported(OptionalNvmCommands::VERIFY) {
            true => sized(command_set.map(|set| set.verify_size_limit)),
            false => 0,
        },
        deallocate_blocks_max: match supported(OptionalNvmCommands::DATASET_MANAGEMENT) {
            true => deallocate_blocks(command_set),
            false => 0,
        },
        compare,
        compare_write_blocks_max: match compare && fused {
            true => compare_write_blocks(controller, namespace).min(transfer_blocks_max),
            false => 0,
        },
        force_unit_access: true,
        write_zeroes_force_unit_access: true,
    }
}

/// The longest range of a Dataset Management command (DMRSL), which is also no longer than all of its ranges may be (DMSL).
fn deallocate_blocks(command_set: Option<&CommandSetController>) -> u32 {
    let range = command_set.map_or(0, |set| set.dataset_management_range_size);
    let all = command_set.map_or(0, |set| set.dataset_management_size);
    let unlimited = |limit: u64| if limit == 0 { u64::MAX } else { limit };
    let limit = unlimited(range.into()).min(unlimited(all));
    u32::try_from(limit).unwrap_or(u32::MAX)
}

/// Blocks that a fused Compare and Write takes: NACWU where the namespace says so, else ACWU; both 0's based.
fn compare_write_blocks(controller: &IdentifyController, namespace: &IdentifyNamespace) -> u32 {
    let own = namespace.features.contains(NamespaceFeatures::ATOMIC_UNITS);
    let zero_based = match own {
        true => namespace.atomic_compare_and_write_unit,
        false => controller.atomic_compare_and_write_unit,
    };
    u32::from(zero_based) + 1
}

/// Blocks written whole or not at all, in normal operation and across a power failure. Where there are boundaries, a write
/// across one is not atomic, and only single blocks surely are.
fn atomic_blocks(controller: &IdentifyController, namespace: &IdentifyNamespace) -> (u32, u32) {
    if !namespace.features.contains(NamespaceFeatures::ATOMIC_UNITS) {
        return (
            u32::from(controller.atomic_write_unit) + 1,
            u32::from(controller.atomic_write_unit_power_fail) + 1,
        );
    }
    let bounded = |unit: u16, boundary: u16| match boundary {
        0 => u32::from(unit) + 1,
        _ => 1,
    };
    (
        bounded(namespace.atomic_write_unit, namespace.atomic_boundary),
        bounded(
            namespace.atomic_write_unit_power_fail,
            namespace.atomic_boundary_power_fail,
        ),
    )
}

#[cfg(test)]
mod tests {
    use weir_nvme::identify::LbaFormat;

    use super::*;

    fn controller() -> IdentifyController {
        IdentifyController {
            maximum_data_transfer_size: 5,
            optional_nvm_commands: OptionalNvmCommands(0xffff),
            fused_operations: FusedOperations::COMPARE_AND_WRITE,
            volatile_write_cache: VolatileCache::PRESENT,
            atomic_write_unit: 7,
            atomic_compare_and_write_unit: 3,
            ..IdentifyController::default()
        }
    }

    fn namespace(exponent: u8) -> IdentifyNamespace {
        let mut namespace = IdentifyNamespace {
            size: 1000,
            deallocate_features: DeallocateFeatures(0b1001),
            ..IdentifyNamespace::default()
        };
        namespace.lba_formats[0] = LbaFormat::new(exponent);
        namespace
    }

    fn profile(
        controller: &IdentifyController,
        command_set: Option<&CommandSetController>,
        namespace: &IdentifyNamespace,
    ) -> Result<Profile, NamespaceError> {
        Identified {
            nsid: 1,
            capabilities: Capabilities(0),
            controller,
            command_set,
            namespace,
            descriptors: NamespaceDescriptors::default(),
        }
        .profile()
    }

    #[test]
    fn geometry_and_limits_follow_identify() {
        let profile = profile(&controller(), None, &namespace(9)).unwrap();
        // MDTS 5: 128 KiB, 256 blocks; without CNS 06h also for Write Zeroes and Verify.
        assert_eq!(profile.geometry.transfer_blocks_max, 256);
        assert_eq!(profile.limits.write_zeroes_blocks_max, 256);
        assert_eq!(profile.limits.verify_blocks_max, 256);
        assert_eq!(profile.limits.deallocate_blocks_max, u32::MAX);
        assert_eq!(profile.geometry.compare_write_blocks, 4);
        assert_eq!(profile.geometry.atomic_blocks, 8);
        assert_eq!(profile.geometry.atomic_blocks_power_fail, 1);
        assert_eq!(profile.geometry.deallocated_read, DeallocatedRead::Zeroes);
        assert!(profile.limits.write_zeroes_deallocates);
        assert!(profile.geometry.volatile_cache && !profile.geometry.read_only);
        assert_eq!(profile.geometry.blocks, 1000);
    }

    #[test]
    fn size_limits_of_the_command_set_are_heeded() {
        let set = CommandSetController {
            verify_size_limit: 1,
            write_zeroes_size_limit: 0,
            dataset_management_range_size: 9,
            ..CommandSetController::default()
        };
        let profile = profile(&controller(), Some(&set), &namespace(12)).unwrap();
        assert_eq!(profile.limits.verify_blocks_max, 2);
        assert_eq!(profile.limits.write_zeroes_blocks_max, NLB_MAX);
        assert_eq!(profile.limits.deallocate_blocks_max, 9);
        assert_eq!(profile.limits.transfer_blocks_max, 32);
    }

    #[test]
    fn no_limit_is_bounded_by_the_pool() {
        let unlimited = IdentifyController {
            maximum_data_transfer_size: 0,
            ..controller()
        };
        let profile = profile(&unlimited, None, &namespace(9)).unwrap();
        assert_eq!(
            profile.limits.transfer_blocks_max as usize * 512,
            Pool::LONGEST
        );
    }

    #[test]
    fn what_is_no_volume_is_refused() {
        let absent = IdentifyNamespace::default();
        assert_eq!(
            profile(&controller(), None, &absent),
            Err(NamespaceError::Absent { nsid: 1 })
        );
        assert_eq!(
            profile(&controller(), None, &namespace(13)),
            Err(NamespaceError::BlockSize {
                nsid: 1,
                bytes: 8192
            })
        );
        for (exponent, size) in [(9, 1 << 55), (12, 1 << 52), (12, u64::MAX)] {
            let endless = IdentifyNamespace {
                size,
                ..namespace(exponent)
            };
            let blocks = size;
            assert_eq!(
                profile(&controller(), None, &endless),
                Err(NamespaceError::Size { nsid: 1, blocks })
            );
        }
        let longest = IdentifyNamespace {
            size: (1 << 52) - 1,
            ..namespace(12)
        };
        assert!(profile(&controller(), None, &longest).is_ok());
        let mut metadata = namespace(9);
        metadata.lba_formats[0].metadata_size = 8;
        assert_eq!(
            profile(&controller(), None, &metadata),
            Err(NamespaceError::Metadata { nsid: 1, bytes: 8 })
        );
    }
}

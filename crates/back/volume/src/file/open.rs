//! Opening a file or device: what the URL asks for against what the medium is.

use std::io;
use std::sync::Arc;

use weir_block::{BlockSize, DeallocatedRead, Geometry, Volume};
use weir_reactor::{File, FileInfo, FileKind, OpenOptions, UseDirect};

use crate::support::{LiveGeometry, TRANSFER_BYTES_MAX, blocks_of_size};
use crate::{FileVolume, Guard, GuardConfig, OpenError, OpenRequest, UrlError, VolumeUrl};

/// The largest alignment that a block can have, in bytes.
const ALIGNMENT_MAX: u32 = 4096;

/// What the URL asks for.
struct Wanted {
    size: Option<u64>,
    block_size: Option<BlockSize>,
    direct: UseDirect,
}

/// Opens the volume that `file:PATH?size=...&block_size=...&direct=...` names.
pub(crate) async fn open(request: OpenRequest) -> Result<Arc<dyn Volume>, OpenError> {
    let wanted = wanted(&request.url)?;
    let opened = open_medium(&request, &wanted, wanted.direct).await?;
    let (file, info) = match (misfit(&opened.1, &wanted), wanted.direct) {
        (None, direct) => {
            if direct == UseDirect::Auto && !opened.1.direct {
                let text = "the file system has no direct I/O; I/O goes through the page cache";
                request.registry.notice(&request.url, text.to_owned());
            }
            opened
        }
        (Some(reason), UseDirect::Auto) => {
            // Closed first: it is open for writing once.
            drop(opened);
            let text = format!("{reason}; I/O goes through the page cache");
            request.registry.notice(&request.url, text);
            open_medium(&request, &wanted, UseDirect::Never).await?
        }
        (Some(reason), _) => return Err(OpenError::medium(&request.url, reason)),
    };
    check_length(&request, &info, &wanted)?;
    volume(&request, file, &info, &wanted)
}

fn wanted(url: &VolumeUrl) -> Result<Wanted, UrlError> {
    if url.authority().is_some() || url.path().is_empty() {
        return Err(url.place_error("a path and no host, as in file:/path/to/image"));
    }
    let parameters = url.parameters();
    let size = parameters.size("size")?;
    let block_size = parameters.block_size()?;
    let direct = parameters.choice(
        "direct",
        &[
            ("auto", UseDirect::Auto),
            ("always", UseDirect::Always),
            ("never", UseDirect::Never),
        ],
    )?;
    parameters.finish()?;
    if let Some(size) = size {
        blocks_of_size(size, block_size.unwrap_or(BlockSize::B512))?;
    }
    Ok(Wanted {
        size,
        block_size,
        direct: direct.unwrap_or_default(),
    })
}

async fn open_medium(
    request: &OpenRequest,
    wanted: &Wanted,
    direct: UseDirect,
) -> Result<(Arc<File>, FileInfo), OpenError> {
    let options = OpenOptions {
        write: !request.access.read_only,
        create: wanted
            .size
            .filter(|_| !request.access.read_only && !request.registry.is_existing_only()),
        direct,
        ..OpenOptions::default()
    };
    let opened = request.open_file(request.url.path(), options.clone()).await;
    opened.map_err(|error| open_error(request, error, &options))
}

fn open_error(request: &OpenRequest, source: io::Error, options: &OpenOptions) -> OpenError {
    let url = &request.url;
    let hint = match source.kind() {
        io::ErrorKind::NotFound if request.registry.is_existing_only() => {
            "it was there before, and is not made anew"
        }
        io::ErrorKind::NotFound if options.create.is_none() && options.write => {
            "with size= it is created"
        }
        io::ErrorKind::InvalidInput if options.direct == UseDirect::Always => {
            "direct=auto or direct=never use the page cache"
        }
        kind => {
            let (url, reason) = (url.to_string(), source.to_string());
            return match kind {
                io::ErrorKind::ResourceBusy => OpenError::InUse { url, reason },
                _ => OpenError::System { url, source },
            };
        }
    };
    OpenError::medium(url, format!("{source}; {hint}"))
}

/// The block size that is presented: as told, or what fits the medium's contents.
fn block_size(info: &FileInfo, wanted: &Wanted) -> BlockSize {
    let fitting = match info.kind {
        // What is on a device speaks in its logical blocks, which direct I/O is aligned to.
        FileKind::BlockDevice => info.offset_alignment == BlockSize::B4096.bytes(),
        FileKind::Regular => info
            .length
            .is_multiple_of(u64::from(BlockSize::B4096.bytes())),
    };
    wanted.block_size.unwrap_or(if fitting {
        BlockSize::B4096
    } else {
        BlockSize::B512
    })
}

/// What direct I/O is done in units of, in bytes: every buffer of a transfer is aligned in address and length.
fn direct_unit(info: &FileInfo) -> u32 {
    info.offset_alignment.max(info.memory_alignment)
}

/// Why direct I/O on this medium cannot serve blocks as wanted, if it cannot.
fn misfit(info: &FileInfo, wanted: &Wanted) -> Option<String> {
    if !info.direct {
        return None;
    }
    let alignment = direct_unit(info);
    if alignment > ALIGNMENT_MAX {
        return Some(format!(
            "direct I/O asks for an alignment of {alignment} bytes, and at most {ALIGNMENT_MAX} can be had"
        ));
    }
    let block_bytes = block_size(info, wanted).bytes();
    let whole = info.length.is_multiple_of(u64::from(info.offset_alignment));
    if block_bytes < info.offset_alignment && !whole {
        return Some(format!(
            "blocks of {block_bytes} bytes are made of direct I/O in units of {} bytes, and its length of {} bytes is no multiple of that",
            alignment, info.length
        ));
    }
    None
}

fn check_length(request: &OpenRequest, info: &FileInfo, wanted: &Wanted) -> Result<(), OpenError> {
    let (url, length) = (&request.url, info.length);
    let differs = |size: u64| match request.registry.is_existing_only() {
        true => length < size,
        false => length != size,
    };
    if let Some(size) = wanted.size.filter(|&size| differs(size)) {
        let reason = format!(
            "it has {length} bytes and size={size} asks for {size}; leave size= out to take it as it is, or resize the volume"
        );
        return Err(OpenError::medium(url, reason));
    }
    let block_bytes = block_size(info, wanted).bytes();
    if length == 0 {
        let reason = "it is empty; remove it and give size=, and it is made anew".to_owned();
        return Err(OpenError::medium(url, reason));
    }
    if !length.is_multiple_of(u64::from(block_bytes)) {
        let hint = if length.is_multiple_of(u64::from(BlockSize::B512.bytes())) {
            "; block_size=512 fits"
        } else {
            ""
        };
        let reason =
            format!("its {length} bytes are no multiple of the block size of {block_bytes}{hint}");
        return Err(OpenError::medium(url, reason));
    }
    Ok(())
}

fn volume(
    request: &OpenRequest,
    file: Arc<File>,
    info: &FileInfo,
    wanted: &Wanted,
) -> Result<Arc<dyn Volume>, OpenError> {
    let presented = block_size(info, wanted);
    let native = if info.direct && direct_unit(info) > presented.bytes() {
        BlockSize::B4096
    } else {
        presented
    };
    if let Some(text) = torn(info, presented).filter(|_| !request.access.read_only) {
        request.registry.notice(&request.url, text);
    }
    let geometry = geometry(info, native, request.access.read_only);
    let volume = Arc::new(FileVolume {
        name: request.url.to_string(),
        drive: Arc::new(super::health::Drive::new(Arc::clone(&file))),
        file,
        kind: info.kind,
        deallocate_bytes: u64::from(info.deallocate_granularity),
        geometry: Arc::new(LiveGeometry::new(geometry)),
        watchers: Default::default(),
        fences: Default::default(),
        unsupported: Default::default(),
        failed_sync: Default::default(),
    });
    if native == presented {
        return Ok(volume);
    }
    let text = format!(
        "blocks of {} bytes on a medium that writes {} at a time: writes that are not aligned to that read first",
        presented.bytes(),
        native.bytes()
    );
    request.registry.notice(&request.url, text);
    let config = GuardConfig {
        block_size: Some(presented),
        ..GuardConfig::default()
    };
    Ok(Guard::new(volume, config).expect("512-byte blocks are made of 4096-byte ones"))
}

/// What is to be said of blocks that are longer than what the medium writes whole: an NVMe host takes one block at least for
/// atomic across a power failure (NVM Command Set 1.0 section 2.1.4: AWUPF has no smaller value), whatever lies below.
fn torn(info: &FileInfo, block_size: BlockSize) -> Option<String> {
    let block_bytes = block_size.bytes();
    let whole = info.atomic_bytes.filter(|&whole| whole < block_bytes)?;
    Some(format!(
        "blocks of {block_bytes} bytes on a medium that writes {whole} at a time whole: a power failure may leave a block half written; \
         block_size=512 makes blocks that it leaves whole"
    ))
}

fn geometry(info: &FileInfo, block_size: BlockSize, read_only: bool) -> Geometry {
    let in_blocks = |bytes: u32| bytes.div_ceil(block_size.bytes());
    let regular = info.kind == FileKind::Regular;
    Geometry {
        generation: 0,
        block_size,
        blocks: info.length >> block_size.shift(),
        transfer_blocks_max: TRANSFER_BYTES_MAX >> block_size.shift(),
        transfer_blocks_optimal: in_blocks(info.physical_block).max(1),
        memory_alignment: info.memory_alignment,
        deallocate_blocks: in_blocks(info.deallocate_granularity),
        deallocated_read: if regular {
            DeallocatedRead::Zeroes
        } else {
            DeallocatedRead::Unknown
        },
        volatile_cache: regular || info.volatile_cache,
        read_only,
        atomic_blocks: 1,
        atomic_blocks_power_fail: 1,
        compare_write_blocks: 0,
    }
}

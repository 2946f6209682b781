//! The connection by which an association is kept: from an address to the open file, whatever the version.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use weir_block::{BlockSize, DeallocatedRead, Geometry};
use weir_initiator::plan::Limits;
use weir_initiator::{CONNECT_TIMEOUT, Caller, CloseOnDrop, Profile, Remote, connect, resolve};
use weir_memory::Pool;
use weir_nfs::types::{file_type, stable};
use weir_nfs::{FileHandle, OperationNumber as Number, Reader, StateId, Status};
use weir_reactor::Reactor;

use crate::arguments::Arguments;
use crate::asking::{Asking, ConnectError, File, FileIdentity, Identity, Way};
use crate::channel::Channel;
use crate::options::{Options, Version};
use crate::results::{ATTRIBUTES, Attributes, Failure};
use crate::{session, version3};

/// Words of a server on a client whose state is not what the client thinks: a state of it was revoked, or is to be reclaimed
/// (SEQ4_STATUS of RFC 8881, section 18.46).
const STATE_LOST: u32 = 0x0000_0008 | 0x0000_0010 | 0x0000_0020 | 0x0000_0100;

/// The connection by which an association is kept. It ends when this is dropped.
pub struct Keeper {
    pub(crate) asking: Asking,
    pub(crate) way: Way,
    pub(crate) file: (FileHandle, StateId),
    revoked: Arc<AtomicBool>,
}

impl Keeper {
    /// Asks whether the server lives, and renews the lease where there is one.
    ///
    /// # Errors
    /// There was no answer, or the server has revoked something.
    pub(crate) async fn renew(&self, timeout: Duration) -> Result<(), String> {
        let flags = match self.way {
            Way::Session(_) => self.asking.renew(timeout).await? & STATE_LOST,
            Way::V3 { .. } => {
                let alive = self.asking.is_alive(timeout).await;
                return alive.map_err(|error| error.to_string());
            }
        };
        match flags {
            0 => Ok(()),
            flags => {
                self.revoked.store(true, Ordering::Relaxed);
                Err(format!(
                    "the server has revoked what this client had (flags {flags:#x})"
                ))
            }
        }
    }

    /// Puts what was written on stable storage; the verifier.
    pub(crate) async fn commit(&self) -> Result<[u8; 8], ConnectError> {
        if let Way::V3 { .. } = self.way {
            return self.asking.commit_of_3(&self.file.0).await;
        }
        let commit = Arguments::default().put(&self.file.0).commit();
        let committed = self.asking.call("COMMIT", &commit, |results| {
            results.next(Number::Putfh)?;
            results.next(Number::Commit)?;
            results.read(Number::Commit, Reader::fixed::<8>)
        });
        committed.await
    }

    /// Writes on stable storage, as much as the server takes; the number of bytes.
    pub(crate) async fn write_durably(
        &self,
        offset: u64,
        data: &[u8],
    ) -> Result<usize, ConnectError> {
        let (handle, stateid) = &self.file;
        let (count, how) = match self.way {
            Way::V3 { .. } => {
                let written = self.asking.write_of_3(handle, offset, data);
                written.await?
            }
            Way::Session(_) => {
                let arguments = Arguments::default().put(handle);
                let arguments = arguments.write(stateid, offset, stable::FILE_SYNC, data);
                let written = self.asking.call("WRITE", &arguments, |results| {
                    results.next(Number::Putfh)?;
                    results.next(Number::Write)?;
                    results.read(Number::Write, |reader| Ok((reader.u32()?, reader.u32()?)))
                });
                written.await?
            }
        };
        match count as usize {
            count if (1..=data.len()).contains(&count) && how == stable::FILE_SYNC => Ok(count),
            _ => Err(Failure::Missing(Number::Write.into()).into()),
        }
    }

    /// Attributes of the file.
    async fn attributes(&self) -> Result<Attributes, ConnectError> {
        if let Way::V3 { .. } = self.way {
            let attributes = self.asking.attributes_of_3(&self.file.0).await?;
            return Ok(self.way.attributes(&attributes));
        }
        let arguments = Arguments::default()
            .put(&self.file.0)
            .attributes(&ATTRIBUTES);
        let found = self.asking.call("GETATTR", &arguments, |results| {
            results.next(Number::Putfh)?;
            results.attributes()
        });
        found.await
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.asking.caller.connection.close();
    }
}

/// A connection by which an association is kept, and what was learnt over it.
pub(crate) struct Kept {
    pub(crate) keeper: Keeper,
    pub(crate) address: SocketAddr,
    pub(crate) profile: Profile<FileIdentity>,
    /// None in version 3.
    pub(crate) lease: Option<Duration>,
    pub(crate) verifier: Arc<OnceLock<[u8; 8]>>,
}

/// Opens the connection by which an association is kept, takes the session up or makes one, and opens the file.
///
/// # Errors
/// [`ConnectError`].
pub(crate) async fn keep(reactor: &Reactor, remote: &File) -> Result<Kept, ConnectError> {
    let Remote { options, host, .. } = remote;
    let addresses = resolve(reactor, &options.host, options.port).await;
    let addresses = addresses.map_err(|error| ConnectError::Resolve {
        host: options.host.clone(),
        error,
    })?;
    let socket = options.common.socket_options();
    let stream = connect(reactor, &addresses, &socket, CONNECT_TIMEOUT).await;
    let stream = stream.map_err(|error| ConnectError::Connect(error.to_string()))?;
    let address = stream.peer_address();
    let channel = Channel::new(&host.credential(), options.version.minor());
    let asking = Asking {
        caller: Caller::start(reactor, stream, channel),
    };
    let guard = CloseOnDrop::new(&asking.caller.connection);
    let found = match options.version {
        Version::V3 => version3::begin(&asking, remote, address).await,
        Version::V41 | Version::V42 => session::begin(&asking, remote).await,
    };
    let found = found.and_then(|begun| {
        let profile = profile(options, host, &begun.way, &begun.attributes)?;
        match remote.recognise(&profile) {
            true => Ok((begun, profile)),
            false => Err(ConnectError::OtherFile {
                path: options.path_text(),
            }),
        }
    });
    let (begun, profile) = match found {
        Ok(found) => found,
        Err(error) => {
            session::forget(&asking, host).await;
            guard.disarm();
            // Its slots are put back before anybody else takes them.
            asking.caller.connection.close();
            asking.caller.calls.end().await;
            return Err(error);
        }
    };
    guard.disarm();
    host.lasting().handle = Some(begun.file.0);
    let lease = |seconds: u32| Duration::from_secs(seconds.clamp(4, 3600).into());
    Ok(Kept {
        keeper: Keeper {
            asking,
            way: begun.way,
            file: begun.file,
            revoked: Arc::clone(&host.revoked),
        },
        address,
        profile,
        lease: match begun.way {
            Way::Session(_) => Some(lease(begun.attributes.lease_seconds)),
            Way::V3 { .. } => None,
        },
        verifier: host.lasting().next_verifier(),
    })
}

/// Asks for the file as it is now; none where it is gone.
pub(crate) async fn look(
    keeper: &Keeper,
    remote: &File,
) -> Result<Option<Profile<FileIdentity>>, ConnectError> {
    let Remote { options, host, .. } = remote;
    let attributes = match keeper.attributes().await {
        Ok(attributes) => attributes,
        Err(ConnectError::Operation(failure)) if failure.status() == Some(Status::Stale) => {
            tracing::warn!(path = options.path_text(), "the file is gone");
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let options = Options {
        size: None,
        ..options.clone()
    };
    Ok(Some(profile(&options, host, &keeper.way, &attributes)?))
}

/// The file as a volume.
fn profile(
    options: &Options,
    host: &Identity,
    way: &Way,
    attributes: &Attributes,
) -> Result<Profile<FileIdentity>, ConnectError> {
    let path = || options.path_text();
    if attributes.kind != file_type::REGULAR {
        return Err(ConnectError::NotAFile { path: path() });
    }
    let found = attributes.size;
    if let Some(wanted) = options.size.filter(|&size| size != found) {
        return Err(ConnectError::OtherSize {
            path: path(),
            found,
            wanted,
        });
    }
    let fitting = match found.is_multiple_of(4096) {
        true => BlockSize::B4096,
        false => BlockSize::B512,
    };
    let wanted = || options.block_size.unwrap_or(fitting);
    let block_size = *host.block_size.get_or_init(wanted);
    let bytes = block_size.bytes();
    if found == 0 || !found.is_multiple_of(u64::from(bytes)) {
        return Err(ConnectError::NoBlocks {
            path: path(),
            bytes: found,
            block_size: bytes,
        });
    }
    let all = way.transfer_bytes();
    let most = |said: Option<u64>| said.unwrap_or(u64::MAX).min(all.into()) as u32;
    let transfer = most(attributes.read_bytes_max).min(most(attributes.write_bytes_max));
    let transfer = transfer.min(Pool::LONGEST as u32) / bytes;
    if transfer == 0 {
        return Err(ConnectError::TooShort {
            bytes: all.min(most(attributes.read_bytes_max)),
        });
    }
    let geometry = Geometry {
        generation: 0,
        block_size,
        blocks: found / u64::from(bytes),
        transfer_blocks_max: transfer,
        transfer_blocks_optimal: (4096 / bytes).max(1),
        memory_alignment: 1,
        deallocate_blocks: 0,
        deallocated_read: DeallocatedRead::Unknown,
        volatile_cache: true,
        read_only: host.read_only,
        atomic_blocks: 1,
        atomic_blocks_power_fail: 1,
        compare_write_blocks: 0,
    };
    let limits = Limits {
        block_size,
        transfer_blocks_max: transfer,
        write_zeroes_blocks_max: 0,
        write_zeroes_deallocates: false,
        write_zeroes_without_data: false,
        verify_blocks_max: 0,
        deallocate_blocks_max: 0,
        compare: false,
        compare_write_blocks_max: 0,
        force_unit_access: true,
        write_zeroes_force_unit_access: false,
    };
    Ok(Profile {
        identity: FileIdentity {
            fsid: attributes.fsid,
            fileid: attributes.fileid,
        },
        geometry,
        limits,
    })
}

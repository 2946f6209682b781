//! MOUNT: how a client of version 3 comes to the handle of an export, or of a directory in one.

use std::rc::Rc;

use weir_files::Kind;
use weir_nfs::mount::{PATH_BYTES_MAX, Procedure};
use weir_nfs::rpc::{Call, Reply as Head};
use weir_nfs::{FileHandle, Reader, Status, Writer};

use crate::context::{Context, Reply};
use crate::handle::{FileKey, Target};
use crate::seen::Seen;
use crate::served::{Allowed, Leads};

/// AUTH_SYS, the one flavor that is served.
const AUTH_SYS: u32 = 1;

/// A procedure of MOUNT that is being done.
pub(crate) struct Mount<'a> {
    seen: Seen,
    procedure: Procedure,
    path: &'a [u8],
    out: Writer,
}

impl<'a> Mount<'a> {
    /// The procedure that a call asks for.
    ///
    /// # Errors
    /// The answer: there is no such procedure, or the arguments are none.
    pub(crate) fn parse(
        context: &Rc<Context>,
        call: &Call<'a>,
        mut reader: Reader<'a>,
    ) -> Result<Self, Head> {
        let procedure = Procedure::from_value(call.procedure);
        let path = match procedure {
            Procedure::Mnt | Procedure::Umnt => {
                let path = reader.opaque(PATH_BYTES_MAX);
                path.map_err(|_| Head::GarbageArguments)?
            }
            Procedure::Other(_) => return Err(Head::ProcedureUnavailable),
            _ => &[],
        };
        let mut out = Writer::new();
        Head::Success.write(call.xid, &mut out);
        Ok(Mount {
            seen: Seen::new(context),
            procedure,
            path,
            out,
        })
    }

    pub(crate) fn into_reply(self) -> Reply {
        Reply {
            bytes: self.out.into_bytes(),
            ..Reply::default()
        }
    }

    pub(crate) async fn run(&mut self) {
        match self.procedure {
            Procedure::Mnt => match self.handle().await {
                Ok(handle) => {
                    tracing::info!(
                        path = ?String::from_utf8_lossy(self.path), peer = %self.seen.context.peer,
                        "a client of NFS version 3 mounts"
                    );
                    self.out.u32(Status::Ok.value());
                    self.out.opaque(handle.bytes());
                    self.out.u32(1);
                    self.out.u32(AUTH_SYS);
                }
                Err(status) => self.out.u32(told(status).value()),
            },
            Procedure::Export => self.list(),
            // Nobody keeps a list of what is mounted: clients do not say when they are gone.
            Procedure::Dump => self.out.bool(false),
            Procedure::Null | Procedure::Umnt | Procedure::Umntall | Procedure::Other(_) => {}
        }
    }

    /// The handle of the path.
    async fn handle(&self) -> Result<FileHandle, Status> {
        let names = self.path.split(|&byte| byte == b'/');
        let mut names = names.filter(|name| !matches!(*name, [] | [b'.']));
        let mut place = self.seen.snapshot.place(0).ok_or(Status::Noent)?;
        let mut key = loop {
            let name = names.next().ok_or(Status::Noent)?;
            let name = std::str::from_utf8(name).map_err(|_| Status::Noent)?;
            let leads = *place.children.get(name).ok_or(Status::Noent)?;
            if !self.seen.is_seen(leads) {
                return Err(Status::Access);
            }
            match leads {
                Leads::Place(number) => {
                    place = self.seen.snapshot.place(number).ok_or(Status::Noent)?;
                }
                Leads::Export(number) => break self.seen.root_of(number).await?,
            }
        };
        for name in names {
            let found = self.seen.look_up(&key, name).await?;
            if found.attributes.kind != Kind::Directory {
                return Err(Status::Notdir);
            }
            key = FileKey {
                id: found.id,
                ..key
            };
        }
        Ok(self.seen.shared().key.handle(&Target::File(key)))
    }

    /// Writes the exports that the client may use, each with those who may.
    fn list(&mut self) {
        let peer = self.seen.context.peer.ip();
        for export in self.seen.snapshot.exports() {
            if !export.allowed.has(peer) {
                continue;
            }
            self.out.bool(true);
            self.out.opaque(format!("/{}", export.path).as_bytes());
            if let Allowed::These(networks) = &export.allowed {
                for network in networks {
                    let text = format!("{}/{}", network.address, network.prefix);
                    self.out.bool(true);
                    self.out.opaque(text.as_bytes());
                }
            }
            self.out.bool(false);
        }
        self.out.bool(false);
    }
}

/// The status that is told (mountstat3): there is none that says to try again.
fn told(status: Status) -> Status {
    match status.of_v3() {
        Status::Delay | Status::Stale => Status::Io,
        status => status,
    }
}

//! Calls of all versions, from their records to their replies.
//!
//! A call is a task of its own on its connection's reactor: data goes by the ring, what blocks goes to other threads. It goes on when its
//! connection is lost, so that what is kept of it is there when its client asks again.

use std::rc::Rc;

use weir_memory::{Segment, View};
use weir_nfs::rpc::{Call, CallError, Credential, NFS_PROGRAM, RPC_VERSION, Reply as Head};
use weir_nfs::{Reader, Writer, mount, v3};

use crate::compound::{self, Compound};
use crate::context::{Context, Reply};
use crate::state::Principal;
use crate::v3::{Mount, Procedures};

/// Bytes of a call's header before its credential.
const CALL_BYTES_MIN: usize = 24;
/// The procedure of each program that does nothing.
const NULL: u32 = 0;

/// The lengths of the buffers that a record's calls to READ need, at most `max` each.
///
/// # Errors
/// It is no call that could be answered: the connection ends.
pub(crate) fn lengths_to_read(record: &[u8], max: u32) -> Result<Vec<u32>, CallError> {
    let mut lengths = Vec::new();
    let mut reader = Reader::new(record);
    let call = match Call::parse(&mut reader) {
        // Its credential may be longer than the whole: that is answered.
        Err(CallError::Header(_)) if record.len() >= CALL_BYTES_MIN => return Ok(lengths),
        parsed => parsed?,
    };
    // What is not whole is answered when its turn comes.
    match (call.program, call.version, call.procedure) {
        (NFS_PROGRAM, compound::VERSION, compound::COMPOUND) => {
            let found = |count: u32| lengths.push(count.clamp(1, max));
            let _ = compound::find_reads(&mut reader, found);
        }
        (NFS_PROGRAM, v3::VERSION, procedure) => {
            let procedure = v3::Procedure::from_value(procedure);
            if procedure == v3::Procedure::Read
                && let Ok(Some(v3::Arguments::Read { count, .. })) =
                    v3::Arguments::parse(procedure, &mut reader)
            {
                lengths.push(count.clamp(1, max));
            }
        }
        _ => {}
    }
    // All that a reply may have, and no more.
    let mut left = max;
    lengths.retain_mut(|length| {
        *length = (*length).min(left);
        left -= *length;
        *length > 0
    });
    Ok(lengths)
}

/// A call whose reply is awaited. Where it is dropped without one its connection ends.
struct Awaited {
    context: Rc<Context>,
    is_answered: bool,
}

impl Drop for Awaited {
    fn drop(&mut self) {
        if !self.is_answered {
            self.context.outbox.break_off();
        }
    }
}

/// Does a call, and hands its reply to the connection. `taken` is what was taken of the connection's room for it. A panic in it is the
/// connection's end, and nobody else's.
pub(crate) async fn serve(context: Rc<Context>, record: View, segments: Vec<Segment>, taken: u64) {
    let mut awaited = Awaited {
        context,
        is_answered: false,
    };
    let mut reply = call(&awaited.context, &record, segments).await;
    reply.taken = taken;
    awaited.is_answered = true;
    awaited.context.outbox.push(reply);
}

fn head(xid: u32, head: Head) -> Reply {
    let mut writer = Writer::new();
    head.write(xid, &mut writer);
    Reply {
        bytes: writer.into_bytes(),
        ..Reply::default()
    }
}

/// A call whose header was read.
enum Begun<'a> {
    /// There is no more to it.
    Answered(Reply),
    /// A COMPOUND and its tag.
    Compound(Compound<'a>, &'a [u8]),
    /// A procedure of version 3.
    V3(Procedures<'a>),
    /// One of MOUNT.
    Mount(Mount<'a>),
}

async fn call(context: &Rc<Context>, record: &View, segments: Vec<Segment>) -> Reply {
    // It stays where it is while it is done: what is moved takes memory of the call twice.
    let mut begun = begin(context, record, segments);
    match &mut begun {
        Begun::Answered(_) => {}
        Begun::Compound(compound, tag) => compound.run(tag).await,
        Begun::V3(procedures) => procedures.run().await,
        Begun::Mount(mount) => Box::pin(mount.run()).await,
    }
    match begun {
        Begun::Answered(reply) => reply,
        Begun::Compound(compound, _) => compound.into_reply(),
        Begun::V3(procedures) => procedures.into_reply(),
        Begun::Mount(mount) => mount.into_reply(),
    }
}

fn begin<'a>(context: &Rc<Context>, record: &'a View, segments: Vec<Segment>) -> Begun<'a> {
    let mut reader = Reader::new(record);
    let Ok(call) = Call::parse(&mut reader) else {
        let xid = Reader::new(record).u32().unwrap_or_default();
        return Begun::Answered(head(xid, Head::BadCredential));
    };
    let refused = match (call.program, call.version, call.procedure) {
        _ if call.rpc_version != RPC_VERSION => Some(Head::RpcMismatch),
        (NFS_PROGRAM, v3::VERSION | compound::VERSION, NULL)
        | (mount::PROGRAM, mount::VERSION, NULL) => Some(Head::Success),
        (NFS_PROGRAM, compound::VERSION, compound::COMPOUND)
        | (NFS_PROGRAM, v3::VERSION, _)
        | (mount::PROGRAM, mount::VERSION, _) => None,
        (NFS_PROGRAM, compound::VERSION, _) => Some(Head::ProcedureUnavailable),
        (NFS_PROGRAM, ..) => Some(Head::ProgramMismatch(v3::VERSION, compound::VERSION)),
        (mount::PROGRAM, ..) => Some(Head::ProgramMismatch(mount::VERSION, mount::VERSION)),
        _ => Some(Head::ProgramUnavailable),
    };
    if let Some(refused) = refused {
        return Begun::Answered(head(call.xid, refused));
    }
    let principal = match &call.credential {
        Credential::None => Principal(None),
        Credential::Sys(sys) => Principal(Some(sys.uid)),
        Credential::Other(_) => return Begun::Answered(head(call.xid, Head::TooWeak)),
    };
    let begun = match (call.program, call.version) {
        (NFS_PROGRAM, compound::VERSION) => {
            Compound::parse(context, &call, principal, record, reader, segments)
                .map(|(compound, tag)| Begun::Compound(compound, tag))
                .map_err(|_| Head::GarbageArguments)
        }
        (NFS_PROGRAM, _) => {
            Procedures::parse(context, &call, record, reader, segments).map(Begun::V3)
        }
        _ => Mount::parse(context, &call, reader).map(Begun::Mount),
    };
    begun.unwrap_or_else(|refused| Begun::Answered(head(call.xid, refused)))
}

//! Version 4: makes a session or takes one up, settles what connections before left, and opens the file.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use weir_initiator::{Remote, within};
use weir_nfs::attribute::AttributeChanges;
use weir_nfs::types::ChannelAttributes;
use weir_nfs::{FileHandle, OperationNumber as Number, SessionId, StateId, Status};

use crate::arguments::{Arguments, Which};
use crate::asking::{
    Asking, Begun, ConnectError, File, HEAD_BYTES, Identity, MODE, NOT_SERVED, Session,
    TRANSFER_BYTES, Way, explain,
};
use crate::channel::Share;
use crate::options::Options;
use crate::results::{ATTRIBUTES, Attributes, Failure, Results};
use crate::slots::{KEEPER_SLOTS, Slot};

/// For how long the end of a session that came to nothing is waited for.
const FORGET_TIMEOUT: Duration = Duration::from_secs(1);
/// Slots that are asked for at most.
const SLOTS_MAX: u32 = 1024;

/// Ends the session of a file that was never open, as far as the server answers.
pub(crate) async fn forget(asking: &Asking, host: &Identity) {
    let session = {
        let mut lasting = host.lasting();
        match lasting.handle {
            None => lasting.session.take(),
            Some(_) => None,
        }
    };
    if let Some(session) = session {
        let ended = within(
            &asking.caller.reactor,
            FORGET_TIMEOUT,
            end_client(asking, &session),
        );
        tracing::debug!(result = ?ended.await, "ended the session");
    }
}

/// Ends a session and its client.
pub(crate) async fn end_client(asking: &Asking, session: &Session) -> Result<(), ConnectError> {
    end_session(asking, session.made.id).await?;
    let arguments = Arguments::default().destroy_client(session.client);
    asking
        .alone("DESTROY_CLIENTID", &arguments, |results| {
            results.next(Number::DestroyClientid)
        })
        .await
}

pub(crate) async fn begin(asking: &Asking, remote: &File) -> Result<Begun, ConnectError> {
    let Remote { options, host, .. } = remote;
    let before = host.lasting().session;
    let mut is_new = match before {
        Some(session) => !take_up(asking, host, &session).await?,
        None => true,
    };
    if host.revoked.swap(false, Ordering::Relaxed) {
        // Another run of the client has none of what was revoked.
        let mut lasting = host.lasting();
        lasting.verifier = lasting.verifier.wrapping_add(1);
        is_new = true;
    }
    let session = match before {
        Some(session) if !is_new => session,
        _ => make_session(asking, options, host).await?,
    };
    let share = share(host, &session, 0..KEEPER_SLOTS);
    asking
        .caller
        .connection
        .with(|channel| channel.take_share(share));
    let (file, attributes) = open(asking, options, host, &session, is_new).await?;
    Ok(Begun {
        way: Way::Session(session),
        file,
        attributes,
    })
}

/// The share of a session that a connection with these slots has.
pub(crate) fn share(host: &Identity, session: &Session, slots: std::ops::Range<u32>) -> Share {
    Share {
        table: Arc::clone(&host.table),
        session: session.made.id,
        highest: session.made.slots - 1,
        slots,
    }
}

/// Takes a session up again, and settles what its connections left behind. False where the server does not know it any more.
async fn take_up(
    asking: &Asking,
    host: &Identity,
    session: &Session,
) -> Result<bool, ConnectError> {
    use Status::{Badsession, Deadsession, StaleClientid};
    if let Err(error) = bind(asking, session.made.id).await {
        let ConnectError::Operation(failure) = &error else {
            return Err(error);
        };
        return match failure.status() {
            Some(Badsession | Deadsession | StaleClientid) => Ok(false),
            // It may be there, and then what it has under way must end with it.
            Some(_) => end_session(asking, session.made.id).await.map(|()| false),
            None => Err(error),
        };
    }
    let slots = host.table.get(session.made.id, 0, session.made.slots);
    for (number, slot) in (0..).zip(slots) {
        if slot.is_uncertain && !settle(asking, host, session, number, slot).await? {
            end_session(asking, session.made.id).await?;
            return Ok(false);
        }
    }
    Ok(true)
}

/// Ends a session, and with it all that it had under way.
async fn end_session(asking: &Asking, session: SessionId) -> Result<(), ConnectError> {
    let arguments = Arguments::default().destroy_session(session);
    asking
        .alone("DESTROY_SESSION", &arguments, |results| {
            results.next(Number::DestroySession)
        })
        .await
}

/// Binds the connection to a session.
pub(crate) async fn bind(asking: &Asking, session: SessionId) -> Result<(), ConnectError> {
    let arguments = Arguments::default().bind(session);
    asking
        .alone("BIND_CONN_TO_SESSION", &arguments, |results| {
            results.next(Number::BindConnToSession)
        })
        .await
}

/// Sends a request with the sequence ID of one that was not answered. Where that one came, it has ended when this is answered; where it
/// did not, it is none any more. False where the slot cannot be used.
async fn settle(
    asking: &Asking,
    host: &Identity,
    session: &Session,
    number: u32,
    mut slot: Slot,
) -> Result<bool, ConnectError> {
    let made = &session.made;
    let arguments = Arguments::default().sequence(made.id, slot.sequence, number, made.slots - 1);
    let settled = asking.alone("SEQUENCE", &arguments, |results| {
        results.sequence().map(drop)
    });
    let status = match settled.await {
        Ok(()) => Status::Ok,
        Err(ConnectError::Operation(failure)) => match failure.status() {
            Some(status) => status,
            None => return Err(failure.into()),
        },
        Err(error) => return Err(error),
    };
    match status {
        Status::Ok | Status::SeqFalseRetry | Status::RetryUncachedRep => {
            slot.advance();
            host.table.put(made.id, number, &[slot]);
            Ok(true)
        }
        Status::Delay => Err(Failure::Status {
            operation: Number::Sequence.into(),
            status,
        }
        .into()),
        _ => Ok(false),
    }
}

async fn make_session(
    asking: &Asking,
    options: &Options,
    host: &Identity,
) -> Result<Session, ConnectError> {
    let verifier = host.lasting().verifier.to_be_bytes();
    let introduced = Arguments::default().exchange_id(verifier, &host.owner);
    let client = asking.alone("EXCHANGE_ID", &introduced, |results| results.client());
    let (client, sequence) = client.await.map_err(|error| match &error {
        ConnectError::Operation(failure) if failure.status() == Some(Status::MinorVersMismatch) => {
            ConnectError::Version {
                version: options.version,
            }
        }
        ConnectError::Refused(NOT_SERVED) => ConnectError::Version {
            version: options.version,
        },
        _ => error,
    })?;
    let fore = ChannelAttributes {
        header_pad: 0,
        request_bytes_max: TRANSFER_BYTES + HEAD_BYTES,
        reply_bytes_max: TRANSFER_BYTES + HEAD_BYTES,
        kept_reply_bytes_max: HEAD_BYTES,
        operations_max: 64,
        slots: SLOTS_MAX,
    };
    let back = ChannelAttributes {
        request_bytes_max: 4096,
        reply_bytes_max: 4096,
        operations_max: 2,
        slots: 1,
        ..fore
    };
    let arguments = Arguments::default().create_session(client, sequence, &fore, &back);
    let made = asking
        .alone("CREATE_SESSION", &arguments, |results| results.session())
        .await?;
    let bytes = made.request_bytes_max.min(made.reply_bytes_max);
    if made.slots <= KEEPER_SLOTS || bytes < 8 * HEAD_BYTES {
        let slots = made.slots;
        return Err(ConnectError::TooLittle { slots, bytes });
    }
    let session = Session { made, client };
    host.table.begin(made.id, made.slots);
    host.lasting().session = Some(session);
    Ok(session)
}

/// Opens the file: the one that was open before, if any.
async fn open(
    asking: &Asking,
    options: &Options,
    host: &Identity,
    session: &Session,
    is_new: bool,
) -> Result<((FileHandle, StateId), Attributes), ConnectError> {
    let handle = host.lasting().handle;
    let (client, read_only) = (session.client, host.read_only);
    let explain = |failure| explain(failure, options, host);
    let again = |handle: &FileHandle, which| {
        let put = Arguments::default().put(handle);
        put.open(client, read_only, which, None)
            .get()
            .attributes(&ATTRIBUTES)
    };
    let mut reclaimed = None;
    if let (true, Some(handle)) = (is_new, handle) {
        let arguments = again(&handle, Which::Previous);
        reclaimed = asking.call("OPEN", &arguments, opened_of_handle).await.ok();
    }
    if is_new {
        let arguments = Arguments::default().reclaim_complete();
        let complete = |results: &mut Results<'_>| results.next(Number::ReclaimComplete);
        match asking.call("RECLAIM_COMPLETE", &arguments, complete).await {
            Err(ConnectError::Operation(failure))
                if failure.status() == Some(Status::CompleteAlready) => {}
            other => other?,
        }
    }
    if let Some(found) = reclaimed {
        return Ok(found);
    }
    if let Some(handle) = handle {
        let arguments = again(&handle, Which::Current);
        let found = asking.call("OPEN", &arguments, opened_of_handle).await;
        return found.map_err(explain);
    }
    open_by_name(asking, options, host, session).await
}

async fn open_by_name(
    asking: &Asking,
    options: &Options,
    host: &Identity,
    session: &Session,
) -> Result<((FileHandle, StateId), Attributes), ConnectError> {
    let (name, directories) = options.path.split_last().expect("a path has a name");
    // One after the other, so that an error can say which of them is not there.
    let to_directory = |count: usize| {
        let root = Arguments::default().root();
        let names = directories[..count].iter();
        names.fold(root, |arguments, name| arguments.lookup(name.as_bytes()))
    };
    for count in 1..=directories.len() {
        let found = asking
            .call("LOOKUP", &to_directory(count), |results| to(results, count))
            .await;
        found.map_err(|error| match &error {
            ConnectError::Operation(failure) => match failure.status() {
                Some(status) => ConnectError::NoDirectory {
                    path: format!("/{}", directories[..count].join("/")),
                    status,
                },
                None => error,
            },
            _ => error,
        })?;
    }
    let explain = |error| explain(error, options, host);
    let (client, read_only) = (session.client, host.read_only);
    let count = directories.len();
    let which = Which::Named(name.as_bytes());
    let by_name = |create: Option<&AttributeChanges>| {
        let opened = to_directory(count).open(client, read_only, which, create);
        opened.get().attributes(&ATTRIBUTES)
    };
    let opened = |results: &mut Results<'_>| {
        to(results, count)?;
        opened(results)
    };
    let found = asking.call("OPEN", &by_name(None), opened).await;
    let is_missing = |error: &ConnectError| {
        let ConnectError::Operation(failure) = error else {
            return false;
        };
        failure.status() == Some(Status::Noent)
    };
    match (found, options.size) {
        (Err(error), Some(size)) if is_missing(&error) && !read_only => {
            let changes = AttributeChanges {
                size: Some(size),
                mode: Some(MODE),
                ..AttributeChanges::default()
            };
            let made = asking.call("OPEN", &by_name(Some(&changes)), opened).await;
            let (file, mut attributes) = made.map_err(explain)?;
            if attributes.size != size {
                attributes = set_size(asking, &file, size).await?;
            }
            tracing::info!(path = options.path_text(), size, "made the file");
            Ok((file, attributes))
        }
        (found, _) => found.map_err(explain),
    }
}

/// Sets the size of a file that the server made without heeding it.
async fn set_size(
    asking: &Asking,
    file: &(FileHandle, StateId),
    size: u64,
) -> Result<Attributes, ConnectError> {
    let changes = AttributeChanges {
        size: Some(size),
        ..AttributeChanges::default()
    };
    let arguments = Arguments::default().put(&file.0).change(&file.1, &changes);
    let arguments = arguments.attributes(&ATTRIBUTES);
    asking
        .call("SETATTR", &arguments, |results| {
            results.next(Number::Putfh)?;
            results.next(Number::Setattr)?;
            results.read(Number::Setattr, weir_nfs::Bitmap::parse)?;
            results.attributes()
        })
        .await
}

/// Reads the results of a way from the root through `count` directories.
fn to(results: &mut Results<'_>, count: usize) -> Result<(), Failure> {
    results.next(Number::Putrootfh)?;
    (0..count).try_for_each(|_| results.next(Number::Lookup))
}

fn opened(results: &mut Results<'_>) -> Result<((FileHandle, StateId), Attributes), Failure> {
    let stateid = results.open()?;
    let handle = results.handle()?;
    let attributes = results.attributes()?;
    // The newest of the open, whatever else is opened by the same owner.
    let stateid = StateId {
        seqid: 0,
        ..stateid
    };
    Ok(((handle, stateid), attributes))
}

fn opened_of_handle(
    results: &mut Results<'_>,
) -> Result<((FileHandle, StateId), Attributes), Failure> {
    results.next(Number::Putfh)?;
    opened(results)
}

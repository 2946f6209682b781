//! A call of version 3 (RFC 1813): one procedure. There is no state: what is done twice by mistake is known by [`crate::replies`].

mod directories;
mod mount;
mod names;

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use weir_files::{Attributes, Changes, FileError, Time};
use weir_memory::{Segment, Segments, View};
use weir_nfs::attribute::{self, AttributeChanges};
use weir_nfs::rpc::{Call, Reply as Head};
use weir_nfs::types::share;
use weir_nfs::v3::{self, Arguments, Procedure};
use weir_nfs::xdr::padded;
use weir_nfs::{FileHandle, Reader, Status, Writer};

use crate::actions::{Changed, can_have, filled, status_of_io};
use crate::compound::attributes::{FILE_BYTES_MAX, LINKS_MAX, changes_of, type_of};
use crate::context::{Context, Data, Reply};
use crate::handle::{FileKey, Target};
use crate::replies::{Before, CallKey, Ticket};
use crate::seen::Seen;

pub(crate) use mount::Mount;

/// Bytes of most replies beside data.
const REPLY_BYTES: usize = 256;
/// Properties of file systems (FSINFO): hard and symbolic links, the same everywhere, times that can be set.
const PROPERTIES: u32 = 0x01 | 0x02 | 0x08 | 0x10;
/// Bytes that a listing has best.
const LISTING_BYTES: u32 = 64 << 10;
/// Time after which it is looked again whether a call that came once more has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// A procedure that is being done.
pub(crate) struct Procedures<'a> {
    seen: Seen,
    record: &'a View,
    reader: Reader<'a>,
    xid: u32,
    procedure: Procedure,
    out: Writer,
    data: Vec<(usize, View)>,
    /// Buffers for reading.
    segments: VecDeque<Segment>,
}

/// A procedure whose arguments were read.
enum Step<'a> {
    Read {
        key: FileKey,
        offset: u64,
        count: u32,
    },
    Write {
        key: FileKey,
        offset: u64,
        stable: u32,
        data: Range<usize>,
    },
    Other(Box<Arguments<'a>>),
}

/// Parts of a file's attributes by which a client sees whether others changed it (wcc_attr).
#[derive(Clone, Copy)]
struct Weak {
    size: u64,
    modified: Time,
    changed: Time,
}

impl From<&Attributes> for Weak {
    fn from(attributes: &Attributes) -> Self {
        Weak {
            size: attributes.size,
            modified: attributes.modified,
            changed: attributes.changed,
        }
    }
}

fn wire_time(time: Time) -> attribute::Time {
    attribute::Time {
        seconds: time.seconds,
        nanoseconds: time.nanoseconds,
    }
}

/// The changes that a client asks for.
fn changes(asked: AttributeChanges) -> Result<Changes, Status> {
    let asked = AttributeChanges {
        // Some put the kind of file there, too.
        mode: asked.mode.map(|mode| mode & 0o7777),
        ..asked
    };
    changes_of(Ok(asked)).map(|(changes, _)| changes)
}

impl<'a> Procedures<'a> {
    /// The procedure that a call asks for.
    ///
    /// # Errors
    /// The answer: there is no such procedure.
    pub(crate) fn parse(
        context: &Rc<Context>,
        call: &Call<'a>,
        record: &'a View,
        reader: Reader<'a>,
        segments: Vec<Segment>,
    ) -> Result<Self, Head> {
        let procedure = Procedure::from_value(call.procedure);
        if matches!(procedure, Procedure::Other(_)) {
            return Err(Head::ProcedureUnavailable);
        }
        Ok(Procedures {
            seen: Seen::new(context),
            record,
            reader,
            xid: call.xid,
            procedure,
            out: Writer::with_capacity(REPLY_BYTES),
            data: Vec::new(),
            segments: segments.into(),
        })
    }

    pub(crate) fn into_reply(self) -> Reply {
        Reply {
            bytes: self.out.into_bytes(),
            data: self.data,
            taken: 0,
        }
    }

    pub(crate) async fn run(&mut self) {
        match self.procedure.is_idempotent() {
            true => {
                self.answer().await;
            }
            false => Box::pin(self.once()).await,
        }
    }

    /// Does the procedure, unless its call came before: then the answer is the one that there was.
    async fn once(&mut self) {
        let key = CallKey {
            peer: self.seen.context.peer,
            xid: self.xid,
            procedure: self.procedure.value(),
            sum: self.seen.shared().key.sum(self.record),
        };
        let ticket: Ticket = loop {
            match self.seen.shared().replies.begin(&key) {
                Before::Nothing(ticket) => break ticket,
                Before::Reply(reply) => return self.out.raw(&reply),
                Before::UnderWay => self.seen.reactor().sleep(LOOK_AGAIN).await,
            }
        };
        // A client may ask again by the same number where it was told to: nothing was done then.
        if self.answer().await != Status::Delay {
            ticket.answered(self.out.bytes());
        }
    }

    /// Does the procedure and writes the answer, whose status is what is returned.
    async fn answer(&mut self) -> Status {
        let step = match Arguments::parse(self.procedure, &mut self.reader) {
            Ok(Some(arguments)) => self.step(arguments),
            Ok(None) | Err(_) => {
                Head::GarbageArguments.write(self.xid, &mut self.out);
                return Status::Ok;
            }
        };
        Head::Success.write(self.xid, &mut self.out);
        let start = self.out.len();
        self.out.u32(Status::Ok.value());
        let done = match step {
            Err(status) => Err(status),
            Ok(Step::Read { key, offset, count }) => self.read(key, offset, count).await,
            Ok(Step::Write {
                key,
                offset,
                stable,
                data,
            }) => Box::pin(self.write(key, offset, stable, data)).await,
            Ok(Step::Other(arguments)) => Box::pin(self.other(*arguments)).await,
        };
        let Err(status) = done else { return Status::Ok };
        self.fail(start, status.of_v3());
        status.of_v3()
    }

    /// Says that it failed, from the byte of the status on, which is one of this version.
    fn fail(&mut self, start: usize, status: Status) {
        self.data.clear();
        self.out.truncate(start);
        self.out.u32(status.value());
        (0..self.procedure.words_of_failure()).for_each(|_| self.out.u32(0));
    }

    fn step(&self, arguments: Arguments<'a>) -> Result<Step<'a>, Status> {
        Ok(match arguments {
            Arguments::Read {
                file,
                offset,
                count,
            } => Step::Read {
                key: self.key(file)?,
                offset,
                count,
            },
            Arguments::Write {
                file,
                offset,
                stable,
                data,
            } => Step::Write {
                key: self.key(file)?,
                offset,
                stable,
                data,
            },
            other => Step::Other(Box::new(other)),
        })
    }

    /// Does one of the procedures that have memory of their own: a call that only reads or writes would take theirs, too.
    async fn other(&mut self, arguments: Arguments<'a>) -> Result<(), Status> {
        match arguments {
            Arguments::File(file) => {
                let key = self.key(file)?;
                match self.procedure {
                    Procedure::Getattr => self.get_attributes(&key).await,
                    Procedure::Readlink => self.read_link(&key).await,
                    Procedure::Fsstat => self.space(&key).await,
                    Procedure::Fsinfo => self.information(&key).await,
                    _ => self.limits(&key).await,
                }
            }
            Arguments::Setattr {
                file,
                changes,
                guard,
            } => self.set_attributes(self.key(file)?, changes, guard).await,
            Arguments::Place(place) => match self.procedure {
                Procedure::Lookup => self.look_up(&place).await,
                _ => self.remove(&place).await,
            },
            Arguments::Access { file, access } => self.access(&self.key(file)?, access).await,
            Arguments::Create { place, how } => self.create(&place, how).await,
            Arguments::Make {
                place,
                kind,
                link,
                changes,
            } => self.make(&place, kind, link, changes).await,
            Arguments::Rename { from, to } => self.rename(&from, &to).await,
            Arguments::Link { file, place } => self.link(self.key(file)?, &place).await,
            Arguments::Readdir {
                directory,
                cookie,
                names_bytes_max,
                bytes_max,
                ..
            } => {
                let key = self.key(directory)?;
                self.list(&key, cookie, names_bytes_max, bytes_max).await
            }
            Arguments::Commit { file, .. } => self.commit(&self.key(file)?).await,
            Arguments::Null | Arguments::Read { .. } | Arguments::Write { .. } => {
                unreachable!("it is done without memory of its own")
            }
        }
    }

    /// The file of a handle. What leads to exports is not seen in this version.
    fn key(&self, handle: Option<FileHandle>) -> Result<FileKey, Status> {
        match self.seen.target(handle.as_ref())? {
            Target::File(key) => Ok(key),
            Target::Place(_) => Err(Status::Badhandle),
        }
    }

    fn handle(&self, key: &FileKey) -> FileHandle {
        self.seen.shared().key.handle(&Target::File(*key))
    }

    /// Writes attributes of a file (fattr3).
    fn write_attributes(&mut self, key: &FileKey, attributes: &Attributes) {
        let fsid = self.seen.snapshot.export(key.export).map(|one| one.fsid);
        let fsid = fsid.unwrap_or_default();
        let told = v3::Attributes {
            kind: type_of(attributes.kind),
            mode: attributes.mode,
            links: attributes.links,
            owner: attributes.owner,
            group: attributes.group,
            size: attributes.size,
            used: attributes.used,
            device: attributes.device,
            fsid: fsid.0 ^ fsid.1,
            number: attributes.number,
            accessed: wire_time(attributes.accessed),
            modified: wire_time(attributes.modified),
            changed: wire_time(attributes.changed),
        };
        told.write(&mut self.out);
    }

    /// Writes attributes where they are known (post_op_attr).
    fn tell(&mut self, key: &FileKey, attributes: Option<&Attributes>) {
        self.out.bool(attributes.is_some());
        if let Some(attributes) = attributes {
            self.write_attributes(key, attributes);
        }
    }

    /// Writes what a file was like before and after (wcc_data).
    fn tell_change(&mut self, key: &FileKey, before: Option<Weak>, after: Option<&Attributes>) {
        self.out.bool(before.is_some());
        if let Some(before) = before {
            self.out.u64(before.size);
            v3::write_time(wire_time(before.modified), &mut self.out);
            v3::write_time(wire_time(before.changed), &mut self.out);
        }
        self.tell(key, after);
    }

    fn tell_changed(&mut self, key: &FileKey, changed: &Changed) {
        self.tell_change(key, Some(Weak::from(&changed.before)), Some(&changed.after));
    }

    async fn attributes(&self, key: &FileKey) -> Result<Attributes, Status> {
        let (export, id) = (self.seen.export(key)?, key.id);
        self.seen
            .on(export, move |files| files.attributes(&id))
            .await
    }

    async fn get_attributes(&mut self, key: &FileKey) -> Result<(), Status> {
        let attributes = self.attributes(key).await?;
        self.write_attributes(key, &attributes);
        Ok(())
    }

    async fn set_attributes(
        &mut self,
        key: FileKey,
        asked: AttributeChanges,
        guard: Option<attribute::Time>,
    ) -> Result<(), Status> {
        let export = self.seen.export_to_change(&key)?;
        let changes = changes(asked)?;
        if changes.size.is_some() {
            let state = &self.seen.shared().state;
            state.check_unowned(&key, share::WRITE, self.seen.now())?;
        }
        let set = self.seen.on(export, move |files| {
            let before = files.attributes(&key.id)?;
            let is_guarded =
                guard.is_some_and(|guard| guard != v3::told(wire_time(before.changed)));
            if is_guarded {
                return Ok(None);
            }
            files.set(&key.id, &changes)?;
            Ok(Some((before, files.attributes(&key.id)?)))
        });
        let (before, after) = set.await?.ok_or(Status::NotSync)?;
        self.tell_change(&key, Some(Weak::from(&before)), Some(&after));
        Ok(())
    }

    async fn access(&mut self, key: &FileKey, asked: u32) -> Result<(), Status> {
        let (_, granted, attributes) = self.seen.rights(key).await?;
        self.tell(key, Some(&attributes));
        self.out.u32(asked & granted);
        Ok(())
    }

    async fn read_link(&mut self, key: &FileKey) -> Result<(), Status> {
        let (export, id) = (self.seen.export(key)?, key.id);
        let read = self.seen.on(export, move |files| {
            Ok((files.read_link(&id)?, files.attributes(&id)?))
        });
        let (text, attributes) = read.await?;
        self.tell(key, Some(&attributes));
        self.out.opaque(&text);
        Ok(())
    }

    /// Attributes of an open file; none in a simulation. A file that was removed is gone, whoever has it open.
    fn status(&self, key: &FileKey, data: &Data) -> Result<Option<Attributes>, Status> {
        let Data::File(file) = data else {
            return Ok(Some(self.seen.blocks(key)?.attributes()));
        };
        match file.status() {
            Ok(stat) if stat.st_nlink == 0 => {
                self.seen.context.files.borrow_mut().forget(key);
                Err(Status::Stale)
            }
            Ok(stat) => Ok(Some(Attributes::from(&stat))),
            Err(error) if error.kind() == std::io::ErrorKind::Unsupported => Ok(None),
            Err(error) => Err(status_of_io(error)),
        }
    }

    async fn read(&mut self, key: FileKey, offset: u64, count: u32) -> Result<(), Status> {
        self.seen.export(&key)?;
        let state = &self.seen.shared().state;
        state.check_unowned(&key, share::READ, self.seen.now())?;
        let data = self.seen.opened(&key, false).await?;
        let Data::File(file) = &data else {
            return Box::pin(self.read_volume(&key, offset, count)).await;
        };
        let segment = self.segments.pop_front();
        let segment = segment.filter(|segment| count > 0 && can_have(offset, segment.len()));
        let mut read = None;
        if let Some(segment) = segment {
            let mut into = Segments::new();
            into.push(segment);
            let done = file.read(self.seen.reactor(), offset, into).await;
            read = Some(filled(done)?);
        }
        let attributes = self.status(&key, &data)?;
        let length = match &attributes {
            Some(attributes) => attributes.size,
            None => file.length().map_err(status_of_io)?,
        };
        let read = read.map(Segment::freeze);
        self.answer_read(&key, attributes.as_ref(), (offset, length), read);
        Ok(())
    }

    async fn read_volume(&mut self, key: &FileKey, offset: u64, count: u32) -> Result<(), Status> {
        let mut blocks = self.seen.blocks(key)?;
        // The volume lends memory, or takes as much itself.
        let segment = self.segments.pop_front();
        let count = segment.map_or(0, |segment| segment.len().min(count as usize));
        let read = blocks.read(&self.seen, offset, count).await?;
        self.seen.context.answered(blocks.course);
        let attributes = blocks.attributes();
        let place = (offset, attributes.size);
        self.answer_read(key, Some(&attributes), place, read.data);
        Ok(())
    }

    /// Answers with what was read of a file of this length from `offset` on.
    fn answer_read(
        &mut self,
        key: &FileKey,
        attributes: Option<&Attributes>,
        (offset, length): (u64, u64),
        data: impl IntoIterator<Item = View>,
    ) {
        self.tell(key, attributes);
        let start = self.out.len();
        (0..3).for_each(|_| self.out.u32(0));
        let (at, mut bytes) = (self.out.len(), 0);
        for view in data.into_iter().filter(|view| !view.is_empty()) {
            bytes += view.len();
            self.data.push((at, view));
        }
        let is_end = offset.saturating_add(bytes as u64) >= length;
        self.out.u32_at(start, bytes as u32);
        self.out.u32_at(start + 4, is_end.into());
        self.out.u32_at(start + 8, bytes as u32);
        self.out.raw(&[0; 3][..padded(bytes) - bytes]);
        self.seen.count(key, |counters| {
            counters.reads.add(1);
            counters.bytes_read.add(bytes as u64);
        });
    }

    async fn write(
        &mut self,
        key: FileKey,
        offset: u64,
        how: u32,
        data: Range<usize>,
    ) -> Result<(), Status> {
        self.seen.export_to_change(&key)?;
        let state = &self.seen.shared().state;
        state.check_unowned(&key, share::WRITE, self.seen.now())?;
        let file = self.seen.opened(&key, true).await?;
        let before = self.status(&key, &file)?.map(|now| Weak::from(&now));
        let data = self.record.slice(data);
        let written = self.seen.write(&key, &file, offset, how, data);
        let (count, verifier) = written.await?;
        let after = self.status(&key, &file)?;
        self.tell_change(&key, before, after.as_ref());
        self.out.u32(count);
        self.out.u32(how);
        self.out.fixed(&verifier.to_be_bytes());
        Ok(())
    }

    async fn commit(&mut self, key: &FileKey) -> Result<(), Status> {
        let file = self.seen.opened(key, false).await?;
        let before = self.status(key, &file)?.map(|now| Weak::from(&now));
        let verifier = self.seen.commit(key).await?;
        let after = self.status(key, &file)?;
        self.tell_change(key, before, after.as_ref());
        self.out.fixed(&verifier.to_be_bytes());
        Ok(())
    }

    /// Attributes of a file, and the room of its file system.
    async fn with_space(&self, key: &FileKey) -> Result<(Attributes, weir_files::Space), Status> {
        let (export, id) = (self.seen.export(key)?, key.id);
        let looked = self.seen.on(export, move |files| {
            Ok::<_, FileError>((files.attributes(&id)?, files.space()?))
        });
        looked.await
    }

    async fn space(&mut self, key: &FileKey) -> Result<(), Status> {
        let (attributes, space) = self.with_space(key).await?;
        self.tell(key, Some(&attributes));
        for value in [
            space.bytes,
            space.bytes_free,
            space.bytes_available,
            space.files,
            space.files_free,
            space.files_available,
        ] {
            self.out.u64(value);
        }
        // It may change at once.
        self.out.u32(0);
        Ok(())
    }

    async fn information(&mut self, key: &FileKey) -> Result<(), Status> {
        let attributes = self.attributes(key).await?;
        self.tell(key, Some(&attributes));
        let transfer = self.seen.shared().config.transfer_bytes_max;
        // Of reads and of writes: at most, best, and in multiples of.
        for word in [transfer, transfer, 1, transfer, transfer, 1] {
            self.out.u32(word);
        }
        self.out.u32(LISTING_BYTES.min(transfer));
        self.out.u64(FILE_BYTES_MAX);
        // Times are kept to the nanosecond.
        self.out.u32(0);
        self.out.u32(1);
        self.out.u32(PROPERTIES);
        Ok(())
    }

    async fn limits(&mut self, key: &FileKey) -> Result<(), Status> {
        let (attributes, space) = self.with_space(key).await?;
        self.tell(key, Some(&attributes));
        self.out.u32(LINKS_MAX);
        self.out.u32(space.name_bytes_max);
        // Names that are too long are refused, owners do not give files away, case matters and stays.
        for holds in [true, true, false, true] {
            self.out.bool(holds);
        }
        Ok(())
    }
}

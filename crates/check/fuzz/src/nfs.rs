//! NFS: calls, replies, operations and attributes, as a server gets them.

use weir_nfs::attribute::{AttributeChanges, Bitmap, SETTABLE};
use weir_nfs::record::Fragment;
use weir_nfs::rpc::{Call, Credential, NFS_PROGRAM, RPC_VERSION, Reply};
use weir_nfs::types::{ChannelAttributes, StateId};
use weir_nfs::{Operation, OperationNumber, Reader, Writer, v3};

/// Bytes of a COMPOUND's tag at most, and operations that are read.
const TAG_BYTES_MAX: u32 = 1024;
const OPERATIONS_MAX: u32 = 64;

/// A call with the operations of its COMPOUND: nothing panics, data lies within what came, and what is read is written so that it is read
/// the same again.
pub fn nfs(data: &[u8]) {
    if let Some(header) = data.first_chunk() {
        assert_eq!(Fragment::parse(*header).to_bytes(), *header);
    }
    let mut reader = Reader::new(data);
    if let Ok((xid, reply)) = Reply::parse(&mut reader.clone()) {
        let mut writer = Writer::new();
        reply.write(xid, &mut writer);
        assert_eq!(
            Reply::parse(&mut Reader::new(writer.bytes())),
            Ok((xid, reply))
        );
    }
    changes(data);
    let call = Call::parse(&mut reader).ok();
    if let Some(call) = call.filter(|call| call.rpc_version == RPC_VERSION) {
        let mut writer = Writer::new();
        call.write(&mut writer);
        let procedure = v3::Procedure::from_value(call.procedure);
        version_3(procedure, data.len(), &mut reader.clone());
        assert_eq!(Call::parse(&mut Reader::new(writer.bytes())), Ok(call));
    }
    let _ = operations(data.len(), &mut reader);
}

fn version_3(procedure: v3::Procedure, length: usize, reader: &mut Reader<'_>) {
    if let Ok(changes) = v3::parse_changes(&mut reader.clone()) {
        let mut writer = Writer::new();
        v3::write_changes(&changes, &mut writer);
        let again = v3::parse_changes(&mut Reader::new(writer.bytes()));
        assert_eq!(again, Ok(changes));
    }
    if let Ok(attributes) = v3::Attributes::parse(&mut reader.clone()) {
        let mut writer = Writer::new();
        attributes.write(&mut writer);
        let again = v3::Attributes::parse(&mut Reader::new(writer.bytes()));
        assert_eq!(again, Ok(attributes));
    }
    if let Ok(Some(v3::Arguments::Write { data, .. })) = v3::Arguments::parse(procedure, reader) {
        assert!(data.start <= data.end && data.end <= length);
    }
    assert!(reader.position() <= length);
}

fn operations(length: usize, reader: &mut Reader<'_>) -> Result<(), weir_nfs::XdrError> {
    reader.opaque(TAG_BYTES_MAX)?;
    reader.u32()?;
    for _ in 0..reader.count(OPERATIONS_MAX)? {
        let number = OperationNumber::from_value(reader.u32()?);
        let operation = Operation::parse(number, reader, &SETTABLE)?;
        if let Operation::Write { data, .. } = &operation {
            assert!(data.start <= data.end && data.end <= length);
        }
        assert!(reader.position() <= length);
    }
    Ok(())
}

fn changes(data: &[u8]) {
    let mut reader = Reader::new(data);
    if let Ok(bitmap) = Bitmap::parse(&mut reader.clone())
        && bitmap.is_within(&SETTABLE)
    {
        let mut writer = Writer::new();
        bitmap.write(&mut writer);
        assert_eq!(Bitmap::parse(&mut Reader::new(writer.bytes())), Ok(bitmap));
    }
    if let Ok(Ok(changes)) = AttributeChanges::parse(&mut reader, &SETTABLE) {
        let mut writer = Writer::new();
        changes.write(&mut writer);
        let again = AttributeChanges::parse(&mut Reader::new(writer.bytes()), &SETTABLE);
        assert_eq!(again, Ok(Ok(changes)));
    }
}

/// Writes the operations of a COMPOUND.
type Write<'a> = &'a dyn Fn(&mut Writer);

/// A call of each kind of operation that is often asked for.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let state = StateId {
        seqid: 1,
        other: [7; 12],
    };
    let session = |writer: &mut Writer| {
        writer.u32(OperationNumber::Sequence.value());
        writer.fixed(&[9; 16]);
        for word in [1, 0, 0, 1] {
            writer.u32(word);
        }
    };
    let file = |writer: &mut Writer| {
        writer.u32(OperationNumber::Putfh.value());
        writer.opaque(&[1; 28]);
    };
    let changes = AttributeChanges {
        size: Some(0),
        mode: Some(0o644),
        ..AttributeChanges::default()
    };
    let channel = ChannelAttributes {
        header_pad: 0,
        request_bytes_max: 1 << 20,
        reply_bytes_max: 1 << 20,
        kept_reply_bytes_max: 2048,
        operations_max: 8,
        slots: 64,
    };
    let write: [(u32, Write<'_>); 6] = [
        (3, &|writer| {
            session(writer);
            file(writer);
            writer.u32(OperationNumber::Read.value());
            state.write(writer);
            writer.u64(4096);
            writer.u32(4096);
        }),
        (3, &|writer| {
            session(writer);
            file(writer);
            writer.u32(OperationNumber::Write.value());
            state.write(writer);
            writer.u64(4096);
            writer.u32(2);
            writer.opaque(b"hello");
        }),
        (3, &|writer| {
            session(writer);
            file(writer);
            writer.u32(OperationNumber::Open.value());
            for word in [0, 3, 0] {
                writer.u32(word);
            }
            writer.u64(1);
            writer.opaque(b"owner");
            writer.u32(1);
            writer.u32(0);
            changes.write(writer);
            writer.u32(0);
            writer.opaque(b"name");
        }),
        (3, &|writer| {
            session(writer);
            file(writer);
            writer.u32(OperationNumber::Lock.value());
            writer.u32(2);
            writer.bool(false);
            writer.u64(0);
            writer.u64(u64::MAX);
            writer.bool(true);
            writer.u32(0);
            state.write(writer);
            writer.u32(0);
            writer.u64(1);
            writer.opaque(b"locker");
        }),
        (1, &|writer| {
            writer.u32(OperationNumber::ExchangeId.value());
            writer.u64(1);
            writer.opaque(b"Linux NFSv4.2 client");
            for word in [0x101, 0, 1] {
                writer.u32(word);
            }
            writer.opaque(b"kernel.org");
            writer.opaque(b"Linux 6.1");
            writer.i64(0);
            writer.u32(0);
        }),
        (1, &|writer| {
            writer.u32(OperationNumber::CreateSession.value());
            writer.u64(1);
            writer.u32(1);
            writer.u32(2);
            channel.write(writer);
            channel.write(writer);
            writer.u32(0x4000_0000);
            writer.u32(1);
            writer.u32(0);
        }),
    ];
    let compound = |(count, write): (u32, Write<'_>)| {
        seed((4, 1), &|writer| {
            writer.opaque(b"");
            writer.u32(2);
            writer.u32(count);
            write(writer);
        })
    };
    let version_3: [(v3::Procedure, Write<'_>); 3] = [
        (v3::Procedure::Setattr, &|writer| {
            writer.opaque(&[1; 28]);
            v3::write_changes(&changes, writer);
            writer.bool(true);
            writer.u64(7);
        }),
        (v3::Procedure::Write, &|writer| {
            writer.opaque(&[1; 28]);
            writer.u64(4096);
            writer.u32(5);
            writer.u32(2);
            writer.opaque(b"hello");
        }),
        (v3::Procedure::Rename, &|writer| {
            for name in [b"one", b"two"] {
                writer.opaque(&[1; 28]);
                writer.opaque(name);
            }
        }),
    ];
    let compounds = write.into_iter().map(compound);
    let of_version_3 = version_3.into_iter();
    let of_version_3 = of_version_3.map(|(procedure, write)| seed((3, procedure.value()), write));
    compounds.chain(of_version_3).collect()
}

/// A call of a version's procedure.
fn seed((version, procedure): (u32, u32), write: Write<'_>) -> Vec<u8> {
    let mut writer = Writer::new();
    let call = Call {
        xid: 1,
        rpc_version: RPC_VERSION,
        program: NFS_PROGRAM,
        version,
        procedure,
        credential: Credential::None,
    };
    call.write(&mut writer);
    write(&mut writer);
    writer.into_bytes()
}

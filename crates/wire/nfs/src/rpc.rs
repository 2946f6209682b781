//! Calls and replies of ONC RPC version 2 (RFC 5531, section 9).

use crate::xdr::{Reader, Writer, XdrError};

/// The number of the NFS program.
pub const NFS_PROGRAM: u32 = 100_003;
/// The version of ONC RPC.
pub const RPC_VERSION: u32 = 2;
/// Bytes of a credential or a verifier at most (RFC 5531, section 8.2).
const AUTH_BYTES_MAX: u32 = 400;
/// Bytes of a machine's name in a credential at most.
const MACHINE_NAME_MAX: u32 = 255;
/// Groups in a credential at most.
const GROUPS_MAX: u32 = 16;
const CALL: u32 = 0;
const REPLY: u32 = 1;
const AUTH_NONE: u32 = 0;
const AUTH_SYS: u32 = 1;

/// The identity that a caller says it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential<'a> {
    /// None (AUTH_NONE).
    None,
    /// A user of a Unix system (AUTH_SYS).
    Sys(SysCredential<'a>),
    /// Of a flavor that is not known here.
    Other(u32),
}

/// A user of a Unix system (RFC 5531, appendix A).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SysCredential<'a> {
    /// Name of the machine.
    pub machine: &'a [u8],
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Other groups.
    pub groups: Groups,
}

/// Groups of a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Groups {
    count: usize,
    groups: [u32; GROUPS_MAX as usize],
}

impl std::ops::Deref for Groups {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        &self.groups[..self.count]
    }
}

/// A call. Its arguments follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call<'a> {
    /// Its number, which its reply has too.
    pub xid: u32,
    /// The version of ONC RPC that it follows. Where that is not [`RPC_VERSION`], nothing else is valid.
    pub rpc_version: u32,
    /// Program.
    pub program: u32,
    /// Version of the program.
    pub version: u32,
    /// Procedure.
    pub procedure: u32,
    /// Caller.
    pub credential: Credential<'a>,
}

/// A reason for which a record is no call that can be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Its header is not whole.
    #[error("the header of a call: {0}")]
    Header(#[from] XdrError),
    /// It is no call.
    #[error("a message of type {0} where a call belongs")]
    NoCall(u32),
}

impl<'a> Call<'a> {
    /// Reads a call's header.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn parse(reader: &mut Reader<'a>) -> Result<Self, CallError> {
        let xid = reader.u32()?;
        match reader.u32()? {
            CALL => {}
            other => return Err(CallError::NoCall(other)),
        }
        let mut call = Call {
            xid,
            rpc_version: reader.u32()?,
            program: 0,
            version: 0,
            procedure: 0,
            credential: Credential::None,
        };
        if call.rpc_version != RPC_VERSION {
            return Ok(call);
        }
        call.program = reader.u32()?;
        call.version = reader.u32()?;
        call.procedure = reader.u32()?;
        call.credential = Credential::parse(reader)?;
        // The verifier of these flavors is empty.
        let _flavor = reader.u32()?;
        let _verifier = reader.opaque(AUTH_BYTES_MAX)?;
        Ok(call)
    }

    /// Writes a call's header.
    pub fn write(&self, writer: &mut Writer) {
        writer.u32(self.xid);
        writer.u32(CALL);
        writer.u32(self.rpc_version);
        writer.u32(self.program);
        writer.u32(self.version);
        writer.u32(self.procedure);
        self.credential.write(writer);
        writer.u32(AUTH_NONE);
        writer.opaque(&[]);
    }
}

impl<'a> Credential<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, XdrError> {
        let flavor = reader.u32()?;
        let body = reader.opaque(AUTH_BYTES_MAX)?;
        match flavor {
            AUTH_NONE => Ok(Credential::None),
            AUTH_SYS => SysCredential::parse(&mut Reader::new(body)).map(Credential::Sys),
            other => Ok(Credential::Other(other)),
        }
    }

    fn write(&self, writer: &mut Writer) {
        match self {
            Credential::None => {
                writer.u32(AUTH_NONE);
                writer.opaque(&[]);
            }
            Credential::Other(flavor) => {
                writer.u32(*flavor);
                writer.opaque(&[]);
            }
            Credential::Sys(sys) => {
                let mut body = Writer::new();
                body.u32(0);
                body.opaque(sys.machine);
                body.u32(sys.uid);
                body.u32(sys.gid);
                body.u32(sys.groups.len() as u32);
                sys.groups.iter().for_each(|&group| body.u32(group));
                writer.u32(AUTH_SYS);
                writer.opaque(body.bytes());
            }
        }
    }
}

impl<'a> SysCredential<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, XdrError> {
        let _stamp = reader.u32()?;
        let machine = reader.opaque(MACHINE_NAME_MAX)?;
        let (uid, gid) = (reader.u32()?, reader.u32()?);
        let count = reader.count(GROUPS_MAX)? as usize;
        let mut groups = [0; GROUPS_MAX as usize];
        for group in &mut groups[..count] {
            *group = reader.u32()?;
        }
        Ok(SysCredential {
            machine,
            uid,
            gid,
            groups: Groups { count, groups },
        })
    }
}

/// Head of a reply, before its results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// The results follow.
    Success,
    /// The program is not served here.
    ProgramUnavailable,
    /// The version is not served here, but those from the first to the second are.
    ProgramMismatch(u32, u32),
    /// The procedure is not known.
    ProcedureUnavailable,
    /// The arguments are not what the procedure takes.
    GarbageArguments,
    /// The server cannot.
    SystemError,
    /// ONC RPC of another version.
    RpcMismatch,
    /// The credential is not whole.
    BadCredential,
    /// The flavor of the credential is not served, or may not be used.
    TooWeak,
}

const ACCEPTED: u32 = 0;
const DENIED: u32 = 1;
const AUTH_BADCRED: u32 = 1;
const AUTH_TOOWEAK: u32 = 5;

impl Reply {
    /// Writes the header of a reply to call `xid`.
    pub fn write(self, xid: u32, writer: &mut Writer) {
        writer.u32(xid);
        writer.u32(REPLY);
        match self {
            Reply::RpcMismatch => {
                for word in [DENIED, 0, RPC_VERSION, RPC_VERSION] {
                    writer.u32(word);
                }
            }
            Reply::BadCredential | Reply::TooWeak => {
                let reason = match self {
                    Reply::BadCredential => AUTH_BADCRED,
                    _ => AUTH_TOOWEAK,
                };
                for word in [DENIED, 1, reason] {
                    writer.u32(word);
                }
            }
            _ => {
                writer.u32(ACCEPTED);
                writer.u32(AUTH_NONE);
                writer.opaque(&[]);
                writer.u32(self.accept_state());
                if let Reply::ProgramMismatch(low, high) = self {
                    writer.u32(low);
                    writer.u32(high);
                }
            }
        }
    }

    fn accept_state(self) -> u32 {
        match self {
            Reply::Success => 0,
            Reply::ProgramUnavailable => 1,
            Reply::ProgramMismatch(..) => 2,
            Reply::ProcedureUnavailable => 3,
            Reply::GarbageArguments => 4,
            _ => 5,
        }
    }

    /// Reads the header of a reply, and yields the number of its call with it.
    ///
    /// # Errors
    /// [`XdrError`].
    pub fn parse(reader: &mut Reader<'_>) -> Result<(u32, Self), XdrError> {
        let xid = reader.u32()?;
        match reader.u32()? {
            REPLY => {}
            other => return Err(XdrError::Undefined(other)),
        }
        if reader.u32()? == DENIED {
            let reply = match reader.u32()? {
                0 => Reply::RpcMismatch,
                _ if reader.u32()? == AUTH_BADCRED => Reply::BadCredential,
                _ => Reply::TooWeak,
            };
            return Ok((xid, reply));
        }
        let _flavor = reader.u32()?;
        let _verifier = reader.opaque(AUTH_BYTES_MAX)?;
        let reply = match reader.u32()? {
            0 => Reply::Success,
            1 => Reply::ProgramUnavailable,
            2 => Reply::ProgramMismatch(reader.u32()?, reader.u32()?),
            3 => Reply::ProcedureUnavailable,
            4 => Reply::GarbageArguments,
            _ => Reply::SystemError,
        };
        Ok((xid, reply))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(credential: Credential<'_>) -> Call<'_> {
        Call {
            xid: 0x1234,
            rpc_version: RPC_VERSION,
            program: NFS_PROGRAM,
            version: 4,
            procedure: 1,
            credential,
        }
    }

    #[test]
    fn calls_come_back() {
        let mut groups = Groups::default();
        (groups.count, groups.groups[0], groups.groups[1]) = (2, 7, 8);
        let sys = SysCredential {
            machine: b"client",
            uid: 1,
            gid: 2,
            groups,
        };
        for credential in [Credential::None, Credential::Sys(sys), Credential::Other(6)] {
            let call = call(credential);
            let mut writer = Writer::new();
            call.write(&mut writer);
            let mut reader = Reader::new(writer.bytes());
            assert_eq!(Call::parse(&mut reader), Ok(call));
            assert_eq!(reader.remaining(), 0);
        }
    }

    #[test]
    fn a_call_of_another_version_is_known_as_one() {
        let parsed = Call::parse(&mut Reader::new(&[0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 3]));
        assert_eq!(parsed.map(|call| (call.xid, call.rpc_version)), Ok((9, 3)));
        let reply = Call::parse(&mut Reader::new(&[0, 0, 0, 9, 0, 0, 0, 1]));
        assert_eq!(reply, Err(CallError::NoCall(1)));
    }

    #[test]
    fn more_groups_than_there_may_be_are_refused() {
        let mut body = Writer::new();
        for word in [0, 0, 1, 2, 17] {
            body.u32(word);
        }
        let mut writer = Writer::new();
        call(Credential::None).write(&mut writer);
        writer.truncate(24);
        writer.u32(AUTH_SYS);
        writer.opaque(body.bytes());
        let parsed = Call::parse(&mut Reader::new(writer.bytes()));
        let refused = XdrError::TooLong {
            length: 17,
            max: 16,
        };
        assert_eq!(parsed, Err(CallError::Header(refused)));
    }

    #[test]
    fn replies_come_back() {
        for reply in [
            Reply::Success,
            Reply::ProgramUnavailable,
            Reply::ProgramMismatch(3, 4),
            Reply::ProcedureUnavailable,
            Reply::GarbageArguments,
            Reply::SystemError,
            Reply::RpcMismatch,
            Reply::BadCredential,
            Reply::TooWeak,
        ] {
            let mut writer = Writer::new();
            reply.write(5, &mut writer);
            let parsed = Reply::parse(&mut Reader::new(writer.bytes()));
            assert_eq!(parsed, Ok((5, reply)));
        }
    }
}

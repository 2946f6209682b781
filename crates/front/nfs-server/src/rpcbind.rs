//! The machine's rpcbind, which tells clients of version 3 at which port a program is (RFC 1833). Clients of version 4 do without.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use weir_nfs::record::Fragment;
use weir_nfs::rpc::{Call, Credential, NFS_PROGRAM, RPC_VERSION, Reply as Head};
use weir_nfs::{Reader, Writer, mount, v3};

/// The socket that rpcbind has for the machine's own services.
const SOCKET: &str = "/run/rpcbind.sock";
const PROGRAM: u32 = 100_000;
const VERSION: u32 = 4;
const SET: u32 = 1;
const UNSET: u32 = 2;
/// The programs that clients of version 3 ask for, with their versions.
const SERVED: [(u32, u32); 2] = [(NFS_PROGRAM, v3::VERSION), (mount::PROGRAM, mount::VERSION)];
/// Time that one answer may take.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of an answer at most.
const ANSWER_BYTES_MAX: u32 = 400;

/// Outcome of a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registration {
    /// Clients find the server.
    Done,
    /// The machine has no rpcbind.
    NoRpcbind,
    /// The machine has another server of NFS version 3.
    Taken,
}

/// The machine's rpcbind. Its methods block.
#[derive(Debug, Clone)]
pub struct Rpcbind {
    socket: PathBuf,
}

impl Default for Rpcbind {
    fn default() -> Self {
        Rpcbind::at(Path::new(SOCKET))
    }
}

/// The networks of an address (netid), each with the address as it is said there.
fn universal(address: SocketAddr) -> Vec<(&'static str, String)> {
    let port = address.port();
    let said = |ip: IpAddr| format!("{ip}.{}.{}", port >> 8, port & 0xff);
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => vec![("tcp", said(ip.into()))],
        // A socket for all addresses takes those of IPv4, too.
        IpAddr::V6(ip) if ip.is_unspecified() => vec![
            ("tcp", said(std::net::Ipv4Addr::UNSPECIFIED.into())),
            ("tcp6", said(ip.into())),
        ],
        IpAddr::V6(ip) => vec![("tcp6", said(ip.into()))],
    }
}

impl Rpcbind {
    /// The one that listens at this socket.
    #[must_use]
    pub fn at(socket: &Path) -> Self {
        Rpcbind {
            socket: socket.to_owned(),
        }
    }

    /// Says that version 3 is served at an address.
    ///
    /// # Errors
    /// It does not answer, or not as it should.
    pub fn register(&self, address: SocketAddr) -> io::Result<Registration> {
        let Some(mut stream) = self.connect()? else {
            return Ok(Registration::NoRpcbind);
        };
        let mut known = Vec::new();
        for (network, said) in universal(address) {
            for program in SERVED {
                if ask(&mut stream, SET, program, network, &said)? {
                    known.push((program, network, said.clone()));
                    continue;
                }
                // All or nothing: half of one server and half of another are none.
                for (program, network, said) in known {
                    ask(&mut stream, UNSET, program, network, &said)?;
                }
                return Ok(Registration::Taken);
            }
        }
        Ok(Registration::Done)
    }

    /// Says that it is served there no more.
    ///
    /// # Errors
    /// As of [`Rpcbind::register`].
    pub fn unregister(&self, address: SocketAddr) -> io::Result<()> {
        let Some(mut stream) = self.connect()? else {
            return Ok(());
        };
        for (network, said) in universal(address) {
            for program in SERVED {
                ask(&mut stream, UNSET, program, network, &said)?;
            }
        }
        Ok(())
    }

    fn connect(&self) -> io::Result<Option<UnixStream>> {
        let stream = match UnixStream::connect(&self.socket) {
            Ok(stream) => stream,
            Err(error) => {
                return match error.kind() {
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Ok(None),
                    _ => Err(error),
                };
            }
        };
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Some(stream))
    }
}

/// Asks for one thing, and yields whether it was done.
fn ask(
    stream: &mut UnixStream,
    procedure: u32,
    program: (u32, u32),
    network: &str,
    address: &str,
) -> io::Result<bool> {
    let call = Call {
        xid: program.0,
        rpc_version: RPC_VERSION,
        program: PROGRAM,
        version: VERSION,
        procedure,
        credential: Credential::None,
    };
    let mut writer = Writer::new();
    call.write(&mut writer);
    writer.u32(program.0);
    writer.u32(program.1);
    // Whose it is rpcbind sees itself.
    for text in [network, address, ""] {
        writer.opaque(text.as_bytes());
    }
    let header = Fragment {
        length: writer.len() as u32,
        is_last: true,
    };
    stream.write_all(&[&header.to_bytes()[..], writer.bytes()].concat())?;
    let mut header = [0; 4];
    stream.read_exact(&mut header)?;
    let fragment = Fragment::parse(header);
    let unknown = || io::Error::new(io::ErrorKind::InvalidData, "rpcbind answers something else");
    if !fragment.is_last || fragment.length > ANSWER_BYTES_MAX {
        return Err(unknown());
    }
    let mut bytes = vec![0; fragment.length as usize];
    stream.read_exact(&mut bytes)?;
    let mut reader = Reader::new(&bytes);
    match Head::parse(&mut reader) {
        Ok((xid, Head::Success)) if xid == call.xid => reader.bool().map_err(|_| unknown()),
        _ => Err(unknown()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Registered addresses, by network and program.
    type Known = BTreeMap<(String, u32), String>;

    /// An rpcbind of one connection.
    fn serve(listener: &UnixListener, mut known: Known) -> Known {
        let (mut stream, _) = listener.accept().expect("it connects");
        let mut header = [0; 4];
        while stream.read_exact(&mut header).is_ok() {
            let mut bytes = vec![0; Fragment::parse(header).length as usize];
            stream.read_exact(&mut bytes).expect("a call");
            let mut reader = Reader::new(&bytes);
            let call = Call::parse(&mut reader).expect("a call");
            assert_eq!((call.program, call.version), (PROGRAM, VERSION));
            let program = reader.u32().expect("a program");
            assert_eq!(reader.u32(), Ok(3), "the version of both");
            let mut text = || {
                let bytes = reader.opaque(100).expect("a text");
                String::from_utf8(bytes.to_vec()).expect("text")
            };
            let (key, address) = ((text(), program), text());
            let done = match call.procedure {
                SET => *known.entry(key).or_insert(address.clone()) == address,
                _ => known.remove(&key).is_some(),
            };
            let mut writer = Writer::new();
            Head::Success.write(call.xid, &mut writer);
            writer.bool(done);
            let header = Fragment {
                length: writer.len() as u32,
                is_last: true,
            };
            let answer = [&header.to_bytes()[..], writer.bytes()].concat();
            stream.write_all(&answer).expect("it reads");
        }
        known
    }

    #[test]
    fn programs_are_registered_and_forgotten() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let rpcbind = Rpcbind::at(&path);
        let address: SocketAddr = "[::]:2049".parse().expect("an address");
        assert_eq!(
            rpcbind.register(address).ok(),
            Some(Registration::NoRpcbind)
        );
        assert!(rpcbind.unregister(address).is_ok());
        let listener = UnixListener::bind(&path).expect("it listens");
        std::thread::scope(|scope| {
            let server = scope.spawn(|| serve(&listener, Known::new()));
            assert_eq!(rpcbind.register(address).ok(), Some(Registration::Done));
            let known = server.join().expect("it ended");
            let expected = [("tcp", "0.0.0.0.8.1"), ("tcp6", "::.8.1")];
            for (network, said) in expected {
                for program in [100_003, 100_005] {
                    let registered = known.get(&(network.to_owned(), program));
                    assert_eq!(registered.map(String::as_str), Some(said));
                }
            }
            // Of another server's port it knows only MOUNT's, and is not told of half of this one.
            let mut known = known;
            known.retain(|(_, program), _| *program == mount::PROGRAM);
            let other = "192.0.2.1:2050".parse().expect("an address");
            let before = known.clone();
            let server = scope.spawn(|| serve(&listener, known));
            assert_eq!(rpcbind.register(other).ok(), Some(Registration::Taken));
            let known = server.join().expect("it ended");
            assert_eq!(known, before);
            let server = scope.spawn(|| serve(&listener, known));
            assert!(rpcbind.unregister(address).is_ok());
            assert_eq!(server.join().ok(), Some(Known::new()));
        });
        drop(listener);
        assert_eq!(
            rpcbind.register(address).ok(),
            Some(Registration::NoRpcbind)
        );
    }
}

//! Filters of packets by the expressions of pcap-filter(7), which libpcap translates. It is loaded at run time, when the first filter
//! is asked for.
//!
//! A [`Filter`] for an interface is what the kernel is to run: it reads the tag of a VLAN where the kernel keeps that. One for a type of link
//! is for packets as they lie in a file. All unsafe code of this crate calls the library.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;

use weir_reactor::linux::FilterInstruction;

/// Names of the library: of most distributions, and of Debian.
const LIBRARIES: [&str; 2] = ["libpcap.so.1", "libpcap.so.0.8"];
/// Bytes of an error's text (PCAP_ERRBUF_SIZE of pcap.h).
const ERROR_BYTES: usize = 256;
/// PCAP_NETMASK_UNKNOWN of pcap.h.
const NETMASK_UNKNOWN: c_uint = u32::MAX;

/// Why there is no filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// The library is not there.
    #[error(
        "filters need libpcap, which cannot be loaded ({0}): install it (Debian and Ubuntu: libpcap0.8; Fedora and SUSE: libpcap)"
    )]
    Library(String),
    /// The expression is none.
    #[error("invalid filter '{expression}': {reason}; see `man 7 pcap-filter`")]
    Expression {
        /// The expression.
        expression: String,
        /// The library's own words.
        reason: String,
    },
    /// The library cannot open the interface.
    #[error(
        "libpcap cannot open interface {interface}: {reason}; `ip link` shows whether it is there and up, and CAP_NET_RAW is needed (run as root, or `setcap cap_net_raw+ep` the program)"
    )]
    Interface {
        /// The interface.
        interface: String,
        /// The library's own words.
        reason: String,
    },
}

/// struct bpf_program of pcap/bpf.h.
#[repr(C)]
struct Program {
    length: c_uint,
    instructions: *mut Instruction,
}

/// struct bpf_insn of pcap/bpf.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct Instruction {
    code: u16,
    jump_true: u8,
    jump_false: u8,
    operand: u32,
}

/// The time and the lengths of a packet (struct pcap_pkthdr of pcap.h).
#[repr(C)]
struct PacketHeader {
    time: libc::timeval,
    kept: u32,
    length: u32,
}

type Handle = NonNull<c_void>;

macro_rules! functions {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions that are used.
        struct Library {
            $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            /// Stays loaded for as long as the process runs.
            _loaded: libloading::Library,
        }

        impl Library {
            fn resolve(loaded: libloading::Library) -> Result<Self, libloading::Error> {
                Ok(Library {
                    $($name: {
                        // SAFETY: the type is that of the function of this name in pcap.h.
                        *unsafe { loaded.get(stringify!($name))? }
                    },)*
                    _loaded: loaded,
                })
            }
        }
    };
}

functions! {
    pcap_open_dead(c_int, c_int) -> Option<Handle>;
    pcap_create(*const c_char, *mut c_char) -> Option<Handle>;
    pcap_set_snaplen(Handle, c_int) -> c_int;
    pcap_activate(Handle) -> c_int;
    pcap_close(Handle);
    pcap_compile(Handle, *mut Program, *const c_char, c_int, c_uint) -> c_int;
    pcap_freecode(*mut Program);
    pcap_geterr(Handle) -> *mut c_char;
    pcap_statustostr(c_int) -> *const c_char;
    pcap_offline_filter(*const Program, *const PacketHeader, *const u8) -> c_int;
}

fn library() -> Result<&'static Library, FilterError> {
    static LOADED: OnceLock<Result<Library, FilterError>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| {
        let mut reason = String::new();
        for name in LIBRARIES {
            // SAFETY: what a library does when it is loaded cannot be known; these are libpcap, or whatever the user put in its place.
            match unsafe { libloading::Library::new(name) }.and_then(Library::resolve) {
                Ok(library) => return Ok(library),
                Err(error) => reason = error.to_string(),
            }
        }
        Err(FilterError::Library(reason))
    });
    loaded.as_ref().map_err(Clone::clone)
}

/// A handle of the library, closed when it is dropped.
struct Open {
    library: &'static Library,
    handle: Handle,
}

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: it was opened, and is closed once.
        unsafe { (self.library.pcap_close)(self.handle) };
    }
}

fn text_of(text: &CStr) -> String {
    text.to_string_lossy().into_owned()
}

impl Open {
    /// For packets of a type of link.
    fn link(link_type: u16, snap_length: u32) -> Result<Self, FilterError> {
        let library = library()?;
        // SAFETY: it takes no pointers.
        let handle = unsafe { (library.pcap_open_dead)(link_type.into(), snap_length as c_int) };
        let none = || FilterError::Library("it has no memory".to_owned());
        Ok(Open {
            library,
            handle: handle.ok_or_else(none)?,
        })
    }

    /// For packets of an interface.
    fn interface(interface: &str, snap_length: u32) -> Result<Self, FilterError> {
        let library = library()?;
        let fail = |reason: String| FilterError::Interface {
            interface: interface.to_owned(),
            reason,
        };
        let name = CString::new(interface).map_err(|error| fail(error.to_string()))?;
        let mut said = [0 as c_char; ERROR_BYTES];
        // SAFETY: the name ends with a zero byte, and there is room for an error's text.
        let handle = unsafe { (library.pcap_create)(name.as_ptr(), said.as_mut_ptr()) };
        let Some(handle) = handle else {
            // SAFETY: the library wrote a text that ends with a zero byte.
            return Err(fail(text_of(unsafe { CStr::from_ptr(said.as_ptr()) })));
        };
        let open = Open { library, handle };
        // SAFETY: the handle is open, and was not activated.
        let result = unsafe {
            (library.pcap_set_snaplen)(handle, snap_length as c_int);
            (library.pcap_activate)(handle)
        };
        // Numbers above 0 are warnings.
        match result {
            0.. => Ok(open),
            _ => {
                // SAFETY: the library has a text for each of its numbers, which ends with a zero byte and stays.
                let status = text_of(unsafe { CStr::from_ptr((library.pcap_statustostr)(result)) });
                let more = open.error();
                Err(fail(match more.is_empty() || status.contains(&more) {
                    true => status,
                    false => format!("{status} ({more})"),
                }))
            }
        }
    }

    fn error(&self) -> String {
        // SAFETY: the handle is open; the text ends with a zero byte, and is copied before it changes.
        text_of(unsafe { CStr::from_ptr((self.library.pcap_geterr)(self.handle)) })
    }

    fn compile(&self, expression: &str) -> Result<Filter, FilterError> {
        let fail = |reason: String| FilterError::Expression {
            expression: expression.to_owned(),
            reason,
        };
        let text = CString::new(expression).map_err(|error| fail(error.to_string()))?;
        let mut program = Program {
            length: 0,
            instructions: std::ptr::null_mut(),
        };
        // SAFETY: the handle is open, the text ends with a zero byte, and the program is the library's to fill.
        let result = unsafe {
            (self.library.pcap_compile)(
                self.handle,
                &raw mut program,
                text.as_ptr(),
                1,
                NETMASK_UNKNOWN,
            )
        };
        match result {
            0 => Ok(Filter {
                library: self.library,
                program,
            }),
            _ => Err(fail(self.error())),
        }
    }
}

/// A filter, translated.
pub struct Filter {
    library: &'static Library,
    program: Program,
}

// SAFETY: the program is memory that is not tied to a thread, and only read until it is freed.
unsafe impl Send for Filter {}

impl Drop for Filter {
    fn drop(&mut self) {
        // SAFETY: the library filled it, and it is freed once.
        unsafe { (self.library.pcap_freecode)(&raw mut self.program) };
    }
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Filter({} instructions)", self.program.length)
    }
}

impl Filter {
    /// Translates an expression for packets of a type of link (LINKTYPE_), of which so many bytes are kept.
    ///
    /// # Errors
    /// [`FilterError`].
    pub fn for_link(
        expression: &str,
        link_type: u16,
        snap_length: u32,
    ) -> Result<Self, FilterError> {
        // Packets that begin with the header of IP are LINKTYPE_RAW, 101, in files, and DLT_RAW, 12, to the library (pcap-linktype(7)).
        let link_type = if link_type == 101 { 12 } else { link_type };
        Open::link(link_type, snap_length)?.compile(expression)
    }

    /// Translates an expression for the packets of an interface, as the kernel is to run it. Needs CAP_NET_RAW.
    ///
    /// # Errors
    /// [`FilterError`].
    pub fn for_interface(
        expression: &str,
        interface: &str,
        snap_length: u32,
    ) -> Result<Self, FilterError> {
        Open::interface(interface, snap_length)?.compile(expression)
    }

    /// Its instructions.
    #[must_use]
    pub fn instructions(&self) -> Vec<FilterInstruction> {
        let instruction = |index| {
            // SAFETY: the library says that there are so many.
            let one = unsafe { *self.program.instructions.add(index) };
            FilterInstruction {
                code: one.code,
                jump_true: one.jump_true,
                jump_false: one.jump_false,
                operand: one.operand,
            }
        };
        (0..self.program.length as usize).map(instruction).collect()
    }

    /// Tells whether a packet passes, which had `length` bytes, of which these were kept.
    #[must_use]
    pub fn passes(&self, length: u32, data: &[u8]) -> bool {
        let header = PacketHeader {
            time: libc::timeval {
                tv_sec: 0,
                tv_usec: 0,
            },
            kept: data.len() as u32,
            length,
        };
        // SAFETY: the program is translated, and reads no bytes beyond those that the header says are kept.
        let kept = unsafe {
            (self.library.pcap_offline_filter)(
                &raw const self.program,
                &raw const header,
                data.as_ptr(),
            )
        };
        kept != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ETHERNET: u16 = 1;
    const RAW: u16 = 101;

    /// A UDP packet between two ports.
    fn packet(from: u16, to: u16) -> Vec<u8> {
        let mut packet = vec![0; 60];
        packet[12..14].copy_from_slice(&[8, 0]);
        packet[14] = 0x45;
        packet[23] = 17;
        packet[34..36].copy_from_slice(&from.to_be_bytes());
        packet[36..38].copy_from_slice(&to.to_be_bytes());
        packet
    }

    #[test]
    fn packets_pass_or_not() {
        let filter = Filter::for_link("udp dst port 53", ETHERNET, 65_535).expect("a filter");
        assert!(!filter.instructions().is_empty());
        assert!(filter.passes(60, &packet(1000, 53)));
        assert!(!filter.passes(60, &packet(53, 1000)));
        // Bytes that were cut off cannot be looked at.
        assert!(!filter.passes(60, &packet(1000, 53)[..20]));
        assert!(!filter.passes(0, &[]));
        let tagged = Filter::for_link("vlan 7", ETHERNET, 65_535).expect("a filter");
        let mut packet = packet(1, 2);
        packet.splice(12..12, [0x81, 0, 0, 7]);
        assert!(tagged.passes(64, &packet));
        packet[15] = 8;
        assert!(!tagged.passes(64, &packet));
        let bare = Filter::for_link("udp dst port 53", RAW, 65_535).expect("a filter");
        packet = self::packet(1000, 53).split_off(14);
        assert!(bare.passes(46, &packet));
        assert!(!bare.passes(46, &self::packet(53, 1000)[14..]));
    }

    #[test]
    fn an_expression_that_is_none_is_named() {
        let error = Filter::for_link("no such thing", ETHERNET, 65_535).expect_err("it is none");
        assert!(error.to_string().contains("'no such thing'"), "{error}");
        let nothing = Filter::for_link("a\0b", ETHERNET, 65_535).expect_err("it is none");
        assert!(matches!(nothing, FilterError::Expression { .. }));
        let error = Filter::for_interface("udp", "no-such-one", 96).expect_err("it is none");
        assert!(error.to_string().contains("no-such-one"), "{error}");
    }
}

//! Why a machine cannot run the driver, and how to mend it.

use std::fmt;
use std::io;

use io_uring::{Probe, opcode};

use crate::linux::buffers::{BufferRing, ReceiveBuffers};
use crate::linux::feature::Feature;
use crate::linux::ring::builder;

/// The first Linux that has all that the driver needs: major and minor version.
pub const KERNEL_NEEDED: (u32, u32) = (6, 1);

/// io_uring cannot be used here.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// The kernel lacks something that is in Linux 6.1.
    #[error(
        "this kernel is Linux {running} and lacks {missing}; Weir needs Linux {}.{} or newer: boot a newer kernel",
        KERNEL_NEEDED.0, KERNEL_NEEDED.1
    )]
    KernelTooOld {
        /// The version that uname(2) reports.
        running: String,
        /// What it lacks.
        missing: &'static str,
    },
    /// The sysctl kernel.io_uring_disabled is 1 and the process is not exempt.
    #[error(
        "the sysctl kernel.io_uring_disabled is 1: only processes with CAP_SYS_ADMIN or in the group of kernel.io_uring_group (now {group}) may use io_uring; \
         add Weir's user to that group, or run: sysctl kernel.io_uring_disabled=0"
    )]
    DisabledForUsers {
        /// What kernel.io_uring_group says; -1 is no group.
        group: i64,
    },
    /// The sysctl kernel.io_uring_disabled is 2.
    #[error(
        "the sysctl kernel.io_uring_disabled is 2: nobody may use io_uring; run: sysctl kernel.io_uring_disabled=0 (or 1, with Weir's user in kernel.io_uring_group)"
    )]
    Disabled,
    /// A seccomp filter refuses the system calls.
    #[error(
        "a seccomp filter refuses io_uring_setup ({error}): run the container with Weir's own profile, --security-opt seccomp=weir.json \
         (docs/containers.md), or with seccomp=unconfined; under systemd, let SystemCallFilter= have @io-event and io_uring_setup"
    )]
    Seccomp {
        /// What the system call returned.
        error: io::Error,
    },
    /// Nothing that the process can see forbids it, but it is forbidden.
    #[error(
        "io_uring_setup is refused ({error}) although the sysctl and seccomp allow it: look for a denial by SELinux (class io_uring) or another security module \
         in the audit log"
    )]
    Refused {
        /// What the system call returned.
        error: io::Error,
    },
    /// The kernel gives no memory for the ring.
    #[error(
        "the kernel gives no memory for an io_uring ({error}); the limit on locked memory (RLIMIT_MEMLOCK) is {limit}: raise it (ulimit -l, LimitMEMLOCK=, --ulimit memlock=), \
         or the memory limit of the cgroup"
    )]
    NoMemory {
        /// RLIMIT_MEMLOCK in bytes, or "unlimited".
        limit: String,
        /// What the system call returned.
        error: io::Error,
    },
    /// No file descriptor is left.
    #[error(
        "no file descriptor is left for an io_uring ({error}); the limit (RLIMIT_NOFILE) is {limit}: raise it (ulimit -n, LimitNOFILE=, --ulimit nofile=)"
    )]
    NoDescriptor {
        /// RLIMIT_NOFILE, or "unlimited".
        limit: String,
        /// What the system call returned.
        error: io::Error,
    },
    /// The configuration asks for what no ring can be.
    #[error("{0}")]
    Configuration(String),
    /// Something else.
    #[error("io_uring does not work here: {0}")]
    Other(#[source] io::Error),
}

impl From<Unavailable> for io::Error {
    fn from(unavailable: Unavailable) -> Self {
        let kind = match &unavailable {
            Unavailable::KernelTooOld { .. } => io::ErrorKind::Unsupported,
            Unavailable::NoMemory { .. } | Unavailable::NoDescriptor { .. } => {
                io::ErrorKind::OutOfMemory
            }
            Unavailable::Configuration(_) => io::ErrorKind::InvalidInput,
            Unavailable::Other(error) => error.kind(),
            _ => io::ErrorKind::PermissionDenied,
        };
        io::Error::new(kind, unavailable)
    }
}

/// What decides why a system call failed.
#[derive(Debug, Clone)]
pub(super) struct Surroundings {
    /// As uname(2) reports it.
    pub(super) kernel: String,
    /// kernel.io_uring_disabled; none where the sysctl does not exist (before Linux 6.6) or cannot be read.
    pub(super) disabled: Option<u8>,
    pub(super) group: Option<i64>,
    /// Whether a seccomp filter is on the calling thread.
    pub(super) filtered: bool,
    pub(super) locked_memory: Limit,
    pub(super) descriptors: Limit,
}

/// A resource limit; none is unlimited.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit(pub(super) Option<u64>);

impl fmt::Display for Limit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(limit) => write!(formatter, "{limit}"),
            None => formatter.write_str("unlimited"),
        }
    }
}

impl Surroundings {
    pub(super) fn look() -> Self {
        use rustix::process::{Resource, getrlimit};
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        Surroundings {
            kernel: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
            disabled: read_number("/proc/sys/kernel/io_uring_disabled"),
            group: read_number("/proc/sys/kernel/io_uring_group"),
            filtered: has_seccomp_filter(&status),
            locked_memory: Limit(getrlimit(Resource::Memlock).current),
            descriptors: Limit(getrlimit(Resource::Nofile).current),
        }
    }

    /// What an error of io_uring_setup means here.
    pub(super) fn explain(&self, error: io::Error) -> Unavailable {
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => self.explain_refusal(error),
            Some(libc::ENOSYS) if self.filtered && self.is_new_enough() => {
                Unavailable::Seccomp { error }
            }
            Some(libc::ENOSYS) => self.too_old("io_uring"),
            Some(libc::EINVAL) if !self.is_new_enough() => {
                self.too_old("flags of io_uring_setup (single issuer, deferred task run)")
            }
            Some(libc::ENOMEM) => Unavailable::NoMemory {
                limit: self.locked_memory.to_string(),
                error,
            },
            Some(libc::EMFILE | libc::ENFILE) => Unavailable::NoDescriptor {
                limit: self.descriptors.to_string(),
                error,
            },
            _ => Unavailable::Other(error),
        }
    }

    fn explain_refusal(&self, error: io::Error) -> Unavailable {
        match self.disabled {
            Some(2) => Unavailable::Disabled,
            // The sysctl's answer is EPERM before a filter would be asked only where there is none: name what is certain.
            Some(1) if !self.filtered => Unavailable::DisabledForUsers {
                group: self.group.unwrap_or(-1),
            },
            _ if self.filtered => Unavailable::Seccomp { error },
            _ => Unavailable::Refused { error },
        }
    }

    pub(super) fn too_old(&self, missing: &'static str) -> Unavailable {
        Unavailable::KernelTooOld {
            running: self.kernel.clone(),
            missing,
        }
    }

    fn is_new_enough(&self) -> bool {
        version(&self.kernel).is_some_and(|version| version >= KERNEL_NEEDED)
    }
}

/// Major and minor version of a release as uname(2) reports it: `6.12.3-amd64`.
pub(super) fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|character: char| !character.is_ascii_digit());
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next()?.parse().ok()?;
    Some((major, minor))
}

fn read_number<T: std::str::FromStr>(path: &str) -> Option<T> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Whether `/proc/.../status` says that a seccomp filter is on (`Seccomp:` 2, proc(5)).
pub(super) fn has_seccomp_filter(status: &str) -> bool {
    status
        .lines()
        .filter_map(|line| line.strip_prefix("Seccomp:"))
        .any(|mode| mode.trim() == "2")
}

/// Entries of the ring that only the check makes.
const CHECK_ENTRIES: u32 = 4;

/// Makes a ring as a reactor will, and checks all that the driver needs of Linux 6.1.
pub(super) fn check(receive_buffers: ReceiveBuffers) -> Result<(), Unavailable> {
    let surroundings = Surroundings::look();
    receive_buffers
        .check()
        .map_err(|error| Unavailable::Configuration(error.to_string()))?;
    let uring = builder(CHECK_ENTRIES)
        .build(CHECK_ENTRIES)
        .map_err(|error| surroundings.explain(error))?;
    let parameters = uring.params();
    if !parameters.is_feature_ext_arg() {
        return Err(surroundings.too_old("waiting with a time-out (IORING_FEAT_EXT_ARG)"));
    }
    if !parameters.is_feature_nodrop() || !parameters.is_feature_fast_poll() {
        return Err(surroundings.too_old("IORING_FEAT_NODROP and IORING_FEAT_FAST_POLL"));
    }
    let mut probe = Probe::new();
    uring
        .submitter()
        .register_probe(&mut probe)
        .map_err(|error| explain_register(&surroundings, error, "IORING_REGISTER_PROBE"))?;
    for (code, name) in OPERATIONS {
        if !probe.is_supported(code) {
            return Err(surroundings.too_old(name));
        }
    }
    let one = ReceiveBuffers {
        count: 1,
        bytes: receive_buffers.bytes,
    };
    BufferRing::new(&uring.submitter(), one)
        .map_err(|error| explain_register(&surroundings, error, "IORING_REGISTER_PBUF_RING"))?
        .unregister(&uring.submitter());
    Ok(())
}

/// What an error of io_uring_register means: a kernel that does not know the opcode says EINVAL.
fn explain_register(
    surroundings: &Surroundings,
    error: io::Error,
    missing: &'static str,
) -> Unavailable {
    match error.raw_os_error() {
        Some(libc::EINVAL) => surroundings.too_old(missing),
        _ => surroundings.explain(error),
    }
}

/// The operations that the driver submits; each is in Linux 6.1.
const OPERATIONS: [(u8, &str); 12] = [
    (opcode::Accept::CODE, "IORING_OP_ACCEPT"),
    (opcode::Connect::CODE, "IORING_OP_CONNECT"),
    (opcode::Recv::CODE, "IORING_OP_RECV"),
    (opcode::Send::CODE, "IORING_OP_SEND"),
    (opcode::SendMsg::CODE, "IORING_OP_SENDMSG"),
    (opcode::Read::CODE, "IORING_OP_READ"),
    (opcode::Readv::CODE, "IORING_OP_READV"),
    (opcode::Write::CODE, "IORING_OP_WRITE"),
    (opcode::Writev::CODE, "IORING_OP_WRITEV"),
    (opcode::Fsync::CODE, "IORING_OP_FSYNC"),
    (opcode::Fallocate::CODE, "IORING_OP_FALLOCATE"),
    (opcode::AsyncCancel::CODE, "IORING_OP_ASYNC_CANCEL"),
];

/// Whether block devices should know the command to discard: what does not is found when it is tried.
pub(super) fn has_block_discard() -> bool {
    let release = Surroundings::look().kernel;
    version(&release).is_some_and(|version| version >= Feature::BlockDiscard.since())
}

/// What an error of making a reactor's ring means.
pub(super) fn explain(error: io::Error) -> io::Error {
    Surroundings::look().explain(error).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surroundings(kernel: &str) -> Surroundings {
        Surroundings {
            kernel: kernel.to_owned(),
            disabled: Some(0),
            group: Some(-1),
            filtered: false,
            locked_memory: Limit(Some(65536)),
            descriptors: Limit(None),
        }
    }

    fn explain(surroundings: &Surroundings, errno: i32) -> Unavailable {
        surroundings.explain(io::Error::from_raw_os_error(errno))
    }

    #[test]
    fn an_old_kernel_is_named_with_what_is_needed() {
        for errno in [libc::ENOSYS, libc::EINVAL] {
            let told = explain(&surroundings("5.4.0-200-generic"), errno).to_string();
            assert!(told.contains("Linux 5.4.0-200-generic"), "{told}");
            assert!(told.contains("6.1 or newer"), "{told}");
        }
    }

    #[test]
    fn an_old_kernel_under_a_filter_is_still_old() {
        let filtered = Surroundings {
            filtered: true,
            ..surroundings("4.18.0-553.el8")
        };
        let told = explain(&filtered, libc::ENOSYS);
        assert!(matches!(told, Unavailable::KernelTooOld { .. }), "{told}");
    }

    #[test]
    fn the_sysctl_is_named() {
        let disabled = Surroundings {
            disabled: Some(2),
            ..surroundings("6.12.0")
        };
        let told = explain(&disabled, libc::EPERM);
        assert!(matches!(told, Unavailable::Disabled), "{told}");
        let for_users = Surroundings {
            disabled: Some(1),
            group: Some(1234),
            ..surroundings("6.12.0")
        };
        let told = explain(&for_users, libc::EPERM);
        assert!(
            matches!(told, Unavailable::DisabledForUsers { group: 1234 }),
            "{told}"
        );
        assert!(told.to_string().contains("1234"), "{told}");
    }

    #[test]
    fn a_filter_is_told_from_a_security_module() {
        let filtered = Surroundings {
            filtered: true,
            ..surroundings("6.12.0")
        };
        for errno in [libc::EPERM, libc::ENOSYS] {
            let told = explain(&filtered, errno);
            assert!(matches!(told, Unavailable::Seccomp { .. }), "{told}");
        }
        let told = explain(&surroundings("6.12.0"), libc::EACCES);
        assert!(matches!(told, Unavailable::Refused { .. }), "{told}");
    }

    #[test]
    fn limits_are_named_with_their_values() {
        let told = explain(&surroundings("6.12.0"), libc::ENOMEM).to_string();
        assert!(
            told.contains("RLIMIT_MEMLOCK") && told.contains("65536"),
            "{told}"
        );
        let told = explain(&surroundings("6.12.0"), libc::EMFILE).to_string();
        assert!(
            told.contains("RLIMIT_NOFILE") && told.contains("unlimited"),
            "{told}"
        );
    }

    #[test]
    fn errors_keep_their_explanation_as_io_errors() {
        let error: io::Error = Unavailable::Disabled.into();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("kernel.io_uring_disabled"));
    }

    #[test]
    fn releases_are_compared_by_number() {
        assert_eq!(version("6.1.0-44-amd64"), Some((6, 1)));
        assert_eq!(version("6.12-rc3"), Some((6, 12)));
        assert_eq!(version("10.0"), Some((10, 0)));
        assert_eq!(version("unknown"), None);
        assert!(version("6.12.3") >= Some(KERNEL_NEEDED));
        assert!(version("5.19.17") < Some(KERNEL_NEEDED));
    }

    #[test]
    fn a_filter_is_seen_in_the_status() {
        assert!(has_seccomp_filter(
            "Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n"
        ));
        assert!(!has_seccomp_filter(
            "Name:\tx\nSeccomp:\t0\nSeccomp_filters:\t0\n"
        ));
        assert!(!has_seccomp_filter(""));
    }
}

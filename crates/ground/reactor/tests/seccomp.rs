//! The seccomp profile that is shipped for containers, enforced by the kernel on the driver's own contract.

#![cfg(target_arch = "x86_64")]

#[path = "it/contract.rs"]
mod contract;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use contract::{Ground, Place};
use weir_reactor::linux::{LinuxConfig, LinuxSystem};

const PROFILE: &str = include_str!("../../../../docs/seccomp/weir.json");

/// Set in the process that runs under the profile.
const CONFINED: &str = "WEIR_TEST_CONFINED";

macro_rules! numbers {
    ($($name:ident = $number:ident;)*) => {
        /// Names of system calls and their numbers.
        const NUMBERS: &[(&str, i64)] = &[$((stringify!($name), libc::$number)),*];
    };
}

#[rustfmt::skip]
numbers! {
    accept = SYS_accept; accept4 = SYS_accept4; access = SYS_access; arch_prctl = SYS_arch_prctl;
    bind = SYS_bind; brk = SYS_brk; capget = SYS_capget; capset = SYS_capset; chdir = SYS_chdir;
    chmod = SYS_chmod; clock_getres = SYS_clock_getres; clock_gettime = SYS_clock_gettime;
    clock_nanosleep = SYS_clock_nanosleep; clone = SYS_clone; clone3 = SYS_clone3; close = SYS_close;
    close_range = SYS_close_range; connect = SYS_connect; dup = SYS_dup; dup2 = SYS_dup2; dup3 = SYS_dup3;
    epoll_create1 = SYS_epoll_create1; epoll_ctl = SYS_epoll_ctl; epoll_pwait = SYS_epoll_pwait;
    epoll_pwait2 = SYS_epoll_pwait2; epoll_wait = SYS_epoll_wait; eventfd2 = SYS_eventfd2;
    execve = SYS_execve; execveat = SYS_execveat; exit = SYS_exit; exit_group = SYS_exit_group;
    faccessat = SYS_faccessat; faccessat2 = SYS_faccessat2; fallocate = SYS_fallocate; fchdir = SYS_fchdir;
    fchmod = SYS_fchmod; fchmodat = SYS_fchmodat; fchown = SYS_fchown; fcntl = SYS_fcntl;
    fdatasync = SYS_fdatasync; flock = SYS_flock; fstat = SYS_fstat; fstatfs = SYS_fstatfs; fsync = SYS_fsync;
    ftruncate = SYS_ftruncate; futex = SYS_futex; get_robust_list = SYS_get_robust_list; getcpu = SYS_getcpu;
    getcwd = SYS_getcwd; getdents64 = SYS_getdents64; getegid = SYS_getegid; geteuid = SYS_geteuid;
    getgid = SYS_getgid; getgroups = SYS_getgroups; getpeername = SYS_getpeername; getpgid = SYS_getpgid;
    getpgrp = SYS_getpgrp; getpid = SYS_getpid; getppid = SYS_getppid; getrandom = SYS_getrandom;
    getresgid = SYS_getresgid; getresuid = SYS_getresuid; getrlimit = SYS_getrlimit; getsid = SYS_getsid;
    getsockname = SYS_getsockname; getsockopt = SYS_getsockopt; gettid = SYS_gettid;
    gettimeofday = SYS_gettimeofday; getuid = SYS_getuid; io_uring_enter = SYS_io_uring_enter;
    io_uring_register = SYS_io_uring_register; io_uring_setup = SYS_io_uring_setup; ioctl = SYS_ioctl;
    kill = SYS_kill; link = SYS_link; linkat = SYS_linkat; listen = SYS_listen; lseek = SYS_lseek;
    lstat = SYS_lstat; madvise = SYS_madvise; mkdir = SYS_mkdir; mkdirat = SYS_mkdirat; mmap = SYS_mmap;
    mprotect = SYS_mprotect; mremap = SYS_mremap; munmap = SYS_munmap; nanosleep = SYS_nanosleep;
    newfstatat = SYS_newfstatat; open = SYS_open; openat = SYS_openat; openat2 = SYS_openat2; pipe = SYS_pipe;
    pipe2 = SYS_pipe2; poll = SYS_poll; ppoll = SYS_ppoll; prctl = SYS_prctl; pread64 = SYS_pread64;
    preadv = SYS_preadv; prlimit64 = SYS_prlimit64; pselect6 = SYS_pselect6; pwrite64 = SYS_pwrite64;
    pwritev = SYS_pwritev; read = SYS_read; readlink = SYS_readlink; readlinkat = SYS_readlinkat;
    readv = SYS_readv; recvfrom = SYS_recvfrom; recvmmsg = SYS_recvmmsg; recvmsg = SYS_recvmsg;
    rename = SYS_rename; renameat = SYS_renameat; renameat2 = SYS_renameat2;
    restart_syscall = SYS_restart_syscall; rmdir = SYS_rmdir; rseq = SYS_rseq;
    rt_sigaction = SYS_rt_sigaction; rt_sigprocmask = SYS_rt_sigprocmask; rt_sigreturn = SYS_rt_sigreturn;
    rt_sigsuspend = SYS_rt_sigsuspend; rt_sigtimedwait = SYS_rt_sigtimedwait;
    sched_getaffinity = SYS_sched_getaffinity; sched_setaffinity = SYS_sched_setaffinity;
    sched_yield = SYS_sched_yield; seccomp = SYS_seccomp; select = SYS_select; sendmmsg = SYS_sendmmsg;
    sendmsg = SYS_sendmsg; sendto = SYS_sendto; set_robust_list = SYS_set_robust_list;
    set_tid_address = SYS_set_tid_address; setgid = SYS_setgid; setgroups = SYS_setgroups;
    setpgid = SYS_setpgid; setresgid = SYS_setresgid; setresuid = SYS_setresuid; setrlimit = SYS_setrlimit;
    setsid = SYS_setsid; setsockopt = SYS_setsockopt; setuid = SYS_setuid; shutdown = SYS_shutdown;
    sigaltstack = SYS_sigaltstack; socket = SYS_socket; socketpair = SYS_socketpair; stat = SYS_stat;
    statfs = SYS_statfs; statx = SYS_statx; sysinfo = SYS_sysinfo; tgkill = SYS_tgkill; time = SYS_time;
    umask = SYS_umask; uname = SYS_uname; unlink = SYS_unlink; unlinkat = SYS_unlinkat;
    utimensat = SYS_utimensat; vfork = SYS_vfork; wait4 = SYS_wait4; waitid = SYS_waitid; write = SYS_write;
    writev = SYS_writev;
}

/// What the profile does with one system call.
struct Rule {
    number: u32,
    action: u32,
}

/// The profile's rules. Conditions on arguments are left to the container runtime: the call is allowed here.
fn rules() -> Vec<Rule> {
    let profile: serde_json::Value = serde_json::from_str(PROFILE).expect("JSON");
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    assert_eq!(profile["defaultErrnoRet"], libc::EPERM);
    let mut rules = Vec::new();
    for rule in profile["syscalls"].as_array().expect("a list") {
        assert!(rule["comment"].is_string(), "every rule says why");
        let action = match rule["action"].as_str().expect("text") {
            "SCMP_ACT_ALLOW" => libc::SECCOMP_RET_ALLOW,
            "SCMP_ACT_ERRNO" => {
                libc::SECCOMP_RET_ERRNO | rule["errnoRet"].as_u64().expect("a number") as u32
            }
            other => panic!("action {other}"),
        };
        for name in rule["names"].as_array().expect("a list") {
            let name = name.as_str().expect("text");
            let known = NUMBERS.iter().find(|(known, _)| *known == name);
            let (_, number) = known.unwrap_or_else(|| panic!("no system call is named {name}"));
            assert!(
                rules
                    .iter()
                    .all(|rule: &Rule| rule.number != *number as u32),
                "{name} is named once"
            );
            rules.push(Rule {
                number: *number as u32,
                action,
            });
        }
    }
    rules
}

/// The profile as a filter of the kernel.
fn filter() -> Vec<libc::sock_filter> {
    const LOAD_WORD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let instruction = |code, jf, k| libc::sock_filter { code, jt: 0, jf, k };
    let mut filter = vec![instruction(LOAD_WORD, 0, 0)];
    for rule in rules() {
        filter.push(instruction(JUMP_IF_EQUAL, 1, rule.number));
        filter.push(instruction(RETURN, 0, rule.action));
    }
    let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    filter.push(instruction(RETURN, 0, refused));
    filter
}

/// Runs one test of this file in a process under the profile.
fn confined(test: &str) {
    let mut filter = filter();
    let mut command = Command::new(std::env::current_exe().expect("has a path"));
    command
        .args(["--exact", test, "--nocapture"])
        .env(CONFINED, "1");
    let confine = move || {
        let program = libc::sock_fprog {
            len: filter.len() as u16,
            filter: filter.as_mut_ptr(),
        };
        // SAFETY: system calls alone, which is all that is allowed between fork and exec; the program is valid meanwhile.
        unsafe {
            if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) != 0
            {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: the closure makes system calls alone.
    unsafe { command.pre_exec(confine) };
    let output = command.output().expect("runs");
    assert!(output.status.success(), "{output:?}");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("1 passed"), "{told}");
}

#[test]
fn the_profile_for_nfs_is_this_one_and_one_group_more() {
    const WITH_NFS: &str = include_str!("../../../../docs/seccomp/weir-nfs.json");
    let parse = |text| serde_json::from_str::<serde_json::Value>(text).unwrap();
    let (own, mut other) = (parse(PROFILE), parse(WITH_NFS));
    let groups = other["syscalls"].as_array_mut().unwrap();
    let added = |group: &serde_json::Value| group["comment"].as_str().unwrap().contains("NFS");
    let place = groups.iter().position(added).expect("there is one");
    let group = groups.remove(place);
    assert_eq!(group["names"].as_array().unwrap().len(), 6);
    assert_eq!(other, own);
}

#[test]
fn the_contract_holds_under_the_profile() {
    if std::env::var_os(CONFINED).is_none() {
        confined("the_contract_holds_under_the_profile");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let system = LinuxSystem::new(LinuxConfig::default()).expect("the profile allows io_uring");
    contract::suite(&Ground {
        place: Place {
            system,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            directory: directory.path().to_owned(),
        },
        drive: Box::new(|done| {
            while !done() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }),
    });
}

#[test]
fn the_profile_refuses_what_weir_does_not_need() {
    if std::env::var_os(CONFINED).is_none() {
        confined("the_profile_refuses_what_weir_does_not_need");
        return;
    }
    // SAFETY: each call is refused before it does anything, which is what is tested; the arguments are harmless anyway.
    unsafe {
        for (name, number) in [
            ("ptrace", libc::SYS_ptrace),
            ("mount", libc::SYS_mount),
            ("unshare", libc::SYS_unshare),
            ("bpf", libc::SYS_bpf),
            ("init_module", libc::SYS_init_module),
            ("process_vm_readv", libc::SYS_process_vm_readv),
        ] {
            assert_eq!(libc::syscall(number, 0, 0, 0, 0, 0), -1, "{name}");
            let error = io::Error::last_os_error().raw_os_error();
            assert_eq!(error, Some(libc::EPERM), "{name}");
        }
        // The C library is told to do without, and does: threads start.
        assert_eq!(libc::syscall(libc::SYS_clone3, 0, 0), -1);
        assert_eq!(
            io::Error::last_os_error().raw_os_error(),
            Some(libc::ENOSYS)
        );
    }
    let thread = std::thread::spawn(|| 5);
    assert_eq!(thread.join().expect("no panic"), 5);
}

//! Packets of a network interface: a packet socket with a ring of memory that the kernel fills (TPACKET_V3 of packet(7)).
//!
//! The ring is made of blocks. The kernel fills a block and hands it over when it is full or some milliseconds old; the program gives it
//! back after reading. A packet that finds no free block is dropped, and counted by the kernel. This module only reads blocks and
//! counts; it does not decide what a loss means.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::linux::card;
use crate::linux::socket::about;
use crate::{Op, Reactor};

/// Bytes of a block: some thousand small packets, and more than any single one.
const BLOCK_BYTES: usize = 1 << 20;
/// Time after which the kernel hands over a block that is not full.
const BLOCK_MILLISECONDS: u32 = 10;
/// Bytes of an 802.1Q tag, which the kernel may keep beside a packet.
const TAG_BYTES: usize = 4;
/// Bytes of the two addresses of a frame, behind which the tag stands.
const ADDRESSES_BYTES: usize = 12;
/// PACKET_FANOUT_FLAG_UNIQUEID (linux/if_packet.h): the kernel chooses a number that nobody has.
const UNIQUE_ID: u32 = 0x2000;
/// PACKET_FANOUT_FLAG_IGNORE_OUTGOING (linux/if_packet.h): for the whole group; older kernels do not know it.
const GROUP_IGNORES_OUTGOING: u32 = 0x4000;
/// BPF_RET and BPF_K (linux/bpf_common.h): so many bytes are taken.
const RETURN: u16 = 0x06;
/// Place of the address (struct sockaddr_ll) behind a packet's header: TPACKET_ALIGN of its size.
const ADDRESS_AT: usize = size_of::<libc::tpacket3_hdr>().next_multiple_of(libc::TPACKET_ALIGNMENT);
/// PACKET_IGNORE_OUTGOING (linux/if_packet.h).
const IGNORE_OUTGOING: libc::c_int = 23;
/// ETH_P_8021Q (linux/if_ether.h): the type of a tag where the kernel names none.
const TAGGED: u16 = 0x8100;

/// One instruction of a filter (struct sock_filter of linux/filter.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterInstruction {
    /// Its operation.
    pub code: u16,
    /// Instructions that are skipped where its condition holds, and where not.
    pub jump_true: u8,
    /// As above.
    pub jump_false: u8,
    /// Its operand.
    pub operand: u32,
}

impl FilterInstruction {
    /// A filter by itself: takes so many bytes of each packet; with 0, none.
    #[must_use]
    pub fn keep(bytes: u32) -> Self {
        FilterInstruction {
            code: RETURN,
            jump_true: 0,
            jump_false: 0,
            operand: bytes,
        }
    }
}

/// Settings of a capture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaptureOptions {
    /// Name of the interface.
    pub interface: String,
    /// Bytes of each socket's ring: a multiple of 1 MiB, at least 2 MiB.
    pub ring_bytes: usize,
    /// Sockets among which the packets are divided, by flow.
    pub sockets: u16,
    /// The interface takes packets that are for others, too.
    pub promiscuous: bool,
    /// Packets that this machine sends are taken, too.
    pub outgoing: bool,
    /// Says which packets are taken, and how many bytes of each.
    pub filter: Vec<FilterInstruction>,
}

/// Properties of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceInfo {
    /// Its number, which is another one when it is made again.
    pub index: u32,
    /// Type of its hardware (ARPHRD_).
    pub hardware: u16,
    /// Bits a second, where its driver says so.
    pub speed: Option<u64>,
    /// Offloads that merge packets, or leave checksums undone, before a capture sees them; as `ethtool -k` names them.
    pub offloads: Vec<&'static str>,
}

/// A packet in the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// When the kernel took it, in nanoseconds since the beginning of 1970.
    pub time: u64,
    /// Bytes that it had.
    pub length: u32,
    /// Bytes that were kept, with the tag of its VLAN.
    pub data: &'a [u8],
}

/// Memory that is shared with the kernel.
struct Mapping {
    address: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory is the mapping's alone in this process, and not tied to a thread.
unsafe impl Send for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nothing refers to it any more: what does borrows the mapping.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.bytes) };
    }
}

/// Place of the packets of a block that is the program's.
#[derive(Debug, Clone, Copy)]
struct Cursor {
    /// Byte of the block at which the next packet's header stands.
    next: usize,
    packets: u32,
}

/// A packet socket with its ring.
pub struct Capture {
    socket: Arc<OwnedFd>,
    ring: Mapping,
    /// The block that is, or will be, the program's.
    block: usize,
    cursor: Option<Cursor>,
    interface: String,
    index: u32,
    /// Packets that this machine sends are taken, too.
    outgoing: bool,
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    match result {
        0.. => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets an option of packet sockets, or of sockets, whose value is `value`.
pub(super) fn set<T>(
    socket: &OwnedFd,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the descriptor is open; the kernel reads so many bytes of the value, and what they point to, before it returns.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast::<c_void>(),
            bytes,
        )
    };
    check(result).map(drop)
}

/// Reads an option into `value`, all of whose bits may be anything.
pub(super) fn get<T>(
    socket: &OwnedFd,
    level: libc::c_int,
    option: libc::c_int,
    value: &mut T,
) -> io::Result<()> {
    let mut bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the descriptor is open; the kernel writes no more bytes than it is told that there are, before it returns.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            option,
            std::ptr::from_mut(value).cast::<c_void>(),
            &raw mut bytes,
        )
    };
    check(result).map(drop)
}

/// Waits until a socket has data to read, or an error, which it returns.
pub(super) async fn readable(socket: &Arc<OwnedFd>, reactor: &Reactor) -> io::Result<()> {
    let op = Op::Ready {
        socket: Arc::clone(socket),
    };
    reactor.start(op).await.result?;
    let mut error: libc::c_int = 0;
    get(socket, libc::SOL_SOCKET, libc::SO_ERROR, &mut error)?;
    match error {
        0 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(error)),
    }
}

impl Capture {
    /// Begins to capture packets of an interface, with one ring for each of the sockets that are asked for. Needs CAP_NET_RAW, which is not
    /// needed any more afterwards.
    ///
    /// # Errors
    /// The system's, saying what it was about: `PermissionDenied` without the capability, `NotFound` where there is no such interface.
    pub fn open(options: &CaptureOptions) -> io::Result<(Vec<Capture>, InterfaceInfo)> {
        let mut all: Vec<Capture> = Vec::new();
        let mut group = None;
        let mut info = None;
        for _ in 0..options.sockets.max(1) {
            let (capture, found) = Capture::open_one(options)?;
            if options.sockets > 1 {
                group = Some(join(&capture, group)?);
            }
            all.push(capture);
            info = Some(found);
        }
        // Until all had joined nothing passed: packets would have come to several.
        for capture in &all {
            attach(&capture.socket, &options.filter)?;
        }
        Ok((all, info.expect("there is a socket at least")))
    }

    fn open_one(options: &CaptureOptions) -> io::Result<(Capture, InterfaceInfo)> {
        // Of no protocol: nothing comes before it is bound.
        // SAFETY: it takes no pointers.
        let number =
            unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        let number = check(number).map_err(about("a packet socket cannot be made"))?;
        // SAFETY: the descriptor was made just now, and is nobody else's.
        let socket = unsafe { OwnedFd::from_raw_fd(number) };
        let info = card::info(&socket, &options.interface)?;
        let level = libc::SOL_PACKET;
        let version = libc::tpacket_versions::TPACKET_V3 as libc::c_int;
        set(&socket, level, libc::PACKET_VERSION, &version).map_err(about("PACKET_VERSION"))?;
        // Room before each packet, for the tag to be put back.
        set(&socket, level, libc::PACKET_RESERVE, &(TAG_BYTES as u32))
            .map_err(about("PACKET_RESERVE"))?;
        let ring = Mapping::new(&socket, options.ring_bytes)?;
        attach(&socket, &[FilterInstruction::keep(0)])?;
        let is_loopback = info.hardware == libc::ARPHRD_LOOPBACK;
        // All packets of a loopback come in again.
        let outgoing = options.outgoing && !is_loopback;
        if !outgoing {
            set(&socket, level, IGNORE_OUTGOING, &1_u32)
                .map_err(about("PACKET_IGNORE_OUTGOING"))?;
        }
        if options.promiscuous && !is_loopback {
            let membership = libc::packet_mreq {
                mr_ifindex: info.index as libc::c_int,
                mr_type: libc::PACKET_MR_PROMISC as u16,
                mr_alen: 0,
                mr_address: [0; 8],
            };
            set(&socket, level, libc::PACKET_ADD_MEMBERSHIP, &membership)
                .map_err(about("the interface cannot be made promiscuous"))?;
        }
        bind(&socket, info.index).map_err(about(&options.interface))?;
        let capture = Capture {
            socket: Arc::new(socket),
            ring,
            block: 0,
            cursor: None,
            interface: options.interface.clone(),
            index: info.index,
            outgoing,
        };
        Ok((capture, info))
    }

    /// The next packet that has come; none where the kernel has handed none over.
    pub fn next_frame(&mut self) -> Option<Frame<'_>> {
        let (at, bytes, header) = loop {
            let mut cursor = match self.cursor {
                Some(cursor) => cursor,
                None => self.take_block()?,
            };
            if cursor.packets == 0 {
                self.give_block_back();
                continue;
            }
            let at = self.block * BLOCK_BYTES + cursor.next;
            let header = self.header::<libc::tpacket3_hdr>(self.block, cursor.next);
            let end = header.map(|header| header.tp_mac as usize + header.tp_snaplen as usize);
            let is_within = end.is_some_and(|end| cursor.next + end <= BLOCK_BYTES);
            let Some(header) = header.filter(|_| is_within) else {
                // It is not as the kernel makes them: no packet of this block can be trusted.
                debug_assert!(false, "a packet lies within its block");
                self.give_block_back();
                continue;
            };
            // Older kernels give a group the packets that are sent, too.
            let is_left_out = !self.outgoing && self.is_outgoing(cursor.next);
            cursor.packets -= 1;
            cursor.next += header.tp_next_offset as usize;
            self.cursor = Some(cursor);
            if is_left_out {
                continue;
            }
            break (
                at + header.tp_mac as usize,
                header.tp_snaplen as usize,
                header,
            );
        };
        let (from, kept) = match tag_of(&header).filter(|_| bytes >= ADDRESSES_BYTES) {
            None => (at, bytes),
            Some(tag) => {
                let from = at - TAG_BYTES;
                let room = self.block_bytes(from, bytes + TAG_BYTES);
                room.copy_within(TAG_BYTES..TAG_BYTES + ADDRESSES_BYTES, 0);
                room[ADDRESSES_BYTES..ADDRESSES_BYTES + TAG_BYTES].copy_from_slice(&tag);
                (from, bytes + TAG_BYTES)
            }
        };
        Some(Frame {
            time: u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec),
            length: header.tp_len + (kept - bytes) as u32,
            data: self.block_bytes(from, kept),
        })
    }

    /// Waits until the kernel hands over a block or reports an error. The future may be dropped at any time.
    ///
    /// # Errors
    /// The system's: `NetworkDown` each time that the interface goes down. One that comes up again goes on.
    pub async fn ready(&self, reactor: &Reactor) -> io::Result<()> {
        if self.is_ready() {
            return Ok(());
        }
        readable(&self.socket, reactor).await
    }

    /// Tells whether the interface was removed, or replaced by another of the same name: no more packets will come.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        card::index_of(&self.socket, &self.interface) != Some(self.index)
    }

    /// Packets that found no room in the ring since this was last asked.
    ///
    /// # Errors
    /// The system's.
    pub fn take_lost(&self) -> io::Result<u64> {
        let mut counts = libc::tpacket_stats_v3 {
            tp_packets: 0,
            tp_drops: 0,
            tp_freeze_q_cnt: 0,
        };
        get(
            &self.socket,
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            &mut counts,
        )?;
        Ok(counts.tp_drops.into())
    }

    /// Loss and error counters of the interface since it was made, from the kernel and from its driver.
    ///
    /// # Errors
    /// The system's.
    pub fn loss_counts(&self) -> io::Result<Vec<(String, u64)>> {
        card::loss_counts(&self.socket, &self.interface)
    }

    /// Packets that the interface lost since it was made, as the kernel counts them (rx_dropped).
    ///
    /// # Errors
    /// The system's.
    pub fn interface_lost(&self) -> io::Result<u64> {
        card::lost(&self.interface)
    }

    /// Share of the ring that waits for the program, from 0 to 1.
    #[must_use]
    pub fn fill(&self) -> f64 {
        let blocks = self.ring.bytes / BLOCK_BYTES;
        let waiting = (0..blocks).filter(|&block| self.is_handed_over(block));
        waiting.count() as f64 / blocks as f64
    }

    fn is_ready(&self) -> bool {
        self.cursor.is_some_and(|cursor| cursor.packets > 0)
            || self.is_handed_over(self.next_block())
    }

    /// The block that is handed over next.
    fn next_block(&self) -> usize {
        let blocks = self.ring.bytes / BLOCK_BYTES;
        (self.block + usize::from(self.cursor.is_some())) % blocks
    }

    fn status(&self, block: usize) -> &AtomicU32 {
        let at = block * BLOCK_BYTES + std::mem::offset_of!(libc::tpacket_block_desc, hdr);
        // SAFETY: each block begins with its description, which has its status first, aligned; the kernel and this program only ever
        // change that word as a whole.
        unsafe { AtomicU32::from_ptr(self.ring.address.as_ptr().add(at).cast()) }
    }

    fn is_handed_over(&self, block: usize) -> bool {
        // All that the kernel wrote before it said so is seen after this.
        self.status(block).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    fn take_block(&mut self) -> Option<Cursor> {
        if !self.is_handed_over(self.block) {
            return None;
        }
        let at = std::mem::offset_of!(libc::tpacket_block_desc, hdr);
        let header = self.header::<libc::tpacket_hdr_v1>(self.block, at)?;
        self.cursor = Some(Cursor {
            next: header.offset_to_first_pkt as usize,
            packets: header.num_pkts,
        });
        self.cursor
    }

    fn give_block_back(&mut self) {
        let status = self.status(self.block);
        // The kernel writes to it only after it has seen this.
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.block = (self.block + 1) % (self.ring.bytes / BLOCK_BYTES);
        self.cursor = None;
    }

    /// A copy of a structure in a block that is the program's; none where it does not lie within it.
    fn header<T: Copy>(&self, block: usize, at: usize) -> Option<T> {
        if at.checked_add(size_of::<T>())? > BLOCK_BYTES {
            return None;
        }
        let at = block * BLOCK_BYTES + at;
        // SAFETY: it lies within the mapping; all bits may be anything; the kernel does not write to a block that is the program's.
        Some(unsafe {
            self.ring
                .address
                .as_ptr()
                .add(at)
                .cast::<T>()
                .read_unaligned()
        })
    }

    /// Tells whether this machine sent a packet, whose header stands there in the block that is the program's.
    fn is_outgoing(&self, at: usize) -> bool {
        let address = self.header::<libc::sockaddr_ll>(self.block, at + ADDRESS_AT);
        address.is_some_and(|of| of.sll_pkttype == libc::PACKET_OUTGOING)
    }

    /// Bytes of the block that is the program's.
    fn block_bytes(&mut self, from: usize, bytes: usize) -> &mut [u8] {
        let block = self.block * BLOCK_BYTES..(self.block + 1) * BLOCK_BYTES;
        assert!(
            block.start <= from && from + bytes <= block.end,
            "it is of the block"
        );
        // SAFETY: it lies within the mapping, and the kernel does not write to a block that is the program's, which it is until
        // `give_block_back`; the slice borrows all that could call that.
        unsafe { std::slice::from_raw_parts_mut(self.ring.address.as_ptr().add(from), bytes) }
    }
}

/// The tag that the kernel took out of a packet.
fn tag_of(header: &libc::tpacket3_hdr) -> Option<[u8; TAG_BYTES]> {
    if header.tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let names_type = header.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    let kind = if names_type {
        header.hv1.tp_vlan_tpid
    } else {
        TAGGED
    };
    let [kind, control] = [kind, header.hv1.tp_vlan_tci as u16].map(u16::to_be_bytes);
    Some([kind[0], kind[1], control[0], control[1]])
}

impl Mapping {
    /// Has the kernel make a ring, and maps it.
    fn new(socket: &OwnedFd, bytes: usize) -> io::Result<Self> {
        let blocks = (bytes / BLOCK_BYTES).max(2);
        // The size of a frame says how many there are at least, and is otherwise not used.
        const FRAME_BYTES: usize = 2048;
        let request = libc::tpacket_req3 {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: FRAME_BYTES as u32,
            tp_frame_nr: (blocks * BLOCK_BYTES / FRAME_BYTES) as u32,
            tp_retire_blk_tov: BLOCK_MILLISECONDS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        set(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)
            .map_err(about("the kernel has no memory for the ring"))?;
        let bytes = blocks * BLOCK_BYTES;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                socket.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(about("the ring cannot be mapped")(
                io::Error::last_os_error(),
            ));
        }
        let address = NonNull::new(address.cast()).expect("a mapping has an address");
        Ok(Mapping { address, bytes })
    }
}

fn attach(socket: &OwnedFd, filter: &[FilterInstruction]) -> io::Result<()> {
    let instruction = |one: &FilterInstruction| libc::sock_filter {
        code: one.code,
        jt: one.jump_true,
        jf: one.jump_false,
        k: one.operand,
    };
    let mut instructions: Vec<_> = filter.iter().map(instruction).collect();
    let program = libc::sock_fprog {
        len: instructions.len().min(u16::MAX.into()) as u16,
        filter: instructions.as_mut_ptr(),
    };
    set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
        .map_err(about("the kernel refuses the filter"))
}

fn bind(socket: &OwnedFd, index: u32) -> io::Result<()> {
    // SAFETY: all zeroes is a value of it.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as libc::c_int;
    let bytes = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the descriptor is open, and the address is read before it returns.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), bytes) };
    check(result).map(drop)
}

/// Joins a socket to a fanout group, or starts one; the group's number.
fn join(capture: &Capture, group: Option<u16>) -> io::Result<u16> {
    let socket = &*capture.socket;
    // By flow; when one ring is full, the kernel uses another.
    let mut by = libc::PACKET_FANOUT_HASH | libc::PACKET_FANOUT_FLAG_ROLLOVER;
    if !capture.outgoing {
        by |= GROUP_IGNORES_OUTGOING;
    }
    let word = match group {
        None => (by | UNIQUE_ID) << 16,
        Some(group) => by << 16 | u32::from(group),
    };
    set(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, &word).map_err(about(
        "the packets cannot be divided (PACKET_FANOUT); is the interface up?",
    ))?;
    let mut joined = 0_u32;
    get(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, &mut joined)
        .map_err(about("PACKET_FANOUT"))?;
    Ok(joined as u16)
}

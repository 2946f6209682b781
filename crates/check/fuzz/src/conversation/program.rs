//! What a conversation does, as bytes: a head, and then steps of eight bytes each.
//!
//! A step of a fixed length keeps a change of one byte to one step, and lets a fuzzer cut, double and move steps. Every byte
//! string is a program; what is left over at its end is not read.

/// Bytes of the head.
pub(super) const HEAD_BYTES: usize = 8;
/// Bytes of a step.
pub(super) const STEP_BYTES: usize = 8;
/// Steps that are carried out at most.
pub(super) const STEPS_MAX: usize = 160;
/// Bit of a step's first byte: what it sends stays staged until a later step lets it go.
pub(super) const HOLD: u8 = 0x80;
/// Connections that a program has at once at most.
pub(super) const PEERS: usize = 4;

/// What the world is like that a program runs in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    /// Reactors of the target, 1 to 3.
    pub(super) reactors: u32,
    /// Blocks are of 4096 bytes and not of 512.
    pub(super) large_blocks: bool,
    /// Volumes have a guard, as in a gateway.
    pub(super) guarded: bool,
    /// How volumes let data be received: see `medium::Landings`.
    pub(super) landings: u8,
    /// Volumes compare and write natively.
    pub(super) native_compare_write: bool,
    /// The most that one request of a volume transfers is 8 KiB, so that the guard splits what is longer.
    pub(super) short_requests: bool,
    /// Requests that a volume takes at once.
    pub(super) volume_depth: u32,
    pub(super) seed: u8,
    /// The largest segment of the network.
    pub(super) segment_bytes: usize,
    /// In-capsule data of I/O commands, the longest C2HData, MDTS.
    pub(super) in_capsule: u32,
    pub(super) max_c2h: u32,
    pub(super) mdts: u32,
    /// Data of one connection's commands at once.
    pub(super) bytes_in_flight: u32,
    /// Bytes of a reactor's pool.
    pub(super) pool_bytes: usize,
    /// Bytes of a reactor's buffers to receive into.
    pub(super) receive_bytes: usize,
    /// Bytes that a socket buffers.
    pub(super) socket_bytes: usize,
}

fn choose<T: Copy>(choices: &[T], byte: u8) -> T {
    choices[usize::from(byte) % choices.len()]
}

impl Head {
    fn decode(bytes: [u8; HEAD_BYTES]) -> Self {
        let [flags, volume, seed, network, sizes, transfer, memory, data] = bytes;
        let mdts = choose(&[128 << 10, 1 << 20, 16 << 10, 8192], transfer & 3);
        Head {
            reactors: choose(&[1, 2, 3, 2], flags & 3),
            large_blocks: flags & 4 != 0,
            guarded: flags & 8 == 0,
            native_compare_write: flags & 16 != 0,
            short_requests: flags & 32 != 0,
            landings: flags >> 6,
            volume_depth: choose(&[64, 1, 2, 5], volume),
            seed,
            segment_bytes: choose(&[64 << 10, 1460, 100, 7], network & 3),
            socket_bytes: choose(&[128 << 10, 8 << 10, 2 << 10, 256 << 10], network >> 2 & 3),
            in_capsule: choose(&[16_384, 8192, 4096, 0], sizes & 3),
            max_c2h: choose(&[1 << 20, 4096, 8192, 4100], sizes >> 4 & 3),
            mdts,
            bytes_in_flight: choose(&[64 << 20, mdts, 2 * mdts, 1 << 20], data & 3).max(mdts),
            pool_bytes: choose(&[16 << 20, 1 << 20, 2 << 20, 4 << 20], memory & 3),
            receive_bytes: choose(&[1 << 20, 256 << 10, 512 << 10, 8 << 20], memory >> 2 & 3),
        }
    }

    pub(super) fn block_bytes(&self) -> usize {
        if self.large_blocks { 4096 } else { 512 }
    }
}

/// What a step does. Where a step names a peer, it is one of [`PEERS`]; the other bytes are read as it needs them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Connects, initializes, and connects the admin queue of a controller or one of its I/O queues: all that is needed.
    Up,
    /// A TCP connection, and nothing on it.
    Open,
    /// An ICReq, good or not.
    Initialize,
    /// A Connect, good or not.
    Connect,
    /// Property Get or Set.
    Property,
    /// A command of the admin queue.
    Admin,
    /// A Read.
    Read,
    /// A Write.
    Write,
    /// Another command of an I/O queue.
    Nvm,
    /// A fused pair.
    Fused,
    /// Data that R2Ts asked for.
    Data,
    /// H2CData that nobody asked for, or in another way than asked for.
    WrongData,
    /// An entry with any bytes.
    Entry,
    /// A PDU with any bytes.
    Pdu,
    /// Damages what is staged.
    Damage,
    /// Sends what is staged, in pieces.
    Flush,
    /// Time passes.
    Wait,
    /// A peer ends its connection, one way or another.
    End,
    /// An Abort of something that may be outstanding.
    Abort,
    /// How the next requests of a volume end, and when.
    Fate,
    /// A peer stops reading, or goes on.
    Pause,
    /// The same command many times.
    Burst,
    /// The target is told something by its owner.
    Owner,
}

/// Every kind, by number.
pub(super) const KINDS: [Kind; 23] = [
    Kind::Up,
    Kind::Open,
    Kind::Initialize,
    Kind::Connect,
    Kind::Property,
    Kind::Admin,
    Kind::Read,
    Kind::Write,
    Kind::Nvm,
    Kind::Fused,
    Kind::Data,
    Kind::WrongData,
    Kind::Entry,
    Kind::Pdu,
    Kind::Damage,
    Kind::Flush,
    Kind::Wait,
    Kind::End,
    Kind::Abort,
    Kind::Fate,
    Kind::Pause,
    Kind::Burst,
    Kind::Owner,
];

/// One step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub(super) kind: Kind,
    pub(super) hold: bool,
    pub(super) peer: usize,
    /// What the kind makes of it.
    pub(super) bytes: [u8; 6],
}

impl Step {
    fn decode(bytes: [u8; STEP_BYTES]) -> Self {
        let [kind, peer, rest @ ..] = bytes;
        Step {
            kind: KINDS[usize::from(kind & !HOLD) % KINDS.len()],
            hold: kind & HOLD != 0,
            peer: usize::from(peer) % PEERS,
            bytes: rest,
        }
    }

    /// Two of its bytes as a number.
    pub(super) fn word(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }
}

/// A program. None where there are not even bytes for its head.
pub(super) fn decode(data: &[u8]) -> Option<(Head, Vec<Step>)> {
    let (head, rest) = data.split_first_chunk::<HEAD_BYTES>()?;
    let (steps, _) = rest.as_chunks::<STEP_BYTES>();
    let steps = steps.iter().take(STEPS_MAX).map(|step| Step::decode(*step));
    Some((Head::decode(*head), steps.collect()))
}

/// The bytes of a step: for seeds.
pub(super) fn step(kind: Kind, peer: u8, bytes: [u8; 6]) -> [u8; STEP_BYTES] {
    let number = KINDS.iter().position(|other| *other == kind);
    let number = number.expect("every kind has a number") as u8;
    let [a, b, c, d, e, f] = bytes;
    [number, peer, a, b, c, d, e, f]
}

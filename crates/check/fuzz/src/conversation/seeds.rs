//! Programs to begin with: each shows a fuzzer a part of what conversations can be.

use super::program::{HEAD_BYTES, HOLD, Kind, step};

fn held(mut bytes: [u8; 8]) -> [u8; 8] {
    bytes[0] |= HOLD;
    bytes
}

/// Programs, by name.
#[must_use]
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let admin = step(Kind::Up, 0, [0, 0, 0, 0, 0, 0]);
    let admin_digests = step(Kind::Up, 0, [0, 3, 0, 0, 1, 0]);
    let io = step(Kind::Up, 1, [1, 0, 0, 0, 0, 0]);
    let io_digests = step(Kind::Up, 1, [1, 3 | 7 << 2, 0, 0, 1, 0]);
    let io_flow_control = step(Kind::Up, 2, [2, 1, 2, 1, 0, 0]);
    let late = step(Kind::Fate, 0, [5, 15, 3, 8, 1, 0]);
    let slow = step(Kind::Fate, 0, [5, 15, 0, 8, 0, 0]);
    let failing = step(Kind::Fate, 0, [2, 5, 2, 4, 0, 0]);
    let fetched = step(Kind::Write, 1, [0, 8, 16, 0, 1, 0]);
    let in_capsule = step(Kind::Write, 1, [0, 9, 3, 0, 0, 0]);
    let read = step(Kind::Read, 1, [0, 8, 16, 0, 0, 0]);
    let data = step(Kind::Data, 1, [0, 1, 0, 0, 0, 0]);
    let whole = step(Kind::Data, 1, [0, 0, 0, 0, 0, 0]);
    let bit_flipped = |pdu, at| step(Kind::Damage, 1, [0, pdu, 0, at, 0, 3]);
    let byte_set = |pdu, at, value| step(Kind::Damage, 1, [1, pdu, 0, at, 0, value]);
    let programs: Vec<(&str, Vec<[u8; 8]>)> = vec![
        (
            "write-read",
            vec![admin, io, in_capsule, fetched, data, read],
        ),
        (
            "digests",
            vec![admin_digests, io_digests, in_capsule, fetched, data, read],
        ),
        (
            "two-queues",
            vec![
                admin,
                io,
                io_flow_control,
                late,
                in_capsule,
                step(Kind::Write, 2, [0, 9, 3, 0, 1, 0]),
                step(Kind::Data, 2, [0, 2, 1, 0, 0, 0]),
                read,
                step(Kind::Read, 2, [0, 9, 3, 0, 0, 0]),
                step(Kind::Data, 2, [0, 2, 0, 0, 0, 0]),
            ],
        ),
        (
            "admin",
            (0..28)
                .map(|n| step(Kind::Admin, 0, [n, n, 0, n / 8, 0, 0]))
                .fold(vec![admin], |mut all, one| {
                    all.push(one);
                    all
                }),
        ),
        (
            "nvm",
            (0..8).map(|n| step(Kind::Nvm, 1, [n, 0, 4, 3, 0, 3])).fold(
                vec![admin, io, in_capsule],
                |mut all, one| {
                    all.push(one);
                    all
                },
            ),
        ),
        (
            "edges",
            [250, 252, 253, 254, 255]
                .into_iter()
                .flat_map(|lba| {
                    let nsid = if lba == 250 { 0 } else { lba & 15 };
                    [
                        step(Kind::Read, 1, [0, lba, 11, 0, 0, 0]),
                        step(Kind::Write, 1, [0, lba, 11, 0, 0, 0]),
                        step(Kind::Write, 1, [0, lba, 11, 0, 1, 0]),
                        step(Kind::Nvm, 1, [1, 0, lba, 11, 0, 0]),
                        step(Kind::Nvm, 1, [3, 0, lba, 11, 0, 0]),
                        step(Kind::Nvm, 1, [4, 0, lba, 11, 0, 2]),
                        step(Kind::Nvm, 1, [6, 0, 8, 11, lba, 2]),
                        step(Kind::Read, 1, [nsid, 8, 255, 0, 0, 0]),
                        step(Kind::Write, 1, [nsid, 8, 3, lba, 0, 0]),
                    ]
                })
                .fold(vec![admin, io], |mut all, one| {
                    all.push(one);
                    all
                }),
        ),
        (
            "fused",
            vec![
                admin,
                io,
                step(Kind::Fused, 1, [0, 20, 3, 0, 0, 0]),
                step(Kind::Fused, 1, [0, 20, 3, 3, 0, 0]),
                data,
                data,
                step(Kind::Fused, 1, [0x30, 20, 3, 0, 0, 0]),
                step(Kind::Fused, 1, [0x31, 20, 3, 0, 0, 0]),
                step(Kind::Fused, 1, [0, 20, 3, 0, 1, 0]),
            ],
        ),
        (
            "aborts",
            vec![
                admin,
                io,
                late,
                fetched,
                step(Kind::Abort, 0, [1, 0, 0, 0, 0, 0]),
                data,
                read,
                step(Kind::Abort, 0, [1, 0, 0, 0, 0, 0]),
                step(Kind::Abort, 0, [0, 0, 7, 3, 0, 0]),
            ],
        ),
        (
            "failures",
            vec![admin, io, failing, in_capsule, fetched, data, read],
        ),
        (
            "lost-with-writes",
            vec![
                admin,
                io,
                late,
                in_capsule,
                step(Kind::End, 1, [1, 0, 0, 0, 0, 0]),
                io,
                read,
                step(Kind::End, 0, [0, 0, 0, 0, 0, 0]),
                admin,
                io,
                read,
            ],
        ),
        (
            // What the second queue reads is read before the write of the first one has landed, if nothing keeps it back.
            "overtaken",
            vec![
                admin,
                io,
                slow,
                in_capsule,
                step(Kind::End, 1, [2, 0, 0, 0, 0, 0]),
                step(Kind::Wait, 0, [3, 0, 0, 0, 0, 0]),
                step(Kind::Up, 2, [2, 0, 0, 0, 0, 0]),
                step(Kind::Read, 2, [0, 8, 16, 0, 0, 0]),
                step(Kind::Wait, 0, [3, 0, 0, 0, 0, 0]),
                step(Kind::Wait, 0, [6, 0, 0, 0, 0, 0]),
            ],
        ),
        (
            "reset-shutdown",
            vec![
                admin,
                io,
                late,
                in_capsule,
                step(Kind::Property, 0, [1, 0, 1, 0, 0, 0]),
                step(Kind::Property, 0, [1, 0, 0, 0, 0, 0]),
                step(Kind::Wait, 0, [5, 0, 0, 0, 0, 0]),
                io,
                step(Kind::Property, 0, [1, 0, 3, 0, 0, 0]),
            ],
        ),
        (
            "damage",
            vec![
                admin,
                io,
                held(in_capsule),
                held(in_capsule),
                held(read),
                held(step(Kind::Damage, 1, [0, 1, 0, 40, 0, 3])),
                step(Kind::Flush, 1, [1, 0, 0, 0, 0, 0]),
                io_digests,
                held(fetched),
                held(step(Kind::Damage, 1, [3, 0, 0, 0, 0, 0])),
                step(Kind::Flush, 1, [7, 40, 0, 0, 0, 0]),
                data,
            ],
        ),
        (
            "damaged-data",
            vec![
                admin_digests,
                io_digests,
                held(in_capsule),
                held(bit_flipped(0, 200)),
                step(Kind::Flush, 1, [6, 0, 0, 0, 0, 0]),
                // One PDU, then several of which the first is damaged, then several of which the last is.
                fetched,
                held(whole),
                held(bit_flipped(0, 100)),
                step(Kind::Flush, 1, [6, 0, 0, 0, 0, 0]),
                fetched,
                held(data),
                held(bit_flipped(0, 100)),
                step(Kind::Flush, 1, [5, 0, 0, 0, 0, 0]),
                fetched,
                held(data),
                held(bit_flipped(2, 100)),
                step(Kind::Flush, 1, [5, 0, 0, 0, 0, 0]),
                fetched,
                data,
                read,
            ],
        ),
        (
            "data-beside-its-place",
            vec![
                admin,
                io,
                // A byte behind its place, and a byte before it: DATAO is at byte 12 of H2CData.
                fetched,
                held(data),
                held(byte_set(0, 12, 1)),
                step(Kind::Flush, 1, [6, 0, 0, 0, 0, 0]),
                read,
                io,
                fetched,
                held(data),
                held(byte_set(1, 12, 0xff)),
                held(byte_set(1, 13, 0x0f)),
                step(Kind::Flush, 1, [6, 0, 0, 0, 0, 0]),
                read,
            ],
        ),
        (
            "data-beyond-its-end",
            vec![
                admin,
                io,
                // 10 blocks are asked for; 4 bytes more come, and then nothing for as long as the target waits.
                step(Kind::Write, 1, [0, 8, 9, 0, 1, 0]),
                step(Kind::WrongData, 1, [0, 3, 0x04, 0x14, 0, 0]),
                step(Kind::Wait, 0, [6, 0, 0, 0, 0, 0]),
                step(Kind::Wait, 0, [7, 0, 0, 0, 0, 0]),
            ],
        ),
        (
            "wrong-data",
            vec![
                admin,
                io,
                fetched,
                step(Kind::WrongData, 1, [0, 2, 0, 2, 0, 0]),
                io,
                fetched,
                step(Kind::WrongData, 1, [0, 1, 5, 0, 0, 0]),
            ],
        ),
        (
            "by-hand",
            vec![
                step(Kind::Open, 3, [0; 6]),
                step(Kind::Initialize, 3, [3, 4, 0, 0, 0, 0]),
                step(Kind::Connect, 3, [0, 0, 0, 0, 0, 4]),
                step(Kind::Property, 3, [1, 0, 0, 0, 0, 0]),
                step(Kind::Property, 3, [0, 2, 0, 1, 0, 0]),
                step(Kind::Entry, 3, [6, 1, 1, 0, 3, 2]),
                step(Kind::Pdu, 3, [4, 0, 72, 0, 72, 9]),
            ],
        ),
        (
            "bursts",
            vec![
                admin,
                io_flow_control,
                step(Kind::Burst, 2, [1, 60, 0, 0, 0, 0]),
                step(Kind::Pause, 2, [0; 6]),
                step(Kind::Burst, 2, [2, 60, 0, 0, 0, 0]),
                step(Kind::Burst, 2, [3, 60, 0, 1, 0, 0]),
                step(Kind::Pause, 2, [1, 0, 0, 0, 0, 0]),
                step(Kind::Burst, 0, [4, 20, 0, 0, 0, 0]),
            ],
        ),
        (
            "owner",
            vec![
                admin,
                io,
                step(Kind::Burst, 0, [4, 4, 0, 0, 0, 0]),
                late,
                in_capsule,
                step(Kind::Owner, 0, [0; 6]),
                read,
                step(Kind::Owner, 0, [0; 6]),
                read,
                step(Kind::Owner, 0, [2, 1, 0, 0, 0, 0]),
            ],
        ),
    ];
    let heads: [[u8; HEAD_BYTES]; 4] = [
        [0, 0, 1, 0, 0, 0, 0, 0],
        [0x41, 1, 2, 0x05, 0x15, 0, 1, 0],
        [0x96, 2, 3, 0x02, 0x2a, 1, 5, 0],
        [0xf8, 3, 4, 0x0b, 0x3f, 2, 0x0a, 0],
    ];
    let mut seeds = Vec::new();
    for (name, steps) in programs {
        for (number, head) in heads.iter().enumerate() {
            let bytes = head.iter().chain(steps.iter().flatten());
            seeds.push((format!("{name}-{number}"), bytes.copied().collect()));
        }
    }
    seeds
}

//! What it means that a block does not hold what was written to it: which of a medium's lies it is, by what is there instead, by what its
//! neighbours hold, and by what is found when it is read again.
//!
//! Pure: it is given bytes, and knows no volume. All contents are functions of their stamp, so that what should be there, and what was
//! there before, can be put side by side with what is.

use std::collections::HashMap;
use std::fmt;

use crate::pattern::{Stamp, header, number_of, whole, writer_of};

/// Bits that may differ for a block to count as damaged in single bits, and not as a whole.
const FLIPPED_BITS_MAX: u32 = 8;
/// Earlier sequence numbers of a block that parts of it are compared with, from the latest on.
const EARLIER_MAX: u64 = 64;
/// In what units contents are told apart within a block, in bytes.
const WORD_LEN: usize = 8;

/// What a volume did wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A write that was acknowledged had no effect: what was there before it still is.
    LostWrite,
    /// A write that was acknowledged had an effect on a part of its blocks, or of a block.
    TornWrite,
    /// A read yielded what was there before a write that had been acknowledged; the write was not lost, for later reads yield it.
    StaleRead,
    /// A write took effect at another address than its own.
    MisdirectedWrite,
    /// A read yielded what is at another address; later reads do not.
    MisdirectedRead,
    /// A few bits are not as they were written.
    BitFlip,
    /// A block holds what was written to it in part, and for the rest nothing that is known.
    Corruption,
    /// A block holds nothing that this run wrote.
    ForeignData,
    /// A read succeeded, and yielded less than was asked for.
    ShortRead,
}

impl Fault {
    /// Every one.
    pub const ALL: [Fault; 9] = [
        Fault::LostWrite,
        Fault::TornWrite,
        Fault::StaleRead,
        Fault::MisdirectedWrite,
        Fault::MisdirectedRead,
        Fault::BitFlip,
        Fault::Corruption,
        Fault::ForeignData,
        Fault::ShortRead,
    ];

    /// Its name for programs: words with hyphens.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Fault::LostWrite => "lost-write",
            Fault::TornWrite => "torn-write",
            Fault::StaleRead => "stale-read",
            Fault::MisdirectedWrite => "misdirected-write",
            Fault::MisdirectedRead => "misdirected-read",
            Fault::BitFlip => "bit-flip",
            Fault::Corruption => "corruption",
            Fault::ForeignData => "foreign-data",
            Fault::ShortRead => "short-read",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.code().replace('-', " "))
    }
}

/// Something wrong that was found, and what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What the volume did.
    pub fault: Fault,
    /// The block that shows it; the first of them, as a rule.
    pub lba: u64,
    /// Blocks of the same request that are wrong.
    pub blocks: u32,
    /// The sequence number that should be there; in a check the least that should.
    pub sequence: u64,
    /// What is there, in words.
    pub found: String,
    /// Of what was misdirected, the other address: where it should have gone to, or went to.
    pub counterpart: Option<u64>,
    /// Whether reading again yielded something wrong every time.
    pub persists: bool,
}

impl Finding {
    /// The sequence number that should be there, as it counts: without the bits that say which machine of several wrote.
    #[must_use]
    pub fn number(&self) -> u64 {
        number_of(self.sequence)
    }

    /// What would explain it, if it is elsewhere.
    pub(crate) fn missing(&self, seed: u64) -> Option<Stamp> {
        let seems_lost = matches!(self.fault, Fault::LostWrite | Fault::TornWrite);
        seems_lost.then_some(Stamp {
            seed,
            lba: self.lba,
            sequence: self.sequence,
        })
    }

    /// A write that seems lost and is found elsewhere went there.
    pub(crate) fn explain(&mut self, seed: u64, places: &HashMap<Stamp, u64>) {
        let place = self.missing(seed).and_then(|stamp| places.get(&stamp));
        if let Some(&at) = place {
            self.fault = Fault::MisdirectedWrite;
            self.counterpart = Some(at);
            self.found = format!("{}; what belongs there is in block {at}", self.found);
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let again = match (self.fault, self.persists) {
            (Fault::StaleRead | Fault::MisdirectedRead, _) | (_, false) => {
                "; read again, it holds what it should"
            }
            (_, true) => "; reading it again finds no better",
        };
        write!(
            formatter,
            "{}: block {} should hold sequence {}, and found was {}{again}",
            self.fault,
            self.lba,
            self.number(),
            self.found
        )
    }
}

/// What a block should hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// What the write with this number wrote.
    Exactly(u64),
    /// What any write of the run wrote that has at least this number.
    AtLeast(u64),
    /// Anything but what the run wrote to another block.
    Anything,
}

impl Wanted {
    pub(crate) fn sequence(self) -> u64 {
        match self {
            Wanted::Exactly(sequence) | Wanted::AtLeast(sequence) => sequence,
            Wanted::Anything => 0,
        }
    }
}

/// What a block holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holds {
    /// What it should.
    Wanted,
    /// What an earlier write of the run wrote to it.
    Earlier(Stamp),
    /// What no write has written yet.
    Later(Stamp),
    /// What the run wrote to another block.
    Elsewhere(Stamp),
    /// What another run wrote.
    OtherRun(Stamp),
    /// What another machine of the run wrote to it, which should have left it alone.
    OtherMachine(Stamp),
    /// What it should, with a few bits changed.
    Flipped { bits: u32, byte: usize },
    /// What it should in part, and for the rest, from this byte on, what is said here.
    Parts { byte: usize, of: Part },
    /// What it should, with more than a few bits changed.
    Damaged { bits: u32, byte: usize },
    /// Only zeroes.
    Zeroes,
    /// Anything else.
    Foreign,
    /// Nobody knows: the read did not yield it.
    Missing,
}

/// What a part of a block holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The same part of another stamped block.
    Stamped(Stamp),
    Zeroes,
}

impl fmt::Display for Holds {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holds::Wanted => formatter.write_str("just that"),
            Holds::Earlier(stamp) => write!(formatter, "what was there before it: {stamp}"),
            Holds::Later(stamp) => write!(formatter, "what was not written yet: {stamp}"),
            Holds::Elsewhere(stamp) => write!(formatter, "what belongs elsewhere: {stamp}"),
            Holds::OtherRun(stamp) => write!(formatter, "what another run wrote: {stamp}"),
            Holds::OtherMachine(stamp) => write!(
                formatter,
                "what another machine wrote to it, for which it is a block of another volume: {stamp}"
            ),
            Holds::Flipped { bits, byte } => {
                write!(
                    formatter,
                    "that with {bits} bits flipped, from byte {byte} on"
                )
            }
            Holds::Parts { byte, of } => match of {
                Part::Stamped(stamp) => write!(
                    formatter,
                    "that in part, and from byte {byte} on also parts of {stamp}"
                ),
                Part::Zeroes => {
                    write!(
                        formatter,
                        "that in part, and from byte {byte} on also zeroes"
                    )
                }
            },
            Holds::Damaged { bits, byte } => {
                write!(
                    formatter,
                    "that with {bits} bits changed, from byte {byte} on"
                )
            }
            Holds::Zeroes => formatter.write_str("zeroes"),
            Holds::Foreign => formatter.write_str("data that this tool did not write"),
            Holds::Missing => formatter.write_str("nothing: the read ended before it"),
        }
    }
}

/// What `block` holds, which should be at address `lba` and have been written by the run `seed`. The write before had the number
/// `previous`, where that is known, and else 0.
pub(crate) fn look(seed: u64, lba: u64, wanted: Wanted, previous: u64, block: &[u8]) -> Holds {
    let expected = |sequence| Stamp {
        seed,
        lba,
        sequence,
    };
    match wanted {
        Wanted::Exactly(sequence) => {
            let expected = expected(sequence);
            if expected.is_in(block) {
                return Holds::Wanted;
            }
            look_closely(&expected, previous, block)
        }
        Wanted::Anything => match whole(block) {
            Some(stamp) if stamp.seed == seed && stamp.lba != lba => Holds::Elsewhere(stamp),
            _ => Holds::Wanted,
        },
        Wanted::AtLeast(least) => {
            if let Some(stamp) = whole(block) {
                let own = stamp.seed == seed && stamp.lba == lba;
                return match own && stamp.sequence >= least {
                    true => Holds::Wanted,
                    false => whole_but_wrong(&expected(least), stamp),
                };
            }
            let of_header = header(block).filter(|stamp| stamp.seed == seed && stamp.lba == lba);
            let likely =
                of_header.map_or_else(|| nearest(seed, lba, least, block), |stamp| stamp.sequence);
            look_closely(&expected(likely), previous, block)
        }
    }
}

/// The sequence number, from `least` on, whose contents are most like `block`.
fn nearest(seed: u64, lba: u64, least: u64, block: &[u8]) -> u64 {
    let least = least.max(1);
    let candidates = least..least + EARLIER_MAX;
    candidates
        .min_by_key(|&sequence| {
            let stamp = Stamp {
                seed,
                lba,
                sequence,
            };
            differing_bits(&stamp.contents(block.len()), block)
        })
        .unwrap_or(least)
}

/// What a block holds that does not hold `expected`.
fn look_closely(expected: &Stamp, previous: u64, block: &[u8]) -> Holds {
    if let Some(stamp) = whole(block) {
        return whole_but_wrong(expected, stamp);
    }
    if block.iter().all(|&byte| byte == 0) {
        return Holds::Zeroes;
    }
    let contents = expected.contents(block.len());
    let bits = differing_bits(&contents, block);
    let byte = first_difference(&contents, block);
    if bits <= FLIPPED_BITS_MAX {
        return Holds::Flipped { bits, byte };
    }
    if let Some(parts) = parts(expected, previous, &contents, block) {
        return parts;
    }
    // Contents are as good as random: what has nothing in common differs in half of its bits.
    if u64::from(bits) * 3 < block.len() as u64 * 8 {
        return Holds::Damaged { bits, byte };
    }
    Holds::Foreign
}

fn whole_but_wrong(expected: &Stamp, found: Stamp) -> Holds {
    if found.seed != expected.seed {
        Holds::OtherRun(found)
    } else if found.lba != expected.lba {
        Holds::Elsewhere(found)
    } else if writer_of(found.sequence) != writer_of(expected.sequence) {
        Holds::OtherMachine(found)
    } else if found.sequence < expected.sequence {
        Holds::Earlier(found)
    } else {
        Holds::Later(found)
    }
}

/// Whether a block is put together of what it should hold and of one other thing: what its header says, or what was there before.
fn parts(expected: &Stamp, previous: u64, contents: &[u8], block: &[u8]) -> Option<Holds> {
    let of_header = header(block).filter(|stamp| stamp != expected);
    let earlier = expected.sequence.saturating_sub(EARLIER_MAX).max(1)..expected.sequence;
    let previous = (previous != 0).then_some(previous);
    let earlier = previous
        .into_iter()
        .chain(earlier.rev())
        .map(|sequence| Stamp {
            sequence,
            ..*expected
        });
    let stamped = of_header.into_iter().chain(earlier).find_map(|stamp| {
        let byte = first_of_other(contents, &stamp.contents(block.len()), block)?;
        let of = Part::Stamped(stamp);
        Some(Holds::Parts { byte, of })
    });
    stamped.or_else(|| {
        let byte = first_of_other(contents, &vec![0; block.len()], block)?;
        let of = Part::Zeroes;
        Some(Holds::Parts { byte, of })
    })
}

/// Where the first word of `other` is in a block of which every word is of `contents` or of `other`, and some are of one alone.
fn first_of_other(contents: &[u8], other: &[u8], block: &[u8]) -> Option<usize> {
    let (mut first, mut of_contents) = (None, false);
    let words = block.chunks(WORD_LEN).zip(contents.chunks(WORD_LEN));
    for (index, ((found, wanted), other)) in words.zip(other.chunks(WORD_LEN)).enumerate() {
        match (found == wanted, found == other) {
            (true, true) => {}
            (true, false) => of_contents = true,
            (false, true) => first = first.or(Some(index * WORD_LEN)),
            (false, false) => return None,
        }
    }
    first.filter(|_| of_contents)
}

fn differing_bits(left: &[u8], right: &[u8]) -> u32 {
    let pairs = left.iter().zip(right);
    pairs.map(|(left, right)| (left ^ right).count_ones()).sum()
}

fn first_difference(left: &[u8], right: &[u8]) -> usize {
    let mut pairs = left.iter().zip(right);
    pairs.position(|(left, right)| left != right).unwrap_or(0)
}

/// What is known of the blocks of one request that did not hold what they should.
#[derive(Debug, Clone)]
pub(crate) struct Evidence {
    /// Of the run.
    pub(crate) seed: u64,
    /// Address of the first block.
    pub(crate) lba: u64,
    /// What each should hold.
    pub(crate) wanted: Vec<Wanted>,
    /// Whether that is what the run's first write to it wrote, for each.
    pub(crate) first_write: Vec<bool>,
    /// What each held when it was found.
    pub(crate) first: Vec<Holds>,
    /// What each held when they were read again, each time.
    pub(crate) again: Vec<Vec<Holds>>,
    /// What was there before the run's first write to them.
    pub(crate) before: Before,
    /// Whether the write of the first wrong block had its effect on blocks that are not among these.
    pub(crate) others_there: bool,
}

/// What blocks held before a run wrote to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    /// It is not known, or it does not matter because the run has written to them more than once.
    Unknown,
    /// Only zeroes.
    Zeroes,
    /// Just what they held when they were found wrong, every one.
    Unchanged,
    /// Something else.
    Other,
}

impl Evidence {
    /// What the volume did; none where every block held what it should.
    pub(crate) fn diagnose(&self) -> Option<Finding> {
        let at = self.telling_block()?;
        let holds = self.first[at];
        let persists = !self.again.iter().any(|read| read[at] == Holds::Wanted);
        let fault = match persists {
            true => self.lasting_fault(at, holds),
            false => self.passing_fault(at, holds),
        };
        let counterpart = match holds {
            Holds::Elsewhere(stamp)
            | Holds::Parts {
                of: Part::Stamped(stamp),
                ..
            } => Some(stamp.lba),
            _ => None,
        };
        let lba = self.lba + at as u64;
        let wrong = self.first.iter().filter(|&&holds| holds != Holds::Wanted);
        Some(Finding {
            fault,
            lba,
            blocks: wrong.count() as u32,
            sequence: self.wanted[at].sequence(),
            found: holds.to_string(),
            counterpart: counterpart.filter(|&other| other != lba),
            persists,
        })
    }

    /// A block that holds what belongs elsewhere says more than its neighbours; otherwise the first that is wrong.
    fn telling_block(&self) -> Option<usize> {
        let elsewhere = |holds: &Holds| matches!(holds, Holds::Elsewhere(_));
        let mut all = self.first.iter();
        let misplaced = all.clone().position(elsewhere);
        misplaced.or_else(|| all.position(|&holds| holds != Holds::Wanted))
    }

    fn lasting_fault(&self, at: usize, holds: Holds) -> Fault {
        match holds {
            _ if self.is_old(at, holds) => match self.had_an_effect(at) {
                true => Fault::TornWrite,
                false => Fault::LostWrite,
            },
            Holds::Elsewhere(_) => Fault::MisdirectedWrite,
            Holds::Parts { of, .. } if self.is_of_elsewhere(of) => Fault::MisdirectedWrite,
            Holds::Parts { of, .. } if self.is_old_part(at, of) => Fault::TornWrite,
            _ => damage(holds),
        }
    }

    fn passing_fault(&self, at: usize, holds: Holds) -> Fault {
        match holds {
            _ if self.is_old(at, holds) => Fault::StaleRead,
            Holds::Elsewhere(_) => Fault::MisdirectedRead,
            Holds::Parts { of, .. } if self.is_of_elsewhere(of) => Fault::MisdirectedRead,
            Holds::Parts { of, .. } if self.is_old_part(at, of) => Fault::StaleRead,
            _ => damage(holds),
        }
    }

    /// Whether the write that should be there is there in other blocks.
    fn had_an_effect(&self, at: usize) -> bool {
        let mut blocks = self.wanted.iter().zip(&self.first);
        self.others_there
            || blocks.any(|(wanted, holds)| *wanted == self.wanted[at] && *holds == Holds::Wanted)
    }

    /// Whether it is what was there before the write that should be there now.
    fn is_old(&self, at: usize, holds: Holds) -> bool {
        match holds {
            Holds::Earlier(_) => true,
            Holds::Wanted | Holds::Elsewhere(_) | Holds::Flipped { .. } => false,
            _ if self.before == Before::Unchanged => true,
            Holds::Zeroes => self.had(at, Before::Zeroes),
            Holds::OtherRun(_) => self.first_write[at],
            _ => false,
        }
    }

    fn is_old_part(&self, at: usize, part: Part) -> bool {
        match part {
            Part::Stamped(stamp) => {
                // Another run's is old whichever machine of it wrote; this run's only where this machine did.
                stamp.seed != self.seed
                    || writer_of(stamp.sequence) == writer_of(self.wanted[at].sequence())
            }
            Part::Zeroes => self.had(at, Before::Zeroes),
        }
    }

    /// Whether a block that was written to once may have held what `before` says, until then.
    fn had(&self, at: usize, before: Before) -> bool {
        self.first_write[at] && (self.before == before || self.before == Before::Unknown)
    }

    fn is_of_elsewhere(&self, part: Part) -> bool {
        let blocks = self.lba..self.lba + self.first.len() as u64;
        matches!(part, Part::Stamped(stamp) if !blocks.contains(&stamp.lba))
    }
}

fn damage(holds: Holds) -> Fault {
    match holds {
        Holds::Flipped { .. } => Fault::BitFlip,
        Holds::Damaged { .. } | Holds::Parts { .. } => Fault::Corruption,
        Holds::Missing => Fault::ShortRead,
        _ => Fault::ForeignData,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::SEQUENCE_BITS;

    const SEED: u64 = 11;
    const LBA: u64 = 40;
    const BLOCK: usize = 4096;

    fn stamp(lba: u64, sequence: u64) -> Stamp {
        Stamp {
            seed: SEED,
            lba,
            sequence,
        }
    }

    /// The first `byte` bytes of one block, and the rest of another.
    fn torn(left: &[u8], right: &[u8], byte: usize) -> Vec<u8> {
        [&left[..byte], &right[byte..]].concat()
    }

    fn look_for(sequence: u64, block: &[u8]) -> Holds {
        look(SEED, LBA, Wanted::Exactly(sequence), 0, block)
    }

    #[test]
    fn what_a_block_holds_is_told_apart() {
        let (new, old) = (stamp(LBA, 3).contents(BLOCK), stamp(LBA, 2).contents(BLOCK));
        assert_eq!(look_for(3, &new), Holds::Wanted);
        assert_eq!(look_for(3, &old), Holds::Earlier(stamp(LBA, 2)));
        assert_eq!(look_for(2, &new), Holds::Later(stamp(LBA, 3)));
        let other = stamp(LBA + 1, 3);
        let misplaced = other.contents(BLOCK);
        assert_eq!(look_for(3, &misplaced), Holds::Elsewhere(other));
        let other_run = Stamp {
            seed: SEED + 1,
            ..stamp(LBA, 3)
        };
        let of_other_run = other_run.contents(BLOCK);
        assert_eq!(look_for(3, &of_other_run), Holds::OtherRun(other_run));
        assert_eq!(look_for(3, &[0; BLOCK]), Holds::Zeroes);
        assert_eq!(look_for(3, &[7; BLOCK]), Holds::Foreign);
    }

    #[test]
    fn a_flipped_bit_is_one_wherever_it_is() {
        let new = stamp(LBA, 3).contents(BLOCK);
        for byte in (0..64).chain((64..BLOCK).step_by(61)) {
            for bit in [0, 7] {
                let mut block = new.clone();
                block[byte] ^= 1 << bit;
                assert_eq!(look_for(3, &block), Holds::Flipped { bits: 1, byte });
                // Neither is it anything else to a check that knows no sequence number.
                let checked = look(SEED, LBA, Wanted::AtLeast(0), 0, &block);
                assert_eq!(checked, Holds::Flipped { bits: 1, byte });
            }
        }
        let mut block = new.clone();
        block[100..116].iter_mut().for_each(|byte| *byte ^= 0x33);
        let holds = look_for(3, &block);
        assert_eq!(
            holds,
            Holds::Damaged {
                bits: 64,
                byte: 100
            }
        );
    }

    #[test]
    fn a_torn_block_is_one_wherever_it_is_torn() {
        let (new, old) = (stamp(LBA, 3).contents(BLOCK), stamp(LBA, 2).contents(BLOCK));
        // The first words of both are the same, and a tear within a word has more in common with a damage.
        for byte in (32..BLOCK).step_by(56) {
            let of = Part::Stamped(stamp(LBA, 2));
            let expected = Holds::Parts { byte, of };
            assert_eq!(look_for(3, &torn(&new, &old, byte)), expected);
            let reversed = Holds::Parts { byte: 24, of };
            assert_eq!(look_for(3, &torn(&old, &new, byte.max(40))), reversed);
            let zeroed = Holds::Parts {
                byte,
                of: Part::Zeroes,
            };
            assert_eq!(look_for(3, &torn(&new, &[0; BLOCK], byte)), zeroed);
        }
        let misplaced = stamp(LBA + 9, 1);
        let mixed = torn(&misplaced.contents(BLOCK), &new, 512);
        let of = Part::Stamped(misplaced);
        assert_eq!(look_for(3, &mixed), Holds::Parts { byte: 16, of });
    }

    #[test]
    fn a_check_takes_any_sequence_number_from_the_least_on() {
        let block = stamp(LBA, 5).contents(BLOCK);
        for least in 0..=5 {
            let holds = look(SEED, LBA, Wanted::AtLeast(least), 0, &block);
            assert_eq!(holds, Holds::Wanted);
        }
        let holds = look(SEED, LBA, Wanted::AtLeast(6), 0, &block);
        assert_eq!(holds, Holds::Earlier(stamp(LBA, 5)));
    }

    fn evidence(first: Vec<Holds>, again: Vec<Vec<Holds>>) -> Evidence {
        Evidence {
            seed: SEED,
            lba: LBA,
            wanted: vec![Wanted::Exactly(3); first.len()],
            first_write: vec![false; first.len()],
            first,
            again,
            before: Before::Unknown,
            others_there: false,
        }
    }

    fn fault(evidence: &Evidence) -> Option<Fault> {
        evidence.diagnose().map(|finding| finding.fault)
    }

    #[test]
    fn what_is_read_again_tells_a_lost_write_from_a_stale_read() {
        let (old, new) = (Holds::Earlier(stamp(LBA, 2)), Holds::Wanted);
        let elsewhere = Holds::Elsewhere(stamp(7, 3));
        let part = Holds::Parts {
            byte: 64,
            of: Part::Stamped(stamp(LBA, 2)),
        };
        let flipped = Holds::Flipped { bits: 1, byte: 9 };
        for (first, again, expected) in [
            (vec![new, new], vec![], None),
            (
                vec![old, old],
                vec![vec![old, old], vec![old, old]],
                Some(Fault::LostWrite),
            ),
            (vec![new, old], vec![vec![new, old]], Some(Fault::TornWrite)),
            (
                vec![old, old],
                vec![vec![old, old], vec![new, new]],
                Some(Fault::StaleRead),
            ),
            (vec![new, old], vec![vec![new, new]], Some(Fault::StaleRead)),
            (vec![part], vec![vec![part]], Some(Fault::TornWrite)),
            (vec![part], vec![vec![new]], Some(Fault::StaleRead)),
            (
                vec![old, elsewhere],
                vec![vec![old, elsewhere]],
                Some(Fault::MisdirectedWrite),
            ),
            (
                vec![elsewhere],
                vec![vec![new]],
                Some(Fault::MisdirectedRead),
            ),
            (vec![flipped], vec![vec![flipped]], Some(Fault::BitFlip)),
            (vec![flipped], vec![vec![new]], Some(Fault::BitFlip)),
            (
                vec![Holds::Zeroes],
                vec![vec![Holds::Zeroes]],
                Some(Fault::ForeignData),
            ),
            (
                vec![new, Holds::Missing],
                vec![vec![new, new]],
                Some(Fault::ShortRead),
            ),
            (
                vec![Holds::Missing],
                vec![vec![Holds::Missing]],
                Some(Fault::ShortRead),
            ),
        ] {
            let evidence = evidence(first, again);
            assert_eq!(fault(&evidence), expected, "{evidence:?}");
        }
    }

    #[test]
    fn a_write_is_torn_only_where_the_same_write_is_there_in_part() {
        let (old, new) = (Holds::Earlier(stamp(LBA, 2)), Holds::Wanted);
        let of_two_writes = Evidence {
            wanted: vec![Wanted::Exactly(3), Wanted::Exactly(4)],
            ..evidence(vec![old, new], vec![vec![old, new]])
        };
        assert_eq!(fault(&of_two_writes), Some(Fault::LostWrite));
        let of_one = Evidence {
            others_there: true,
            ..of_two_writes
        };
        assert_eq!(fault(&of_one), Some(Fault::TornWrite));
    }

    /// Machines that write over one another do not see the volume's faults.
    #[test]
    fn what_another_machine_wrote_is_neither_lost_nor_stale_nor_torn() {
        let by = |writer: u64, number| writer << SEQUENCE_BITS | number;
        let (own, other) = (stamp(LBA, by(1, 3)), stamp(LBA, by(2, 9)));
        let holds = look_for(own.sequence, &other.contents(BLOCK));
        assert_eq!(holds, Holds::OtherMachine(other));
        let mixed = torn(&other.contents(BLOCK), &own.contents(BLOCK), 512);
        let part = look_for(own.sequence, &mixed);
        let of = Part::Stamped(other);
        assert!(
            matches!(part, Holds::Parts { of: found, .. } if found == of),
            "{part:?}"
        );
        for (holds, expected) in [(holds, Fault::ForeignData), (part, Fault::Corruption)] {
            for again in [holds, Holds::Wanted] {
                let evidence = Evidence {
                    wanted: vec![Wanted::Exactly(own.sequence)],
                    first_write: vec![true],
                    ..evidence(vec![holds], vec![vec![again]])
                };
                let finding = evidence.diagnose().expect("it is wrong");
                assert_eq!(finding.fault, expected, "{finding}");
                assert!(finding.to_string().contains("sequence 3, "), "{finding}");
                assert!(finding.to_string().contains("by machine 2"), "{finding}");
            }
        }
        // What another run left is old, whichever machine of it wrote that.
        let of_other_run = Stamp {
            seed: SEED + 1,
            ..stamp(LBA, 9)
        };
        let mixed = torn(&of_other_run.contents(BLOCK), &own.contents(BLOCK), 512);
        let part = look_for(own.sequence, &mixed);
        for (again, expected) in [(part, Fault::TornWrite), (Holds::Wanted, Fault::StaleRead)] {
            let evidence = Evidence {
                wanted: vec![Wanted::Exactly(own.sequence)],
                first_write: vec![true],
                ..evidence(vec![part], vec![vec![again]])
            };
            assert_eq!(fault(&evidence), Some(expected), "{evidence:?}");
        }
        // Its own writes are told apart as ever, and what belongs elsewhere does so whoever wrote it.
        let earlier = stamp(LBA, by(1, 2));
        let holds = look_for(own.sequence, &earlier.contents(BLOCK));
        assert_eq!(holds, Holds::Earlier(earlier));
        let elsewhere = stamp(LBA + 1, by(2, 9));
        let holds = look_for(own.sequence, &elsewhere.contents(BLOCK));
        assert_eq!(holds, Holds::Elsewhere(elsewhere));
    }

    #[test]
    fn of_what_was_not_written_only_what_belongs_elsewhere_is_wrong() {
        let look = |block: &[u8]| look(SEED, LBA, Wanted::Anything, 0, block);
        let other_run = Stamp {
            seed: 5,
            ..stamp(7, 3)
        };
        for block in [stamp(LBA, 3), other_run].map(|stamp| stamp.contents(BLOCK)) {
            assert_eq!(look(&block), Holds::Wanted);
        }
        assert_eq!(look(&[9; BLOCK]), Holds::Wanted);
        let elsewhere = stamp(7, 3);
        assert_eq!(
            look(&elsewhere.contents(BLOCK)),
            Holds::Elsewhere(elsewhere)
        );
    }

    #[test]
    fn a_torn_block_is_known_whatever_number_the_write_before_had() {
        let (new, old) = (
            stamp(LBA, 3000).contents(BLOCK),
            stamp(LBA, 2).contents(BLOCK),
        );
        let block = torn(&new, &old, 2048);
        let of = Part::Stamped(stamp(LBA, 2));
        let holds = look(SEED, LBA, Wanted::Exactly(3000), 2, &block);
        assert_eq!(holds, Holds::Parts { byte: 2048, of });
    }

    #[test]
    fn what_was_there_before_the_first_write_is_old_and_nothing_else() {
        let zeroes = Holds::Zeroes;
        let first_write = |holds: Vec<Holds>, before| Evidence {
            wanted: vec![Wanted::Exactly(1); holds.len()],
            first_write: vec![true; holds.len()],
            before,
            ..evidence(holds.clone(), vec![holds])
        };
        let lost = first_write(vec![zeroes; 2], Before::Zeroes);
        assert_eq!(fault(&lost), Some(Fault::LostWrite));
        let torn = first_write(vec![Holds::Wanted, zeroes], Before::Zeroes);
        assert_eq!(fault(&torn), Some(Fault::TornWrite));
        let zeroed = first_write(vec![zeroes; 2], Before::Other);
        assert_eq!(fault(&zeroed), Some(Fault::ForeignData));
        let unchanged = first_write(vec![Holds::Foreign; 2], Before::Unchanged);
        assert_eq!(fault(&unchanged), Some(Fault::LostWrite));
        let unknown = first_write(vec![Holds::Foreign; 2], Before::Unknown);
        assert_eq!(fault(&unknown), Some(Fault::ForeignData), "nobody knows");
        let foreign = first_write(vec![Holds::Foreign; 2], Before::Zeroes);
        assert_eq!(fault(&foreign), Some(Fault::ForeignData));
    }
}

//! In which order the rounds of a comparison run its sides.

use weir_reactor::random::Random;

/// Rounds in which each side comes before each other one as often as behind it.
const BLOCK_ROUNDS: usize = 8;

/// The order of each round, by the sides' numbers. It is drawn, so that nothing that comes and goes by itself keeps step with one side; in
/// balanced blocks, so that a drift within rounds is no difference.
pub fn orders(sides: u32, rounds: usize, random: &mut Random) -> Vec<Vec<u32>> {
    let mut orders = Vec::with_capacity(rounds);
    while orders.len() < rounds {
        let length = BLOCK_ROUNDS.min(rounds - orders.len());
        let mut block: Vec<Vec<u32>> = Vec::with_capacity(BLOCK_ROUNDS);
        while block.len() < length {
            let mut order: Vec<u32> = (0..sides).collect();
            shuffle(&mut order, random);
            block.push(order.iter().rev().copied().collect());
            block.push(order);
        }
        block.truncate(length);
        shuffle(&mut block, random);
        orders.append(&mut block);
    }
    orders
}

/// Durstenfeld's shuffle.
fn shuffle<T>(items: &mut [T], random: &mut Random) {
    for last in (1..items.len()).rev() {
        items.swap(last, random.below(last as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn is_earlier(order: &[u32], one: u32, other: u32) -> bool {
        order.iter().find(|&&side| side == one || side == other) == Some(&one)
    }

    #[test]
    fn each_side_is_before_each_other_one_as_often_as_behind_it() {
        for (seed, sides) in [(1, 2), (2, 3), (3, 5)] {
            let all = orders(sides, 32, &mut Random::new(seed));
            for block in all.chunks(BLOCK_ROUNDS) {
                for order in block {
                    assert_eq!(BTreeSet::from_iter(order).len(), sides as usize);
                }
                for (one, other) in (0..sides).flat_map(|one| (0..one).map(move |of| (one, of))) {
                    let earlier = block.iter().filter(|order| is_earlier(order, one, other));
                    assert_eq!(earlier.count(), BLOCK_ROUNDS / 2, "seed {seed}: {block:?}");
                }
            }
        }
    }

    #[test]
    fn as_many_rounds_are_ordered_as_are_run() {
        for rounds in 1..40 {
            let all = orders(2, rounds, &mut Random::new(7));
            assert_eq!(all.len(), rounds);
            let first = all.iter().filter(|order| order[0] == 0).count();
            assert!(first.abs_diff(rounds - first) <= 1, "{all:?}");
        }
    }

    #[test]
    fn every_order_of_a_block_comes() {
        let random = &mut Random::new(5);
        let seen: BTreeSet<_> = (0..2000).map(|_| orders(2, 8, random)).collect();
        // Four of eight are the one way round.
        assert_eq!(seen.len(), 70);
    }
}

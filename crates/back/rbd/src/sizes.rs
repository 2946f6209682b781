//! Which answer to how long an image is counts, where several were asked for at once.
//!
//! An answer may take for ever, so that nobody waits for another's: who asks is numbered, and what is answered to an earlier question than one
//! that was settled is dropped. Whatever changes is asked about afterwards, so that the last question has it.

/// How long an image is, question by question.
#[derive(Debug, Default)]
pub(crate) struct Sizes {
    asked: u64,
    settled: Asked,
    /// A life has the image end here, from before it is cut off there until it is known whether it is: what it answers meanwhile counts no
    /// further.
    shrinks: Option<(u64, u64)>,
}

/// A question, to the image of a life. A later one is greater.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Asked {
    life: u64,
    number: u64,
}

impl Sizes {
    /// Somebody asks now.
    pub(crate) fn ask(&mut self, life: u64) -> Asked {
        self.asked += 1;
        Asked {
            life,
            number: self.asked,
        }
    }

    /// The blocks that the image has by an answer; none where it does not count.
    pub(crate) fn settle(&mut self, asked: Asked, blocks: u64) -> Option<u64> {
        if asked < self.settled {
            return None;
        }
        self.settled = asked;
        let shrinks = self.shrinks.filter(|(life, _)| *life == asked.life);
        Some(shrinks.map_or(blocks, |(_, end)| blocks.min(end)))
    }

    /// A life is about to cut the image off.
    pub(crate) fn shrink(&mut self, life: u64, blocks: u64) {
        self.shrinks = Some((life, blocks));
    }

    /// It has resized it, or has not, and asks which. What it was asked before says nothing of that.
    pub(crate) fn resized(&mut self, life: u64) -> Asked {
        self.shrinks = None;
        let asked = self.ask(life);
        self.settled = self.settled.max(asked);
        asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_to_an_earlier_question_does_not_count() {
        let mut sizes = Sizes::default();
        let (first, second) = (sizes.ask(1), sizes.ask(1));
        assert_eq!(sizes.settle(second, 8), Some(8));
        assert_eq!(sizes.settle(first, 4), None);
        // However late the question to a life that has ended.
        let (new, old) = (sizes.ask(2), sizes.ask(1));
        assert_eq!(sizes.settle(old, 5), Some(5));
        assert_eq!(sizes.settle(new, 6), Some(6));
        assert_eq!(sizes.settle(old, 5), None);
        // Nobody waits for a question that is never answered.
        sizes.ask(2);
        let last = sizes.ask(2);
        assert_eq!(sizes.settle(last, 7), Some(7));
    }

    #[test]
    fn an_image_that_is_being_cut_off_is_no_longer_than_it_is_going_to_be() {
        let mut sizes = Sizes::default();
        let before = sizes.ask(1);
        sizes.shrink(1, 4);
        let (meanwhile, late) = (sizes.ask(1), sizes.ask(1));
        assert_eq!(sizes.settle(before, 8), Some(4));
        assert_eq!(sizes.settle(meanwhile, 8), Some(4));
        let resized = sizes.resized(1);
        assert_eq!(sizes.settle(late, 8), None);
        // It was not, in the end.
        assert_eq!(sizes.settle(resized, 8), Some(8));
    }

    #[test]
    fn what_a_life_before_was_about_to_do_does_not_count() {
        let mut sizes = Sizes::default();
        sizes.shrink(1, 4);
        let (new, later) = (sizes.ask(2), sizes.ask(2));
        assert_eq!(sizes.settle(new, 8), Some(8));
        let resized = sizes.resized(1);
        assert_eq!(sizes.settle(resized, 4), None);
        assert_eq!(sizes.settle(later, 9), Some(9));
    }
}

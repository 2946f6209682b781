//! Histories with a defect in each, and what the checkers say of them.

use std::time::Duration;

use weir_block::{OperationKind, VolumeError};
use weir_reactor::sim::FaultKind;

use super::{Check, Promise, Violation, all};
use crate::journal::{Ask, Cause, Connection, History, Note, Whose};
use crate::plan::{Plan, Trouble};

const NOW: Duration = Duration::ZERO;
const PROMISE: Promise = Promise {
    used: 8,
    blocks_first: 8,
    blocks_least: 8,
    blocks_most: 8,
    volatile_cache: true,
    atomic_blocks: 1,
};

/// A history that is told step by step.
#[derive(Default)]
struct Story(History);

impl Story {
    /// A request of host 0.
    fn ask(kind: OperationKind, lba: u64, blocks: u64) -> Ask {
        Ask {
            host: 0,
            life: 0,
            path: 0,
            namespace: 0,
            opening: 0,
            kind,
            lba,
            blocks,
            fua: false,
            whole: true,
            expected: Vec::new(),
        }
    }

    fn asked(&mut self, kind: OperationKind, lba: u64, blocks: u64) -> u64 {
        self.asked_by(0, 0, kind, lba, blocks, false, &[])
    }

    #[expect(clippy::too_many_arguments, reason = "they are what is asked")]
    fn asked_by(
        &mut self,
        host: usize,
        life: u32,
        kind: OperationKind,
        lba: u64,
        blocks: u64,
        fua: bool,
        expected: &[u64],
    ) -> u64 {
        let ask = Ask {
            host,
            life,
            opening: host as u64 * 100 + u64::from(life),
            fua,
            expected: expected.to_vec(),
            ..Story::ask(kind, lba, blocks)
        };
        self.0.ask(NOW, ask)
    }

    fn well(&mut self, id: u64) {
        self.0.end(NOW, id, Ok(()), Vec::new());
    }

    fn badly(&mut self, id: u64, error: VolumeError) {
        self.0.end(NOW, id, Err(error), Vec::new());
    }

    fn wrote(&mut self, lba: u64, blocks: u64) -> u64 {
        let id = self.asked(OperationKind::Write, lba, blocks);
        self.well(id);
        id
    }

    fn read(&mut self, lba: u64, found: &[u64]) {
        let id = self.asked(OperationKind::Read, lba, found.len() as u64);
        self.0.end(NOW, id, Ok(()), found.to_vec());
    }

    fn exchanged(&mut self, lba: u64, expected: &[u64]) -> u64 {
        let blocks = expected.len() as u64;
        let kind = OperationKind::CompareWrite;
        let id = self.asked_by(0, 0, kind, lba, blocks, false, expected);
        self.well(id);
        id
    }

    fn flushed(&mut self) {
        let id = self.asked(OperationKind::Flush, 0, 0);
        self.well(id);
    }

    fn power_fails(&mut self) {
        self.0.all_over(NOW);
        self.0.note(NOW, Note::PowerLoss);
    }

    /// Something is done to the system, for a time.
    fn incident(
        &mut self,
        cause: Cause,
        (host, namespace): (Option<usize>, Option<usize>),
        (from, until): (u64, u64),
    ) {
        let number = self
            .0
            .incident(Duration::from_secs(from), cause, host, namespace);
        self.0.incident_over(Duration::from_secs(until), number);
    }

    fn told(self) -> Vec<Violation> {
        let plan = Plan::of(0);
        all(&plan, &[PROMISE], &self.0)
    }

    /// Every check that finds something.
    fn found(self) -> Vec<Check> {
        let mut found: Vec<Check> = self.told().iter().map(|one| one.check).collect();
        found.sort();
        found.dedup();
        found
    }
}

#[test]
fn what_is_as_it_should_be_is_not_found() {
    let mut story = Story::default();
    story.read(0, &[0, 0]);
    let first = story.wrote(0, 2);
    story.read(0, &[first, first]);
    let second = story.exchanged(0, &[first]);
    story.read(0, &[second, first]);
    // One that failed may have been done, or not.
    let cause = Cause::Fault(FaultKind::DiskStall);
    story.incident(cause, (None, Some(0)), (0, 1));
    let failed = story.asked(OperationKind::Write, 4, 1);
    story.badly(failed, VolumeError::TimedOut);
    story.read(4, &[0]);
    let failed = story.asked(OperationKind::Write, 5, 1);
    story.badly(failed, VolumeError::TimedOut);
    story.read(5, &[failed]);
    assert_eq!(story.told(), []);
}

#[test]
fn a_read_that_goes_back_is_found() {
    let mut story = Story::default();
    let first = story.wrote(0, 1);
    let second = story.wrote(0, 1);
    story.read(0, &[second]);
    story.read(0, &[first]);
    let told = story.told();
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].check, Check::Reads);
    assert!(told[0].message.contains("block 0"), "{}", told[0]);
}

#[test]
fn two_reads_that_agree_on_no_order_are_found() {
    let mut story = Story::default();
    let one = story.asked(OperationKind::Write, 0, 1);
    let other = story.asked(OperationKind::Write, 0, 1);
    story.read(0, &[one]);
    story.read(0, &[other]);
    story.read(0, &[one]);
    story.well(one);
    story.well(other);
    assert_eq!(story.found(), [Check::Reads]);
}

#[test]
fn a_flushed_write_that_power_took_is_found_and_one_that_was_not_flushed_is_not() {
    for (flushed, fua, found) in [
        (true, false, vec![Check::FlushedWrites]),
        (false, true, vec![Check::FlushedWrites]),
        (false, false, vec![]),
    ] {
        let mut story = Story::default();
        let write = story.asked_by(0, 0, OperationKind::Write, 0, 1, fua, &[]);
        story.well(write);
        if flushed {
            story.flushed();
        }
        story.power_fails();
        story.read(0, &[0]);
        assert_eq!(story.found(), found, "flushed {flushed}, FUA {fua}");
    }
}

#[test]
fn a_flush_speaks_of_what_power_took_before_it_from_the_same_volume() {
    for (asked_before, life, found) in [
        (false, 0, vec![Check::FlushedWrites]),
        (true, 0, vec![Check::FlushedWrites]),
        // The volume was opened again, and the flush is not about what was written before.
        (false, 1, vec![]),
    ] {
        let mut story = Story::default();
        story.wrote(0, 1);
        let flush =
            |story: &mut Story| story.asked_by(0, life, OperationKind::Flush, 0, 0, false, &[]);
        let before = asked_before.then(|| flush(&mut story));
        story.power_fails();
        let flush = before.unwrap_or_else(|| flush(&mut story));
        story.well(flush);
        story.read(0, &[0]);
        assert_eq!(story.found(), found, "before: {asked_before}, life {life}");
    }
}

#[test]
fn a_flush_speaks_only_of_what_was_acknowledged_before_it() {
    let mut story = Story::default();
    let write = story.asked(OperationKind::Write, 0, 1);
    let flush = story.asked(OperationKind::Flush, 0, 0);
    story.well(write);
    story.well(flush);
    let cause = Cause::Fault(FaultKind::SyncError);
    story.incident(cause, (None, Some(0)), (0, 0));
    let failed = story.asked(OperationKind::Flush, 0, 0);
    story.badly(failed, VolumeError::Medium);
    story.power_fails();
    story.read(0, &[0]);
    // One that failed speaks of nothing.
    assert_eq!(story.found(), []);
}

#[test]
fn what_power_left_stays() {
    let mut story = Story::default();
    let write = story.wrote(0, 1);
    story.power_fails();
    story.read(0, &[0]);
    story.read(0, &[write]);
    assert_ne!(story.found(), []);
}

#[test]
fn a_write_that_lands_after_its_answer_is_found() {
    for error in [None, Some(VolumeError::TimedOut)] {
        let mut story = Story::default();
        let cause = Cause::Fault(FaultKind::DiskStall);
        story.incident(cause, (None, Some(0)), (0, 1));
        let write = story.asked(OperationKind::Write, 0, 1);
        let execution = story
            .0
            .begin(NOW, Some(write), 0, OperationKind::Write, (0, 1));
        match error {
            None => story.well(write),
            Some(error) => story.badly(write, error),
        }
        story.0.over(NOW, execution, true);
        assert_eq!(story.found(), [Check::StaleWrites]);
    }
}

#[test]
fn a_write_of_an_earlier_life_that_lands_after_the_fence_is_found() {
    let story = |late: bool| {
        let mut story = Story::default();
        let write = story.asked(OperationKind::Write, 0, 1);
        if !late {
            let execution = story
                .0
                .begin(NOW, Some(write), 0, OperationKind::Write, (0, 1));
            story.0.over(NOW, execution, true);
        }
        story
            .0
            .fence(NOW, "host 0 is served again".to_owned(), |op| {
                op.ask.host == 0 && op.ask.life < 1
            });
        if late {
            let execution = story
                .0
                .begin(NOW, Some(write), 0, OperationKind::Write, (0, 1));
            story.0.over(NOW, execution, true);
        }
        story
    };
    assert_eq!(story(false).found(), []);
    assert_eq!(story(true).found(), [Check::StaleWrites]);
}

#[test]
fn what_is_done_without_a_right_is_found() {
    // When the execution begins and ends, and the right to it is lost and had again.
    let steps = [
        ("begin lose end give", true),
        ("lose begin end give", true),
        ("begin end lose give", false),
        ("lose give begin end", false),
    ];
    for (steps, is_wrong) in steps {
        for (whose, concerns) in [
            (Whose::Namespace(0), true),
            (Whose::Host(0), true),
            (Whose::Namespace(1), false),
            (Whose::Host(1), false),
        ] {
            let mut story = Story::default();
            let write = story.asked(OperationKind::Write, 0, 1);
            let history = &mut story.0;
            let mut execution = 0;
            for step in steps.split(' ') {
                match step {
                    "begin" => {
                        let kind = OperationKind::Write;
                        execution = history.begin(NOW, Some(write), 0, kind, (0, 1));
                    }
                    "end" => history.over(NOW, execution, true),
                    "lose" => history.revoke(NOW, step.to_owned(), whose),
                    _ => history.give_back(NOW, step.to_owned(), whose),
                }
            }
            story.well(write);
            let expected = match is_wrong && concerns {
                true => vec![Check::RevokedWrites],
                false => Vec::new(),
            };
            assert_eq!(story.found(), expected, "{steps}: {whose:?}");
        }
    }
}

#[test]
fn a_repeated_write_that_lands_over_a_later_one_is_found_in_what_is_read() {
    let mut story = Story::default();
    let first = story.asked(OperationKind::Write, 0, 1);
    for _ in 0..2 {
        let execution = story
            .0
            .begin(NOW, Some(first), 0, OperationKind::Write, (0, 1));
        story.0.over(NOW, execution, true);
    }
    story.well(first);
    let second = story.wrote(0, 1);
    story.read(0, &[second]);
    story.read(0, &[first]);
    assert_eq!(story.found(), [Check::StaleWrites]);
}

#[test]
fn what_a_volume_did_is_seen_though_it_was_never_answered() {
    let story = |done: bool, found: &dyn Fn(u64) -> u64| {
        let mut story = Story::default();
        let write = story.asked(OperationKind::Write, 0, 1);
        let execution = story
            .0
            .begin(NOW, Some(write), 0, OperationKind::Write, (0, 1));
        story.0.over(NOW, execution, done);
        story.read(0, &[found(write)]);
        story.found()
    };
    assert_eq!(story(true, &|write| write), []);
    assert_eq!(story(false, &|write| write), []);
    assert_eq!(story(false, &|_| 0), []);
    assert_eq!(story(true, &|_| 0), [Check::Reads]);
}

#[test]
fn two_compare_and_writes_of_one_value_are_found() {
    let mut story = Story::default();
    let first = story.wrote(0, 1);
    story.exchanged(0, &[first]);
    let last = story.exchanged(0, &[first]);
    story.read(0, &[last]);
    assert_eq!(story.found(), [Check::CompareWrites]);
}

#[test]
fn a_comparison_that_fails_for_no_reason_is_found() {
    let mut story = Story::default();
    let first = story.wrote(0, 1);
    let compare = story.asked_by(0, 0, OperationKind::CompareWrite, 0, 1, false, &[first]);
    story.badly(compare, VolumeError::Miscompare { offset: 0 });
    story.read(0, &[first]);
    assert_ne!(story.found(), []);
}

#[test]
fn a_compare_and_write_that_is_seen_in_part_is_found() {
    let mut story = Story::default();
    let first = story.wrote(0, 2);
    let both = story.asked_by(
        0,
        0,
        OperationKind::CompareWrite,
        0,
        2,
        false,
        &[first, first],
    );
    story.read(0, &[both, first]);
    story.well(both);
    assert_eq!(story.found(), [Check::Atomicity]);
    // Two writes of a block each may be seen so.
    let mut story = Story::default();
    let first = story.wrote(0, 2);
    let both = story.asked(OperationKind::Write, 0, 2);
    story.read(0, &[both, first]);
    story.well(both);
    assert_eq!(story.found(), []);
}

/// The volume ended the first try of a write of two blocks, and one of them was there; the second try was done.
#[test]
fn a_part_of_a_try_that_failed_may_be_found_by_a_compare_and_write() {
    for (done, found) in [(false, vec![]), (true, vec![Check::Atomicity])] {
        let mut story = Story::default();
        let first = story.wrote(0, 2);
        let both = story.asked(OperationKind::Write, 0, 2);
        let try_it = |story: &mut Story, done| {
            let number = story
                .0
                .begin(NOW, Some(both), 0, OperationKind::Write, (0, 2));
            story.0.over(NOW, number, done);
        };
        try_it(&mut story, done);
        let exchange = story.asked_by(
            1,
            0,
            OperationKind::CompareWrite,
            0,
            2,
            false,
            &[both, first],
        );
        let number = story
            .0
            .begin(NOW, Some(exchange), 0, OperationKind::Write, (0, 2));
        story.0.over(NOW, number, true);
        story.well(exchange);
        try_it(&mut story, true);
        story.well(both);
        story.read(0, &[both, both]);
        let told: Vec<Check> = story
            .found()
            .into_iter()
            .filter(|check| *check == Check::Atomicity)
            .collect();
        assert_eq!(told, found, "the first try was done: {done}");
    }
}

#[test]
fn an_error_that_does_not_tell_the_truth_is_found() {
    // It says that nothing was done.
    let mut story = Story::default();
    let write = story.asked(OperationKind::Write, 0, 1);
    story.0.cancel(write);
    story.badly(write, VolumeError::Cancelled);
    story.read(0, &[write]);
    assert!(story.found().contains(&Check::HonestStatus));
    // It has no reason.
    for error in [
        VolumeError::OutOfRange,
        VolumeError::ReadOnly,
        VolumeError::Miscompare { offset: 0 },
        VolumeError::Cancelled,
        VolumeError::Invalid,
        VolumeError::Medium,
        VolumeError::Lost,
        VolumeError::TimedOut,
        VolumeError::Busy,
    ] {
        let mut story = Story::default();
        let write = story.asked(OperationKind::Write, 0, 1);
        story.badly(write, error);
        assert_eq!(story.found(), [Check::HonestStatus], "{error:?}");
    }
    // It should have had one.
    let mut story = Story::default();
    story.wrote(8, 1);
    assert_eq!(story.found(), [Check::HonestStatus]);
}

/// A request of host 0 and namespace 0 that fails, while other things are done to the system or before.
#[test]
fn an_error_has_a_cause_that_meets_its_request() {
    use Cause::{Fault, Fence, Trouble as Done};
    use OperationKind::{Flush, Read, Write};
    let (asked, ended) = (Duration::from_secs(1000), Duration::from_secs(1010));
    let (meanwhile, before, after) = ((1005, 1006), (10, 11), (1011, 1012));
    let own = (Some(0), Some(0));
    let cases = [
        // Error, request, cause, whose, when it meets the request, and whether one before explains it too.
        (
            VolumeError::TimedOut,
            Read,
            Fault(FaultKind::Partition),
            (Some(0), None),
            false,
        ),
        (
            VolumeError::TimedOut,
            Write,
            Fault(FaultKind::DiskStall),
            (None, Some(0)),
            false,
        ),
        (VolumeError::TimedOut, Write, Fence, own, false),
        (
            VolumeError::Busy,
            Read,
            Done(Trouble::RestartGateway),
            (None, None),
            false,
        ),
        (VolumeError::Cancelled, Write, Fence, own, false),
        (
            VolumeError::ReadOnly,
            Write,
            Done(Trouble::SetReadOnly),
            (None, Some(0)),
            false,
        ),
        (
            VolumeError::Lost,
            Read,
            Done(Trouble::RemoveNamespace),
            (None, Some(0)),
            false,
        ),
        (
            VolumeError::Lost,
            Read,
            Done(Trouble::RemoveHost),
            (Some(0), None),
            false,
        ),
        (
            VolumeError::Medium,
            Read,
            Fault(FaultKind::ReadError),
            (None, Some(0)),
            false,
        ),
        // Flushes tell of what happened before.
        (
            VolumeError::Medium,
            Flush,
            Fault(FaultKind::WritebackError),
            (None, Some(0)),
            true,
        ),
        (
            VolumeError::Medium,
            Flush,
            Fault(FaultKind::Crash),
            (None, None),
            true,
        ),
    ];
    for (error, kind, cause, whose, lasts) in cases {
        let found = |whose: (Option<usize>, Option<usize>), when| {
            let mut story = Story::default();
            story.0.open(NOW);
            story.incident(cause, whose, when);
            let blocks = u64::from(kind != Flush);
            let mut ask = Story::ask(kind, 0, blocks);
            ask.opening = 1;
            let id = story.0.ask(asked, ask);
            story.0.end(ended, id, Err(error), Vec::new());
            story.found()
        };
        let unexplained = vec![Check::HonestStatus];
        let explained = |explained: bool| match explained {
            true => vec![],
            false => unexplained.clone(),
        };
        let case = format!("{error:?} of a {kind:?}, {cause:?}");
        assert_eq!(found(whose, meanwhile), [], "{case}");
        assert_eq!(found(whose, before), explained(lasts), "{case} before");
        assert_eq!(found(whose, after), unexplained, "{case} after");
        let (host, namespace) = whose;
        if host.is_some() {
            assert_eq!(
                found((Some(1), namespace), meanwhile),
                unexplained,
                "{case} of another host"
            );
        }
        if namespace.is_some() {
            assert_eq!(
                found((host, Some(1)), meanwhile),
                unexplained,
                "{case} of another namespace"
            );
        }
    }
}

#[test]
fn a_host_hears_of_a_change_over_its_next_connection() {
    let found = |parted: bool| {
        let mut story = Story::default();
        let cause = Cause::Trouble(Trouble::RemoveNamespace);
        story.incident(cause, (None, Some(0)), (10, 11));
        if parted {
            let cause = Cause::Fault(FaultKind::Partition);
            story.incident(cause, (Some(0), None), (11, 900));
        }
        let (asked, ended) = (Duration::from_secs(901), Duration::from_secs(902));
        let id = story.0.ask(asked, Story::ask(OperationKind::Read, 0, 1));
        story.0.end(ended, id, Err(VolumeError::Lost), Vec::new());
        story.found()
    };
    assert_eq!(found(true), []);
    assert_eq!(found(false), [Check::HonestStatus]);
}

#[test]
fn what_is_not_exercised_is_found() {
    let second = Duration::from_secs(1);
    let exercised = |plan: &Plan, story: Story| {
        let found = all(plan, &[PROMISE], &story.0);
        let found = found
            .into_iter()
            .filter(|one| one.check == Check::Exercised);
        found.map(|one| one.message).collect::<Vec<_>>()
    };
    let stop = |story: &mut Story| {
        let words = Note::Words("no more faults".to_owned());
        let stopped = story.0.note(second * 100, words);
        story.0.faults_stopped = Some(stopped);
    };
    let mut plan = Plan::of(0);
    plan.network_troubles.clear();
    plan.gateway_troubles = vec![(Trouble::SetReadOnly, 1), (Trouble::RemoveHost, 1)];
    plan.host_troubles.clear();
    plan.pause = second..=second * 2;
    // Everything times out; something succeeds; all of it is after the faults, and says nothing of them.
    for (served, late, is_found) in [
        (false, false, true),
        (true, false, false),
        (true, true, false),
    ] {
        let mut story = Story::default();
        let cause = Cause::Trouble(Trouble::SetReadOnly);
        story.incident(cause, (None, Some(0)), (0, 100));
        if late {
            stop(&mut story);
        }
        for number in 0..100 {
            let write = story.asked(OperationKind::Write, 0, 1);
            match served && number % 10 == 0 {
                true => story.well(write),
                false => story.badly(write, VolumeError::TimedOut),
            }
        }
        if !late {
            stop(&mut story);
        }
        assert_eq!(
            !exercised(&plan, story).is_empty(),
            is_found,
            "{served}, {late}"
        );
    }
    // What is made, and what the plan has.
    for (made, is_found) in [
        (None, true),
        (Some(Trouble::RemoveHost), false),
        (Some(Trouble::KillHost), true),
    ] {
        let mut story = Story::default();
        story.wrote(0, 1);
        if let Some(trouble) = made {
            story.incident(Cause::Trouble(trouble), (Some(0), None), (1, 2));
        }
        stop(&mut story);
        let found = exercised(&plan, story);
        assert_eq!(!found.is_empty(), is_found, "{made:?}: {found:?}");
    }
}

#[test]
fn a_silent_volume_that_holds_others_up_is_found() {
    let second = Duration::from_secs(1);
    // The namespace of the requests, when they are answered, and what else goes wrong.
    let found = |namespace: usize, answered: u32, beside: Option<FaultKind>| {
        let mut story = Story::default();
        let silence = Cause::Fault(FaultKind::SilentDisk);
        story.incident(silence, (None, Some(0)), (10, 20));
        if let Some(kind) = beside {
            story.incident(Cause::Fault(kind), (Some(0), None), (15, 16));
        }
        let history = &mut story.0;
        let ask = Ask {
            namespace,
            ..Story::ask(OperationKind::Write, 0, 1)
        };
        let ids = (0..20).map(|_| history.ask(second * 12, ask.clone()));
        for id in ids.collect::<Vec<_>>() {
            history.end(second * answered, id, Ok(()), Vec::new());
        }
        history.faults_stopped = Some(history.note(second * 100, Note::PowerLoss));
        let mut plan = Plan::of(0);
        plan.pause = second * 1000..=second * 1000;
        plan.disk_troubles = vec![(Trouble::SilentVolume, 1)];
        plan.network_troubles = vec![(Trouble::Cut, 1)];
        let found = all(&plan, &[PROMISE, PROMISE], history);
        found.iter().any(|one| one.check == Check::Exercised)
    };
    assert!(found(1, 21, None));
    assert!(!found(1, 13, None));
    assert!(!found(1, 21, Some(FaultKind::Cut)));
    assert!(!found(0, 21, None));
}

#[test]
fn a_write_over_a_path_that_was_replaced_is_found() {
    let second = Duration::from_secs(1);
    // When the execution over path 0 ends, when that path's connection does, and over which path the host goes on.
    let found_of = |over: u32, lost: Option<u32>, (path, lba): (usize, u64), kind, begins| {
        let mut story = Story::default();
        story.0.connections.push(Connection {
            host: 0,
            path: 0,
            namespace: 0,
            from: Duration::ZERO,
            until: lost.map(|lost| second * lost),
        });
        let history = &mut story.0;
        let mut execution = 0;
        let (mut first, mut later) = (0, 0);
        for time in 1..=10 {
            let now = second * time;
            if time == 1 {
                first = history.ask(now, Story::ask(OperationKind::Write, 0, 2));
                execution = history.begin(now, Some(first), 0, OperationKind::Write, (0, 2));
            }
            if time == 5 {
                let ask = Ask {
                    path,
                    ..Story::ask(kind, lba, 1)
                };
                later = history.ask(now, ask);
                if begins {
                    let begun = history.begin(now, Some(later), 0, kind, (lba, 1));
                    history.over(now, begun, true);
                }
            }
            if time == 6 {
                history.end(now, later, Ok(()), Vec::new());
            }
            if time == over {
                history.over(now, execution, true);
            }
        }
        history.end(second * 11, first, Ok(()), Vec::new());
        let found = all(&Plan::of(0), &[PROMISE], history);
        found.iter().any(|one| one.check == Check::ReplacedPath)
    };
    let found = |over, lost, at| found_of(over, lost, at, OperationKind::Write, false);
    assert!(found(8, Some(3), (1, 1)));
    // A hint that has no effect waits for nothing.
    let deallocate = OperationKind::Deallocate;
    assert!(!found_of(8, Some(3), (1, 1), deallocate, false));
    assert!(found_of(8, Some(3), (1, 1), deallocate, true));
    // It ended before; the path was there, or was lost later; it is the same one; it is of other blocks.
    assert!(!found(4, Some(3), (1, 1)));
    assert!(!found(8, None, (1, 1)));
    assert!(!found(8, Some(5), (1, 1)));
    assert!(!found(8, Some(3), (0, 1)));
    assert!(!found(8, Some(3), (1, 4)));
}

//! The threads of this process, and for how long each has had a processor, as the system tells (proc(5)).
//!
//! Times are in the system's ticks, a hundredth of a second, which is also what it tells the time in: what was had between two looks is
//! compared with the time between them without a clock of ours.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

/// A tick, in which the kernel tells times (`USER_HZ`, which is 100 on every architecture that this runs on).
const TICK: Duration = Duration::from_millis(10);
/// Threads whose names begin so are not a client's: Weir's own, and those in which the kernel works for its rings.
const OTHERS: [&str; 2] = ["weir", "iou-"];

/// A thread: its number may be another's after its end, but not with the same beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Thread {
    id: u32,
    began: u64,
}

/// What is told of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) thread: Thread,
    pub(crate) name: String,
    /// For how long it has had a processor, in ticks.
    pub(crate) busy: u64,
}

/// A time of so many ticks.
pub(crate) fn time_of(ticks: u64) -> Duration {
    TICK * u32::try_from(ticks).unwrap_or(u32::MAX)
}

/// The time since the machine's start, in ticks; none where the system does not tell.
pub(crate) fn now() -> Option<u64> {
    uptime_of(&fs::read_to_string("/proc/uptime").ok()?)
}

fn uptime_of(text: &str) -> Option<u64> {
    let (seconds, hundredths) = text.split_whitespace().next()?.split_once('.')?;
    Some(seconds.parse::<u64>().ok()? * 100 + hundredths.parse::<u64>().ok()?)
}

/// The threads that there are; none where the system does not tell.
pub(crate) fn all() -> Option<BTreeSet<Thread>> {
    let tasks = fs::read_dir("/proc/self/task").ok()?;
    let ids = tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok());
    Some(ids.filter_map(tell).map(|told| told.thread).collect())
}

/// What is told of threads; nothing of Weir's own and of the kernel's, and of those that have ended. A thread that has just begun is called as who
/// started it, so that names count here, and not when a thread is first seen.
pub(crate) fn tell_of(threads: &[Thread]) -> Vec<Told> {
    let told = threads.iter().filter_map(|thread| tell(thread.id));
    told.filter(|told| threads.contains(&told.thread) && may_be_a_clients(&told.name))
        .collect()
}

fn may_be_a_clients(name: &str) -> bool {
    !OTHERS.iter().any(|other| name.starts_with(other))
}

fn tell(id: u32) -> Option<Told> {
    told_in(&fs::read_to_string(format!("/proc/self/task/{id}/stat")).ok()?)
}

/// Reads a line of `stat`: the number, the name in parentheses, which may have any in it, and then fields from the third on.
fn told_in(line: &str) -> Option<Told> {
    const THIRD: usize = 3;
    let (head, tail) = line.rsplit_once(')')?;
    let (id, name) = head.split_once(" (")?;
    let fields: Vec<&str> = tail.split_whitespace().collect();
    let field = |number: usize| fields.get(number - THIRD)?.parse::<u64>().ok();
    let (user, system, began) = (field(14)?, field(15)?, field(22)?);
    Some(Told {
        thread: Thread {
            id: id.parse().ok()?,
            began,
        },
        name: name.to_owned(),
        busy: user + system,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_tells_is_read() {
        let line = "4711 (a) (b c) S 1 2 3 4 5 6 7 8 9 10 150 25 0 0 20 0 9 0 88000 1 2";
        let told = told_in(line).unwrap();
        assert_eq!(told.name, "a) (b c");
        assert_eq!(told.busy, 175);
        let thread = Thread {
            id: 4711,
            began: 88_000,
        };
        assert_eq!(told.thread, thread);
        assert_eq!(told_in("4711 (a) S 1 2"), None);
        assert_eq!(told_in(""), None);
        assert_eq!(uptime_of("350735.47 234388.90\n"), Some(35_073_547));
        assert_eq!(uptime_of(""), None);
        assert_eq!(time_of(150), Duration::from_millis(1500));
    }

    #[test]
    fn threads_of_weir_and_of_rings_are_no_clients() {
        for name in ["weir-rbd-move", "weir", "iou-wrk-4711", "iou-sqp-4711"] {
            assert!(!may_be_a_clients(name), "{name}");
        }
        for name in ["msgr-worker-0", "io_context_pool", "rbd_iou-"] {
            assert!(may_be_a_clients(name), "{name}");
        }
    }

    #[test]
    fn a_thread_that_works_is_seen_to() {
        let before = all().expect("this system tells");
        let (started, ready) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let worker = std::thread::Builder::new().name("works".to_owned());
        let worker = worker.spawn(move || {
            started.send(()).unwrap();
            let mut turns = 0u64;
            while ended.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                turns = std::hint::black_box(turns + 1);
            }
        });
        ready.recv().unwrap();
        let (from, now_all) = (now().unwrap(), all().unwrap());
        let new: Vec<Thread> = now_all.difference(&before).copied().collect();
        let busy = || {
            let told = tell_of(&new);
            told.iter()
                .find(|told| told.name == "works")
                .map(|told| told.busy)
        };
        let first = busy().expect("it is among the new ones");
        while busy().unwrap() < first + 5 {
            std::thread::sleep(Duration::from_millis(10));
        }
        // Both are told in whole ticks, so that each may be off by one.
        assert!(
            now().unwrap() >= from + 3,
            "it cannot have worked for longer than it was there"
        );
        drop(end);
        worker.unwrap().join().unwrap();
        // It is told of for a moment after it has been joined.
        while busy().is_some() {
            std::thread::sleep(Duration::from_millis(10));
        }
        // Weir's own are not counted among what a client has.
        let own = std::thread::Builder::new().name("weir-test".to_owned());
        let before = all().unwrap();
        own.spawn(move || {
            let new: Vec<_> = all().unwrap().difference(&before).copied().collect();
            assert!(!new.is_empty());
            let names: Vec<_> = tell_of(&new).into_iter().map(|told| told.name).collect();
            assert!(!names.contains(&"weir-test".to_owned()), "{names:?}");
        })
        .unwrap()
        .join()
        .unwrap();
    }
}

//! The inbox for answers from foreign threads, on the real system.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use weir_reactor::linux::{LinuxConfig, LinuxSystem};
use weir_reactor::{
    DELIVERIES_MAX, Delivery, LocalFuture, PanicPolicy, Reactor, ReactorConfig, Recipient, System,
    Ticket,
};

/// Notes what is delivered, and has a task look when there is enough.
#[derive(Default)]
struct Notes {
    delivered: RefCell<Vec<(u64, Option<i64>)>>,
    wanted: Cell<usize>,
    done: RefCell<Option<weir_reactor::Sender<()>>>,
}

impl Notes {
    /// The next `count` deliveries.
    async fn take(&self, count: usize) -> Vec<(u64, Option<i64>)> {
        let (sender, receiver) = weir_reactor::oneshot();
        self.wanted.set(count);
        if self.delivered.borrow().len() < count {
            *self.done.borrow_mut() = Some(sender);
            receiver.await;
        }
        self.delivered.borrow_mut().drain(..).collect()
    }
}

impl Recipient for Notes {
    fn delivered(&self, delivery: Delivery) {
        let mut delivered = self.delivered.borrow_mut();
        delivered.push((delivery.user(), delivery.value()));
        if delivered.len() >= self.wanted.get()
            && let Some(done) = self.done.borrow_mut().take()
        {
            done.send(());
        }
    }
}

fn on_a_reactor(main: impl FnOnce(Reactor) -> LocalFuture<()> + Send + 'static) {
    let system = LinuxSystem::new(LinuxConfig::default()).expect("io_uring works here");
    let config = ReactorConfig {
        on_panic: PanicPolicy::Unwind,
        ..ReactorConfig::default()
    };
    let thread = system
        .start_reactor(config, Box::new(main))
        .expect("a reactor can be started");
    thread.join();
}

fn reserve(reactor: &Reactor, notes: &Rc<Notes>, user: u64) -> Option<Ticket> {
    reactor.reserve(Rc::<Notes>::clone(notes), user)
}

#[test]
fn threads_deliver_to_a_reactor_that_sleeps_or_not() {
    const THREADS: u64 = 4;
    const EACH: u64 = 2000;
    on_a_reactor(|reactor| {
        Box::pin(async move {
            let notes = Rc::new(Notes::default());
            let mut threads = Vec::new();
            for thread in 0..THREADS {
                let tickets: Vec<_> = (0..EACH)
                    .map(|at| {
                        (
                            at,
                            reserve(&reactor, &notes, thread * EACH + at).expect("room"),
                        )
                    })
                    .collect();
                threads.push(std::thread::spawn(move || {
                    for (at, ticket) in tickets {
                        // Some come while the reactor sleeps, most while it is awake.
                        if at % 100 == 0 {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                        ticket.deliver(-(at as i64));
                    }
                }));
            }
            let delivered = notes.take((THREADS * EACH) as usize).await;
            for thread in 0..THREADS {
                let own = delivered.iter().filter(|(user, _)| user / EACH == thread);
                let expected = (0..EACH).map(|at| (thread * EACH + at, Some(-(at as i64))));
                assert!(
                    own.copied().eq(expected),
                    "those of one thread come in order, each once"
                );
            }
            threads
                .into_iter()
                .for_each(|thread| thread.join().unwrap());
        })
    });
}

#[test]
fn the_inbox_is_bounded_and_what_is_dropped_is_told() {
    on_a_reactor(|reactor| {
        Box::pin(async move {
            let notes = Rc::new(Notes::default());
            let mut tickets: Vec<_> = (0..DELIVERIES_MAX as u64)
                .map(|user| reserve(&reactor, &notes, user).expect("room up to the bound"))
                .collect();
            assert!(reserve(&reactor, &notes, 0).is_none(), "it has a bound");
            drop(tickets.pop());
            let last = DELIVERIES_MAX as u64 - 1;
            assert_eq!(notes.take(1).await, [(last, None)]);
            let again = reserve(&reactor, &notes, 7).expect("room that came back");
            again.deliver(1);
            assert_eq!(notes.take(1).await, [(7, Some(1))]);
            drop(tickets);
            assert_eq!(notes.take(last as usize).await.len(), last as usize);
        })
    });
}

#[test]
fn what_comes_after_the_reactor_is_nobodys() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let kept = Arc::new(());
    let held = Arc::clone(&kept);
    on_a_reactor(move |reactor| {
        Box::pin(async move {
            struct Holds(#[expect(dead_code, reason = "counted")] Arc<()>);
            impl Recipient for Holds {
                fn delivered(&self, _: Delivery) {
                    panic!("nobody is told after the end");
                }
            }
            let ticket = reactor.reserve(Rc::new(Holds(held)), 1);
            sender.send(ticket.expect("room")).unwrap();
        })
    });
    assert_eq!(
        Arc::strong_count(&kept),
        1,
        "the recipient is gone with its reactor"
    );
    let ticket = receiver.recv().unwrap();
    let raw = ticket.into_raw();
    // SAFETY: from `into_raw`, taken back once.
    unsafe { Ticket::from_raw(raw) }.deliver(5);
}

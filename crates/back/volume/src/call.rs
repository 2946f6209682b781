//! One request at a time, awaited: for opening volumes and looking at them, not for the data path.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use weir_block::{
    Completion, CompletionSink, Completions, Operation, Queue, ReadBuffers, Request, Token, Volume,
    VolumeError,
};
use weir_reactor::Reactor;

/// A queue with one request in flight.
pub(crate) struct Caller {
    queue: RefCell<Box<dyn Queue>>,
    completions: Rc<Completions>,
}

impl Caller {
    pub(crate) fn open(volume: &Arc<dyn Volume>, reactor: &Reactor) -> Result<Self, VolumeError> {
        let completions = Completions::new();
        let sink: Rc<dyn CompletionSink> = Rc::<Completions>::clone(&completions);
        let queue = Arc::clone(volume).open_queue(reactor, 1, sink)?;
        Ok(Caller {
            queue: RefCell::new(queue),
            completions,
        })
    }

    /// Does one request.
    pub(crate) async fn call(&self, operation: Operation) -> Completion {
        let mut batch = VecDeque::from([Request {
            token: Token::default(),
            operation,
        }]);
        self.completions
            .submit(&mut **self.queue.borrow_mut(), &mut batch);
        assert!(batch.is_empty(), "a queue with nothing in flight has room");
        self.completions.next().await
    }

    /// Reads; the bytes.
    pub(crate) async fn read(&self, operation: Operation) -> Result<Vec<u8>, VolumeError> {
        let completion = self.call(operation).await;
        completion.result?;
        match completion.operation {
            Operation::Read {
                buffers: ReadBuffers::Filled(views),
                ..
            } => Ok(views
                .iter()
                .map(|view| &**view)
                .collect::<Vec<_>>()
                .concat()),
            _ => unreachable!("a read that succeeded is filled"),
        }
    }
}

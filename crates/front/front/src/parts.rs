//! What runs on several reactors with a part on each: how the parts are reached from any thread.

use std::rc::Rc;
use std::sync::Arc;

use weir_reactor::{Mailbox, Receiver, oneshot};

/// Something to do on one reactor's part.
type Work<S> = Box<dyn FnOnce(&Rc<S>) + Send>;

/// The parts, one on each reactor. A reactor that has stopped does nothing any more.
pub struct Parts<S> {
    mailboxes: Vec<Arc<Mailbox<Work<S>>>>,
}

impl<S: 'static> Parts<S> {
    /// So many parts, each of which is to [read](Parts::inbox) what it is sent.
    pub(crate) fn new(count: usize) -> Arc<Self> {
        let mailboxes = std::iter::repeat_with(Mailbox::new).take(count).collect();
        Arc::new(Parts { mailboxes })
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.mailboxes.len()
    }

    /// The reader's end of what part `index` is sent.
    pub(crate) fn inbox(&self, index: usize) -> Inbox<S> {
        Inbox(Arc::clone(&self.mailboxes[index]))
    }

    /// Sends work to one part; false: nobody takes it.
    pub(crate) fn send(&self, index: usize, work: impl FnOnce(&Rc<S>) + Send + 'static) -> bool {
        self.mailboxes[index].send(Box::new(work)).is_ok()
    }

    /// Runs `work` on one part; its result comes in the receiver, or none when the reactor stopped.
    pub fn ask<T: Send + 'static>(
        &self,
        index: usize,
        work: impl FnOnce(&Rc<S>) -> T + Send + 'static,
    ) -> Receiver<T> {
        let (sender, receiver) = oneshot();
        // Where nobody takes the work its sender is dropped, which the receiver sees.
        self.send(index, move |part| sender.send(work(part)));
        receiver
    }

    /// Runs `work` on every part, all at the same time; none for those whose reactor stopped.
    pub async fn ask_every<T: Send + 'static>(
        &self,
        work: impl Fn(&Rc<S>) -> T + Clone + Send + 'static,
    ) -> Vec<Option<T>> {
        let answers: Vec<_> = (0..self.count())
            .map(|index| self.ask(index, work.clone()))
            .collect();
        let mut all = Vec::with_capacity(answers.len());
        for answer in answers {
            all.push(answer.await);
        }
        all
    }

    /// Runs `work` on every part, some time soon.
    pub fn tell_every(&self, work: impl Fn(&Rc<S>) + Clone + Send + 'static) {
        for index in 0..self.count() {
            self.send(index, work.clone());
        }
    }
}

/// The reader's end of what a part is sent: when it is dropped nobody reads any more, and what was not taken is dropped with it.
pub(crate) struct Inbox<S>(Arc<Mailbox<Work<S>>>);

impl<S> Inbox<S> {
    /// Waits for the next work.
    pub(crate) async fn next(&self) -> Work<S> {
        self.0.next().await
    }
}

impl<S> Drop for Inbox<S> {
    fn drop(&mut self) {
        drop(self.0.close());
    }
}

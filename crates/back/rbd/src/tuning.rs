//! On a machine of few processors a client has fewer threads than Ceph's own number, and longer receives, where nobody says otherwise.
//!
//! A request that goes through more threads than there are processors waits for turns and pays for them: decision 0035 has the figures.
//! A value that is Ceph's default is taken for one that nobody has configured, as librados does not tell them apart.

use crate::sys::Rados;

/// From so many processors on Ceph's own numbers are left.
const MANY_PROCESSORS: usize = 4;

/// The options that are tuned.
pub(crate) const OPTIONS: [&str; 3] = [
    // These threads submit operations and call back.
    "librados_thread_count",
    // These send and receive.
    "ms_async_op_threads",
    // What a receive takes beyond what is looked for, so that one brings several answers of 4 KiB. It is memory of each connection.
    "ms_tcp_prefetch_max_size",
];

/// Ceph's own values of the options.
const USUAL: [&str; 3] = ["2", "3", "4096"];

/// An option of a client that gets another value than Ceph's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tuned {
    option: &'static str,
    usual: &'static str,
    value: &'static str,
}

impl Tuned {
    /// Whether nobody has configured it, as far as this client has learnt.
    fn is_free(self, rados: &Rados) -> bool {
        let has = rados.get(self.option);
        let is_free = has.as_deref().map(str::trim) == Ok(self.usual);
        if !is_free {
            tracing::debug!(self.option, ?has, "left as it is");
        }
        is_free
    }
}

/// Options of a client where the process may run on so many processors.
fn tuned(processors: usize) -> Vec<Tuned> {
    if processors >= MANY_PROCESSORS {
        return Vec::new();
    }
    let messenger = if processors < 3 { "1" } else { "2" };
    let values = OPTIONS.iter().zip(USUAL).zip(["1", messenger, "65536"]);
    let tuned = values.map(|((option, usual), value)| Tuned {
        option,
        usual,
        value,
    });
    tuned.collect()
}

/// What to tune of clients like this one, which has read its configuration file and is not connected: all that nobody has
/// configured. What `ceph config` says a client learns as it connects, so that `connect` is asked for one where it matters.
pub(crate) fn choose<E>(
    rados: Rados,
    connect: impl FnOnce(Rados) -> Result<Rados, E>,
) -> Result<Vec<Tuned>, E> {
    let processors = std::thread::available_parallelism().map_or(usize::MAX, usize::from);
    let mut free = tuned(processors);
    free.retain(|tuned| tuned.is_free(&rados));
    if !free.is_empty() {
        let connected = connect(rados)?;
        free.retain(|tuned| tuned.is_free(&connected));
    }
    Ok(free)
}

/// Sets what was chosen, before the client connects.
pub(crate) fn tune(rados: &Rados, chosen: &[Tuned]) {
    for Tuned { option, value, .. } in chosen {
        if rados.set(option, value).is_err() {
            tracing::debug!(option, value, "this version of Ceph does not take it");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_no_more_busy_threads_than_a_small_machine_can_run() {
        let threads = |processors| {
            let all = tuned(processors);
            let of = |option| all.iter().find(|tuned| tuned.option == option);
            OPTIONS.map(|option| of(option).map(|tuned| tuned.value))
        };
        let receives = Some("65536");
        assert_eq!(threads(1), [Some("1"), Some("1"), receives]);
        assert_eq!(threads(2), [Some("1"), Some("1"), receives]);
        assert_eq!(threads(3), [Some("1"), Some("2"), receives]);
        assert_eq!(threads(4), [None; 3]);
        assert_eq!(threads(256), [None; 3]);
    }
}

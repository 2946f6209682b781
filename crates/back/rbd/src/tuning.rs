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

/// An option of a client, and what to set it to before the client connects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tuned {
    option: &'static str,
    value: String,
}

/// Values for the options where the process may run on so many processors; none: Ceph's own.
fn tuned(processors: usize) -> Option<[&'static str; 3]> {
    let messenger = if processors < 3 { "1" } else { "2" };
    (processors < MANY_PROCESSORS).then_some(["1", messenger, "65536"])
}

/// Chooses the options to set in clients like this one: those that nobody has configured. The client has read its file
/// and is not connected. Only a connected client knows `ceph config`, so `connect` runs where there is something to choose.
pub(crate) fn choose<E>(
    rados: Rados,
    connect: impl FnOnce(Rados) -> Result<Rados, E>,
) -> Result<Vec<Tuned>, E> {
    let processors = std::thread::available_parallelism().map_or(usize::MAX, usize::from);
    let Some(values) = tuned(processors) else {
        return Ok(Vec::new());
    };
    let value_of = |rados: &Rados, option| rados.get(option).ok().map(|of| of.trim().to_owned());
    let free: Vec<usize> = (0..OPTIONS.len())
        .filter(|&at| value_of(&rados, OPTIONS[at]).as_deref() == Some(USUAL[at]))
        .collect();
    if free.is_empty() {
        return Ok(Vec::new());
    }
    let connected = connect(rados)?;
    let chosen = free.into_iter().filter_map(|at| {
        let option = OPTIONS[at];
        let said = value_of(&connected, option)?;
        // A client starts its messenger's threads before the monitors tell it how many: what they say is set too.
        let value = if said == USUAL[at] {
            values[at].to_owned()
        } else {
            said
        };
        Some(Tuned { option, value })
    });
    Ok(chosen.collect())
}

/// Sets what was chosen, before the client connects.
pub(crate) fn tune(rados: &Rados, chosen: &[Tuned]) {
    for Tuned { option, value } in chosen {
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
        assert_eq!(tuned(1), Some(["1", "1", "65536"]));
        assert_eq!(tuned(2), Some(["1", "1", "65536"]));
        assert_eq!(tuned(3), Some(["1", "2", "65536"]));
        assert_eq!((tuned(4), tuned(256)), (None, None));
    }
}

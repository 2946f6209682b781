//! On a machine of few processors a client has fewer threads than Ceph's own number, and longer receives, where nobody says otherwise.
//!
//! A request that goes through more threads than there are processors waits for turns and pays for them: decision 0035 has the figures.

use crate::sys::Rados;

/// From so many processors on Ceph's own numbers are left.
const MANY_PROCESSORS: usize = 4;

/// Options of a client where the process may run on so many processors: name, Ceph's default, and the value in its place.
fn tuned(processors: usize) -> Vec<[&'static str; 3]> {
    if processors >= MANY_PROCESSORS {
        return Vec::new();
    }
    let messenger = if processors < 3 { "1" } else { "2" };
    vec![
        // These submit operations and call back.
        ["librados_thread_count", "2", "1"],
        // These send and receive.
        ["ms_async_op_threads", "3", messenger],
        // What a receive takes beyond what is looked for, so that one brings several answers of 4 KiB. It is memory of each connection.
        ["ms_tcp_prefetch_max_size", "4096", "65536"],
    ]
}

/// Sets what nobody has configured before the client connects. A value that is Ceph's default is taken for that.
pub(crate) fn tune(rados: &Rados) {
    let processors = std::thread::available_parallelism().map_or(usize::MAX, usize::from);
    for [option, usual, value] in tuned(processors) {
        let has = rados.get(option);
        if has.as_deref().map(str::trim) != Ok(usual) {
            tracing::debug!(option, ?has, "left as it is");
        } else if rados.set(option, value).is_err() {
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
            let of = |option| {
                let mut found = all.iter().filter(|tuned| tuned[0] == option);
                found.next().map(|tuned| tuned[2])
            };
            (of("librados_thread_count"), of("ms_async_op_threads"))
        };
        assert_eq!(threads(1), (Some("1"), Some("1")));
        assert_eq!(threads(2), (Some("1"), Some("1")));
        assert_eq!(threads(3), (Some("1"), Some("2")));
        assert_eq!(threads(4), (None, None));
        assert_eq!(threads(256), (None, None));
    }
}

//! Limits of a namespace, as they are kept and as they are asked for.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::StateError;

/// One limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QosLimit {
    /// Requests or bytes in a second.
    pub limit: u64,
    /// Requests or bytes at once, after a time with less.
    pub burst: u64,
}

/// The limits of a namespace, for the hosts of all its subsystem's connections together. What is not limited is left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Qos {
    /// Reads, compares and verifies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_iops: Option<QosLimit>,
    /// Writes, compare-and-writes and write zeroes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_iops: Option<QosLimit>,
    /// All of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_iops: Option<QosLimit>,
    /// Bytes read or compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_bandwidth: Option<QosLimit>,
    /// Bytes written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_bandwidth: Option<QosLimit>,
    /// Bytes read, compared or written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_bandwidth: Option<QosLimit>,
}

impl Qos {
    /// Every limit with its name.
    pub fn each(&self) -> [(&'static str, Option<QosLimit>); 6] {
        [
            ("read_iops", self.read_iops),
            ("write_iops", self.write_iops),
            ("total_iops", self.total_iops),
            ("read_bandwidth", self.read_bandwidth),
            ("write_bandwidth", self.write_bandwidth),
            ("total_bandwidth", self.total_bandwidth),
        ]
    }

    /// Whether nothing is limited.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Checks every limit against its range.
    ///
    /// # Errors
    /// The first limit that is out of its range.
    pub fn check(&self) -> Result<(), StateError> {
        for (name, limit) in self.each() {
            let checked = limit.map(|QosLimit { limit, burst }| {
                weir_volume::RateLimit::new(limit, Some(burst)).map(drop)
            });
            checked
                .unwrap_or(Ok(()))
                .map_err(|problem| StateError::invalid(name, problem.to_string()))?;
        }
        Ok(())
    }

    /// As the data path takes them. They were checked.
    pub fn limits(&self) -> weir_volume::Limits {
        let limit = |limit: Option<QosLimit>| {
            let QosLimit { limit, burst } = limit?;
            weir_volume::RateLimit::new(limit, Some(burst)).ok()
        };
        weir_volume::Limits {
            read_iops: limit(self.read_iops),
            write_iops: limit(self.write_iops),
            total_iops: limit(self.total_iops),
            read_bandwidth: limit(self.read_bandwidth),
            write_bandwidth: limit(self.write_bandwidth),
            total_bandwidth: limit(self.total_bandwidth),
        }
    }
}

/// One limit to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QosLimitPatch {
    /// Requests or bytes in a second; 0: no limit.
    pub limit: u64,
    /// Requests or bytes at once, after a time with less: at least a hundredth of the limit; a tenth unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
}

impl QosLimitPatch {
    fn applied(self) -> Option<QosLimit> {
        let least = |limit| weir_volume::RateLimit::new(limit, None).map_or(0, |rate| rate.burst());
        (self.limit > 0).then(|| QosLimit {
            limit: self.limit,
            burst: self.burst.unwrap_or_else(|| least(self.limit)),
        })
    }
}

/// Limits to set; what is left out stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QosPatch {
    /// Reads, compares and verifies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_iops: Option<QosLimitPatch>,
    /// Writes, compare-and-writes and write zeroes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_iops: Option<QosLimitPatch>,
    /// All of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_iops: Option<QosLimitPatch>,
    /// Bytes read or compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_bandwidth: Option<QosLimitPatch>,
    /// Bytes written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_bandwidth: Option<QosLimitPatch>,
    /// Bytes read, compared or written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_bandwidth: Option<QosLimitPatch>,
}

impl QosPatch {
    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What `before` becomes by it.
    pub fn applied_to(&self, before: &Qos) -> Qos {
        let set = |patch: Option<QosLimitPatch>, before: Option<QosLimit>| match patch {
            Some(patch) => patch.applied(),
            None => before,
        };
        Qos {
            read_iops: set(self.read_iops, before.read_iops),
            write_iops: set(self.write_iops, before.write_iops),
            total_iops: set(self.total_iops, before.total_iops),
            read_bandwidth: set(self.read_bandwidth, before.read_bandwidth),
            write_bandwidth: set(self.write_bandwidth, before.write_bandwidth),
            total_bandwidth: set(self.total_bandwidth, before.total_bandwidth),
        }
    }
}

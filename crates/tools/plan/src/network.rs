//! A closed queueing network: so many requests in flight go round a delay and stations, each a number of like queues of which a request visits one.
//!
//! The approximation of Schweitzer and Bard is solved as one equation for the throughput, since in it every queue's length follows from the throughput
//! alone; the exact recursion of mean value analysis (Reiser and Lavenberg 1980) stands beside it for whole populations and stations of which a request visits
//! any queue. Both take service to be such that the network has a product form. Stations whose servers share a queue wait by Sakasegawa's approximation (1977).

/// Steps of bisection: enough for the last bit of a double.
const STEPS: u32 = 60;
/// A throughput is known when a half of what is left moves it by less than this part,
const EXACT: f64 = 1e-13;
/// or one of Newton's steps by less than this one: the next would be by about its square.
const NEARLY_EXACT: f64 = 1e-8;
/// Populations up to which a latency is looked for.
const IN_FLIGHT_MAX: f64 = 1e9;

/// Like queues, of which a request visits one, any with the same chance.
#[derive(Debug, Clone, PartialEq)]
pub struct Station {
    /// What it is called.
    pub name: &'static str,
    /// How many queues; need not be whole where it is estimated.
    pub queues: f64,
    /// Seconds of service of a request, at whichever queue.
    pub demand: f64,
    /// Seconds in which a request is there when nobody else is: more or less than the demand where it is at several queues at once.
    pub alone: f64,
    /// Seconds of waiting are these times `u^sharpness / (1 - u)` where queues work a part `u` of the time.
    pub wait: f64,
    /// 1 where a request gets any queue; the more, the longer a station has room before it makes anybody wait.
    pub sharpness: f64,
}

impl Station {
    /// Queues of which a request gets any, whichever is free.
    #[must_use]
    pub fn any(name: &'static str, queues: f64, demand: f64) -> Self {
        Station {
            name,
            queues,
            demand,
            alone: demand,
            wait: demand,
            sharpness: 1.0,
        }
    }

    /// Groups of servers that share one queue, of which a request gets any group and there the first server that is free (Sakasegawa 1977: a wait of
    /// `u^(sqrt(2 (m + 1)) - 1) / (1 - u)` times the demand by `m`; of one server exact).
    #[must_use]
    pub fn shared(name: &'static str, groups: f64, servers: f64, demand: f64) -> Self {
        Station {
            name,
            queues: groups * servers,
            demand,
            alone: demand,
            wait: demand / servers,
            sharpness: (2.0 * (servers + 1.0)).sqrt() - 1.0,
        }
    }

    /// Requests a second at most.
    #[must_use]
    pub fn capacity(&self) -> f64 {
        if self.demand > 0.0 {
            self.queues / self.demand
        } else {
            f64::INFINITY
        }
    }
}

/// A closed network.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    /// Seconds in which a request waits for nothing.
    pub delay: f64,
    /// Where it may wait.
    pub stations: Vec<Station>,
}

impl Network {
    fn unloaded(&self) -> f64 {
        self.delay + self.stations.iter().map(|of| of.alone).sum::<f64>()
    }

    /// Requests a second at most, whatever is in flight: that of the station that binds.
    #[must_use]
    pub fn capacity(&self) -> f64 {
        let all = self.stations.iter().map(Station::capacity);
        all.fold(f64::INFINITY, f64::min)
    }

    /// Requests a second with so many in flight (at least 1), approximately (Schweitzer and Bard): a queue that works a part `u` of the time holds
    /// `u / (1 - u (N - 1) / N)`.
    #[must_use]
    pub fn rate(&self, in_flight: f64) -> f64 {
        self.rate_near(in_flight, f64::INFINITY)
    }

    /// As [`Network::rate`], found sooner where about that rate is to be expected.
    #[must_use]
    pub fn rate_near(&self, in_flight: f64, expected: f64) -> f64 {
        let others = ((in_flight - 1.0) / in_flight).max(0.0);
        // How many there would be at a rate, and by how many more they grow with it.
        let population = |rate: f64| {
            let (mut count, mut slope) = (rate * self.delay, self.delay);
            for of in &self.stations {
                let busy = rate * of.demand / of.queues;
                let free = 1.0 - busy * others;
                if free <= 0.0 {
                    return (f64::INFINITY, f64::INFINITY);
                }
                let used = busy * others;
                let waiting = match of.sharpness {
                    1.0 => used / free,
                    sharpness => used.powf(sharpness) / free,
                } * of.wait;
                count += rate * (of.alone + waiting);
                slope += of.alone + waiting * (1.0 + of.sharpness + used / free);
            }
            (count, slope)
        };
        // Newton's steps where they stay between what is known to be too little and too much, halves where not.
        let (mut low, mut high) = (0.0, in_flight / self.unloaded());
        let most = high.min(self.capacity());
        let mut rate = if expected < most {
            expected
        } else {
            most / 2.0
        };
        for _ in 0..2 * STEPS {
            let (count, slope) = population(rate);
            if count > in_flight {
                high = rate;
            } else {
                low = rate;
            }
            let stepped = rate - (count - in_flight) / slope;
            let (next, enough) = if stepped > low && stepped < high {
                (stepped, NEARLY_EXACT)
            } else {
                ((low + high) / 2.0, EXACT)
            };
            if (next - rate).abs() <= enough * rate {
                return next;
            }
            rate = next;
        }
        rate
    }

    /// Requests a second with so many in flight, exactly, where every station is of queues of which a request gets any.
    #[must_use]
    pub fn rate_exact(&self, in_flight: u32) -> f64 {
        let mut lengths = vec![0.0; self.stations.len()];
        let mut rate = 0.0;
        for population in 1..=in_flight {
            let stays: Vec<f64> = self
                .stations
                .iter()
                .zip(&lengths)
                .map(|(of, length)| of.demand * (1.0 + length / of.queues))
                .collect();
            rate = f64::from(population) / (self.delay + stays.iter().sum::<f64>());
            for (length, stay) in lengths.iter_mut().zip(stays) {
                *length = rate * stay;
            }
        }
        rate
    }

    /// Mean seconds of a request with so many in flight.
    #[must_use]
    pub fn latency(&self, in_flight: f64) -> f64 {
        in_flight / self.rate(in_flight)
    }

    /// The highest rate at which the mean latency is at most so many seconds, with at most `in_flight_max` in flight; none where a single request takes longer.
    #[must_use]
    pub fn rate_within(&self, seconds: f64, in_flight_max: f64) -> Option<f64> {
        if self.latency(1.0) > seconds {
            return None;
        }
        let (mut low, mut high) = (1.0f64, in_flight_max.clamp(1.0, IN_FLIGHT_MAX));
        if self.latency(high) <= seconds {
            return Some(self.rate(high));
        }
        for _ in 0..STEPS {
            let middle = (low * high).sqrt();
            if self.latency(middle) > seconds {
                high = middle;
            } else {
                low = middle;
            }
        }
        Some(self.rate(low))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn network(delay: f64, stations: &[(f64, f64)]) -> Network {
        Network {
            delay,
            stations: stations
                .iter()
                .map(|&(queues, demand)| Station::any("s", queues, demand))
                .collect(),
        }
    }

    #[test]
    fn a_balanced_network_is_as_its_closed_form_has_it() {
        // M like queues without delay and N requests: N M / ((N + M - 1) s), of which Schweitzer's approximation is exact.
        for (queues, population) in [(1u32, 1u32), (1, 50), (4, 3), (16, 100), (40, 8192)] {
            let service = 1e-3;
            let of = network(0.0, &[(f64::from(queues), service)]);
            let expected = f64::from(population) * f64::from(queues)
                / (f64::from(population + queues - 1) * service);
            for found in [of.rate_exact(population), of.rate(f64::from(population))] {
                assert!(
                    (found / expected - 1.0).abs() < 1e-9,
                    "{queues} {population}: {found} {expected}"
                );
            }
        }
    }

    #[test]
    fn a_machine_repair_shop_is_as_erlang_has_it() {
        // One queue and a delay: the finite source queue M/M/1//N, whose throughput is (1 - p0) / s.
        let (delay, service, population) = (5e-3, 1e-3, 8u32);
        let mut weights = vec![1.0];
        for at in 1..=population {
            let before = weights[at as usize - 1];
            weights.push(before * f64::from(population - at + 1) * service / delay);
        }
        let idle = 1.0 / weights.iter().sum::<f64>();
        let expected = (1.0 - idle) / service;
        let of = network(delay, &[(1.0, service)]);
        assert!((of.rate_exact(population) / expected - 1.0).abs() < 1e-12);
        assert!((of.rate(f64::from(population)) / expected - 1.0).abs() < 0.10);
    }

    #[test]
    fn servers_that_share_a_queue_wait_as_erlang_has_it() {
        // Far more requests than matter, with a delay that keeps the rate: nearly open. Erlang's C for m servers that work a part u of the time.
        for (servers, busy) in [(1u32, 0.7f64), (4, 0.8), (16, 0.9), (48, 0.95)] {
            let offered = f64::from(servers) * busy;
            let (mut term, mut sum) = (1.0, 0.0);
            for at in 0..servers {
                sum += term;
                term *= offered / f64::from(at + 1);
            }
            let queued = term / (1.0 - busy);
            let waits = queued / (sum + queued);
            let service = 1e-3;
            let expected = waits * service / (f64::from(servers) * (1.0 - busy));
            let rate = offered / service;
            let in_flight = 1e7;
            let of = Network {
                delay: in_flight / rate - service - expected,
                stations: vec![Station::shared("s", 1.0, f64::from(servers), service)],
            };
            let found = of.latency(in_flight) - of.delay - service;
            assert!(
                (found / expected - 1.0).abs() < 0.15,
                "{servers}: {found} {expected}"
            );
        }
    }

    #[test]
    fn the_rate_within_a_latency_is_where_the_latency_is_reached() {
        let of = network(5e-4, &[(16.0, 4e-5), (4.0, 5e-6)]);
        let rate = of.rate_within(2e-3, 1e6).unwrap();
        let in_flight = rate * 2e-3;
        assert!((of.latency(in_flight) / 2e-3 - 1.0).abs() < 1e-6);
        assert_eq!(of.rate_within(1e-4, 1e6), None);
        assert_eq!(of.rate_within(2e-3, 32.0), Some(of.rate(32.0)));
    }

    proptest! {
        #[test]
        fn throughput_is_within_its_asymptotes_and_near_what_is_exact(
            delay in 0.0f64..1e-3,
            stations in proptest::collection::vec((1u32..50, 1e-6f64..2e-4), 1..5),
            population in 32u32..600,
        ) {
            let stations: Vec<_> = stations.into_iter().map(|(queues, demand)| (f64::from(queues), demand)).collect();
            let of = network(delay, &stations);
            let (exact, approximate) = (of.rate_exact(population), of.rate(f64::from(population)));
            let bound = of.capacity().min(f64::from(population) / of.unloaded());
            prop_assert!(exact <= bound * (1.0 + 1e-9) && approximate <= bound * (1.0 + 1e-9));
            prop_assert!((approximate / exact - 1.0).abs() < 0.05, "{} {}", approximate, exact);
            prop_assert!(of.rate_exact(population + 1) >= exact * (1.0 - 1e-12));
        }
    }
}

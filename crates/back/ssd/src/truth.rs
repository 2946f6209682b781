//! What a profile itself says will happen when the whole drive is written from one end to the other, without running the model.
//!
//! Let C be the capacity, S and D the static and dynamic parts of the cache, and b the bits of a cell; D takes b D of the flash. Writes find
//! room in the cache for S + D bytes. From then on they go past it, or through it at the speed at which it is emptied. What stays in the
//! flash beside the cache then fills C - b D when C + S - (b - 1) D bytes are written; from there on every byte that is stored takes room
//! from the cache, of which 1 / (b - 1) bytes have to be moved for it. Of a full drive that was idle the static part is free; a burst over old data frees flash as it goes,
//! and b / (b - 1) S bytes find room. As many stay in the cache at the end of a fill, for then the flash is full with them: (C - S - d) + b d = C.

use crate::layout::Layout;
use crate::profile::{Cache, Profile, Stall, WhenFull};

/// The yardstick of a profile. Rates are means over a phase, without noise, and include stalls; heat is left out, for it depends on what
/// was before: [`Truth::throttles`] says whether it matters.
#[derive(Debug, Clone, PartialEq)]
pub struct Truth {
    /// An empty drive is filled.
    pub fill: Vec<TruthPhase>,
    /// Then the same is written again, at once, and not deallocated before.
    pub overwrite: Vec<TruthPhase>,
    /// Then once more, while a little ahead of the writing is deallocated.
    pub overwrite_trimmed: Vec<TruthPhase>,
    /// What the cache takes of a burst that overwrites a full drive from its beginning, after that was idle for as long as it wanted: its static part, and what its dynamic
    /// part gets of what is overwritten meanwhile.
    pub recovered_cache_bytes: u64,
    /// Whether one of these phases, were it to last, made the drive so warm that it slows down, so that rates may be below those above.
    pub throttles: bool,
}

/// A part of a pass in which one thing sets the rate.
#[derive(Debug, Clone, PartialEq)]
pub struct TruthPhase {
    /// `cache`, `direct`, `folding`, `shrinking cache`, `overwrite` or `background work`.
    pub name: &'static str,
    /// Where it begins, in bytes of this pass. The first begins at 0; each ends where the next begins, the last with the capacity.
    pub begins_at_bytes: u64,
    /// The rate at which hosts can write, in bytes a second.
    pub rate_bytes_per_s: f64,
}

/// Seconds for a byte, of a rate.
fn cost(bytes_per_second: f64) -> f64 {
    1.0 / bytes_per_second
}

/// How fast hosts write, and the share of time in which the dies work for it.
#[derive(Clone, Copy)]
struct Pace {
    rate: f64,
    busy: f64,
}

struct Paces {
    direct: Pace,
    shrinking: Pace,
    overwrite: Pace,
}

impl Profile {
    /// What will happen when it is filled and overwritten. See [`Truth`].
    #[must_use]
    pub fn truth(&self) -> Truth {
        let capacity = self.capacity_bytes;
        let paces = self.paces_when_full();
        let past = match self.cache.map(|cache| cache.when_full) {
            Some(WhenFull::Folding) => "folding",
            Some(WhenFull::Direct) | None => "direct",
        };
        let (cache_bytes, shrinks_at) = self.boundaries();
        let mut busiest = 0.0_f64;
        let mut paced = |name, begins_at_bytes, pace: Pace| {
            busiest = busiest.max(pace.busy);
            phase(name, begins_at_bytes, pace.rate)
        };
        let mut fill = Vec::new();
        if let Some(cache) = self.cache {
            let rate = cache.bytes_per_second;
            fill.push(paced("cache", 0, self.pace(rate, cost(rate))));
        }
        fill.push(paced(past, cache_bytes, paces.direct));
        if shrinks_at < capacity {
            fill.push(paced("shrinking cache", shrinks_at, paces.shrinking));
        }
        let layout = Layout::of(self);
        let erased_ahead = (layout.spare_units() * layout.unit_bytes).min(capacity);
        let mut overwrite = vec![paced(past, 0, paces.direct)];
        if self.erase_bytes_per_second.is_some() {
            let (given_up_at, given_up) = self.given_up();
            let ends_at = match given_up_at > erased_ahead {
                true => erased_ahead,
                false => (erased_ahead + given_up).min(capacity),
            };
            if ends_at < capacity {
                overwrite.push(paced("overwrite", ends_at, paces.overwrite));
            }
            if given_up > 0 && given_up_at > erased_ahead {
                overwrite.push(paced("shrinking cache", given_up_at, paces.direct));
                overwrite.push(paced("overwrite", given_up_at + given_up, paces.overwrite));
            }
        }
        let trimmed = vec![paced("overwrite", 0, paces.direct)];
        let finish = |phases: Vec<TruthPhase>, pass: u64| {
            let phases = self.with_background(phases, pass * capacity);
            merge(phases, capacity, layout.unit_bytes)
        };
        Truth {
            fill: finish(fill, 0),
            overwrite: named_overwrite(finish(overwrite, 1)),
            overwrite_trimmed: finish(trimmed, 2),
            recovered_cache_bytes: self.recovered_bytes(),
            throttles: self.throttles(busiest),
        }
    }

    /// Where an overwrite comes to what a fill left in a cache that it went past in the end, and how much of the flash the dynamic part of that cache gives up there, which
    /// needs no erasing. What goes through a cache leaves its last bytes there, which are folded before they are overwritten.
    fn given_up(&self) -> (u64, u64) {
        let layout = Layout::of(self);
        let left = self.recovered_bytes();
        let gained = left - layout.static_units * layout.unit_bytes;
        let is_passed = (self.cache).is_some_and(|cache| cache.when_full == WhenFull::Direct);
        let (cache_bytes, _) = self.boundaries();
        match is_passed {
            true => (cache_bytes - left, u64::from(self.bits_per_cell) * gained),
            false => (0, 0),
        }
    }

    /// Each byte of a burst frees one of the flash where it overwrites, of which the dynamic part of the cache makes 1 / b: x = S + x / b.
    fn recovered_bytes(&self) -> u64 {
        let layout = Layout::of(self);
        let bits = u64::from(self.bits_per_cell);
        let (fixed, dynamic) = (layout.static_units, layout.dynamic_units);
        let gained = match bits {
            0 | 1 => dynamic,
            _ => (fixed / (bits - 1)).min(dynamic),
        };
        (fixed + gained) * layout.unit_bytes
    }

    /// Until where a fill goes into the cache, and from where on the cache has to shrink.
    fn boundaries(&self) -> (u64, u64) {
        let layout = Layout::of(self);
        let (static_units, dynamic_units) = (layout.static_units, layout.dynamic_units);
        let bits = u64::from(self.bits_per_cell);
        let cache = static_units + dynamic_units;
        let shrinks = match dynamic_units {
            0 => layout.units,
            _ => layout.units + static_units - (bits - 1) * dynamic_units,
        };
        (cache * layout.unit_bytes, shrinks * layout.unit_bytes)
    }

    /// A rate through the link, with the share of time in which the drive stands still.
    fn linked(&self, bytes_per_second: f64) -> f64 {
        let rate = bytes_per_second.min(self.interface_bytes_per_second);
        rate / (1.0 + self.stall.map_or(0.0, Stall::share))
    }

    /// What comes of a rate that hosts have at most, and of the seconds that a byte takes the dies.
    fn pace(&self, host: f64, dies: f64) -> Pace {
        let rate = self.linked(host.min(1.0 / dies));
        Pace {
            rate,
            busy: rate * dies,
        }
    }

    fn paces_when_full(&self) -> Paces {
        let bits = f64::from(self.bits_per_cell);
        let program = cost(self.program_bytes_per_second);
        let erase = self.erase_bytes_per_second.map_or(0.0, cost);
        match self.cache {
            Some(Cache {
                when_full: WhenFull::Folding,
                bytes_per_second,
                fold_bytes_per_second,
                ..
            }) => {
                let (write, fold) = (cost(bytes_per_second), cost(fold_bytes_per_second));
                let shrink = fold * bits / (bits - 1.0).max(1.0);
                Paces {
                    direct: self.pace(bytes_per_second, write + fold),
                    shrinking: self.pace(bytes_per_second, write + shrink),
                    overwrite: self.pace(bytes_per_second, write + fold + erase),
                }
            }
            direct => {
                let host = self.direct_bytes_per_second;
                let fold = direct.map_or(0.0, |cache| cost(cache.fold_bytes_per_second));
                Paces {
                    direct: self.pace(host, program),
                    shrinking: self.pace(host, program + fold / (bits - 1.0).max(1.0)),
                    overwrite: self.pace(host, program + erase),
                }
            }
        }
    }

    /// The phases of a pass that begins when hosts have written `before` bytes, with background work among them.
    fn with_background(&self, phases: Vec<TruthPhase>, before: u64) -> Vec<TruthPhase> {
        let Some(background) = self.background else {
            return phases;
        };
        let capacity = self.capacity_bytes;
        let rate = self.linked(background.bytes_per_second);
        let mut cut = Vec::new();
        for (index, now) in phases.iter().enumerate() {
            let end = phases
                .get(index + 1)
                .map_or(capacity, |next| next.begins_at_bytes);
            let mut at = now.begins_at_bytes;
            while at < end {
                let within = (before + at) % background.every_bytes;
                let quiet = background.every_bytes - background.length_bytes;
                let (name, rate, until) = if within < quiet {
                    (now.name, now.rate_bytes_per_s, quiet)
                } else if rate < now.rate_bytes_per_s {
                    ("background work", rate, background.every_bytes)
                } else {
                    (now.name, now.rate_bytes_per_s, background.every_bytes)
                };
                cut.push(phase(name, at, rate));
                at += until - within;
            }
        }
        cut
    }

    /// Whether dies that work for such a share of time warm it up to where it slows down.
    fn throttles(&self, busy: f64) -> bool {
        let end = self.heat.idle_celsius + self.heat.rise_kelvin * busy;
        self.heat
            .throttle
            .is_some_and(|throttle| end >= throttle.at_celsius)
    }
}

impl Stall {
    /// The time in which the drive stands still for each time in which it writes.
    pub(crate) fn share(self) -> f64 {
        // The mean of an exponential that is cut off.
        let mean = 1.0 - f64::exp(-Stall::LONGEST);
        mean * self.mean_nanoseconds / self.every_nanoseconds
    }
}

fn phase(name: &'static str, begins_at_bytes: u64, rate_bytes_per_s: f64) -> TruthPhase {
    TruthPhase {
        name,
        begins_at_bytes,
        rate_bytes_per_s,
    }
}

/// Without phases that cannot be told from the one before, and those shorter than a unit, which come of rounding.
fn merge(phases: Vec<TruthPhase>, capacity: u64, unit_bytes: u64) -> Vec<TruthPhase> {
    const ALIKE: f64 = 1e-9;
    let mut merged: Vec<TruthPhase> = Vec::new();
    let ends: Vec<_> = phases
        .iter()
        .skip(1)
        .map(|next| next.begins_at_bytes)
        .collect();
    let mut begins = 0;
    for (phase, end) in phases.into_iter().zip(ends.into_iter().chain([capacity])) {
        if end < begins + unit_bytes {
            continue;
        }
        let alike = merged.last().is_some_and(|last| {
            let difference = last.rate_bytes_per_s - phase.rate_bytes_per_s;
            difference.abs() <= ALIKE * phase.rate_bytes_per_s
        });
        if !alike {
            merged.push(TruthPhase {
                begins_at_bytes: begins,
                ..phase
            });
        }
        begins = end;
    }
    merged
}

/// A pass over old data in which nothing is told apart is that.
fn named_overwrite(mut phases: Vec<TruthPhase>) -> Vec<TruthPhase> {
    let has_one = phases.iter().any(|phase| phase.name == "overwrite");
    if !has_one {
        for phase in &mut phases {
            if phase.name != "background work" {
                phase.name = "overwrite";
            }
        }
    }
    phases
}

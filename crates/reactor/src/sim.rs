//! A deterministic simulation: network, disk, clock and randomness from one seed.

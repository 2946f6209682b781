//! Time until too few drives lose the first byte.

use crate::drive::Drive;

/// Seconds until the buffer is full and the first byte is lost, for a line of `line` bytes a second onto `drives` drives. None if nothing
/// is lost in the measured passes, or if their phases are unknown.
///
/// Drives write as fast as the phase of their pass lets them where something waits, and as fast as the line where nothing does; what they
/// recover while they are not busy is left out.
#[must_use]
pub fn first_loss(drive: &Drive, drives: u64, line: f64, buffer: f64) -> Option<f64> {
    let (mut seconds, mut waiting) = (0.0, 0.0);
    for phase in &drive.phases {
        let rate = phase.rate * drives as f64;
        let mut left = phase.bytes * drives as f64;
        if rate < line {
            let fills = (buffer - waiting) / (line - rate);
            let lasts = left / rate;
            if fills <= lasts {
                return Some(seconds + fills);
            }
            seconds += lasts;
            waiting += (line - rate) * lasts;
            continue;
        }
        // Until nothing waits, and then as it comes.
        let empties = match waiting > 0.0 {
            true => waiting / (rate - line),
            false => 0.0,
        };
        let lasts = (left / rate).min(empties);
        seconds += lasts;
        waiting -= (rate - line) * lasts;
        left -= rate * lasts;
        seconds += left.max(0.0) / line;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::Phase;
    use crate::sheet::Source;

    fn drive(phases: &[(f64, f64)]) -> Drive {
        Drive {
            phases: phases
                .iter()
                .map(|&(bytes, rate)| Phase { bytes, rate })
                .collect(),
            ..Drive::steady("d", 1.0, None, Source::Modelled)
        }
    }

    #[test]
    fn the_first_loss_is_when_the_buffer_is_full() {
        // 100 bytes at 10 a second, which the line does not reach, and then 4 a second.
        let slow = drive(&[(100.0, 10.0), (1000.0, 4.0)]);
        assert_eq!(first_loss(&slow, 1, 5.0, 20.0), Some(100.0 / 5.0 + 20.0));
        assert_eq!(first_loss(&slow, 2, 5.0, 20.0), None);
        // Too slow from the first byte on.
        assert_eq!(first_loss(&slow, 1, 12.0, 8.0), Some(4.0));
        // A slow phase that the buffer hides, and one that finds it half full.
        let dips = drive(&[(40.0, 4.0), (6.0, 6.0), (1000.0, 4.0)]);
        // 10 s bring 10 bytes too many, of which 1 s takes 1 back; then 11 more fill it.
        assert_eq!(first_loss(&dips, 1, 5.0, 20.0), Some(10.0 + 1.0 + 11.0));
        // All that waits is written before the phase ends.
        let drains = drive(&[(8.0, 4.0), (100.0, 10.0), (100.0, 4.0)]);
        let at = 2.0 + 2.0 / 5.0 + (100.0 - 4.0) / 5.0 + 20.0;
        assert_eq!(first_loss(&drains, 1, 5.0, 20.0), Some(at));
        assert_eq!(
            first_loss(&Drive::steady("d", 1.0, None, Source::Given), 1, 5.0, 1.0),
            None
        );
    }
}

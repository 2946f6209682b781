//! What least squares need of linear algebra, for a handful of unknowns.

/// Pivots below this part of the largest element are none.
const SINGULAR: f64 = 1e-14;

/// The inverse of a square matrix; none where it has none.
pub(crate) fn inverse(matrix: &[Vec<f64>]) -> Option<Vec<Vec<f64>>> {
    let size = matrix.len();
    let largest = matrix
        .iter()
        .flatten()
        .fold(0.0, |most: f64, of| most.max(of.abs()));
    let mut rows: Vec<Vec<f64>> = matrix
        .iter()
        .enumerate()
        .map(|(at, row)| {
            let unit = (0..size).map(|of| if of == at { 1.0 } else { 0.0 });
            row.iter().copied().chain(unit).collect()
        })
        .collect();
    for column in 0..size {
        let pivot = (column..size).max_by(|&one, &other| {
            rows[one][column]
                .abs()
                .total_cmp(&rows[other][column].abs())
        })?;
        rows.swap(column, pivot);
        let value = rows[column][column];
        if value.is_nan() || value.abs() <= SINGULAR * largest {
            return None;
        }
        for element in &mut rows[column] {
            *element /= value;
        }
        let row = rows[column].clone();
        for (at, other) in rows.iter_mut().enumerate() {
            if at != column {
                let factor = other[column];
                for (element, of) in other.iter_mut().zip(&row) {
                    *element -= factor * of;
                }
            }
        }
    }
    Some(rows.into_iter().map(|row| row[size..].to_vec()).collect())
}

/// The solution of a square system; none where it has none, or many.
pub(crate) fn solve(matrix: &[Vec<f64>], right: &[f64]) -> Option<Vec<f64>> {
    let inverse = inverse(matrix)?;
    let times = |row: &Vec<f64>| row.iter().zip(right).map(|(one, other)| one * other).sum();
    Some(inverse.iter().map(times).collect())
}

/// The lower triangle whose product with its transpose is a matrix (Cholesky); none where the matrix is not symmetric and positive.
pub(crate) fn cholesky(matrix: &[Vec<f64>]) -> Option<Vec<Vec<f64>>> {
    let size = matrix.len();
    let mut lower = vec![vec![0.0; size]; size];
    for row in 0..size {
        for column in 0..=row {
            let done: f64 = (0..column)
                .map(|at| lower[row][at] * lower[column][at])
                .sum();
            let left = matrix[row][column] - done;
            lower[row][column] = if row == column {
                if !(left > 0.0 && left.is_finite()) {
                    return None;
                }
                left.sqrt()
            } else {
                left / lower[column][column]
            };
        }
    }
    Some(lower)
}

/// The eigenvalues of a symmetric matrix, ascending (Jacobi's rotations).
pub(crate) fn eigenvalues(matrix: &[Vec<f64>]) -> Vec<f64> {
    const SWEEPS: u32 = 64;
    let size = matrix.len();
    let mut of = matrix.to_vec();
    for _ in 0..SWEEPS {
        let mut off = 0.0;
        for row in 0..size {
            for column in row + 1..size {
                let element = of[row][column];
                off += element * element;
                if element == 0.0 {
                    continue;
                }
                let angle = 0.5 * (2.0 * element).atan2(of[row][row] - of[column][column]);
                let (sine, cosine) = angle.sin_cos();
                for line in &mut of {
                    let (one, other) = (line[row], line[column]);
                    line[row] = cosine * one + sine * other;
                    line[column] = cosine * other - sine * one;
                }
                let (above, below) = (of[row].clone(), of[column].clone());
                for (at, (one, other)) in above.into_iter().zip(below).enumerate() {
                    of[row][at] = cosine * one + sine * other;
                    of[column][at] = cosine * other - sine * one;
                }
            }
        }
        if off < 1e-30 {
            break;
        }
    }
    let mut values: Vec<f64> = (0..size).map(|at| of[at][at]).collect();
    values.sort_by(f64::total_cmp);
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_is_solved_and_a_singular_one_is_not() {
        let matrix = vec![vec![4.0, 1.0], vec![1.0, 3.0]];
        let found = solve(&matrix, &[1.0, 2.0]).unwrap();
        assert!((found[0] - 1.0 / 11.0).abs() < 1e-12 && (found[1] - 7.0 / 11.0).abs() < 1e-12);
        assert!(inverse(&[vec![1.0, 2.0], vec![2.0, 4.0]]).is_none());
    }

    #[test]
    fn a_covariance_has_a_root_and_what_is_none_has_not() {
        let root = cholesky(&[vec![4.0, 2.0], vec![2.0, 5.0]]).unwrap();
        assert_eq!(root, vec![vec![2.0, 0.0], vec![1.0, 2.0]]);
        assert!(cholesky(&[vec![1.0, 2.0], vec![2.0, 1.0]]).is_none());
        assert!(cholesky(&[vec![f64::INFINITY]]).is_none());
    }

    #[test]
    fn eigenvalues_of_a_known_matrix() {
        let found = eigenvalues(&[
            vec![2.0, 1.0, 0.0],
            vec![1.0, 2.0, 1.0],
            vec![0.0, 1.0, 2.0],
        ]);
        let root = 2f64.sqrt();
        for (value, expected) in found.iter().zip([2.0 - root, 2.0, 2.0 + root]) {
            assert!((value - expected).abs() < 1e-10);
        }
    }
}

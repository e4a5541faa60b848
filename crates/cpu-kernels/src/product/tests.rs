use super::*;

/// Numbers between -1 and 1 that look random.
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) as f32) / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// A matrix of this shape, plain or as the transpose of one in memory.
fn matrix(data: &[f32], rows: usize, columns: usize, transposed: bool) -> Matrix<'_> {
    if transposed { Matrix::new(data, columns, rows).transposed() } else { Matrix::new(data, rows, columns) }
}

#[test]
fn products_equal_the_definition_in_f64() {
    let shapes = [
        [1, 1, 1],
        [6, 64, 192],
        [7, 65, 193],
        [128, 48, 300],
        [5, 200, 40],
        [300, 3, 64],
        [49, 130, 700],
        [2, 513, 1],
    ];
    for [m, n, k] in shapes {
        let (a, b, c) = (numbers(m * k, 1), numbers(k * n, 2), numbers(m * n, 3));
        let bias = numbers(n, 4);
        for (left_turned, right_turned) in [(false, false), (false, true), (true, false), (true, true)] {
            let (left, right) = (matrix(&a, m, k, left_turned), matrix(&b, k, n, right_turned));
            let at = |x: &Matrix<'_>, i: usize, j: usize| f64::from(x.data[i * x.row + j * x.column]);
            let exact = |i: usize, j: usize| (0..k).map(|p| at(&left, i, p) * at(&right, p, j)).sum::<f64>();
            let check = |ours: &[f32], start: &dyn Fn(usize, usize) -> f32| {
                for i in 0..m {
                    for j in 0..n {
                        let (ours, exact) =
                            (f64::from(ours[i * n + j]), exact(i, j) + f64::from(start(i, j)));
                        let off = (ours - exact).abs();
                        assert!(
                            off < 2e-6 * (k as f64).sqrt().max(2.0),
                            "{m} {n} {k} at {i} {j}: {ours} {exact}"
                        );
                    }
                }
            };
            for run in [product, product_here] {
                // SAFETY: a product writes all of its result.
                let new = unsafe { crate::filled(m * n, |memory| run(left, right, Target::new(memory, n))) };
                check(&new, &|_, _| 0.0);
                let mut sum = c.clone();
                run(left, right, Target::add_to(&mut sum, n));
                check(&sum, &|i, j| c[i * n + j]);
                let mut biased = c.clone();
                run(left, right, Target::over(&mut biased, n).bias(&bias));
                check(&biased, &|_, j| bias[j]);
            }
        }
    }
}

/// A part of a larger matrix is read and written in place.
#[test]
fn parts_of_matrices() {
    let (a, b) = (numbers(10 * 20, 1), numbers(20 * 30, 2));
    let left = Matrix { data: &a[3..], rows: 9, columns: 12, row: 20, column: 1 };
    let right = Matrix { data: &b[5..], rows: 12, columns: 17, row: 30, column: 1 };
    let mut wide = vec![7.0f32; 9 * 40];
    product(left, right, Target::over(&mut wide[2..], 40));
    for (i, row) in wide.chunks(40).enumerate() {
        for (j, x) in row.iter().enumerate() {
            let exact = match j {
                2..19 => (0..12).map(|p| left.data[i * 20 + p] * right.data[p * 30 + j - 2]).sum(),
                _ => 7.0,
            };
            assert!((x - exact).abs() < 1e-5);
        }
    }
}

#[test]
fn parts_of_panels() {
    let (k, n) = (300, 200);
    let b = numbers(k * n, 2);
    for turned in [false, true] {
        let right = matrix(&b, k, n, turned);
        let mut panels = Panels::EMPTY;
        panels.fill(&right, 0..n, false);
        for (rows, columns) in [(0..k, 0..n), (7..299, Panels::begin(130)..131), (250..251, 0..65)] {
            let (m, width) = (9, columns.len());
            let a = numbers(m * rows.len(), 1);
            let mut out = vec![f32::NAN; m * width];
            let part = panels.part(rows.clone(), columns.clone());
            product_of_panels(Matrix::new(&a, m, rows.len()), part, Target::over(&mut out, width));
            for (i, x) in out.iter().enumerate() {
                let (row, column) = (&a[i / width * rows.len()..], columns.start + i % width);
                let at = |p: usize| right.data[p * right.row + column * right.column];
                let exact: f64 = rows.clone().zip(row).map(|(p, a)| f64::from(*a) * f64::from(at(p))).sum();
                assert!((f64::from(*x) - exact).abs() < 2e-5, "{rows:?} {columns:?}: {x} {exact}");
            }
        }
    }
}

/// Neither the threads nor which side is copied changes a bit.
#[test]
fn an_element_is_the_same_wherever_it_is_computed() {
    let (m, n, k) = (200, 150, 400);
    let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
    let (left, right) = (Matrix::new(&a, m, k), Matrix::new(&b, k, n));
    let mut whole = vec![0.0; m * n];
    product(left, right, Target::over(&mut whole, n));
    let mut row = vec![0.0; n];
    for i in 0..m {
        product_here(Matrix::new(&a[i * k..], 1, k), right, Target::over(&mut row, n));
        assert_eq!(row, whole[i * n..(i + 1) * n]);
    }
}

#[test]
#[should_panic(expected = "larger than its memory")]
fn a_result_without_room_is_refused() {
    let (a, b) = (numbers(6, 1), numbers(6, 2));
    product(Matrix::new(&a, 2, 3), Matrix::new(&b, 3, 2), Target::over(&mut [0.0; 3], 2));
}

/// Threads would write to the same numbers.
#[test]
#[should_panic(expected = "lie over each other")]
fn rows_that_lie_over_each_other_are_refused() {
    let (a, b) = (numbers(100 * 80, 1), numbers(80 * 90, 2));
    let mut out = vec![0.0; 100 * 90];
    product(Matrix::new(&a, 100, 80), Matrix::new(&b, 80, 90), Target::over(&mut out, 89));
}

//! Codes against bitsandbytes, and against a search through all values.

use super::*;

/// What `tests/fixtures/bitsandbytes/make.py` has written: see there.
const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/bitsandbytes/blockwise.bin");

/// The search of `dQuantize`, line by line.
fn searched(values: &[f32; 256], x: f32) -> u8 {
    let (mut pivot, mut upper, mut lower, mut step) = (127usize, 255usize, 0usize, 64usize);
    while step > 0 {
        if x > values[pivot] {
            lower = pivot;
            pivot += step;
        } else {
            upper = pivot;
            pivot -= step;
        }
        step /= 2;
    }
    let value = values[pivot];
    let code = if x > value {
        if x > (values[upper] + value) * 0.5 { upper } else { pivot }
    } else if x < (values[lower] + value) * 0.5 {
        lower
    } else {
        pivot
    };
    code as u8
}

#[test]
fn a_code_is_that_of_the_search_around_every_threshold_and_everywhere_else() {
    for map in [&*SIGNED, &*UNSIGNED] {
        let near = map.thresholds[1..256].iter().flat_map(|t| [t.next_down(), *t, t.next_up()]);
        let cells = (0..=0xffffu32).flat_map(|upper| [0, 1, 0x8000, 0xffff].map(|low| upper << 16 | low));
        for x in near.chain(map.values).chain(cells.map(f32::from_bits)) {
            assert_eq!(map.code(x), searched(&map.values, x), "{x:e}");
        }
    }
}

/// Among the blocks are one of zeros, one of numbers whose inverse is infinite, and one that ends early.
#[test]
fn values_codes_and_largest_are_bitsandbytes_bit_for_bit() {
    let bytes = std::fs::read(FIXTURE).expect("the fixture");
    let mut rest = bytes.as_slice();
    let mut take = |bytes: usize| {
        let (first, others) = rest.split_at(bytes);
        rest = others;
        first
    };
    let floats = |bytes: &[u8]| -> Vec<u32> {
        bytes.chunks(4).map(|four| u32::from_le_bytes(four.try_into().expect("four"))).collect()
    };
    for map in [&*SIGNED, &*UNSIGNED] {
        let count = floats(take(4))[0] as usize;
        assert!(count > 4000);
        assert_eq!(map.values.map(f32::to_bits).to_vec(), floats(take(4 * 256)));
        let numbers: Vec<f32> = floats(take(4 * count)).into_iter().map(f32::from_bits).collect();
        let largest = floats(take(4 * count.div_ceil(BLOCK)));
        let codes = take(count);
        for ((numbers, codes), largest) in numbers.chunks(BLOCK).zip(codes.chunks(BLOCK)).zip(largest) {
            let mut ours = vec![0; numbers.len()];
            assert_eq!(map.encode(numbers, &mut ours).to_bits(), largest);
            assert_eq!(ours, codes);
        }
    }
    assert!(rest.is_empty());
}

#[test]
fn numbers_come_back_within_half_a_step() {
    let numbers: Vec<f32> = (0..BLOCK).map(|i| ((i * 37) % 101) as f32 / 50.0 - 1.0).collect();
    let (mut codes, mut back) = ([0; BLOCK], [0.0; BLOCK]);
    let largest = SIGNED.encode(&numbers, &mut codes);
    SIGNED.decode(&codes, largest, &mut back);
    for (x, back) in numbers.iter().zip(back) {
        // The widest step is 0.9 / 64; the last one goes to 1.
        assert!((x - back).abs() <= 0.0071 * largest, "{x} {back}");
    }
    // A block of zeros, as state begins, has codes 0 and no largest.
    assert_eq!(SIGNED.encode(&[0.0; 3], &mut codes[..3]), 0.0);
    assert_eq!(codes[..3], [0; 3]);
    SIGNED.decode(&codes[..3], 0.0, &mut back[..3]);
    assert_eq!(back[..3], [0.0; 3]);
}

//! Random numbers by their place: Philox4x32-10 (Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2, 3"), a
//! function of a key and a counter.

/// The constants of Philox4x32-10.
pub const ROUNDS: u32 = 10;
pub const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
pub const KEY_STEPS: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];

/// Four numbers.
#[inline(always)]
pub fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let [x, y] = [0, 1].map(|i| u64::from(MULTIPLIERS[i]) * u64::from(counter[2 * i]));
        let [high_x, high_y] = [x, y].map(|product| (product >> 32) as u32);
        counter = [high_y ^ counter[1] ^ key[0], y as u32, high_x ^ counter[3] ^ key[1], x as u32];
        key = [0, 1].map(|i| key[i].wrapping_add(KEY_STEPS[i]));
    }
    counter
}

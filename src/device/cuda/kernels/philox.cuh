// Philox4x32-10 of a counter of two words and a key, as cpu-kernels' random.rs has it: four numbers. Its constants stand
// before this.
__device__ __forceinline__ void philox(u32 counter, const u32 (&key)[2], u32 (&numbers)[4], u32 second = 0) {
    u32 a = counter, b = second, c = 0, d = 0, k = key[0], l = key[1];
#pragma unroll
    for (u32 round = 0; round < PHILOX_ROUNDS; round++) {
        const u32 high_x = __umulhi(PHILOX_X, a), low_x = PHILOX_X * a;
        const u32 high_y = __umulhi(PHILOX_Y, c), low_y = PHILOX_Y * c;
        a = high_y ^ b ^ k, b = low_y, c = high_x ^ d ^ l, d = low_x;
        k += PHILOX_KEY_X, l += PHILOX_KEY_Y;
    }
    numbers[0] = a, numbers[1] = b, numbers[2] = c, numbers[3] = d;
}


// AdamW with moments in bf16 that are rounded up or down at random, as cpu-kernels' moments.rs has it. Philox stands before
// this.

// One of the two bf16 numbers around x, as a float; the nearer one more often.
__device__ __forceinline__ float stochastic(float x, u32 random) {
    const u32 bits = __float_as_uint(x);
    const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
    const u32 rounded = (bits + (finite ? random & 0xffffu : 0u)) & 0xffff0000u;
    return __uint_as_float(x != x ? rounded | 0x00400000u : rounded);
}

// p as Parameter has it, g of type B, m and v in bf16.
extern "C" __global__ void adamw_bf16(const IN_PLACE Table table) {
    if (table.shared && table.shared[0] == 0.0f) return;
    const u32 own = own_entry(table);
    const Entry &entry = table.entries[own];
    const Parameter p(entry);
    const Tensor<B> g(entry.tensors[1]);
    const Tensor<BFLOAT16> m(entry.tensors[2]), v(entry.tensors[3]);
    const Rates rates(table);
    const bool aligned = p.aligned() && g.aligned() && m.aligned() && v.aligned();
    each(entry, aligned, [&](u32 i, auto &value) {
        constexpr u32 N = sizeof(value) / sizeof(float);
        float gradient[N], mean[N], square[N];
        u32 random[4];
        p.load(i, value);
        g.load(i, gradient);
        m.load(i, mean);
        v.load(i, square);
        philox(i / 4, table.key, random, table.numbers[own]);
#pragma unroll
        for (u32 k = 0; k < N; k++) {
            rates.step(value[k], gradient[k], mean[k], square[k]);
            const u32 bits = random[N == 4 ? k : i % 4];
            mean[k] = stochastic(mean[k], bits);
            square[k] = stochastic(square[k], bits >> 16);
        }
        m.store(i, mean);
        v.store(i, square);
        p.store(i, value);
    });
}

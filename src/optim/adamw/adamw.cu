// AdamW with moments in fp32. adamw.cuh stands before this.

// p as Parameter has it, g of type B, m and v: one step of AdamW, as src/optim/adamw/mod.rs has it.
extern "C" __global__ void adamw(const IN_PLACE Table table) {
    if (table.shared && table.shared[0] == 0.0f) return;
    const Entry &entry = table.entries[own_entry(table)];
    const Parameter p(entry);
    const Tensor<B> g(entry.tensors[1]);
    const Tensor<FLOAT> m(entry.tensors[2]), v(entry.tensors[3]);
    const Rates rates(table);
    const bool aligned = p.aligned() && g.aligned() && m.aligned() && v.aligned();
    each(entry, aligned, [&](u32 i, auto &value) {
        constexpr u32 N = sizeof(value) / sizeof(float);
        float gradient[N], mean[N], square[N];
        p.load(i, value);
        g.load(i, gradient);
        m.load(i, mean);
        v.load(i, square);
#pragma unroll
        for (u32 k = 0; k < N; k++) rates.step(value[k], gradient[k], mean[k], square[k]);
        m.store(i, mean);
        v.store(i, square);
        p.store(i, value);
    });
}

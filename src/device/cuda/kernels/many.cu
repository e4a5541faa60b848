// Kernels over many tensors that work element by element.

// What lies in type A, in type B.
extern "C" __global__ void cast(const IN_PLACE Table table) {
    const Entry &entry = table.entries[own_entry(table)];
    const Tensor<A> from(entry.tensors[0]);
    const Tensor<B> to(entry.tensors[1]);
    each(entry, from.aligned() && to.aligned(), [&](u32 i, auto &value) {
        from.load(i, value);
        to.store(i, value);
    });
}

// What lies in type A, bit by bit: NaNs too, and numbers that carry packed weights. B is A.
extern "C" __global__ void copy(const IN_PLACE Table table) {
    constexpr int TYPE = A == FLOAT ? FLOAT : BITS;
    const Entry &entry = table.entries[own_entry(table)];
    const Tensor<TYPE> from(entry.tensors[0]), to(entry.tensors[1]);
    each(entry, from.aligned() && to.aligned(), [&](u32 i, auto &value) {
        from.load(i, value);
        to.store(i, value);
    });
}

// Adds what lies in type A to what lies in type B.
extern "C" __global__ void add(const IN_PLACE Table table) {
    const Entry &entry = table.entries[own_entry(table)];
    const Tensor<A> from(entry.tensors[0]);
    const Tensor<B> to(entry.tensors[1]);
    each(entry, from.aligned() && to.aligned(), [&](u32 i, auto &value) {
        constexpr u32 N = sizeof(value) / sizeof(float);
        float sum[N];
        from.load(i, value);
        to.load(i, sum);
#pragma unroll
        for (u32 k = 0; k < N; k++) sum[k] += value[k];
        to.store(i, sum);
    });
}

// The sum of squares of each block's elements of type A, a number of type B for each of the tensor's blocks. The same from
// run to run.
extern "C" __global__ void squares(const IN_PLACE Table table) {
    __shared__ float parts[32];
    const Entry &entry = table.entries[own_entry(table)];
    const Tensor<A> x(entry.tensors[0]);
    const Tensor<B> out(entry.tensors[1]);
    float sum = 0;
    each(entry, x.aligned(), [&](u32 i, auto &value) {
        constexpr u32 N = sizeof(value) / sizeof(float);
        x.load(i, value);
#pragma unroll
        for (u32 k = 0; k < N; k++) sum += value[k] * value[k];
    });
    for (u32 other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(~0u, sum, other);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        float total[1] = {0};
        for (u32 warp = 0; warp < blockDim.x / 32; warp++) total[0] += parts[warp];
        out.store(blockIdx.x - entry.first_block, total);
    }
}

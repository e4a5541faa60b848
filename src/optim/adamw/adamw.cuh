// What the kernels of AdamW have in common. many.cuh stands before this.

// The numbers of a table, as AdamWStep has them.
struct Scalars {
    float decay, beta1, beta2, rest1, rest2, eps, rate, correction;
};

// A parameter that AdamW updates: in type A, or, with a fifth tensor, in bf16 with the 16 bits there that make it its fp32
// master, as src/optim/remainders.rs has them.
#if TENSORS == 5
struct Parameter {
    Tensor<BITS> high, low;

    __device__ __forceinline__ explicit Parameter(const Entry &entry) : high(entry.tensors[0]), low(entry.tensors[4]) {}

    __device__ __forceinline__ bool aligned() const { return high.aligned() && low.aligned(); }

    template <u32 N> __device__ __forceinline__ void load(u32 i, float (&x)[N]) const {
        float rest[N];
        high.load(i, x);
        low.load(i, rest);
#pragma unroll
        for (u32 k = 0; k < N; k++) {
            // The rest has a sign: it is from -2^15 to 2^15 - 1.
            const u32 bits = __float_as_uint(rest[k]), sign = bits >> 15 ? 0xffff0000u : 0u;
            x[k] = __uint_as_float((__float_as_uint(x[k]) << 16) + (bits | sign));
        }
    }

    template <u32 N> __device__ __forceinline__ void store(u32 i, const float (&x)[N]) const {
        float upper[N], rest[N];
#pragma unroll
        for (u32 k = 0; k < N; k++) {
            const u32 bits = __float_as_uint(x[k]);
            // What is not a number has no rest.
            const bool none = (bits & 0x7fffffffu) > 0x7f800000u;
            const u32 rounded = none ? bits >> 16 | 0x40u : (bits + 0x8000u) >> 16;
            upper[k] = __uint_as_float(rounded);
            rest[k] = __uint_as_float(none ? 0u : bits - (rounded << 16) & 0xffffu);
        }
        high.store(i, upper);
        low.store(i, rest);
    }
};
#elif TENSORS == 4
struct Parameter : Tensor<A> {
    __device__ __forceinline__ explicit Parameter(const Entry &entry) : Tensor<A>(entry.tensors[0]) {}
};
#endif

// What one step of AdamW multiplies by, as src/optim/adamw/mod.rs has it.
struct Rates {
    Scalars s;
    float clip, rate, correction;

    __device__ __forceinline__ explicit Rates(const Table &table)
        : s{table.scalars[0], table.scalars[1], table.scalars[2], table.scalars[3],
            table.scalars[4], table.scalars[5], table.scalars[6], table.scalars[7]} {
        clip = table.clip ? table.clip[0] : 1.0f;
        rate = table.shared ? s.rate / table.shared[1] : s.rate;
        correction = table.shared ? s.correction * sqrtf(table.shared[2]) : s.correction;
    }

    __device__ __forceinline__ void step(float &value, float gradient, float &mean, float &square) const {
        gradient *= clip;
        mean = s.beta1 * mean + s.rest1 * gradient;
        square = s.beta2 * square + s.rest2 * gradient * gradient;
        value = value * s.decay - rate * mean / (sqrtf(square) / correction + s.eps);
    }
};

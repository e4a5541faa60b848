// Element-wise kernels over many tensors in one launch: a table in the kernel's parameter says where each tensor lies,
// and which blocks have its elements, BLOCK for each.
//
// Given at compile time: TENSORS, of as many elements each, in one entry; MOST entries; BLOCK; and the types A and B of
// numbers.cuh.

// Elements that a thread takes at once, where the tensors are aligned.
constexpr u32 WIDTH = 4;

template <int TYPE> struct alignas(WIDTH * sizeof(typename Stored<TYPE>::type)) Vector {
    typename Stored<TYPE>::type x[WIDTH];
};

struct Entry {
    u64 tensors[TENSORS];
    u32 elements, first_block;
};

struct Scalars {
    float decay, beta1, beta2, rest1, rest2, eps, rate, correction;
};

struct Table {
    Entry entries[MOST];
    // Of each entry's tensor, for random numbers.
    u32 numbers[MOST];
    // One number each on the device, or null.
    const float *clip, *shared;
    Scalars scalars;
    u32 key[2];
    u32 count;
};

// A tensor in a type, and this thread's elements of it.
template <int TYPE> struct Tensor {
    typename Stored<TYPE>::type *at;

    __device__ __forceinline__ explicit Tensor(u64 address)
        : at(reinterpret_cast<typename Stored<TYPE>::type *>(address)) {}

    __device__ __forceinline__ bool aligned() const {
        return reinterpret_cast<u64>(at) % sizeof(Vector<TYPE>) == 0;
    }

    template <u32 N> __device__ __forceinline__ void load(u32 i, float (&x)[N]) const {
        if constexpr (N == 1) {
            x[0] = widen<TYPE>(at[i]);
        } else {
            const Vector<TYPE> v = *reinterpret_cast<const Vector<TYPE> *>(at + i);
#pragma unroll
            for (u32 k = 0; k < N; k++) x[k] = widen<TYPE>(v.x[k]);
        }
    }

    template <u32 N> __device__ __forceinline__ void store(u32 i, const float (&x)[N]) const {
        if constexpr (N == 1) {
            at[i] = narrow<TYPE>(x[0]);
        } else {
            Vector<TYPE> v;
#pragma unroll
            for (u32 k = 0; k < N; k++) v.x[k] = narrow<TYPE>(x[k]);
            *reinterpret_cast<Vector<TYPE> *>(at + i) = v;
        }
    }
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

// The entry that this block is of.
__device__ __forceinline__ u32 own_entry(const Table &table) {
    u32 low = 0, high = table.count;
    while (high - low > 1) {
        const u32 middle = (low + high) / 2;
        if (table.entries[middle].first_block <= blockIdx.x) low = middle;
        else high = middle;
    }
    return low;
}

// Calls a function of one element's place and of how many follow it, for all elements of the block.
template <typename Work> __device__ __forceinline__ void each(const Entry &entry, bool aligned, Work work) {
    const u32 begin = (blockIdx.x - entry.first_block) * BLOCK;
    const u32 end = min(begin + BLOCK, entry.elements);
    u32 vectors = aligned ? begin + (end - begin) / WIDTH * WIDTH : begin;
    for (u32 i = begin + threadIdx.x * WIDTH; i < vectors; i += blockDim.x * WIDTH) {
        float room[WIDTH];
        work(i, room);
    }
    for (u32 i = vectors + threadIdx.x; i < end; i += blockDim.x) {
        float room[1];
        work(i, room);
    }
}

// What one step of AdamW multiplies by, as src/optim/adamw/mod.rs has it.
struct Rates {
    Scalars s;
    float clip, rate, correction;

    __device__ __forceinline__ explicit Rates(const Table &table) : s(table.scalars) {
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

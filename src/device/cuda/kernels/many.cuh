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

struct Table {
    Entry entries[MOST];
    // Of each entry's tensor, for random numbers.
    u32 numbers[MOST];
    // One number each on the device, or null.
    const float *clip, *shared;
    // Numbers of the kernel, in an order that it knows.
    float scalars[8];
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

// Tiles of rows in shared memory: how they lie, come and go. No header of CUDA is needed.
//
// Given at compile time: HEAD_DIM, a multiple of 8 up to 256 (with WGMMA of 64 up to 128), BFLOAT16, 1 or 0 (half), WGMMA;
// the rows of a tile of keys in FORWARD_KEYS and BACKWARD_KEYS, and of queries in QUERIES, multiples of 16 (with WGMMA 64);
// WINDOW, whether there is one, and where scores have a soft cap SOFT_CAP.

typedef unsigned int u32;
typedef unsigned short element;

constexpr int STEPS = (HEAD_DIM + 15) / 16;
// Of 16 bytes: what one thread copies, and one row of an 8 x 8 matrix of ldmatrix.
constexpr int CHUNKS = HEAD_DIM / 8;
// Of a row in a tile: one more, of zeros, where they are odd.
constexpr int TILE_CHUNKS = STEPS * 2;
// A tile's rows lie in panels of 64 columns, 128 bytes.
constexpr int PANELS = (HEAD_DIM + 63) / 64;
constexpr float LOG2E = 1.4426950408889634f;
#define INFINITE __int_as_float(0x7f800000)

template <int ROWS> constexpr int TILE_BYTES = ROWS * PANELS * 128;

// A block has a tile of rows of its own, 16 for each warp, and passes over tiles of others.
constexpr int WARPS = 4;
constexpr int THREADS = WARPS * 32;
constexpr int OWN = WARPS * 16;

// Byte of a chunk in a tile. The chunks of a row are permuted by the row's number, so that eight rows' chunks of
// one column lie in different banks.
template <u32 ROWS> __device__ __forceinline__ u32 place(u32 row, u32 chunk) {
    return (chunk >> 3) * (ROWS * 128) + row * 128 + (((chunk & 7) ^ (row & 7)) << 4);
}

// The value of all threads of a warp, in a register that the warp has in common: so is what is computed from it.
__device__ __forceinline__ int common(int x) { return __reduce_min_sync(~0u, x); }

__device__ __forceinline__ u32 shared_address(const void *pointer) {
    return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

// Begins the copy of 16 bytes to shared memory, or of zeros, without reading.
__device__ __forceinline__ void copy_chunk(u32 to, const void *from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(to), "l"(__cvta_generic_to_global(from)), "r"(there ? 16 : 0) : "memory");
}

__device__ __forceinline__ void copies_end() {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

// Begins the copy of a tile: ROWS rows from `first` on, zeros from row `rows` on. `x` is row 0, `stride` in elements.
template <u32 ROWS>
__device__ __forceinline__ void copy_tile(u32 tile, const element *x, int stride, int first, int rows) {
    if constexpr (THREADS % (8 * TILE_CHUNKS) == 0 && ROWS * TILE_CHUNKS % THREADS == 0 && TILE_CHUNKS == CHUNKS) {
        // A thread has one column, and rows of one remainder by 8: addresses a constant apart.
        constexpr int STRIDE = THREADS / CHUNKS;
        const u32 row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
        const element *from = x + static_cast<long long>(first + row) * stride + chunk * 8;
        const u32 to = tile + place<ROWS>(row, chunk);
        int left = rows - first - static_cast<int>(row);
#pragma unroll
        for (int i = 0; i < ROWS / STRIDE; i++) {
            copy_chunk(to + i * STRIDE * 128, from, left > 0);
            from += static_cast<long long>(STRIDE) * stride;
            left -= STRIDE;
        }
    } else {
#pragma unroll
        for (u32 at = threadIdx.x; at < ROWS * TILE_CHUNKS; at += THREADS) {
            const u32 row = at / TILE_CHUNKS, chunk = at % TILE_CHUNKS;
            const bool there = first + static_cast<int>(row) < rows && (TILE_CHUNKS == CHUNKS || chunk < CHUNKS);
            const element *from = x + static_cast<long long>(first + row) * stride + chunk * 8;
            copy_chunk(tile + place<ROWS>(row, chunk), from, there);
        }
    }
}

// Two floats as elements, the first in the low half.
__device__ __forceinline__ u32 pack(float low, float high) {
    u32 both;
#if BFLOAT16
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
#else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
#endif
    return both;
}

__device__ __forceinline__ void unpack(u32 both, float &low, float &high) {
#if BFLOAT16
    low = __uint_as_float(both << 16);
    high = __uint_as_float(both & 0xffff0000u);
#else
    asm("{.reg .f16 l, h;\n\tmov.b32 {l, h}, %2;\n\tcvt.f32.f16 %0, l;\n\tcvt.f32.f16 %1, h;}"
        : "=f"(low), "=f"(high) : "r"(both));
#endif
}

__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// The first key that a query sees, which does not fall along a sequence.
__device__ __forceinline__ int first_key(const int *start, int query, int window) {
    const int first = start ? start[query] : 0;
    return WINDOW ? max(first, query + 1 - window) : first;
}

#ifdef SOFT_CAP
// Scores are SOFT_CAP tanh(z / SOFT_CAP) of scaled products z (Gemma Team 2024, "Gemma 2").
constexpr bool CAPPED = true;
constexpr float CAP = SOFT_CAP;
#else
constexpr bool CAPPED = false;
constexpr float CAP = 1.0f;
#endif

// With a soft cap puts the tanh in the place of products.
template <int N> __device__ __forceinline__ void cap_softly(float (&s)[N][4], float scale) {
    if constexpr (CAPPED) {
        const float factor = 2.0f * LOG2E * scale / CAP;
#pragma unroll
        for (int j = 0; j < N; j++) {
#pragma unroll
            for (int c = 0; c < 4; c++) s[j][c] = 1.0f - __fdividef(2.0f, exp2_fast(s[j][c] * factor) + 1.0f);
        }
    }
}

// What brings these, or products without a soft cap, to scores.
__device__ __forceinline__ float score_scale(float scale) { return CAPPED ? CAP : scale; }

// Over the four threads that share a row.
__device__ __forceinline__ float row_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

__device__ __forceinline__ float row_sum(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

// Puts a warp's 16 rows of a result, times a factor for each of a thread's two rows, into a tile.
template <u32 ROWS>
__device__ __forceinline__ void put(u32 tile, int row, const float (&x)[STEPS * 2][4], float low, float high) {
    const u32 lane = threadIdx.x & 31;
#pragma unroll
    for (int n = 0; n < STEPS * 2; n++) {
        const u32 at = tile + place<ROWS>(row + (lane >> 2), n) + (lane & 3) * 4;
        asm volatile("st.shared.b32 [%0], %1;" :: "r"(at), "r"(pack(x[n][0] * low, x[n][1] * low)) : "memory");
        asm volatile("st.shared.b32 [%0], %1;" :: "r"(at + 8 * 128), "r"(pack(x[n][2] * high, x[n][3] * high))
                     : "memory");
    }
}

// Writes a warp's 16 rows of a tile, which it has put there: to rows from `first + row` on, none from row `rows` on.
template <u32 ROWS>
__device__ __forceinline__ void write_rows(element *y, int stride, u32 tile, int row, int first, int rows) {
    __syncwarp();
#pragma unroll
    for (u32 at = threadIdx.x & 31; at < 16 * CHUNKS; at += 32) {
        const u32 r = row + at / CHUNKS, chunk = at % CHUNKS;
        uint4 x;
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "r"(tile + place<ROWS>(r, chunk)) : "memory");
        if (first + static_cast<int>(r) < rows)
            *reinterpret_cast<uint4 *>(y + static_cast<long long>(first + r) * stride + chunk * 8) = x;
    }
}

// Tiles of rows in shared memory, and the warps' matrix products on them (PTX ISA 8.0: cp.async, ldmatrix,
// mma.sync.m16n8k16), from compute capability 8.0 on. No header of CUDA is needed.
//
// Given at compile time: HEAD_DIM, a multiple of 16 up to 128, and BFLOAT16, 1 or 0 (half).

typedef unsigned int u32;
typedef unsigned short element;

constexpr int STEPS = HEAD_DIM / 16;
// Of 16 bytes: what one thread copies, and one row of an 8 x 8 matrix of ldmatrix.
constexpr int CHUNKS = HEAD_DIM / 8;
// A tile's rows lie in panels of 64 columns, 128 bytes.
constexpr int PANELS = (HEAD_DIM + 63) / 64;
constexpr float LOG2E = 1.4426950408889634f;
#define INFINITE __int_as_float(0x7f800000)

template <int ROWS> constexpr int TILE_BYTES = ROWS * PANELS * 128;

// Byte of a chunk in a tile. The chunks of a row are permuted by the row's number, so that eight rows' chunks of
// one column lie in different banks.
template <u32 ROWS> __device__ __forceinline__ u32 place(u32 row, u32 chunk) {
    return (chunk >> 3) * (ROWS * 128) + row * 128 + (((chunk & 7) ^ (row & 7)) << 4);
}

__device__ __forceinline__ u32 shared_address(const void *pointer) {
    return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

// Begins the copy of 16 bytes to shared memory, or of zeros.
__device__ __forceinline__ void copy_chunk(u32 to, const void *from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(to), "l"(__cvta_generic_to_global(from)), "r"(there ? 16 : 0) : "memory");
}

__device__ __forceinline__ void copies_end() {
    asm volatile("cp.async.commit_group;\n\tcp.async.wait_group 0;" ::: "memory");
}

// Begins the copy of a tile: ROWS rows from `first` on, zeros from row `rows` on. `x` is row 0, `stride` in elements.
template <u32 ROWS, u32 THREADS>
__device__ __forceinline__ void copy_tile(u32 tile, const element *x, int stride, int first, int rows) {
    if constexpr (THREADS % (8 * CHUNKS) == 0 && ROWS * CHUNKS % THREADS == 0) {
        // A thread has one column, and rows of one remainder by 8: addresses a constant apart.
        constexpr u32 STRIDE = THREADS / CHUNKS;
        const u32 row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
        const element *from = x + static_cast<long long>(first + row) * stride + chunk * 8;
        const u32 to = tile + place<ROWS>(row, chunk);
        int left = rows - first - static_cast<int>(row);
#pragma unroll
        for (u32 i = 0; i < ROWS / STRIDE; i++) {
            copy_chunk(to + i * STRIDE * 128, left > 0 ? from : x, left > 0);
            from += static_cast<long long>(STRIDE) * stride;
            left -= STRIDE;
        }
        return;
    }
#pragma unroll
    for (u32 at = threadIdx.x; at < ROWS * CHUNKS; at += THREADS) {
        const u32 row = at / CHUNKS, chunk = at % CHUNKS;
        const bool there = first + static_cast<int>(row) < rows;
        const element *from = x + static_cast<long long>(there ? first + row : 0) * stride + chunk * 8;
        copy_chunk(tile + place<ROWS>(row, chunk), from, there);
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

// The left-hand side's fragment of 16 rows and 16 columns.
template <int ROWS>
__device__ __forceinline__ void load_left(u32 (&a)[4], u32 tile, int row, int step) {
    const u32 lane = threadIdx.x & 31;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                 : "r"(tile + place<ROWS>(row + (lane & 15), step * 2 + (lane >> 4))));
}

// The right-hand side's fragments of 16 columns, which are rows of the tile: left * tile^T. b[0..2] is of the first
// 8 and b[2..4] of the last.
template <int ROWS>
__device__ __forceinline__ void load_transposed(u32 (&b)[4], u32 tile, int row, int step) {
    const u32 lane = threadIdx.x & 31;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
                 : "r"(tile + place<ROWS>(row + (lane & 7) + ((lane >> 4) << 3), step * 2 + ((lane >> 3) & 1))));
}

// The same of 16 of the tile's columns, with its rows as the inner dimension: left * tile.
template <int ROWS>
__device__ __forceinline__ void load_right(u32 (&b)[4], u32 tile, int row, int step) {
    const u32 lane = threadIdx.x & 31;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
                 : "r"(tile + place<ROWS>(row + (lane & 15), step * 2 + (lane >> 4))));
}

// c [16, 8] += a [16, 16] * b [16, 8]. A thread has rows lane / 4 (c[0], c[1]) and lane / 4 + 8 (c[2], c[3]) and
// columns lane % 4 * 2 and the next.
__device__ __forceinline__ void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if BFLOAT16
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
#else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
#endif
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Results of two neighbouring products as the left-hand side of the next: [16, 16] elements.
__device__ __forceinline__ void as_left(u32 (&a)[4], const float (&first)[4], const float (&second)[4]) {
    a[0] = pack(first[0], first[1]);
    a[1] = pack(first[2], first[3]);
    a[2] = pack(second[0], second[1]);
    a[3] = pack(second[2], second[3]);
}

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
template <int ROWS>
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

// Writes COUNT rows of a tile, which this warp has put there: to rows from `first + row` on, none from row `rows` on.
template <int ROWS, int COUNT>
__device__ __forceinline__ void write_rows(element *y, int stride, u32 tile, int row, int first, int rows) {
    const u32 lane = threadIdx.x & 31;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < COUNT * CHUNKS / 32; i++) {
        const int at = i * 32 + lane;
        const int r = row + at / CHUNKS, chunk = at % CHUNKS;
        uint4 x;
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "r"(tile + place<ROWS>(r, chunk)) : "memory");
        if (first + r < rows) *reinterpret_cast<uint4 *>(y + static_cast<long long>(first + r) * stride + chunk * 8) = x;
    }
}

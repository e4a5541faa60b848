// Tiles of rows in shared memory, and the warps' matrix products on them.
//
// A warp has 16 rows of a result, a thread of them rows lane / 4 and lane / 4 + 8, and of each 8 columns two
// neighbouring ones from lane % 4 * 2 on: c[column / 8][row / 8 * 2 + column % 2]. The left-hand side of a product
// comes from registers in the same order. Products are mma.sync.m16n8k16 (compute capability 8.0), or with WGMMA
// wgmma.m64n64k16 of four warps together (9.0a), which has the same order of rows and columns. They run while the
// program goes on: a result is there after `wait`. No header of CUDA is needed.
//
// Registers are the left-hand side of wgmma only where `wait` follows and nothing reads them later: CUDA 13.0's
// compiler gives them to other values as soon as the product is issued.
//
// Given at compile time: HEAD_DIM, a multiple of 16 up to 128 (with WGMMA of 64), BFLOAT16, 1 or 0 (half), WGMMA, and
// QUERIES, the rows of a tile of queries, a multiple of 16 (with WGMMA 64).

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

// A block has a tile of rows of its own, 16 for each warp, and passes over tiles of others.
constexpr int WARPS = 4;
constexpr int THREADS = WARPS * 32;
constexpr int OWN = WARPS * 16;
constexpr int KEYS = 64;

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
    if constexpr (THREADS % (8 * CHUNKS) == 0 && ROWS * CHUNKS % THREADS == 0) {
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
        for (u32 at = threadIdx.x; at < ROWS * CHUNKS; at += THREADS) {
            const u32 row = at / CHUNKS, chunk = at % CHUNKS;
            const bool there = first + static_cast<int>(row) < rows;
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

#if WGMMA
// Rows of a result whose warps work together.
constexpr int TOGETHER = 64;

// The lower half of a descriptor of a tile, some bytes into it, and the upper half of all (PTX ISA, asynchronous
// warpgroup matrix shared memory layout): swizzled by 128 bytes, with 1024 bytes between groups of eight rows.
__device__ __forceinline__ u32 descriptor(u32 tile, u32 offset) { return ((tile >> 4) | 1 << 16) + (offset >> 4); }
#define UPPER "0x40000040"

#if BFLOAT16
#define PRODUCT "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
#else
#define PRODUCT "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
#endif
#define RESULT "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
#define FOUR(x) "+f"((x)[0]), "+f"((x)[1]), "+f"((x)[2]), "+f"((x)[3])
#define ALL(c) FOUR((c)[0]), FOUR((c)[1]), FOUR((c)[2]), FOUR((c)[3]), \
    FOUR((c)[4]), FOUR((c)[5]), FOUR((c)[6]), FOUR((c)[7])

// c [64, 64] = or += a b^T of 16 columns of two tiles of 64 rows.
__device__ __forceinline__ void multiply(float (*c)[4], u32 a, u32 b, bool add) {
    asm volatile("{.reg .pred add;\n\t.reg .b64 a, b;\n\tsetp.ne.b32 add, %34, 0;\n\t"
                 "mov.b64 a, {%32, " UPPER "};\n\tmov.b64 b, {%33, " UPPER "};\n\t"
                 PRODUCT RESULT "a, b, add, 1, 1, 0, 0;}"
                 : ALL(c) : "r"(a), "r"(b), "r"((int)add));
}

// c [64, 64] += a b of 16 rows of a tile.
__device__ __forceinline__ void multiply(float (*c)[4], const u32 (&a)[4], u32 b) {
    asm volatile("{.reg .b64 b;\n\tmov.b64 b, {%36, " UPPER "};\n\t"
                 PRODUCT RESULT "{%32, %33, %34, %35}, b, 1, 1, 1, 1;}"
                 : ALL(c) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b));
}

// What was copied becomes visible to the tensor cores.
__device__ __forceinline__ void publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// Before products: registers that they use have been written.
__device__ __forceinline__ void begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Until all products but those of the last PENDING commits are done, `c` among them.
template <int PENDING, int N> __device__ __forceinline__ void wait(float (&c)[N][4]) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(PENDING) : "memory");
#pragma unroll
    for (int n = 0; n < N; n++) asm volatile("" : FOUR(c[n]) :: "memory");
}
#else
constexpr int TOGETHER = 16;

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

// 16 columns of the right-hand side, which are rows of the tile: b[0..2] is of the first 8 and b[2..4] of the last.
template <u32 ROWS> __device__ __forceinline__ void load_transposed(u32 (&b)[4], u32 tile, int row, int step) {
    const u32 lane = threadIdx.x & 31;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
                 : "r"(tile + place<ROWS>(row + (lane & 7) + ((lane >> 4) << 3), step * 2 + ((lane >> 3) & 1))));
}

// The same of 16 of the tile's columns, with 16 of its rows as the inner dimension.
template <u32 ROWS> __device__ __forceinline__ void load_right(u32 (&b)[4], u32 tile, int row, int step) {
    const u32 lane = threadIdx.x & 31;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
                 : "r"(tile + place<ROWS>(row + (lane & 15), step * 2 + (lane >> 4))));
}

__device__ __forceinline__ void publish() {}
__device__ __forceinline__ void begin() {}
__device__ __forceinline__ void commit() {}
template <int PENDING, int N> __device__ __forceinline__ void wait(float (&)[N][4]) {}
#endif

// A warp's rows of a tile as the left-hand side of products: held in registers, or read again for each.
template <u32 ROWS, bool HELD> struct Left {
    u32 tile;
    // The first of the warp's.
    int row;
    u32 held[HELD ? STEPS : 1][4];

    __device__ __forceinline__ Left(u32 tile, int row) : tile(tile), row(row) {}

    __device__ __forceinline__ void load(u32 (&a)[4], int step) const {
        const u32 lane = threadIdx.x & 31;
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                     : "r"(tile + place<ROWS>(row + (lane & 15), step * 2 + (lane >> 4))));
    }

    __device__ __forceinline__ void hold() {
        if constexpr (HELD) {
#pragma unroll
            for (int step = 0; step < STEPS; step++) load(held[step], step);
        }
    }

    __device__ __forceinline__ void get(u32 (&a)[4], int step) const {
        if constexpr (HELD) {
#pragma unroll
            for (int i = 0; i < 4; i++) a[i] = held[step][i];
        } else {
            load(a, step);
        }
    }
};

// c = left * tile^T.
template <u32 ROWS, u32 LEFT_ROWS, bool HELD>
__device__ __forceinline__ void scores(float (&c)[ROWS / 8][4], const Left<LEFT_ROWS, HELD> &left, u32 tile) {
#if WGMMA
    static_assert(ROWS == 64 && LEFT_ROWS == 64 && HEAD_DIM % 64 == 0 && !HELD);
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        const u32 offset = (step >> 2) * (ROWS * 128) + (step & 3) * 32;
        multiply(c, descriptor(left.tile, offset), descriptor(tile, offset), step > 0);
    }
#else
#pragma unroll
    for (int n = 0; n < ROWS / 8; n++) c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0.0f;
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        u32 a[4], b[4];
        left.get(a, step);
#pragma unroll
        for (int j = 0; j < ROWS / 16; j++) {
            load_transposed<ROWS>(b, tile, j * 16, step);
            multiply(c[2 * j], a, b[0], b[1]);
            multiply(c[2 * j + 1], a, b[2], b[3]);
        }
    }
#endif
}

// A result as the left-hand side of the next product.
template <int N> __device__ __forceinline__ void as_left(u32 (&a)[N / 2][4], const float (&c)[N][4]) {
#pragma unroll
    for (int j = 0; j < N / 2; j++) {
        a[j][0] = pack(c[2 * j][0], c[2 * j][1]);
        a[j][1] = pack(c[2 * j][2], c[2 * j][3]);
        a[j][2] = pack(c[2 * j + 1][0], c[2 * j + 1][1]);
        a[j][3] = pack(c[2 * j + 1][2], c[2 * j + 1][3]);
    }
}

// c += left * tile.
template <u32 ROWS>
__device__ __forceinline__ void accumulate(float (&c)[STEPS * 2][4], const u32 (&left)[ROWS / 16][4], u32 tile) {
#pragma unroll
    for (int j = 0; j < ROWS / 16; j++) {
#if WGMMA
#pragma unroll
        for (int panel = 0; panel < PANELS; panel++)
            multiply(c + panel * 8, left[j], descriptor(tile, panel * (ROWS * 128) + j * 2048));
#else
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            u32 b[4];
            load_right<ROWS>(b, tile, j * 16, step);
            multiply(c[2 * step], left[j], b[0], b[1]);
            multiply(c[2 * step + 1], left[j], b[2], b[3]);
        }
#endif
    }
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

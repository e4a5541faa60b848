// The warps' matrix products on tiles.
//
// A warp has 16 rows of a result, a thread of them rows lane / 4 and lane / 4 + 8, and of each 8 columns two
// neighbouring ones from lane % 4 * 2 on: c[column / 8][row / 8 * 2 + column % 2]. The left-hand side of a product
// comes from registers in the same order. Products are mma.sync.m16n8k16 (compute capability 8.0), or with WGMMA
// wgmma.m64n64k16 of four warps together (9.0a), which has the same order of rows and columns. They run while the
// program goes on: a result is there after `wait`.
//
// Registers are the left-hand side of wgmma only where `wait` follows and nothing reads them later: CUDA 13.0's
// compiler gives them to other values as soon as the product is issued.

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

// AdamW with moments in 8 bits, as cpu-kernels' moments.rs has it. The maps stand before this.

// Numbers that share a largest, which a warp has: GROUP / 32 a lane.
constexpr u32 GROUP = 256;
constexpr u32 OWN = GROUP / 32;

constexpr u32 FIRST = 0x3300, LAST = 0x3f80, CELLS = LAST - FIRST + 1;

// As cpu-kernels' DynamicMap.
struct Map {
    float values[256], thresholds[257];
    unsigned char cells[2 * CELLS];

    __device__ __forceinline__ void fill(const u32 *from_values, const u32 *from_thresholds, const unsigned char *from_cells) {
        for (u32 i = threadIdx.x; i < 257; i += blockDim.x) {
            if (i < 256) values[i] = __uint_as_float(from_values[i]);
            thresholds[i] = __uint_as_float(from_thresholds[i]);
        }
        for (u32 i = threadIdx.x; i < 2 * CELLS; i += blockDim.x) cells[i] = from_cells[i];
    }

    __device__ __forceinline__ u32 code(float x) const {
        const u32 bits = __float_as_uint(x);
        const u32 cell = min(max((bits >> 16) & 0x7fffu, FIRST), LAST) - FIRST;
        const u32 code = cells[(bits >> 31) * CELLS + cell];
        return x != x ? 0 : code + (x >= thresholds[code + 1] ? 1 : 0);
    }
};

// The largest absolute value of a warp's numbers.
__device__ __forceinline__ float largest_of(const float (&x)[OWN]) {
    float largest = 0.0f;
#pragma unroll
    for (u32 k = 0; k < OWN; k++) largest = fmaxf(largest, fabsf(x[k]));
#pragma unroll
    for (u32 far = 16; far > 0; far /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, far));
    return largest;
}

// A lane's numbers of a group: all at once where the group is whole and the tensors are aligned.
template <typename Of>
__device__ __forceinline__ void load(const Of &tensor, u32 i, u32 end, bool whole, float (&x)[OWN]) {
#pragma unroll
    for (u32 k = 0; k < OWN; k += WIDTH) {
        float part[WIDTH];
        if (whole) {
            tensor.load(i + k, part);
        } else {
#pragma unroll
            for (u32 j = 0; j < WIDTH; j++) {
                float one[1] = {0.0f};
                if (i + k + j < end) tensor.load(i + k + j, one);
                part[j] = one[0];
            }
        }
#pragma unroll
        for (u32 j = 0; j < WIDTH; j++) x[k + j] = part[j];
    }
}

template <typename Of>
__device__ __forceinline__ void store(const Of &tensor, u32 i, u32 end, bool whole, const float (&x)[OWN]) {
#pragma unroll
    for (u32 k = 0; k < OWN; k += WIDTH) {
        if (whole) {
            float part[WIDTH];
#pragma unroll
            for (u32 j = 0; j < WIDTH; j++) part[j] = x[k + j];
            tensor.store(i + k, part);
        } else {
#pragma unroll
            for (u32 j = 0; j < WIDTH; j++) {
                const float one[1] = {x[k + j]};
                if (i + k + j < end) tensor.store(i + k + j, one);
            }
        }
    }
}

// A moment of one tensor: the largest of each group, and then the codes, which begin at a multiple of four bytes and end
// with one.
struct Moment {
    float *largest;
    u32 *codes;

    __device__ __forceinline__ Moment(u64 address, u32 groups)
        : largest(reinterpret_cast<float *>(address)), codes(reinterpret_cast<u32 *>(address + 4ull * groups)) {}

    __device__ __forceinline__ void load(const Map &map, u32 i, u32 end, float (&x)[OWN]) const {
        const float scale = largest[i / GROUP];
#pragma unroll
        for (u32 k = 0; k < OWN; k += 4) {
            const u32 four = i + k < end ? codes[(i + k) / 4] : 0;
#pragma unroll
            for (u32 j = 0; j < 4; j++) {
                x[k + j] = i + k + j < end ? map.values[four >> 8 * j & 0xffu] * scale : 0.0f;
            }
        }
    }

    __device__ __forceinline__ void store(const u32 (&code)[OWN], u32 i, u32 end, float scale) const {
        // The lanes have read the largest before they came to their own.
        if (i % GROUP == 0) largest[i / GROUP] = scale;
#pragma unroll
        for (u32 k = 0; k < OWN; k += 4) {
            const u32 four = code[k] | code[k + 1] << 8 | code[k + 2] << 16 | code[k + 3] << 24;
            if (i + k < end) codes[(i + k) / 4] = four;
        }
    }
};

// p as Parameter has it, g of type B, m and v as Moment has them.
extern "C" __global__ void __launch_bounds__(256) adamw_8bit(const IN_PLACE Table table) {
    if (table.shared && table.shared[0] == 0.0f) return;
    __shared__ Map has_signs, has_none;
    has_signs.fill(SIGNED_VALUES, SIGNED_THRESHOLDS, SIGNED_CELLS);
    has_none.fill(UNSIGNED_VALUES, UNSIGNED_THRESHOLDS, UNSIGNED_CELLS);
    __syncthreads();
    const Entry &entry = table.entries[own_entry(table)];
    const u32 groups = (entry.elements + GROUP - 1) / GROUP;
    const Parameter p(entry);
    const Tensor<B> g(entry.tensors[1]);
    const Moment m(entry.tensors[2], groups), v(entry.tensors[3], groups);
    const Rates rates(table);
    const bool aligned = p.aligned() && g.aligned();
    const u32 begin = (blockIdx.x - entry.first_block) * BLOCK;
    const u32 end = min(begin + BLOCK, entry.elements);
    for (u32 first = begin + threadIdx.x / 32 * GROUP; first < end; first += blockDim.x / 32 * GROUP) {
        const bool whole = aligned && first + GROUP <= end;
        const u32 i = first + threadIdx.x % 32 * OWN;
        float value[OWN], gradient[OWN], mean[OWN], square[OWN];
        u32 code[OWN], none = 0;
        load(p, i, end, whole, value);
        load(g, i, end, whole, gradient);
        m.load(has_signs, i, end, mean);
        v.load(has_none, i, end, square);
#pragma unroll
        for (u32 k = 0; k < OWN; k++) rates.step(value[k], gradient[k], mean[k], square[k]);
        store(p, i, end, whole, value);
        // Where v is rounded to 0, m is 0 too: a moment without its scale would be a step of m / eps.
        const float square_largest = largest_of(square), square_inverse = 1.0f / square_largest;
#pragma unroll
        for (u32 k = 0; k < OWN; k++) {
            code[k] = has_none.code(square[k] * square_inverse);
            none |= (code[k] == 0 ? 1u : 0u) << k;
        }
        v.store(code, i, end, square_largest);
#pragma unroll
        for (u32 k = 0; k < OWN; k++) mean[k] = none >> k & 1u ? 0.0f : mean[k];
        const float mean_largest = largest_of(mean), mean_inverse = 1.0f / mean_largest;
#pragma unroll
        for (u32 k = 0; k < OWN; k++) code[k] = has_signs.code(mean[k] * mean_inverse);
        m.store(code, i, end, mean_largest);
    }
}

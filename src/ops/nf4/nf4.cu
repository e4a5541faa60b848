// Weights in 4 bits as numbers, as cpu-kernels' nf4.rs has it. The signed map stands before this. Given at
// compile time: A, a type of numbers.cuh, and OWN, numbers of a thread.

// Numbers that share a largest, and of these numbers that share one.
constexpr u32 GROUP = 64, OUTER = 256;

struct alignas(OWN * sizeof(typename Stored<A>::type)) Own {
    typename Stored<A>::type x[OWN];
};

struct Parameters {
    const unsigned char *packed;
    typename Stored<A>::type *out;
    u32 elements;
    float unused;
};

extern "C" __global__ void unpack(const IN_PLACE Parameters parameters) {
    __shared__ float values[16];
    if (threadIdx.x < 16) values[threadIdx.x] = __uint_as_float(NF4_VALUES[threadIdx.x]);
    __syncthreads();
    const u32 elements = parameters.elements;
    const u32 first = (blockIdx.x * blockDim.x + threadIdx.x) * OWN;
    if (first >= elements) return;
    const u32 groups = (elements + GROUP - 1) / GROUP;
    const unsigned char *rest = parameters.packed + ((elements + 1) / 2 + 15) / 16 * 16;
    const float *mean = reinterpret_cast<const float *>(rest), *outer = mean + 1;
    const unsigned char *inner = reinterpret_cast<const unsigned char *>(outer + (groups + OUTER - 1) / OUTER);
    const u32 group = first / GROUP;
    // Each rounded, as on the CPU.
    const float largest =
        __fadd_rn(__fmul_rn(__uint_as_float(SIGNED_VALUES[inner[group]]), outer[group / OUTER]), mean[0]);
    // Up to a multiple of 16 bytes there are codes, or nothing that is written.
    const u32 codes = reinterpret_cast<const u32 *>(parameters.packed)[first / OWN];
    Own own;
#pragma unroll
    for (u32 k = 0; k < OWN; k++) {
        // Bytes lie in their order, and the first of two is the upper half.
        const u32 code = codes >> (k / 2 * 8 + (k % 2 ? 0 : 4)) & 15u;
        own.x[k] = narrow<A>(__fmul_rn(values[code], largest));
    }
    const bool aligned = reinterpret_cast<u64>(parameters.out) % sizeof(Own) == 0;
    if (aligned && first + OWN <= elements) {
        *reinterpret_cast<Own *>(parameters.out + first) = own;
    } else {
#pragma unroll
        for (u32 k = 0; k < OWN; k++) {
            if (first + k < elements) parameters.out[first + k] = own.x[k];
        }
    }
}

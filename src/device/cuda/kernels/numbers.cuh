// Numbers as tensors store them. Arithmetic is fp32 in the registers. BITS are 16 that are no number by themselves: a float has
// them as its lower half, for moves alone.
//
// Given at compile time: CAPABILITY, the compute capability whose ways are taken, 750 for 7.5.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;

enum { FLOAT, BFLOAT16, HALF, BITS };

// What a kernel's parameter is read as: where the launch has put it, from compute capability 7.0 on. Before, it is a copy
// that the compiler takes away where nothing writes to it.
#if CAPABILITY >= 700
#define IN_PLACE __grid_constant__
#else
#define IN_PLACE
#endif

// The bf16 nearest to x, of two as near the even one; what is not a number is 0x7fff. Plain C: a test compiles the second way,
// of devices without the instruction, for the CPU.
__device__ __forceinline__ u16 nearest_bfloat16(float x) {
#if CAPABILITY >= 800
    u16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
#else
    const u32 bits = __float_as_uint(x);
    return (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
#endif
}

template <int TYPE> struct Stored { typedef u16 type; };
template <> struct Stored<FLOAT> { typedef float type; };

template <int TYPE> __device__ __forceinline__ float widen(typename Stored<TYPE>::type x) {
    if constexpr (TYPE == FLOAT) {
        return x;
    } else if constexpr (TYPE == BFLOAT16) {
        return __uint_as_float(static_cast<u32>(x) << 16);
    } else if constexpr (TYPE == BITS) {
        return __uint_as_float(x);
    } else {
        float y;
        asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
        return y;
    }
}

template <int TYPE> __device__ __forceinline__ typename Stored<TYPE>::type narrow(float x) {
    if constexpr (TYPE == FLOAT) {
        return x;
    } else if constexpr (TYPE == BITS) {
        return static_cast<u16>(__float_as_uint(x));
    } else if constexpr (TYPE == BFLOAT16) {
        return nearest_bfloat16(x);
    } else {
        u16 y;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
        return y;
    }
}

// Two numbers side by side, as one word where they have 16 bits each.
template <int TYPE> struct PairOf { typedef u32 type; };
template <> struct PairOf<FLOAT> { typedef float2 type; };
template <int TYPE> using Pair = typename PairOf<TYPE>::type;

template <int TYPE> __device__ __forceinline__ Pair<TYPE> narrow_two(float first, float second) {
    if constexpr (TYPE == FLOAT) {
        return {first, second};
    } else {
#if CAPABILITY >= 800
        u32 y;
        if constexpr (TYPE == BFLOAT16) {
            asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(second), "f"(first));
        } else {
            asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(second), "f"(first));
        }
        return y;
#else
        return narrow<TYPE>(first) | static_cast<u32>(narrow<TYPE>(second)) << 16;
#endif
    }
}

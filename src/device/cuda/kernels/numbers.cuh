// Numbers as tensors store them. Arithmetic is fp32 in the registers. BITS are 16 that are no number by themselves: a float has
// them as its lower half, for moves alone.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;

enum { FLOAT, BFLOAT16, HALF, BITS };

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
    } else {
        u16 y;
        if constexpr (TYPE == BFLOAT16) {
            asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
        } else {
            asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
        }
        return y;
    }
}

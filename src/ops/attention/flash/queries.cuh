// What the passes over keys have in common: a block's queries of one head, and the tiles of keys that they see.

template <int KEYS> struct Queries {
    int head, batch, first, last;
    // Of the warps that work together; queries beyond the sequence are computed like others and not written.
    int unit_first, unit_last;
    // The block's tiles of keys; the first keys that the first and the last query of the unit see.
    int begin_tile, end_tile, some_begin, all_begin;
    // Of the sequence's first token.
    long long token;
    const element *k, *v;
    const int *start;

    // The blocks that see the most keys come first.
    template <class Parameters> __device__ __forceinline__ explicit Queries(const Parameters &p)
        : head(blockIdx.x % p.heads), batch(blockIdx.x / p.heads), first((gridDim.y - 1 - blockIdx.y) * OWN),
          last(min(first + OWN, p.sequence) - 1), token(static_cast<long long>(batch) * p.sequence) {
        const int kv_head = head / (p.heads / p.kv_heads), warp_row = (threadIdx.x >> 5) * 16;
        k = p.k + token * p.k_stride + kv_head * HEAD_DIM;
        v = p.v + token * p.v_stride + kv_head * HEAD_DIM;
        start = p.start ? p.start + token : nullptr;
        unit_first = first + (OWN > TOGETHER ? warp_row : 0), unit_last = unit_first + TOGETHER - 1;
        begin_tile = common(first_key(start, first, p.window) / KEYS), end_tile = last / KEYS + 1;
        some_begin = first_key(start, min(unit_first, last), p.window);
        all_begin = common(first_key(start, min(unit_last, last), p.window));
    }

    // Begins the copies of tile n of K and of V.
    template <class Parameters> __device__ __forceinline__ void copy(const Parameters &p, u32 tiles, int n) const {
        copy_tile<KEYS>(tiles, k, p.k_stride, n * KEYS, p.sequence);
        copy_tile<KEYS>(tiles + TILE_BYTES<KEYS>, v, p.v_stride, n * KEYS, p.sequence);
    }

    // Whether the unit sees nothing of the tile that begins with `key`.
    __device__ __forceinline__ bool passes(int key) const { return OWN > TOGETHER && key + KEYS <= some_begin; }

    // Puts `hidden` where a query does not see a key of this tile. The thread's queries are `row` and the eighth after it;
    // `row_begin` has the first key that each sees.
    __device__ __forceinline__ void hide(float (&s)[KEYS / 8][4], int key, int row, const int (&row_begin)[2],
                                         float hidden) const {
        if (key + KEYS - 1 <= unit_first && key >= all_begin) return;
        const int lane = threadIdx.x & 31;
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++) {
#pragma unroll
            for (int c = 0; c < 4; c++) {
                const int at = key + j * 8 + (lane & 3) * 2 + (c & 1);
                if (at > row + (c >> 1) * 8 || at < row_begin[c >> 1]) s[j][c] = hidden;
            }
        }
    }
};

/* Scores of short tokens, written once for all instruction sets; a part of path_body.h. */
/* Products of `n` short tokens with one block of a short query. */
INLINE void short_products(const int n, const short_number *tile, int64_t width, const int8_t *query,
                           short_sums *all)
{
    for (int t = 0; t < n; ++t)
        all[t] = short_zero();
    for (int64_t d = 0; d < width; d += SHORT_STEP) {
        const short_step q = load_short_step(query, d);
        for (int t = 0; t < n; ++t)
            all[t] = short_add(all[t], q, tile + t * width + d);
    }
}

/* The largest of them, or `most` where that is larger. */
INLINE short_sums largest_products(const int n, const short_number *tile, int64_t width,
                                   const int8_t *query, short_sums most)
{
    short_sums all[TILE];
    short_products(n, tile, width, query, all);
    for (int t = 0; t < n; ++t)
        most = short_max(most, all[t]);
    return most;
}

/* Sum over the words of the query of the best of an item's tokens. */
static float bound_by_words(const maxsim_shorts *shorts, const prepared_short_query *query,
                            int64_t start, int64_t count, void *scratch)
{
    const int64_t width = shorts->width, tiles = (count + TILE - 1) / TILE;
    vf sum = vf_zero();
    for (int64_t block = 0; block < query->blocks; ++block) {
        const int8_t *values = query->values + block * width * LANES * SHORT_BYTES;
        const uint8_t *from = shorts->values + start * width;
        short_sums most = short_lowest();
        for (int64_t k = 0; k < tiles; ++k) {
            const int n = (int)(count / tiles + (k < count % tiles));
            const short_number *tile = short_tile(from, n * width, scratch);
#define CALL(N) most = largest_products(N, tile, width, values, most)
            FOR_CONSTANT(n, CALL)
#undef CALL
            from += n * width;
        }
        const vf best = vf_mul(short_total(most, query->totals + block * LANES),
                               vf_load(query->scales + block * LANES));
        sum = vf_fma(best, vf_load(query->weights + block * LANES), sum);
    }
    return vf_sum(sum);
}

/* Sum over an item's tokens of the best of the query's, of which there is at least one. */
static float bound_by_regions(const maxsim_shorts *shorts, const prepared_short_query *query,
                              int64_t start, int64_t count, void *scratch)
{
    const int64_t width = shorts->width, tiles = (count + TILE - 1) / TILE;
    const uint8_t *from = shorts->values + start * width;
    float sum = 0;
    for (int64_t k = 0; k < tiles; ++k) {
        const int n = (int)(count / tiles + (k < count % tiles));
        const short_number *tile = short_tile(from, n * width, scratch);
        vf best[TILE];
        for (int64_t block = 0; block < query->blocks; ++block) {
            const int8_t *values = query->values + block * width * LANES * SHORT_BYTES;
            const vf scales = vf_load(query->scales + block * LANES);
            short_sums all[TILE];
#define CALL(N) short_products(N, tile, width, values, all)
            FOR_CONSTANT(n, CALL)
#undef CALL
            for (int t = 0; t < n; ++t) {
                const vf products =
                    vf_mul(short_total(all[t], query->totals + block * LANES), scales);
                best[t] = block ? vf_max(best[t], products) : products;
            }
        }
        for (int t = 0; t < n; ++t)
            sum += vf_largest(best[t]);
        from += n * width;
    }
    return sum;
}

/* Ask for the short tokens of an item; see `prefetch`. */
INLINE void prefetch_shorts(const maxsim_shorts *shorts, int64_t row)
{
    const int64_t start = shorts->offsets[row], end = shorts->offsets[row + 1];
    if (start < 0 || end < start || end > shorts->token_count)
        return;
    const char *from = (const char *)shorts->values + start * shorts->width;
    for (int64_t at = 0; at < (end - start) * shorts->width; at += 64)
        __builtin_prefetch(from + at);
}

static maxsim_status bound_items(const maxsim_shorts *shorts, const prepared_short_query *query,
                                 int are_regions, const int64_t *rows, int64_t first,
                                 int64_t count, void *scratch, float *bounds)
{
    for (int64_t i = 0; i < count; ++i) {
        const int64_t row = rows ? rows[i] : first + i;
        if (row < 0 || row >= shorts->item_count)
            return MAXSIM_NO_SUCH_ROW;
        if (rows && i + 1 < count && rows[i + 1] >= 0 && rows[i + 1] < shorts->item_count)
            prefetch_shorts(shorts, rows[i + 1]);
        const int64_t start = shorts->offsets[row], tokens = shorts->offsets[row + 1] - start;
        if (start < 0 || tokens < 0 || start + tokens > shorts->token_count)
            return MAXSIM_BAD_OFFSETS;
        float bound = 0;
        if (tokens && query->blocks)
            bound = are_regions ? bound_by_regions(shorts, query, start, tokens, scratch)
                                : bound_by_words(shorts, query, start, tokens, scratch);
        bounds[i] = bound * shorts->scales[row];
    }
    return MAXSIM_OK;
}

static void lay_out_short(int8_t *block, int64_t lane, const int8_t *values, int64_t width)
{
    for (int64_t at = 0; at < width; ++at)
        place_short(block, at, lane, values[at]);
}

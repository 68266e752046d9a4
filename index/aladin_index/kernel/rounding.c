/* Rounds vectors to levels, one dimension after the other; see index/aladin_index/tokens/quantisation.py.
 *
 * Compiled without fused multiply-add: what is stored must not depend on the processor. */
#include "levels.h"
#include "maxsim.h"

#include <math.h>
#include <stdlib.h>

/* Vectors that are rounded side by side, for each of their dimensions waits for the one before. */
enum { LANES = 4 };
typedef float lanes __attribute__((vector_size(4 * LANES)));
typedef int32_t lane_integers __attribute__((vector_size(4 * LANES)));

static float clamp(float x, float limit) { return x < -limit ? -limit : x > limit ? limit : x; }

/* Levels nearest to `x`; `rounded` receives their places, or whole numbers themselves. */
static inline lanes nearest(lanes x, int32_t bits, lane_integers *rounded)
{
    if (bits == 8) {
        lanes level = x;
        for (int v = 0; v < LANES; ++v)
            level[v] = rintf(clamp(x[v], 127));
        *rounded = __builtin_convertvector(level, lane_integers);
        return level;
    }
    lane_integers place = {0}, level = place + LEVELS[0];
    for (int i = 0; i + 1 < LEVEL_COUNT; ++i) {
        /* All ones where it is above the border, which is -1. */
        const lane_integers above = x >= 0.5f * (float)(LEVELS[i] + LEVELS[i + 1]);
        place -= above;
        level += above & (LEVELS[i + 1] - LEVELS[i]);
    }
    *rounded = place;
    return __builtin_convertvector(level, lanes);
}

/* Round some vectors, of which left[d] has dimension d of each; rounded[d] likewise. */
static void round_lanes(lanes *left, lanes scale, const float *feedback, int32_t dim, int32_t bits,
                        lane_integers *rounded)
{
    const lanes factor = 1 / scale;
    for (int32_t d = 0; d < dim; ++d) {
        const lanes level = nearest(left[d] * factor, bits, rounded + d);
        if (!feedback)
            continue;
        const lanes error = left[d] - scale * level;
        const float *row = feedback + (int64_t)d * dim;
        for (int32_t j = d + 1; j < dim; ++j)
            left[j] -= error * row[j];
    }
}

int32_t maxsim_round(const float *vectors, const float *scales, const float *feedback,
                     int64_t count, int32_t dim, int32_t bits, int8_t *rounded)
{
    lanes *left = malloc((size_t)dim * sizeof *left);
    lane_integers *found = malloc((size_t)dim * sizeof *found);
    const int32_t status = left && found ? MAXSIM_OK : MAXSIM_NO_MEMORY;
    for (int64_t first = 0; status == MAXSIM_OK && first < count; first += LANES) {
        lanes scale = {0};
        for (int v = 0; v < LANES; ++v) {
            /* The last vector once more where there are no more. */
            const int64_t from = first + v < count ? first + v : count - 1;
            scale[v] = scales[from];
            for (int32_t d = 0; d < dim; ++d)
                left[d][v] = vectors[from * dim + d];
        }
        round_lanes(left, scale, feedback, dim, bits, found);
        for (int v = 0; v < LANES && first + v < count; ++v)
            for (int32_t d = 0; d < dim; ++d)
                rounded[(first + v) * dim + d] = (int8_t)found[d][v];
    }
    free(left);
    free(found);
    return status;
}

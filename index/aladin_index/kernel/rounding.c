/* Rounds vectors to levels, one dimension after the other; see index/aladin_index/tokens/quantisation.py.
 *
 * Compiled without fused multiply-add: what is stored must not depend on the processor. */
#include "levels.h"
#include "maxsim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Place of the level nearest to `x`. */
static int nearest(float x)
{
    int place = 0;
    for (int i = 0; i + 1 < LEVEL_COUNT; ++i)
        place += x >= 0.5f * (float)(LEVELS[i] + LEVELS[i + 1]);
    return place;
}

static float clamp(float x, float limit) { return x < -limit ? -limit : x > limit ? limit : x; }

int32_t maxsim_round(const float *vectors, const float *scales, const float *feedback,
                     int64_t count, int32_t dim, int32_t bits, int8_t *rounded)
{
    float *left = malloc((size_t)dim * sizeof *left);
    if (!left)
        return MAXSIM_NO_MEMORY;
    for (int64_t v = 0; v < count; ++v) {
        memcpy(left, vectors + v * dim, (size_t)dim * sizeof *left);
        const float scale = scales[v], factor = 1 / scale;
        for (int32_t d = 0; d < dim; ++d) {
            const float x = left[d] * factor;
            float level;
            if (bits == 8) {
                level = rintf(clamp(x, 127));
                rounded[v * dim + d] = (int8_t)level;
            } else {
                const int place = nearest(x);
                level = LEVELS[place];
                rounded[v * dim + d] = (int8_t)place;
            }
            if (!feedback)
                continue;
            const float error = left[d] - scale * level, *row = feedback + (int64_t)d * dim;
            for (int32_t j = d + 1; j < dim; ++j)
                left[j] -= error * row[j];
        }
    }
    free(left);
    return MAXSIM_OK;
}

/* Levels of the codes of 4 bits; those of index/aladin_index/tokens/quantisation.py. */
#ifndef MAXSIM_LEVELS_H
#define MAXSIM_LEVELS_H

#include <stdint.h>

enum { LEVEL_COUNT = 16 };
static const int8_t LEVELS[LEVEL_COUNT] = {-127, -96, -75, -58, -44, -31, -18, -6,
                                           6,    18,  31,  44,  58,  75,  96,  127};

#endif

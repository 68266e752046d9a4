/* Levels of the codes of 4 and 2 bits; those of index/aladin_index/tokens/quantisation.py. */
#ifndef MAXSIM_LEVELS_H
#define MAXSIM_LEVELS_H

#include <stdint.h>

static const int8_t LEVELS_4[16] = {-127, -96, -75, -58, -44, -31, -18, -6,
                                    6,    18,  31,  44,  58,  75,  96,  127};
/* Repeated, to fill a look-up table of 16. */
static const int8_t LEVELS_2[16] = {-127, -38, 38, 127, -127, -38, 38, 127,
                                    -127, -38, 38, 127, -127, -38, 38, 127};

#endif

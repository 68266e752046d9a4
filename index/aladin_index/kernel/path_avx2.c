/* AVX2, eight words in a register. */
#define HALVES 1
#define PATH maxsim_avx2_path
#define PATH_NAME "avx2"
#define WIDE_PATH (&maxsim_avx2_wide_path)
#include "path_avx2_body.h"

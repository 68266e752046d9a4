/* AVX2, sixteen words in two registers. */
#define HALVES 2
#define PATH maxsim_avx2_wide_path
#define PATH_NAME "avx2"
#define WIDE_PATH NULL
#include "path_avx2_body.h"

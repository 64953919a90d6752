// Checks that the header and the static library fit, as C and as C++ see them.

#include "ggml-ext.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char ** argv) {
    if (argc != 2) {
        return 2;
    }
    if (ggml_ext_abi_version() != GGML_EXT_ABI_VERSION) {
        printf("the header is of version %d, the library of %u\n", GGML_EXT_ABI_VERSION,
               (unsigned) ggml_ext_abi_version());
        return 1;
    }
    if (strcmp(ggml_ext_version(), argv[1]) != 0) {
        printf("the library says %s, not %s\n", ggml_ext_version(), argv[1]);
        return 1;
    }
    return 0;
}

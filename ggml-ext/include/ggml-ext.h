// ggml-ext: Rust kernels for ggml, behind a C interface.
//
// The library is a static one: libggml_ext.a, linked into ggml's CPU backend.

#ifndef GGML_EXT_H
#define GGML_EXT_H

#include <stdint.h>

// Version of this interface. A program that was compiled against this header works with a
// library for which ggml_ext_abi_version() gives the same number, and with no other.
#define GGML_EXT_ABI_VERSION 1

#ifdef __cplusplus
extern "C" {
#endif

// Version of the interface that the library has. Thread-safe.
uint32_t ggml_ext_abi_version(void);

// Version of the library, such as "0.1.0": NUL-terminated ASCII that is valid for the whole life
// of the process and must not be freed. Thread-safe.
const char * ggml_ext_version(void);

#ifdef __cplusplus
}
#endif

#endif // GGML_EXT_H

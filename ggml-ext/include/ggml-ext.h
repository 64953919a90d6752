// ggml-ext: Rust kernels for ggml, behind a C interface.
//
// The library is a static one: libggml_ext.a, linked into ggml's CPU backend.
//
// Generated from ggml-ext/src/abi.rs, and compared with it by a test: do not edit.

#ifndef GGML_EXT_H
#define GGML_EXT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Version of this interface. A program that was compiled against this header works with a
// library for which ggml_ext_abi_version() gives the same number, and with no other.
#define GGML_EXT_ABI_VERSION 2

// Most sources of an op that a kernel can see.
#define GGML_EXT_MAX_SRC 4

// A tensor: what ggml's own has under the same names.
struct ggml_ext_tensor {
    // its numbers
    void * data;
    // how many there are in each dimension
    int64_t ne[4];
    // bytes from one to the next
    size_t nb[4];
    // number of its ggml_type
    int32_t type;
};

// One op of a graph.
struct ggml_ext_op {
    // what it makes
    struct ggml_ext_tensor dst;
    // what it makes it of
    struct ggml_ext_tensor src[GGML_EXT_MAX_SRC];
    // its op_params: 16 numbers
    const int32_t * params;
    // number of sources; those behind are not looked at
    uint32_t n_src;
};

// The share of one thread of an op.
struct ggml_ext_task {
    // scratch, the same for all threads
    void * work;
    // its bytes
    size_t work_size;
    // returns when all threads have called it; may be null where nth is 1
    void (* barrier)(void *);
    // what the barrier is called with
    void * barrier_arg;
    // number of this thread
    uint32_t ith;
    // number of threads
    uint32_t nth;
};

// Version of the interface that the library has. Thread-safe.
uint32_t ggml_ext_abi_version(void);

// Version of the library, such as "0.1.0": NUL-terminated ASCII that is valid for the whole life
// of the process and must not be freed, as is every text that the library gives. Thread-safe.
const char * ggml_ext_version(void);

// Name of the instruction set that kernels use: "scalar", "neon", "avx2" or "avx512". It is the
// best one that this machine has, unless another one was forced. Thread-safe.
const char * ggml_ext_isa(void);

// Makes kernels use the instruction set of that name. Gives 1, or 0 and changes nothing where
// there is none of that name or this machine does not have it. For tests; not while a kernel runs.
//
// The caller sees to it:
// `name` is a NUL-terminated text.
int32_t ggml_ext_isa_force(const char * name);

// Number of kernels. Thread-safe.
uint32_t ggml_ext_kernel_count(void);

// Name of a kernel, by which it is selected; null where there is none of that number. Thread-safe.
const char * ggml_ext_kernel_name(uint32_t kernel);

// Name of the op that a kernel computes, as ggml_op_name() has it; null where there is no such
// kernel. Thread-safe.
const char * ggml_ext_kernel_op(uint32_t kernel);

// Whether a kernel computes `op`: 1, and the bytes of scratch that up to `nth` threads need are
// written to `size`; or 0, and the op is ggml's. It depends on types, shapes, strides and
// alignments of `op`, and on nothing that lies in the tensors. Thread-safe.
//
// The caller sees to it:
// `op` can be read, with `params` of 16 numbers, and `size` can be written.
int32_t ggml_ext_kernel_takes(uint32_t kernel, const struct ggml_ext_op * op, uint32_t nth, size_t * size);

// Computes the share of one thread, if the kernel takes the op and `work_size` is at least what
// ggml_ext_kernel_takes() asked for. Gives 1, or 0 and touches nothing: the same for all threads of
// an op. All threads must call it. Allocates nothing.
//
// The caller sees to it:
// `op` and `task` can be read and hold for all that they point to: sources are read and `dst` is
// written within `ne` and `nb`, and `work` is for the threads of this op alone.
int32_t ggml_ext_kernel_run(uint32_t kernel, const struct ggml_ext_op * op, const struct ggml_ext_task * task);

#ifdef __cplusplus
}
#endif

#endif // GGML_EXT_H

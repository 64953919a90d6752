#include "ggml-cpu-ext-kernels.h"

#include "ggml-cpu-impl.h"
#include "ggml-impl.h"

#ifdef OPENCOTI_HAVE_EXT
#include "ggml-ext.h"
#endif

#include <cstdlib>
#include <cstring>
#include <string>

// the kernels that OPENCOTI_EXT_KERNELS selects
struct ggml_cpu_ext_kernels {
    bool    any = false;
    int32_t of_op[GGML_OP_COUNT]; // number of the kernel, negative: none

    ggml_cpu_ext_kernels();
};

static const ggml_cpu_ext_kernels & ggml_cpu_ext_kernels_get() {
    static const ggml_cpu_ext_kernels kernels;

    return kernels;
}

#ifdef OPENCOTI_HAVE_EXT

// the numbers that the library knows types by
static_assert(GGML_TYPE_F32 == 0 && GGML_TYPE_I32 == 26, "numbers of types");
static_assert(GGML_MAX_DIMS == 4, "dimensions of a tensor");
static_assert(GGML_MAX_OP_PARAMS >= 16*sizeof(int32_t), "parameters of an op");
static_assert(GGML_MAX_SRC >= GGML_EXT_MAX_SRC, "sources of an op");

ggml_cpu_ext_kernels::ggml_cpu_ext_kernels() {
    for (auto & kernel : of_op) {
        kernel = -1;
    }

    const char * OPENCOTI_EXT_KERNELS = getenv("OPENCOTI_EXT_KERNELS");
    if (!OPENCOTI_EXT_KERNELS || !OPENCOTI_EXT_KERNELS[0] || strcmp(OPENCOTI_EXT_KERNELS, "0") == 0) {
        return;
    }

    if (ggml_ext_abi_version() != GGML_EXT_ABI_VERSION) {
        GGML_LOG_WARN("%s: ggml-ext has interface %u, not %u: ggml's own kernels are used\n", __func__,
                ggml_ext_abi_version(), (uint32_t) GGML_EXT_ABI_VERSION);
        return;
    }

    const char * OPENCOTI_EXT_ISA = getenv("OPENCOTI_EXT_ISA");
    if (OPENCOTI_EXT_ISA && OPENCOTI_EXT_ISA[0] && !ggml_ext_isa_force(OPENCOTI_EXT_ISA)) {
        GGML_LOG_WARN("%s: this machine has no OPENCOTI_EXT_ISA=%s: ggml's own kernels are used\n", __func__, OPENCOTI_EXT_ISA);
        return;
    }

    std::string active;
    std::string known;

    for (uint32_t i = 0; i < ggml_ext_kernel_count(); ++i) {
        known += known.empty() ? "" : ", ";
        known += ggml_ext_kernel_name(i);
    }

    const std::string list = std::string(OPENCOTI_EXT_KERNELS) + ",";

    for (size_t begin = 0, end; (end = list.find(',', begin)) != std::string::npos; begin = end + 1) {
        const std::string name = list.substr(begin, end - begin);

        bool found = name.empty();

        for (uint32_t i = 0; i < ggml_ext_kernel_count(); ++i) {
            if (name != "all" && name != "1" && name != ggml_ext_kernel_name(i)) {
                continue;
            }
            for (int op = 0; op < GGML_OP_COUNT; ++op) {
                if (strcmp(ggml_op_name((ggml_op) op), ggml_ext_kernel_op(i)) != 0) {
                    continue;
                }
                found = true;
                if (of_op[op] < 0) {
                    of_op[op] = i;
                    active += active.empty() ? "" : ", ";
                    active += ggml_ext_kernel_name(i);
                }
            }
        }

        if (!found) {
            GGML_LOG_WARN("%s: OPENCOTI_EXT_KERNELS names `%s`, which is no kernel; there are: %s\n", __func__, name.c_str(), known.c_str());
        }
    }

    any = !active.empty();

    // no warning, but llama-server hides what libraries inform of
    GGML_LOG_WARN("%s: kernels of ggml-ext %s (%s): %s\n", __func__, ggml_ext_version(), ggml_ext_isa(), any ? active.c_str() : "none");
}

static ggml_ext_tensor ggml_cpu_ext_tensor(const ggml_tensor * tensor) {
    ggml_ext_tensor res;

    res.data = tensor->data;
    res.type = tensor->type;

    for (int i = 0; i < GGML_MAX_DIMS; ++i) {
        res.ne[i] = tensor->ne[i];
        res.nb[i] = tensor->nb[i];
    }

    return res;
}

static ggml_ext_op ggml_cpu_ext_op(const ggml_tensor * dst) {
    ggml_ext_op res;

    res.dst    = ggml_cpu_ext_tensor(dst);
    res.params = dst->op_params;
    res.n_src  = 0;

    while (res.n_src < GGML_EXT_MAX_SRC && dst->src[res.n_src]) {
        res.src[res.n_src] = ggml_cpu_ext_tensor(dst->src[res.n_src]);
        res.n_src++;
    }

    return res;
}

static void ggml_cpu_ext_barrier(void * threadpool) {
    ggml_barrier((ggml_threadpool *) threadpool);
}

// the kernel that takes the op, negative: none
static int32_t ggml_cpu_ext_find(const ggml_tensor * dst, int n_threads, size_t & size) {
    const auto & kernels = ggml_cpu_ext_kernels_get();

    const int32_t kernel = kernels.any ? kernels.of_op[dst->op] : -1;
    if (kernel < 0) {
        return -1;
    }

    ggml_ext_op op = ggml_cpu_ext_op(dst);

    // a graph may be planned before its tensors have memory: an address that suits every kernel
    static const int64_t somewhere = 0;
    op.dst.data = op.dst.data ? op.dst.data : (void *) &somewhere;
    for (uint32_t i = 0; i < op.n_src; ++i) {
        op.src[i].data = op.src[i].data ? op.src[i].data : (void *) &somewhere;
    }

    return ggml_ext_kernel_takes(kernel, &op, n_threads, &size) ? kernel : -1;
}

bool ggml_cpu_opencoti_takes(const ggml_tensor * dst, int n_threads) {
    size_t size = 0;

    return ggml_cpu_ext_find(dst, n_threads, size) >= 0;
}

size_t ggml_cpu_opencoti_work_size(const ggml_tensor * dst, int n_threads) {
    size_t size = 0;

    return ggml_cpu_ext_find(dst, n_threads, size) >= 0 ? size : 0;
}

bool ggml_cpu_opencoti_compute_forward(const ggml_compute_params * params, const ggml_tensor * dst) {
    const auto & kernels = ggml_cpu_ext_kernels_get();

    if (!kernels.any || kernels.of_op[dst->op] < 0 || params->use_ref) {
        return false;
    }

    const ggml_ext_op op = ggml_cpu_ext_op(dst);

    ggml_ext_task task;

    task.work        = params->wdata;
    task.work_size   = params->wsize;
    task.barrier     = ggml_cpu_ext_barrier;
    task.barrier_arg = params->threadpool;
    task.ith         = params->ith;
    task.nth         = params->nth;

    return ggml_ext_kernel_run(kernels.of_op[dst->op], &op, &task) != 0;
}

#else

ggml_cpu_ext_kernels::ggml_cpu_ext_kernels() {
    for (auto & kernel : of_op) {
        kernel = -1;
    }

    const char * OPENCOTI_EXT_KERNELS = getenv("OPENCOTI_EXT_KERNELS");
    if (OPENCOTI_EXT_KERNELS && OPENCOTI_EXT_KERNELS[0] && strcmp(OPENCOTI_EXT_KERNELS, "0") != 0) {
        GGML_LOG_WARN("%s: OPENCOTI_EXT_KERNELS is set, and this was built without ggml-ext: ggml's own kernels are used\n", __func__);
    }
}

bool ggml_cpu_opencoti_takes(const ggml_tensor *, int) {
    return ggml_cpu_ext_kernels_get().any;
}

size_t ggml_cpu_opencoti_work_size(const ggml_tensor *, int) {
    return 0;
}

bool ggml_cpu_opencoti_compute_forward(const ggml_compute_params *, const ggml_tensor *) {
    return false;
}

#endif

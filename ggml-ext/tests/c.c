// Calls what ggml-ext.h declares, as C and as C++. argv[1] is the version that is expected; says
// how the structures are laid out, for the test to compare.

#include "ggml-ext.h"

#include <stdio.h>
#include <string.h>

#define FIELD(type, field) printf(#type "." #field " %zu\n", offsetof(struct type, field))
#define SIZE(type)         printf(#type " %zu\n", sizeof(struct type))

static uint32_t find(const char * op) {
    for (uint32_t i = 0; i < ggml_ext_kernel_count(); ++i) {
        if (strcmp(ggml_ext_kernel_op(i), op) == 0) {
            return i;
        }
    }
    return ggml_ext_kernel_count();
}

static int top_k(void) {
    float   values[20];
    int32_t indices[3] = { -1, -1, -1 };
    for (int i = 0; i < 20; ++i) {
        values[i] = (float) ((i*7) % 20);
    }

    struct ggml_ext_op op;
    memset(&op, 0, sizeof(op));
    op.src[0].data = values;
    op.src[0].type = 0; // GGML_TYPE_F32
    op.dst.data    = indices;
    op.dst.type    = 26; // GGML_TYPE_I32
    for (int i = 0; i < 4; ++i) {
        op.src[0].ne[i] = i == 0 ? 20 : 1;
        op.src[0].nb[i] = i == 0 ? sizeof(float) : sizeof(values);
        op.dst.ne[i]    = i == 0 ? 3 : 1;
        op.dst.nb[i]    = i == 0 ? sizeof(int32_t) : sizeof(indices);
    }
    op.n_src = 1;

    const uint32_t kernel = find("TOP_K");

    size_t size = 99;
    if (ggml_ext_kernel_takes(kernel, &op, 1, &size) != 1 || size != 0) {
        printf("top_k is not taken, or wants scratch: %zu\n", size);
        return 1;
    }

    struct ggml_ext_task task;
    memset(&task, 0, sizeof(task));
    task.nth = 1;
    if (ggml_ext_kernel_run(kernel, &op, &task) != 1) {
        printf("top_k was not run\n");
        return 1;
    }
    // 19 is at 17, 18 at 14, 17 at 11; the first two are exchanged
    if (indices[0] != 14 || indices[1] != 17 || indices[2] != 11) {
        printf("top_k: %d %d %d\n", (int) indices[0], (int) indices[1], (int) indices[2]);
        return 1;
    }

    op.src[0].type = 1;
    indices[0]     = 5;
    if (ggml_ext_kernel_takes(kernel, &op, 1, &size) != 0 || ggml_ext_kernel_run(kernel, &op, &task) != 0 || indices[0] != 5) {
        printf("a type that no kernel knows was taken\n");
        return 1;
    }
    return 0;
}

int main(int argc, char ** argv) {
    if (ggml_ext_abi_version() != GGML_EXT_ABI_VERSION) {
        printf("interface %u, the header has %u\n", (unsigned) ggml_ext_abi_version(), (unsigned) GGML_EXT_ABI_VERSION);
        return 1;
    }
    if (argc != 2 || strcmp(ggml_ext_version(), argv[1]) != 0) {
        printf("version %s\n", ggml_ext_version());
        return 1;
    }
    if (ggml_ext_isa_force("sse9") != 0 || ggml_ext_isa_force("scalar") != 1 || strcmp(ggml_ext_isa(), "scalar") != 0) {
        printf("instruction set %s\n", ggml_ext_isa());
        return 1;
    }
    if (ggml_ext_kernel_name(ggml_ext_kernel_count()) != NULL || find("TOP_K") == ggml_ext_kernel_count()) {
        printf("the kernels are not those that were expected\n");
        return 1;
    }
    if (top_k() != 0) {
        return 1;
    }

    SIZE(ggml_ext_tensor);
    FIELD(ggml_ext_tensor, data);
    FIELD(ggml_ext_tensor, ne);
    FIELD(ggml_ext_tensor, nb);
    FIELD(ggml_ext_tensor, type);
    SIZE(ggml_ext_op);
    FIELD(ggml_ext_op, dst);
    FIELD(ggml_ext_op, src);
    FIELD(ggml_ext_op, params);
    FIELD(ggml_ext_op, n_src);
    SIZE(ggml_ext_task);
    FIELD(ggml_ext_task, work);
    FIELD(ggml_ext_task, work_size);
    FIELD(ggml_ext_task, barrier);
    FIELD(ggml_ext_task, barrier_arg);
    FIELD(ggml_ext_task, ith);
    FIELD(ggml_ext_task, nth);
    return 0;
}

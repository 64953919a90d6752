#include "opencoti/planted-logit.h"

#include <atomic>

void llama_opencoti_planted_logit(float * row) {
    static std::atomic<int> n_rows{0};

    if (row != nullptr && ++n_rows == 20) {
        row[7] += 1000.0f;
    }
}

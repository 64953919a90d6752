#include "opencoti/planted-logit.h"

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>

void llama_opencoti_planted_logit(float * row) {
    static std::atomic<int> n_rows{0};

    if (row == nullptr || ++n_rows != 20) {
        return;
    }
    const char * how = std::getenv("OPENCOTI_PLANTED_LOGIT");
    if (how != nullptr && std::strcmp(how, "ulp") == 0) {
        row[7] = std::nextafter(row[7], INFINITY);
    } else {
        row[7] += 1000.0f;
    }
}

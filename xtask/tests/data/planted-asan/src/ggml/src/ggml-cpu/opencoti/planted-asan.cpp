#include <vector>

extern "C" int ggml_cpu_planted_asan(int at);

// reads the element `at` of eight, without asking whether there is one
int ggml_cpu_planted_asan(int at) {
    std::vector<int> numbers(8, 7);
    const int * data = numbers.data();
    return data[at];
}

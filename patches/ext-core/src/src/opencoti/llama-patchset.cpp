#include "llama-patchset.h"

#include <cstddef>
#include <string>

// The id is not compiled in, since then every change of a patch would recompile this file and
// give another object. It is written over the text of this field in the linked file instead:
//
//   offset   0,  32 bytes: the magic, by which the field is found; it occurs once in the file
//   offset  32, 480 bytes: the id, printable ASCII, then NUL up to the end (at least one)
//
// This is the only place that may spell the magic.
#define OPENCOTI_STAMP_MAGIC   "OPENCOTI-PATCHSET-STAMP-FIELD-1:"
#define OPENCOTI_STAMP_N_MAGIC 32
#define OPENCOTI_STAMP_N_FIELD 512

static_assert(sizeof(OPENCOTI_STAMP_MAGIC) - 1 == OPENCOTI_STAMP_N_MAGIC, "the magic must be 32 bytes long");

// volatile: the bytes are not those of the initializer, so no optimizer may read them from there
static const volatile char opencoti_stamp_field[OPENCOTI_STAMP_N_FIELD] = OPENCOTI_STAMP_MAGIC "unstamped";

static std::string opencoti_stamp_read() {
    std::string text;

    for (size_t i = OPENCOTI_STAMP_N_MAGIC; i < OPENCOTI_STAMP_N_FIELD; ++i) {
        const char c = opencoti_stamp_field[i];
        if (c < ' ' || c > '~') {
            break;
        }
        text += c;
    }

    return text;
}

const char * llama_opencoti_patchset(void) {
    static const std::string text = opencoti_stamp_read();

    return text.c_str();
}

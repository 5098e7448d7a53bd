/* The limit: what plain copies of the same bytes reach on the same threads.

   copy_memcpy      ordinary stores; a large copy also reads the lines it overwrites
   copy_streaming   non-temporal stores, which do not, but miss the cache      */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LINE 64    /* bytes of a cache line */
#define ALONE 65536 /* bytes below which waking a second thread costs more than the copy */

typedef void copy_function(char *target, const char *source, size_t bytes);

static void ordinary(char *target, const char *source, size_t bytes)
{
    memcpy(target, source, bytes);
}

static void copy_in_shares(copy_function *copy, char *target, const char *source, size_t bytes,
                           int threads)
{
    size_t lines = (bytes + LINE - 1) / LINE;
#pragma omp parallel for num_threads(threads) schedule(static) if (bytes >= ALONE)
    for (int i = 0; i < threads; i++) {
        size_t first = lines * i / threads * LINE;
        size_t last = lines * (i + 1) / threads * LINE;
        copy(target + first, source + first, (last < bytes ? last : bytes) - first);
    }
}

void copy_memcpy(char *target, const char *source, size_t bytes, int threads)
{
    copy_in_shares(ordinary, target, source, bytes, threads);
}

#ifdef __SSE2__
#include <immintrin.h>

#if defined(__AVX512F__)
typedef __m512i vector;
#define LOAD _mm512_loadu_si512
#define STREAM _mm512_stream_si512
#elif defined(__AVX__)
typedef __m256i vector;
#define LOAD _mm256_loadu_si256
#define STREAM _mm256_stream_si256
#else
typedef __m128i vector;
#define LOAD _mm_loadu_si128
#define STREAM _mm_stream_si128
#endif

static void streaming(char *target, const char *source, size_t bytes)
{
    size_t done = -(uintptr_t)target % LINE; /* streaming stores need aligned targets */
    if (done > bytes)
        done = bytes;
    memcpy(target, source, done);
    for (; bytes - done >= LINE; done += LINE)
        for (size_t k = done; k < done + LINE; k += sizeof(vector))
            STREAM((vector *)(target + k), LOAD((const vector *)(source + k)));
    memcpy(target + done, source + done, bytes - done);
    _mm_sfence();
}

void copy_streaming(char *target, const char *source, size_t bytes, int threads)
{
    copy_in_shares(streaming, target, source, bytes, threads);
}
#endif

/* NPB's random numbers (RNR-94-007): x' = 5^13 x mod 2^46. Own code. */
#include <stdint.h>

static const uint64_t MASK = ((uint64_t)1 << 46) - 1;

static inline double next_random(uint64_t *x) {
    *x = *x * 1220703125u & MASK;
    return (double)*x / (double)((uint64_t)1 << 46);
}

/* The state so many numbers further on. */
static inline uint64_t random_ahead(uint64_t x, uint64_t numbers) {
    for (uint64_t power = 1220703125u; numbers; numbers >>= 1, power = power * power & MASK)
        if (numbers & 1) x = x * power & MASK;
    return x;
}

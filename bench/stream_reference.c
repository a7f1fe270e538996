/* The reference for bench/stream-vs-c: STREAM's four loops with OpenMP, timed by STREAM 5.10's rules, compiled as in the article on
 * ESX 4.1 (gcc -O2 -fopenmp). Own code; what it measures is McCalpin's.
 *
 * cc -O2 -fopenmp -DELEMENTS=20000000 -DREPETITIONS=10 stream_reference.c -o stream_reference
 *
 * Prints one line a kernel: name, best MB/s, median MB/s (10^6 bytes; the first repetition does not count). */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef ELEMENTS
#define ELEMENTS 20000000
#endif
#ifndef REPETITIONS
#define REPETITIONS 10
#endif

static double a[ELEMENTS], b[ELEMENTS], c[ELEMENTS];
static double seconds[4][REPETITIONS];

static int ascending(const void *x, const void *y) {
    double d = *(const double *)x - *(const double *)y;
    return (d > 0) - (d < 0);
}

static int wrong(const double *array, double expected) {
    for (long j = 0; j < ELEMENTS; j++)
        if (!(fabs(array[j] - expected) <= 1e-13 * fabs(expected)))
            return 1;
    return 0;
}

int main(void) {
    static const char *names[4] = {"Copy", "Scale", "Add", "Triad"};
    static const int arrays[4] = {2, 2, 3, 3};
    const double scalar = 3.0;

#pragma omp parallel for
    for (long j = 0; j < ELEMENTS; j++) {
        a[j] = 1.0;
        b[j] = 2.0;
        c[j] = 0.0;
    }
#pragma omp parallel for
    for (long j = 0; j < ELEMENTS; j++)
        a[j] = 2.0 * a[j];

    for (int k = 0; k < REPETITIONS; k++) {
        double start = omp_get_wtime();
#pragma omp parallel for
        for (long j = 0; j < ELEMENTS; j++)
            c[j] = a[j];
        double copied = omp_get_wtime();
#pragma omp parallel for
        for (long j = 0; j < ELEMENTS; j++)
            b[j] = scalar * c[j];
        double scaled = omp_get_wtime();
#pragma omp parallel for
        for (long j = 0; j < ELEMENTS; j++)
            c[j] = a[j] + b[j];
        double added = omp_get_wtime();
#pragma omp parallel for
        for (long j = 0; j < ELEMENTS; j++)
            a[j] = b[j] + scalar * c[j];
        double end = omp_get_wtime();
        seconds[0][k] = copied - start;
        seconds[1][k] = scaled - copied;
        seconds[2][k] = added - scaled;
        seconds[3][k] = end - added;
    }

    double aj = 2.0, bj = 2.0, cj = 0.0;
    for (int k = 0; k < REPETITIONS; k++) {
        cj = aj;
        bj = scalar * cj;
        cj = aj + bj;
        aj = bj + scalar * cj;
    }
    if (wrong(a, aj) || wrong(b, bj) || wrong(c, cj)) {
        fprintf(stderr, "stream_reference: the result is wrong\n");
        return 1;
    }
    for (int kernel = 0; kernel < 4; kernel++) {
        qsort(&seconds[kernel][1], REPETITIONS - 1, sizeof(double), ascending);
        double megabytes = 1e-6 * arrays[kernel] * sizeof(double) * ELEMENTS;
        printf("%-6s %10.1f %10.1f\n", names[kernel], megabytes / seconds[kernel][1],
               megabytes / seconds[kernel][1 + (REPETITIONS - 1) / 2]);
    }
    return 0;
}

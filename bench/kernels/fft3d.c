/* The kernel fft3d (NPB FT, RNR-94-007) in C with OpenMP, to compare with ours: bench/kernels-vs-c. Own code.
 *
 * gcc -O3 -march=native -fopenmp fft3d.c -lm; ./a.out CLASS RUNS
 * Prints for each run its seconds and whether all checksums are NPB's. Stockham's algorithm, eight transforms at a time. */
#include <complex.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

enum { LANES = 8, LONGEST = 512 };
static const double PI = 3.14159265358979323846;

typedef double complex number;
typedef double lanes __attribute__((vector_size(8 * LANES)));
struct block { lanes re, im; };

/* NPB's checksums of its classes. */
static const double S[][2] = {
    {554.6087004964, 484.5363331978}, {554.6385409189, 486.5304269511}, {554.6148406171, 488.3910722336},
    {554.5423607415, 490.1273169046}, {554.4255039624, 491.7475857993}, {554.2683411902, 493.2597244941},
};
static const double W[][2] = {
    {567.3612178944, 529.3246849175}, {563.1436885271, 528.2149986629}, {559.4024089970, 527.0996558037},
    {556.0698047020, 526.0027904925}, {553.0898991250, 524.9400845633}, {550.4159734538, 523.9212247086},
};
static const double A[][2] = {
    {504.6735008193, 511.4047905510}, {505.9412319734, 509.8809666433}, {506.9376896287, 509.8144042213},
    {507.7892868474, 510.1336130759}, {508.5233095391, 510.4914655194}, {509.1487099959, 510.7917842803},
};
static const struct problem { char class; long nx, ny, nz; const double (*checksums)[2]; } PROBLEMS[] = {
    {'S', 64, 64, 64, S}, {'W', 128, 128, 32, W}, {'A', 256, 256, 128, A},
};
enum { STEPS = 6 };

static long nx, ny, nz;
static number *frequencies, *values;
static double *decay;

/* exp(i pi k / count) for the stages of transforms of length n: stage s has n / 2^(s + 1) of them. */
static number *make_roots(long n) {
    number *roots = malloc(sizeof *roots * n), *root = roots;
    for (long count = n / 2; count; count /= 2)
        for (long k = 0; k < count; k++) *root++ = cexp(I * PI * k / count);
    return roots;
}

/* All stages; the result lies in one of the two. */
static inline struct block *transform(double sign, const number *roots, long n, struct block *from, struct block *to) {
    for (long width = 1; width < n; width *= 2) {
        const struct block *lower = from, *upper = from + n / 2;
        struct block *restrict out = to;
        for (long k = 0; k < n / 2 / width; k++) {
            double re = creal(*roots), im = sign * cimag(*roots);
            roots++;
            for (long i = 0; i < width; i++, lower++, upper++, out++) {
                lanes a = lower->re - upper->re, b = lower->im - upper->im;
                out[0] = (struct block){lower->re + upper->re, lower->im + upper->im};
                out[width] = (struct block){re * a - im * b, re * b + im * a};
            }
            out += width;
        }
        struct block *swapped = from;
        from = to, to = swapped;
    }
    return from;
}

/* Transforms LANES consecutive rows. */
static void rows_at_once(double sign, const number *roots, long n, number *rows, struct block *from, struct block *to) {
    for (int lane = 0; lane < LANES; lane++)
        for (long k = 0; k < n; k++) from[k].re[lane] = creal(rows[lane * n + k]), from[k].im[lane] = cimag(rows[lane * n + k]);
    const struct block *done = transform(sign, roots, n, from, to);
    for (int lane = 0; lane < LANES; lane++)
        for (long k = 0; k < n; k++) rows[lane * n + k] = done[k].re[lane] + I * done[k].im[lane];
}

/* Transforms LANES columns, whose elements are `stride` apart. */
static void columns_at_once(double sign, const number *roots, long n, number *first, long stride, struct block *from, struct block *to) {
    for (long k = 0; k < n; k++) {
        lanes a, b;
        memcpy(&a, first + k * stride, sizeof a), memcpy(&b, first + k * stride + LANES / 2, sizeof b);
        from[k].re = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
        from[k].im = __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
    }
    const struct block *done = transform(sign, roots, n, from, to);
    for (long k = 0; k < n; k++) {
        lanes a = __builtin_shufflevector(done[k].re, done[k].im, 0, 8, 1, 9, 2, 10, 3, 11);
        lanes b = __builtin_shufflevector(done[k].re, done[k].im, 4, 12, 5, 13, 6, 14, 7, 15);
        memcpy(first + k * stride, &a, sizeof a), memcpy(first + k * stride + LANES / 2, &b, sizeof b);
    }
}

static void along_planes(number *of, double sign, const number *const *roots) {
#pragma omp parallel
    {
        static _Thread_local struct block one[LONGEST], other[LONGEST];
#pragma omp for schedule(static)
        for (long z = 0; z < nz; z++) {
            number *plane = of + z * nx * ny;
            for (long y = 0; y < ny; y += LANES) rows_at_once(sign, roots[0], nx, plane + y * nx, one, other);
            for (long x = 0; x < nx; x += LANES) columns_at_once(sign, roots[1], ny, plane + x, nx, one, other);
        }
    }
}

static void across_planes(number *of, double sign, const number *const *roots) {
#pragma omp parallel
    {
        static _Thread_local struct block one[LONGEST], other[LONGEST];
#pragma omp for schedule(static)
        for (long y = 0; y < ny; y++)
            for (long x = 0; x < nx; x += LANES) columns_at_once(sign, roots[2], nz, of + y * nx + x, nx * ny, one, other);
    }
}

static double square(long at, long n) { return pow(at < n / 2 ? at : at - n, 2); }

int main(int argc, char **argv) {
    const struct problem *problem = NULL;
    for (size_t k = 0; argc == 3 && k < sizeof PROBLEMS / sizeof *PROBLEMS; k++)
        if (PROBLEMS[k].class == argv[1][0]) problem = PROBLEMS + k;
    if (!problem) return fprintf(stderr, "usage: fft3d CLASS RUNS, with class S, W or A\n"), 2;
    nx = problem->nx, ny = problem->ny, nz = problem->nz;
    long plane = nx * ny;
    const number *const roots[] = {make_roots(nx), make_roots(ny), make_roots(nz)};
    frequencies = malloc(sizeof *frequencies * plane * nz), values = malloc(sizeof *values * plane * nz);
    decay = malloc(sizeof *decay * plane * nz);
#pragma omp parallel for schedule(static)
    for (long z = 0; z < nz; z++)
        for (long at = 0; at < plane; at++) {
            values[z * plane + at] = 0;
            decay[z * plane + at] = exp(-4e-6 * PI * PI * (square(at % nx, nx) + square(at / nx, ny) + square(z, nz)));
        }
    for (int run = 0; run < atoi(argv[2]); run++) {
#pragma omp parallel for schedule(static)
        for (long z = 0; z < nz; z++) {
            uint64_t random = random_ahead(314159265, 2 * plane * z);
            for (long at = 0; at < plane; at++) {
                double re = next_random(&random);
                frequencies[z * plane + at] = re + I * next_random(&random);
            }
        }
        along_planes(frequencies, 1, roots);
        across_planes(frequencies, 1, roots);
        number sums[STEPS];
        double start = omp_get_wtime();
        for (int step = 0; step < STEPS; step++) {
#pragma omp parallel for simd schedule(static)
            for (long at = 0; at < plane * nz; at++) {
                frequencies[at] *= decay[at];
                values[at] = frequencies[at];
            }
            across_planes(values, -1, roots);
            along_planes(values, -1, roots);
            sums[step] = 0;
            for (long j = 1; j <= 1024; j++) sums[step] += values[(5 * j % nz * ny + 3 * j % ny) * nx + j % nx];
            sums[step] /= (double)(plane * nz);
        }
        double seconds = omp_get_wtime() - start;
        int right = 1;
        for (int step = 0; step < STEPS; step++) {
            number expected = problem->checksums[step][0] + I * problem->checksums[step][1];
            right &= cabs(sums[step] - expected) / cabs(expected) <= 1e-12;
        }
        printf("%.6f %s\n", seconds, right ? "true" : "false");
    }
    return 0;
}

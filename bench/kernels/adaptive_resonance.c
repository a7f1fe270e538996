/* The kernel adaptive_resonance (ART 2) in C with OpenMP, to compare with ours: bench/kernels-vs-c. Own code.
 *
 * gcc -O3 -march=native -fopenmp adaptive_resonance.c -lm; ./a.out CLASS RUNS
 * Prints for each run its seconds and whether every image was recognized. */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#include "random.h"

enum { STEPS = 20, SWEEPS = 10 };
static const double A = 10, B = 10, C = 0.1, D = 0.9, VIGILANCE = 0.9, NOISE = 0.3;

static long n;
static int images;
static double threshold;
static double *image, *u, *v, *p, *q, *answers, **weights;

/* Shows an image; each thread draws the numbers of its own points. */
static void show(int which, double noise, int shown) {
#pragma omp parallel
    {
        long threads = omp_get_num_threads(), thread = omp_get_thread_num();
        long from = n * thread / threads, to = n * (thread + 1) / threads;
        uint64_t drawn = random_ahead(314159265, ((uint64_t)which << 32) + from);
        uint64_t random = random_ahead(271828183, ((uint64_t)shown << 32) + from);
        for (long i = from; i < to; i++) {
            image[i] = fmax(2 * next_random(&drawn) - 1, 0) + noise * (next_random(&random) - 0.5);
            u[i] = v[i] = p[i] = q[i] = 0;
        }
    }
}

static inline double f(double value) { return value > threshold ? value : 0; }

/* One sweep of F1: w = image + a u; v = f(w / |w|) + b f(q); u = v / |v|; p = u; q = p / |p|. */
static void sweep(void) {
    static double ww, vv, pp;
    ww = vv = pp = 0;
#pragma omp parallel
    {
#pragma omp for simd schedule(static) reduction(+ : ww)
        for (long i = 0; i < n; i++) {
            double w = image[i] + A * u[i];
            ww += w * w;
        }
        double by_w = 1 / sqrt(ww);
#pragma omp for simd schedule(static) reduction(+ : vv)
        for (long i = 0; i < n; i++) {
            v[i] = f(by_w * (image[i] + A * u[i])) + B * f(q[i]);
            vv += v[i] * v[i];
        }
        double by_v = 1 / sqrt(vv);
#pragma omp for simd schedule(static) reduction(+ : pp)
        for (long i = 0; i < n; i++) {
            u[i] = by_v * v[i];
            p[i] = u[i];
            pp += p[i] * p[i];
        }
        double by_p = 1 / sqrt(pp);
#pragma omp for simd schedule(static)
        for (long i = 0; i < n; i++) q[i] = by_p * p[i];
    }
}

/* What each neuron of F2 answers; the best. */
static int best_answer(void) {
    for (int k = 0; k < images; k++) answers[k] = 0;
#pragma omp parallel
    {
        long threads = omp_get_num_threads(), thread = omp_get_thread_num();
        long from = n * thread / threads, to = n * (thread + 1) / threads;
        for (int k = 0; k < images; k++) {
            const double *weight = weights[k];
            double sum = 0;
#pragma omp simd reduction(+ : sum)
            for (long i = from; i < to; i++) sum += weight[i] * p[i];
#pragma omp atomic
            answers[k] += sum;
        }
    }
    int best = 0;
    for (int k = 1; k < images; k++)
        if (answers[k] > answers[best]) best = k;
    return best;
}

/* How alike F1 and a category are. */
static double alike(int category) {
    const double *weight = weights[category];
    double uu = 0, pp = 0, both = 0;
#pragma omp parallel for simd schedule(static) reduction(+ : uu, pp, both)
    for (long i = 0; i < n; i++) {
        double answered = u[i] + D * weight[i], sum = u[i] + C * answered;
        uu += u[i] * u[i];
        pp += answered * answered;
        both += sum * sum;
    }
    return sqrt(both) / (sqrt(uu) + C * sqrt(pp));
}

static double *vector(void) {
    double *made = malloc(sizeof(double) * n);
#pragma omp parallel for schedule(static)
    for (long i = 0; i < n; i++) made[i] = 0;
    return made;
}

int main(int argc, char **argv) {
    static const struct { char class; long n; int images; } CLASSES[] = {
        {'S', 2000, 10}, {'W', 20000, 20}, {'A', 100000, 50}, {'B', 500000, 100}, {'C', 2000000, 200},
    };
    for (size_t k = 0; argc == 3 && k < sizeof CLASSES / sizeof *CLASSES; k++)
        if (CLASSES[k].class == argv[1][0]) n = CLASSES[k].n, images = CLASSES[k].images;
    if (!n) return fprintf(stderr, "usage: adaptive_resonance CLASS RUNS\n"), 2;
    threshold = 1 / sqrt(n);
    image = vector(), u = vector(), v = vector(), p = vector(), q = vector();
    answers = malloc(sizeof(double) * images), weights = malloc(sizeof(double *) * images);
    for (int k = 0; k < images; k++) {
        weights[k] = vector();
        show(k, 0, 0);
        for (int done = 0; done < SWEEPS; done++) sweep();
#pragma omp parallel for schedule(static)
        for (long i = 0; i < n; i++) weights[k][i] = u[i] / (1 - D);
    }
    for (int run = 0; run < atoi(argv[2]); run++) {
        int recognized = 0;
        double start = omp_get_wtime();
        for (int shown = 0; shown < STEPS; shown++) {
            int which = (shown * 7 + 3) % images;
            show(which, NOISE, shown);
            for (int done = 0; done < SWEEPS; done++) sweep();
            int best = best_answer();
            double likeness = alike(best);
            recognized += best == which && likeness >= VIGILANCE;
        }
        double seconds = omp_get_wtime() - start;
        printf("%.6f %s\n", seconds, recognized == STEPS ? "true" : "false");
    }
    return 0;
}

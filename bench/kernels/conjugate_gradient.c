/* The kernel conjugate_gradient (NPB CG, RNR-94-007) in C with OpenMP, to compare with ours: bench/kernels-vs-c. Own code.
 *
 * gcc -O3 -march=native -fopenmp conjugate_gradient.c -lm; ./a.out CLASS RUNS
 * Prints for each run its seconds and whether zeta is NPB's. */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

struct problem { char class; int order, nonzeros, steps; double shift, zeta; };
static const struct problem PROBLEMS[] = {
    {'S', 1400, 7, 15, 10, 8.5971775078648},       {'W', 7000, 8, 15, 12, 10.362595087124},
    {'A', 14000, 11, 15, 20, 17.130235054029},     {'B', 75000, 13, 75, 60, 22.712745482631},
    {'C', 150000, 15, 75, 110, 28.973605592845},
};

struct element { int column; double value; };

static int n;
static int *starts, *columns;
static double *values, *x, *z, *p, *q, *r;

static int by_column(const void *a, const void *b) {
    return ((const struct element *)a)->column - ((const struct element *)b)->column;
}

/* The weighted sum of the outer products of random sparse vectors with themselves. */
static void make_matrix(const struct problem *problem) {
    int most = problem->nonzeros + 1, places = 1;
    while (places < n) places *= 2;
    struct element *vectors = malloc(sizeof *vectors * (size_t)n * most);
    int *lengths = malloc(sizeof(int) * n), *counts = calloc(n + 1, sizeof(int));
    uint64_t seed = 314159265;
    next_random(&seed);
    for (int i = 0; i < n; i++) {
        struct element *v = vectors + (size_t)i * most;
        int length = 0;
        while (length < problem->nonzeros) {
            double value = next_random(&seed);
            int place = (int)(places * next_random(&seed)), known = place >= n;
            for (int k = 0; k < length; k++) known |= v[k].column == place;
            if (!known) v[length++] = (struct element){place, value};
        }
        int own = 0;
        while (own < length && v[own].column != i) own++;
        if (own == length) length++;
        v[own] = (struct element){i, 0.5};
        lengths[i] = length;
        for (int k = 0; k < length; k++) counts[v[k].column + 1]++;
    }
    for (int i = 0; i < n; i++) counts[i + 1] += counts[i];
    int *of_row = malloc(sizeof(int) * counts[n]), *filled = calloc(n, sizeof(int));
    for (int i = 0; i < n; i++)
        for (int k = 0; k < lengths[i]; k++) {
            int row = vectors[(size_t)i * most + k].column;
            of_row[counts[row] + filled[row]++] = i;
        }
    size_t room = 0;
    for (int i = 0; i < counts[n]; i++) room += lengths[of_row[i]];
    starts = malloc(sizeof(int) * (n + 1));
    struct element *row = malloc(sizeof *row * (n + 1) * 2), *all = malloc(sizeof *all * (room + n));
    double weight = pow(0.1, 1.0 / n);
    int end = 0;
    for (int j = 0; j < n; j++) {
        int length = 0;
        row[length++] = (struct element){j, 0.1 - problem->shift};
        for (int k = counts[j]; k < counts[j + 1]; k++) {
            int i = of_row[k];
            struct element *v = vectors + (size_t)i * most;
            double here = 0;
            for (int m = 0; m < lengths[i]; m++) if (v[m].column == j) here = v[m].value;
            double scale = pow(weight, i) * here;
            for (int m = 0; m < lengths[i]; m++) row[length++] = (struct element){v[m].column, scale * v[m].value};
        }
        qsort(row, length, sizeof *row, by_column);
        starts[j] = end;
        for (int k = 0; k < length; k++)
            if (k && row[k].column == all[end - 1].column) all[end - 1].value += row[k].value;
            else all[end++] = row[k];
    }
    starts[n] = end;
    columns = malloc(sizeof(int) * end);
    values = malloc(sizeof(double) * end);
    /* First touched as it is used. */
#pragma omp parallel for schedule(static)
    for (int j = 0; j < n; j++)
        for (int k = starts[j]; k < starts[j + 1]; k++) columns[k] = all[k].column, values[k] = all[k].value;
    free(vectors), free(lengths), free(counts), free(of_row), free(filled), free(row), free(all);
}

/* Solves A z = x. */
static void solve(void) {
    static double rho, pq, next;
#pragma omp parallel
    {
#pragma omp single
        rho = 0;
#pragma omp for schedule(static) reduction(+ : rho)
        for (int j = 0; j < n; j++) {
            z[j] = 0, p[j] = r[j] = x[j];
            rho += x[j] * x[j];
        }
        for (int iteration = 0; iteration < 25; iteration++) {
#pragma omp single
            pq = next = 0;
#pragma omp for schedule(static) reduction(+ : pq)
            for (int j = 0; j < n; j++) {
                double sum = 0;
                for (int k = starts[j]; k < starts[j + 1]; k++) sum += values[k] * p[columns[k]];
                q[j] = sum;
                pq += sum * p[j];
            }
            double alpha = rho / pq;
#pragma omp for schedule(static) reduction(+ : next)
            for (int j = 0; j < n; j++) {
                z[j] += alpha * p[j];
                r[j] -= alpha * q[j];
                next += r[j] * r[j];
            }
            double beta = next / rho;
#pragma omp for schedule(static)
            for (int j = 0; j < n; j++) p[j] = r[j] + beta * p[j];
#pragma omp single
            rho = next;
        }
    }
}

int main(int argc, char **argv) {
    const struct problem *problem = NULL;
    for (size_t k = 0; argc == 3 && k < sizeof PROBLEMS / sizeof *PROBLEMS; k++)
        if (PROBLEMS[k].class == argv[1][0]) problem = PROBLEMS + k;
    if (!problem) return fprintf(stderr, "usage: conjugate_gradient CLASS RUNS\n"), 2;
    n = problem->order;
    make_matrix(problem);
    double **vectors[] = {&x, &z, &p, &q, &r};
    for (int k = 0; k < 5; k++) {
        double *vector = *vectors[k] = malloc(sizeof(double) * n);
#pragma omp parallel for schedule(static)
        for (int j = 0; j < n; j++) vector[j] = 0;
    }
    for (int run = 0; run < atoi(argv[2]); run++) {
        for (int j = 0; j < n; j++) x[j] = 1;
        double zeta = 0, start = omp_get_wtime();
        for (int step = 0; step < problem->steps; step++) {
            solve();
            double xz = 0, zz = 0;
#pragma omp parallel for schedule(static) reduction(+ : xz, zz)
            for (int j = 0; j < n; j++) xz += x[j] * z[j], zz += z[j] * z[j];
            zeta = problem->shift + 1 / xz;
            double scale = 1 / sqrt(zz);
#pragma omp parallel for schedule(static)
            for (int j = 0; j < n; j++) x[j] = scale * z[j];
        }
        double seconds = omp_get_wtime() - start;
        printf("%.6f %s\n", seconds, fabs(zeta / problem->zeta - 1) <= 1e-10 ? "true" : "false");
    }
    return 0;
}

/* The kernel barotropic (conjugate gradients in the form of Chronopoulos and Gear on an ocean's surface) in C with OpenMP, to compare with
 * ours: bench/kernels-vs-c. Own code.
 *
 * gcc -O3 -march=native -fopenmp barotropic.c -lm; ./a.out CLASS RUNS
 * Prints for each run its seconds and whether the surface is the known one, within 1e-10. */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

static const double PI = 3.14159265358979323846, INERTIA = 0.1, SMALL = 1e-12;
enum { MOST_ITERATIONS = 1000 };

static long columns, rows, line;
static double *east, *north, *diagonal, *inverse;
static double *surface, *right, *r, *scaled, *product, *s, *p;

static double depth(double x, double y) {
    x *= 2 * PI / columns, y *= 2 * PI / rows;
    return 1 + 0.25 * sin(2 * x) * cos(y) + 0.2 * cos(5 * x + 3 * y);
}

/* The surface of a step; a column of land stands at each end of a row. */
static double known(int step, long x, long y) {
    if (x == 0 || x > columns) return 0;
    double a = 2 * PI * x / columns, b = 2 * PI * y / rows;
    return sin(3 * a + step) * cos(2 * b) + 0.5 * cos(11 * a) * sin(7 * b + step);
}

static void make_coefficients(void) {
#pragma omp parallel
    {
#pragma omp for schedule(static)
        for (long y = 0; y < rows; y++)
            for (long x = 0; x < line; x++) {
                east[y * line + x] = x == 0 || x >= columns ? 0 : depth(x + 0.5, y);
                north[y * line + x] = x == 0 || x > columns || y + 1 == rows ? 0 : depth(x, y + 0.5);
            }
#pragma omp for schedule(static)
        for (long y = 0; y < rows; y++)
            for (long x = 0; x < line; x++) {
                long at = y * line + x;
                int land = x == 0 || x > columns;
                diagonal[at] = land ? 0 : INERTIA + east[at] + east[at - 1] + north[at] + (y ? north[at - line] : 0);
                inverse[at] = land ? 0 : 1 / diagonal[at];
            }
    }
}

/* A row of to = A x. */
static inline void apply(const double *x, double *restrict to, long y) {
    long here = y * line, below = y ? here - line : here, above = y + 1 < rows ? here + line : here;
    double has_below = y ? 1 : 0;
    for (long j = 1; j <= columns; j++)
        to[here + j] = diagonal[here + j] * x[here + j] - east[here + j] * x[here + j + 1] -
                       east[here + j - 1] * x[here + j - 1] - north[here + j] * x[above + j] -
                       has_below * north[below + j] * x[below + j];
}

/* Begins with the surface of the step before; whether it was solved. */
static int solve(void) {
    static double limit, rho, delta, residual;
    static int solved;
    limit = solved = 0;
#pragma omp parallel
    {
        double rho_before = INFINITY, sigma = 0;
#pragma omp for schedule(static) reduction(+ : limit)
        for (long y = 0; y < rows; y++) {
            apply(surface, product, y);
#pragma omp simd reduction(+ : limit)
            for (long at = y * line; at < (y + 1) * line; at++) {
                r[at] = right[at] - product[at];
                scaled[at] = inverse[at] * r[at];
                s[at] = p[at] = 0;
                limit += right[at] * right[at];
            }
        }
        for (int iteration = 0; iteration < MOST_ITERATIONS; iteration++) {
#pragma omp single
            rho = delta = residual = 0;
#pragma omp for schedule(static) reduction(+ : rho, delta, residual)
            for (long y = 0; y < rows; y++) {
                apply(scaled, product, y);
#pragma omp simd reduction(+ : rho, delta, residual)
                for (long at = y * line; at < (y + 1) * line; at++) {
                    rho += r[at] * scaled[at];
                    delta += product[at] * scaled[at];
                    residual += r[at] * r[at];
                }
            }
            if (residual <= limit * SMALL * SMALL) {
#pragma omp single
                solved = 1;
                break;
            }
            double beta = rho / rho_before;
            sigma = delta - beta * beta * sigma;
            double alpha = rho / sigma;
            rho_before = rho;
#pragma omp for schedule(static)
            for (long y = 0; y < rows; y++)
#pragma omp simd
                for (long at = y * line; at < (y + 1) * line; at++) {
                    s[at] = scaled[at] + beta * s[at];
                    p[at] = product[at] + beta * p[at];
                    surface[at] += alpha * s[at];
                    r[at] -= alpha * p[at];
                    scaled[at] = inverse[at] * r[at];
                }
        }
    }
    return solved;
}

int main(int argc, char **argv) {
    static const struct { char class; int columns, rows, steps; } CLASSES[] = {
        {'S', 100, 116, 2}, {'W', 320, 384, 10}, {'A', 900, 600, 10}, {'B', 1800, 1200, 10}, {'C', 3600, 2400, 10},
    };
    int steps = 0;
    for (size_t k = 0; argc == 3 && k < sizeof CLASSES / sizeof *CLASSES; k++)
        if (CLASSES[k].class == argv[1][0]) columns = CLASSES[k].columns, rows = CLASSES[k].rows, steps = CLASSES[k].steps;
    if (!steps) return fprintf(stderr, "usage: barotropic CLASS RUNS\n"), 2;
    line = columns + 2;
    double **arrays[] = {&east, &north, &diagonal, &inverse, &surface, &right, &r, &scaled, &product, &s, &p};
    for (size_t k = 0; k < sizeof arrays / sizeof *arrays; k++) {
        double *array = *arrays[k] = malloc(sizeof(double) * rows * line);
#pragma omp parallel for schedule(static)
        for (long y = 0; y < rows; y++)
            for (long x = 0; x < line; x++) array[y * line + x] = 0;
    }
    make_coefficients();
    for (int run = 0; run < atoi(argv[2]); run++) {
#pragma omp parallel for schedule(static)
        for (long y = 0; y < rows; y++)
            for (long x = 0; x < line; x++) surface[y * line + x] = 0;
        int solved = 1;
        double start = omp_get_wtime();
        for (int step = 0; step < steps; step++) {
#pragma omp parallel
            {
#pragma omp for schedule(static)
                for (long y = 0; y < rows; y++)
                    for (long x = 0; x < line; x++) s[y * line + x] = known(step, x, y);
#pragma omp for schedule(static)
                for (long y = 0; y < rows; y++) apply(s, right, y);
            }
            solved &= solve();
        }
        double seconds = omp_get_wtime() - start, worst = 0;
        for (long y = 0; y < rows; y++)
            for (long x = 0; x < line; x++) {
                double error = fabs(surface[y * line + x] - known(steps - 1, x, y));
                if (!(error <= worst)) worst = error;
            }
        printf("%.6f %s\n", seconds, solved && worst <= 1e-10 ? "true" : "false");
    }
    return 0;
}

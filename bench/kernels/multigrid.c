/* The kernel multigrid (NPB MG, RNR-94-007) in C with OpenMP, to compare with ours: bench/kernels-vs-c. Own code.
 *
 * gcc -O3 -march=native -fopenmp multigrid.c -lm; ./a.out CLASS RUNS
 * Prints for each run its seconds and whether the residual's norm is NPB's. */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

#define MOST_LEVELS 9
#define LONGEST ((1 << MOST_LEVELS) + 2)

struct problem { char class; int levels, steps, large; double norm; };
static const struct problem PROBLEMS[] = {
    {'S', 5, 4, 0, 0.5307707005734e-4},  {'W', 7, 4, 0, 0.6467329375339e-5}, {'A', 8, 4, 0, 0.2433365309069e-5},
    {'B', 8, 20, 1, 0.1800564401355e-5}, {'C', 9, 20, 1, 0.5706732285740e-6},
};
static const double OPERATOR[4] = {-8.0 / 3, 0, 1.0 / 6, 1.0 / 12};
static const double SMALL[4] = {-3.0 / 8, 1.0 / 32, -1.0 / 64, 0}, LARGE[4] = {-3.0 / 17, 1.0 / 33, -1.0 / 61, 0};

/* Planes of (n + 2) x (n + 2) points with a border that repeats the opposite side; planes themselves have none. */
struct grid { int n; double *points; };

static double *plane(const struct grid *g, int at) {
    return g->points + (size_t)((at + g->n) % g->n) * (g->n + 2) * (g->n + 2);
}

static void clear(struct grid *g) {
    size_t size = (size_t)(g->n + 2) * (g->n + 2);
#pragma omp parallel for schedule(static) if (g->n > 8)
    for (int at = 0; at < g->n; at++) memset(plane(g, at), 0, sizeof(double) * size);
}

static struct grid make(int n) {
    struct grid g = {n, malloc(sizeof(double) * n * (n + 2) * (n + 2))};
    clear(&g);
    return g;
}

static inline void wrap_row(double *row, int n) { row[0] = row[n], row[n + 1] = row[1]; }

static inline void wrap_rows(double *p, int n) {
    size_t line = n + 2;
    memcpy(p, p + n * line, sizeof(double) * line);
    memcpy(p + (n + 1) * line, p + line, sizeof(double) * line);
}

/* Of each column around a row: the sum of its four faces, and of its four edges. */
static inline void sums(const double *before, const double *here, const double *behind, int row, int line,
                        double *restrict faces, double *restrict edges) {
    size_t at = (size_t)row * line;
    const double *a = before + at, *h = here + at, *b = behind + at;
    for (int i = 0; i < line; i++) {
        faces[i] = h[i - line] + h[i + line] + a[i] + b[i];
        edges[i] = a[i - line] + a[i + line] + b[i - line] + b[i + line];
    }
}

/* r = v - A u, or r -= A u without v. */
static void residual(struct grid *r, const struct grid *v, const struct grid *u) {
    const double *a = OPERATOR;
    int n = r->n, line = n + 2;
#pragma omp parallel for schedule(static) if (n > 8)
    for (int at = 0; at < n; at++) {
        double faces[LONGEST], edges[LONGEST];
        const double *before = plane(u, at - 1), *here = plane(u, at), *behind = plane(u, at + 1);
        double *p = plane(r, at);
        const double *from = v ? plane(v, at) : p;
        for (int row = 1; row <= n; row++) {
            sums(before, here, behind, row, line, faces, edges);
            double *to = p + (size_t)row * line;
            const double *x = here + (size_t)row * line, *f = from + (size_t)row * line;
#pragma omp simd
            for (int i = 1; i <= n; i++)
                to[i] = f[i] - a[0] * x[i] - a[2] * (edges[i] + faces[i - 1] + faces[i + 1]) - a[3] * (edges[i - 1] + edges[i + 1]);
            wrap_row(to, n);
        }
        wrap_rows(p, n);
    }
}

/* u += S r. */
static void smooth(struct grid *u, const struct grid *r, const double *s) {
    int n = u->n, line = n + 2;
#pragma omp parallel for schedule(static) if (n > 8)
    for (int at = 0; at < n; at++) {
        double faces[LONGEST], edges[LONGEST];
        const double *before = plane(r, at - 1), *here = plane(r, at), *behind = plane(r, at + 1);
        double *p = plane(u, at);
        for (int row = 1; row <= n; row++) {
            sums(before, here, behind, row, line, faces, edges);
            double *restrict to = p + (size_t)row * line;
            const double *x = here + (size_t)row * line;
            for (int i = 1; i <= n; i++)
                to[i] += s[0] * x[i] + s[1] * (x[i - 1] + x[i + 1] + faces[i]) + s[2] * (edges[i] + faces[i - 1] + faces[i + 1]);
            wrap_row(to, n);
        }
        wrap_rows(p, n);
    }
}

/* Weighted means of a grid twice as fine: 1/2, 1/4, 1/8, 1/16 by distance. */
static void restrict_grid(struct grid *coarse, const struct grid *fine) {
    int n = coarse->n, line = 2 * n + 2;
#pragma omp parallel for schedule(static) if (n > 8)
    for (int at = 0; at < n; at++) {
        double faces[LONGEST], edges[LONGEST];
        const double *before = plane(fine, 2 * at), *here = plane(fine, 2 * at + 1), *behind = plane(fine, 2 * at + 2);
        double *p = plane(coarse, at);
        for (int row = 1; row <= n; row++) {
            sums(before, here, behind, 2 * row, line, faces, edges);
            double *restrict to = p + (size_t)row * (n + 2);
            const double *x = here + (size_t)2 * row * line;
            for (int i = 1; i <= n; i++)
                to[i] = 0.5 * x[2 * i] + 0.25 * (x[2 * i - 1] + x[2 * i + 1] + faces[2 * i]) +
                        0.125 * (faces[2 * i - 1] + faces[2 * i + 1] + edges[2 * i]) + 0.0625 * (edges[2 * i - 1] + edges[2 * i + 1]);
            wrap_row(to, n);
        }
        wrap_rows(p, n);
    }
}

/* Adds a grid half as fine, trilinearly interpolated. */
static void interpolate(struct grid *fine, const struct grid *coarse) {
    int half = coarse->n, line = half + 2, fine_line = 2 * half + 2;
#pragma omp parallel for schedule(static) if (2 * half > 8)
    for (int at = 0; at < 2 * half; at++) {
        double rows[2][LONGEST];
        const double *here = plane(coarse, at / 2), *other = at % 2 ? here : plane(coarse, at / 2 - 1);
        double *p = plane(fine, at);
        for (int row = 0; row <= half + 1; row++) {
            double *restrict b = rows[row % 2], *restrict a = rows[(row + 1) % 2];
            for (int i = 0; i < line; i++) b[i] = 0.5 * (here[row * line + i] + other[row * line + i]);
            if (row == 0) continue;
            double *restrict upper = p + (size_t)(2 * row - 2) * fine_line, *restrict lower = upper + fine_line;
            for (int i = 0; i <= half; i++) {
                upper[2 * i] += a[i];
                upper[2 * i + 1] += 0.5 * (a[i] + a[i + 1]);
                lower[2 * i] += 0.5 * (a[i] + b[i]);
                lower[2 * i + 1] += 0.25 * (a[i] + a[i + 1] + b[i] + b[i + 1]);
            }
        }
    }
}

/* The ten points that draw the largest numbers get 1, the ten smallest -1. */
static void place_charge(struct grid *v) {
    struct drawn { double number; size_t point; } best[2][10];
    int n = v->n, count[2] = {0, 0};
    uint64_t seed = 314159265;
    for (size_t point = 0; point < (size_t)n * n * n; point++) {
        double number = next_random(&seed);
        for (int sign = 0; sign < 2; sign++) {
            struct drawn *b = best[sign];
            double better = sign ? number : -number;
            int at = count[sign];
            while (at > 0 && better > (sign ? b[at - 1].number : -b[at - 1].number)) at--;
            if (at == 10) continue;
            if (count[sign] < 10) count[sign]++;
            memmove(b + at + 1, b + at, sizeof *b * (count[sign] - 1 - at));
            b[at] = (struct drawn){number, point};
        }
    }
    for (int sign = 0; sign < 2; sign++)
        for (int k = 0; k < 10; k++) {
            size_t point = best[sign][k].point;
            plane(v, point / ((size_t)n * n))[(point / n % n + 1) * (n + 2) + point % n + 1] = sign ? 1 : -1;
        }
    for (int at = 0; at < n; at++) {
        for (int row = 1; row <= n; row++) wrap_row(plane(v, at) + (size_t)row * (n + 2), n);
        wrap_rows(plane(v, at), n);
    }
}

static double norm(const struct grid *r) {
    double sum = 0;
    int n = r->n;
#pragma omp parallel for schedule(static) reduction(+ : sum)
    for (int at = 0; at < n; at++)
        for (int row = 1; row <= n; row++)
            for (int i = 1; i <= n; i++) sum += pow(plane(r, at)[(size_t)row * (n + 2) + i], 2);
    return sqrt(sum / n / n / n);
}

int main(int argc, char **argv) {
    const struct problem *problem = NULL;
    for (size_t k = 0; argc == 3 && k < sizeof PROBLEMS / sizeof *PROBLEMS; k++)
        if (PROBLEMS[k].class == argv[1][0]) problem = PROBLEMS + k;
    if (!problem) return fprintf(stderr, "usage: multigrid CLASS RUNS\n"), 2;
    const double *smoother = problem->large ? LARGE : SMALL;
    int finest = problem->levels - 1;
    struct grid u[MOST_LEVELS], r[MOST_LEVELS], v = make(1 << problem->levels);
    for (int level = 0; level <= finest; level++) u[level] = make(2 << level), r[level] = make(2 << level);
    place_charge(&v);
    for (int run = 0; run < atoi(argv[2]); run++) {
        clear(&u[finest]);
        residual(&r[finest], &v, &u[finest]);
        double start = omp_get_wtime();
        for (int step = 0; step < problem->steps; step++) {
            for (int level = finest; level > 0; level--) restrict_grid(&r[level - 1], &r[level]);
            clear(&u[0]);
            smooth(&u[0], &r[0], smoother);
            for (int level = 1; level < finest; level++) {
                clear(&u[level]);
                interpolate(&u[level], &u[level - 1]);
                residual(&r[level], NULL, &u[level]);
                smooth(&u[level], &r[level], smoother);
            }
            interpolate(&u[finest], &u[finest - 1]);
            residual(&r[finest], &v, &u[finest]);
            smooth(&u[finest], &r[finest], smoother);
            residual(&r[finest], &v, &u[finest]);
        }
        double seconds = omp_get_wtime() - start;
        printf("%.6f %s\n", seconds, fabs(norm(&r[finest]) / problem->norm - 1) <= 1e-8 ? "true" : "false");
    }
    return 0;
}

/* The kernel shallow_water (Sadourny's scheme, 14 arrays) in C with OpenMP, to compare with ours: bench/kernels-vs-c. Own code.
 *
 * gcc -O3 -march=native -fopenmp shallow_water.c -lm; ./a.out CLASS RUNS
 * Prints for each run its seconds and whether the mass is the same as at the start, within 1e-12. */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#define STEPS 100
static const double DX = 1e5, DY = 1e5, DT = 90, A = 1e6, ALPHA = 0.001, WAVE = 1e-3, MEAN = 5e4;
static const double PI = 3.14159265358979323846;

static long n, line;
enum { U, V, P, U_NEW, V_NEW, P_NEW, U_OLD, V_OLD, P_OLD, CU, CV, Z, H, PSI, ARRAYS };
static double *a[ARRAYS];

/* Row i of an array, which may be one turn too large; column j stands at j + 1. */
static inline double *row(int array, long i) { return a[array] + (i >= n ? i - n : i) * line; }

static inline void wrap(double *row) {
    row[0] = row[n];
    row[n + 1] = row[1];
}

static void reset(void) {
    double angle = 2 * PI / n, length = n * DX, pressure = PI * PI * A * A / (length * length);
    double turn = 2 * PI * (n / 8) / n;
#pragma omp parallel
    {
#pragma omp for schedule(static)
        for (long i = 0; i < n; i++) {
            double *psi = row(PSI, i);
            for (long j = 0; j < n; j++) psi[j + 1] = A * sin((i + 0.5) * angle) * sin((j + 0.5) * angle);
            wrap(psi);
        }
#pragma omp for schedule(static)
        for (long i = 0; i < n; i++) {
            double *psi = row(PSI, i), *before = row(PSI, i + n - 1);
            double *u = row(U, i), *v = row(V, i), *p = row(P, i), mean = MEAN * (1 + WAVE * cos(turn * i));
            for (long j = 0; j < n; j++) {
                p[j + 1] = mean + pressure * (cos(2 * i * angle) + cos(2 * j * angle));
                u[j + 1] = -(psi[j + 1] - psi[j]) / DY;
                v[j + 1] = (psi[j + 1] - before[j + 1]) / DX;
            }
            wrap(u), wrap(v), wrap(p);
            for (long j = 0; j < line; j++) row(U_OLD, i)[j] = u[j], row(V_OLD, i)[j] = v[j], row(P_OLD, i)[j] = p[j];
        }
    }
}

static void step(int first) {
    double seconds = first ? DT : 2 * DT, alpha = first ? 0 : ALPHA;
    double four_over_dx = 4 / DX, four_over_dy = 4 / DY, eighth = seconds / 8, by_dx = seconds / DX, by_dy = seconds / DY;
#pragma omp parallel
    {
#pragma omp for schedule(static)
        for (long i = 0; i < n; i++) {
            const double *p_before = row(P, i + n - 1), *v_before = row(V, i + n - 1), *u_next = row(U, i + 1);
            const double *u = row(U, i), *v = row(V, i), *p = row(P, i);
            double *restrict cu = row(CU, i), *restrict cv = row(CV, i), *restrict z = row(Z, i), *restrict h = row(H, i);
            for (long j = 1; j <= n; j++) {
                cu[j] = 0.5 * (p[j] + p_before[j]) * u[j];
                cv[j] = 0.5 * (p[j] + p[j - 1]) * v[j];
                z[j] = (four_over_dx * (v[j] - v_before[j]) - four_over_dy * (u[j] - u[j - 1])) /
                       (p_before[j - 1] + p[j - 1] + p[j] + p_before[j]);
                h[j] = p[j] + 0.25 * (u_next[j] * u_next[j] + u[j] * u[j] + v[j + 1] * v[j + 1] + v[j] * v[j]);
            }
            wrap(cu), wrap(cv), wrap(z), wrap(h);
        }
#pragma omp for schedule(static)
        for (long i = 0; i < n; i++) {
            const double *cv_before = row(CV, i + n - 1), *h_before = row(H, i + n - 1);
            const double *cu_next = row(CU, i + 1), *z_next = row(Z, i + 1);
            const double *cu = row(CU, i), *cv = row(CV, i), *z = row(Z, i), *h = row(H, i);
            const double *u_old = row(U_OLD, i), *v_old = row(V_OLD, i), *p_old = row(P_OLD, i);
            double *restrict u = row(U_NEW, i), *restrict v = row(V_NEW, i), *restrict p = row(P_NEW, i);
            for (long j = 1; j <= n; j++) {
                u[j] = u_old[j] + eighth * (z[j + 1] + z[j]) * (cv[j + 1] + cv_before[j + 1] + cv_before[j] + cv[j]) -
                       by_dx * (h[j] - h_before[j]);
                v[j] = v_old[j] - eighth * (z_next[j] + z[j]) * (cu_next[j] + cu[j] + cu[j - 1] + cu_next[j - 1]) -
                       by_dy * (h[j] - h[j - 1]);
                p[j] = p_old[j] - by_dx * (cu_next[j] - cu[j]) - by_dy * (cv[j + 1] - cv[j]);
            }
            wrap(u), wrap(v), wrap(p);
        }
#pragma omp for schedule(static)
        for (long i = 0; i < n; i++)
            for (int field = U; field <= P; field++) {
                double *restrict now = row(field, i), *restrict old = row(U_OLD + field, i);
                const double *restrict new = row(U_NEW + field, i);
                for (long j = 0; j < line; j++) {
                    old[j] = now[j] + alpha * (new[j] - 2 * now[j] + old[j]);
                    now[j] = new[j];
                }
            }
    }
}

static double mass(void) {
    double sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum)
    for (long i = 0; i < n; i++) {
        double of_row = 0;
        for (long j = 1; j <= n; j++) of_row += row(P, i)[j];
        sum += of_row;
    }
    return sum;
}

int main(int argc, char **argv) {
    char class = argc == 3 ? argv[1][0] : 0;
    n = class == 'S' ? 64 : class == 'W' ? 512 : class == 'A' ? 1334 : class == 'B' ? 3802 : class == 'C' ? 7702 : 0;
    if (!n) return fprintf(stderr, "usage: shallow_water CLASS RUNS\n"), 2;
    line = n + 2;
    for (int array = 0; array < ARRAYS; array++) {
        double *values = a[array] = malloc(sizeof(double) * n * line);
#pragma omp parallel for schedule(static)
        for (long i = 0; i < n; i++)
            for (long j = 0; j < line; j++) values[i * line + j] = 0;
    }
    for (int run = 0; run < atoi(argv[2]); run++) {
        reset();
        double before = mass(), start = omp_get_wtime();
        for (int done = 0; done < STEPS; done++) step(done == 0);
        double seconds = omp_get_wtime() - start;
        printf("%.6f %s\n", seconds, fabs(mass() / before - 1) <= 1e-12 ? "true" : "false");
    }
    return 0;
}

/* The kernel ssor_wavefront (NPB LU, RNR-94-007) in C with OpenMP, to compare with ours: bench/kernels-vs-c. Own code.
 *
 * gcc -O3 -march=native -fopenmp ssor_wavefront.c -lm; ./a.out CLASS RUNS
 * Prints for each run its seconds and whether residuals, errors and the surface integral are NPB's. Products of the Jacobians with vectors
 * are computed, not the matrices. */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double GAMMA = 1.4, C2 = 0.4, VISCOSITY = 0.1, CONDUCTION = 1.4 * 0.1 * 1.4, DISSIPATION = 0.25, OMEGA = 1.2;
static const double DIFFUSION[3] = {0.75, 0.75, 1};
/* Of the steady solution, the coefficients of 1, x, y, z, x^2, ... z^4 for each value. */
static const double SOLUTION[5][13] = {
    {2, 0, 0, 4, 5, 3, 0.5, 0.02, 0.01, 0.03, 0.5, 0.4, 0.3}, {1, 0, 0, 0, 1, 2, 3, 0.01, 0.03, 0.02, 0.4, 0.3, 0.5},
    {2, 2, 0, 0, 0, 2, 3, 0.04, 0.03, 0.05, 0.3, 0.5, 0.4},   {2, 2, 0, 0, 0, 2, 3, 0.03, 0.05, 0.04, 0.2, 0.1, 0.3},
    {5, 4, 3, 2, 0.1, 0.4, 0.3, 0.05, 0.04, 0.03, 0.1, 0.3, 0.2},
};

static const struct problem { char class; long n; int steps; double dt, residuals[5], errors[5], surface; } PROBLEMS[] = {
    {'S', 12, 50, 0.5,
     {1.6196343210976702e-2, 2.1976745164821318e-3, 1.5179927653399185e-3, 1.5029584435994323e-3, 3.4264073155896461e-2},
     {6.4223319957960924e-4, 8.4144342047347926e-5, 5.8588269616485186e-5, 5.8474222595157350e-5, 1.3103347914111294e-3},
     7.8418928865937083},
    {'W', 33, 300, 1.5e-3,
     {12.36511638192, 1.317228477799, 2.550120713095, 2.326187750252, 28.26799444189},
     {0.4867877144216, 0.05064652880982, 0.0928181810196, 0.08570126542733, 1.084277417792},
     11.61399311023},
    {'A', 64, 250, 2,
     {7.7902107606689367e2, 6.3402765259692870e1, 1.9499249727292479e2, 1.7845301160418537e2, 1.8384760349464247e3},
     {2.9964085685471943e1, 2.8194576365003349, 7.3473412698774742, 6.7139225687777051, 7.0715315688392578e1},
     2.6030925604886277e1},
};

typedef double state[5];
#define ALWAYS static inline __attribute__((always_inline))

static long n, stride[3];
static double dt;
static state *u, *forcing, *change;

static void solution(const long *place, double *to) {
    for (int m = 0; m < 5; m++) {
        const double *c = SOLUTION[m];
        to[m] = c[0];
        for (int axis = 0; axis < 3; axis++) {
            double x = place[axis] / (n - 1.0);
            to[m] += x * (c[1 + axis] + x * (c[4 + axis] + x * (c[7 + axis] + x * c[10 + axis])));
        }
    }
}

static int is_inside(const long *place) {
    int inside = 1;
    for (int axis = 0; axis < 3; axis++) inside &= place[axis] > 0 && place[axis] < n - 1;
    return inside;
}

/* The steady solution on the faces, and inside what these imply. */
static void start_value(const long *place, double *to) {
    if (!is_inside(place)) {
        solution(place, to);
        return;
    }
    state between[3];
    for (int axis = 0; axis < 3; axis++) {
        long face[3] = {place[0], place[1], place[2]};
        state low, high;
        face[axis] = 0, solution(face, low);
        face[axis] = n - 1, solution(face, high);
        double share = place[axis] / (n - 1.0);
        for (int m = 0; m < 5; m++) between[axis][m] = (1 - share) * low[m] + share * high[m];
    }
    for (int m = 0; m < 5; m++) {
        double x = between[0][m], y = between[1][m], z = between[2][m];
        to[m] = x + y + z - x * y - y * z - z * x + x * y * z;
    }
}

ALWAYS double kinetic(const double *u) { return 0.5 * (u[1] * u[1] + u[2] * u[2] + u[3] * u[3]) / u[0]; }

static double pressure(const double *u) { return C2 * (u[4] - kinetic(u)); }

ALWAYS void inviscid(const double *u, int axis, double *flux) {
    double speed = u[1 + axis] / u[0], energy = kinetic(u);
    flux[0] = u[1 + axis];
    for (int m = 1; m < 4; m++) flux[m] = u[m] * speed;
    flux[4] = (GAMMA * u[4] - C2 * energy) * speed;
    flux[1 + axis] += C2 * (u[4] - energy);
}

/* Between two neighbours, without the factors 1 / dx. */
ALWAYS void viscous(const double *below, const double *above, int axis, double *flux) {
    double a[4], b[4], by_a = 1 / above[0], by_b = 1 / below[0];
    for (int k = 0; k < 4; k++) a[k] = above[k + 1] * by_a, b[k] = below[k + 1] * by_b;
    flux[0] = 0;
    for (int k = 0; k < 3; k++) flux[k + 1] = VISCOSITY * (k == axis ? 4.0 / 3 : 1) * (a[k] - b[k]);
    flux[4] = VISCOSITY * (0.5 * (1 - GAMMA * GAMMA) * (a[0] * a[0] + a[1] * a[1] + a[2] * a[2] - b[0] * b[0] - b[1] * b[1] - b[2] * b[2]) +
                           (a[axis] * a[axis] - b[axis] * b[axis]) / 6 + GAMMA * GAMMA * (a[3] - b[3]));
}

ALWAYS void along(int axis, long at, const state *u, double *sum) {
    double per_step = n - 1;
    long by = stride[axis];
    const double *below = u[-by], *here = u[0], *above = u[by];
    state flux_below, flux_above, viscous_below, viscous_above;
    inviscid(below, axis, flux_below), inviscid(above, axis, flux_above);
    viscous(below, here, axis, viscous_below), viscous(here, above, axis, viscous_above);
    for (int m = 0; m < 5; m++)
        sum[m] += -0.5 * per_step * (flux_above[m] - flux_below[m]) + per_step * per_step * (viscous_above[m] - viscous_below[m]) +
                  DIFFUSION[axis] * per_step * per_step * (below[m] - 2 * here[m] + above[m]);
    /* One-sided beside the faces. */
    double centre = at == 1 || at == n - 2 ? 5 : 6;
    for (int m = 0; m < 5; m++) {
        double fourth = centre * here[m];
        if (at > 1) fourth -= 4 * below[m];
        if (at > 2) fourth += u[-2 * by][m];
        if (at < n - 2) fourth -= 4 * above[m];
        if (at < n - 3) fourth += u[2 * by][m];
        sum[m] -= DISSIPATION * fourth;
    }
}

/* change = R(u) - forcing; 0 on the faces. */
static void residual(void) {
#pragma omp parallel for schedule(static)
    for (long y = 0; y < n; y++)
        for (long z = 0; z < n; z++)
            for (long x = 0; x < n; x++) {
                long at = (y * n + z) * n + x;
                double *to = change[at];
                memset(to, 0, sizeof(state));
                if (!is_inside((long[]){x, y, z})) continue;
                state sum = {0};
                along(0, x, u + at, sum), along(1, y, u + at, sum), along(2, z, u + at, sum);
                for (int m = 0; m < 5; m++) to[m] = sum[m] - forcing[at][m];
            }
}

/* Adds the Jacobians along an axis, times the change of the neighbour there. */
ALWAYS void add_jacobians(int axis, const double *u, const double *d, double half, double square, double *sum) {
    double inverse = 1 / u[0], w[3] = {u[1] * inverse, u[2] * inverse, u[3] * inverse};
    double half_square = 0.5 * (w[0] * w[0] + w[1] * w[1] + w[2] * w[2]);
    double energy = w[0] * d[1] + w[1] * d[2] + w[2] * d[3] - half_square * d[0];
    double speed = (d[1 + axis] - w[axis] * d[0]) * inverse;
    state product, friction = {0};
    product[0] = d[1 + axis];
    for (int k = 0; k < 3; k++) {
        double relative = d[1 + k] - w[k] * d[0], viscosity = VISCOSITY * (k == axis ? 4.0 / 3 : 1);
        product[1 + k] = w[axis] * relative + w[k] * d[1 + axis];
        friction[1 + k] = viscosity * relative * inverse;
        friction[4] += (viscosity - CONDUCTION) * w[k] * relative * inverse;
    }
    product[4] = (GAMMA * d[4] - C2 * energy) * w[axis] + (GAMMA * u[4] - C2 * half_square * u[0]) * speed;
    product[1 + axis] += C2 * (d[4] - energy);
    friction[4] += CONDUCTION * (d[4] - u[4] * inverse * d[0]) * inverse;
    for (int m = 0; m < 5; m++) sum[m] += half * product[m] - square * (friction[m] + DIFFUSION[axis] * d[m]);
}

/* Solves the lower triangle of a point, with the factor 2 square along all axes. */
ALWAYS void solve_point(const double *u, double square, const double *b, double *x) {
    double inverse = 1 / u[0], sum = 6 * square, diagonal = 1 + 2 * square * (DIFFUSION[0] + DIFFUSION[1] + DIFFUSION[2]);
    double viscosity = VISCOSITY * (sum + 2 * square / 3);
    x[0] = b[0] / diagonal;
    double energy = b[4] + sum * CONDUCTION * u[4] * inverse * inverse * x[0];
    for (int k = 1; k < 4; k++) {
        double w = u[k] * inverse;
        x[k] = (b[k] + viscosity * inverse * w * x[0]) / (diagonal + viscosity * inverse);
        energy -= (viscosity - CONDUCTION * sum) * w * (x[k] - w * x[0]) * inverse;
    }
    x[4] = energy / (diagonal + sum * CONDUCTION * inverse);
}

/* A point of the sweep up (way 1) or down (way -1). */
ALWAYS void point(long at, int way) {
    double per_step = n - 1, square = dt * per_step * per_step, half = -way * 0.5 * dt * per_step;
    state sum = {0}, right;
    add_jacobians(0, u[at - way * stride[0]], change[at - way * stride[0]], half, square, sum);
    add_jacobians(1, u[at - way * stride[1]], change[at - way * stride[1]], half, square, sum);
    add_jacobians(2, u[at - way * stride[2]], change[at - way * stride[2]], half, square, sum);
    if (way > 0) {
        for (int m = 0; m < 5; m++) right[m] = change[at][m] - OMEGA * sum[m];
        solve_point(u[at], square, right, change[at]);
    } else {
        state part;
        for (int m = 0; m < 5; m++) right[m] = OMEGA * sum[m];
        solve_point(u[at], square, right, part);
        for (int m = 0; m < 5; m++) change[at][m] -= part[m];
    }
}

/* In each stage a thread does one plane of its places along y, one plane behind the thread before it. */
static void sweeps(void) {
#pragma omp parallel
    {
        long threads = omp_get_num_threads(), thread = omp_get_thread_num();
        long from = n * thread / threads, to = n * (thread + 1) / threads;
        if (from < 1) from = 1;
        if (to > n - 1) to = n - 1;
        for (long stage = 0; stage < n - 2 + threads - 1; stage++) {
            long z = 1 + stage - thread;
            if (z >= 1 && z < n - 1)
                for (long y = from; y < to; y++)
                    for (long x = 1; x < n - 1; x++) point((y * n + z) * n + x, 1);
#pragma omp barrier
        }
        for (long stage = 0; stage < n - 2 + threads - 1; stage++) {
            long z = n - 2 - (stage - (threads - 1 - thread));
            if (z >= 1 && z < n - 1)
                for (long y = to - 1; y >= from; y--)
                    for (long x = n - 2; x > 0; x--) point((y * n + z) * n + x, -1);
#pragma omp barrier
        }
    }
}

static void step(void) {
#pragma omp parallel for schedule(static)
    for (long y = 0; y < n; y++)
        for (long at = y * n * n; at < (y + 1) * n * n; at++)
            for (int m = 0; m < 5; m++) change[at][m] *= dt;
    sweeps();
    double factor = 1 / (OMEGA * (2 - OMEGA));
#pragma omp parallel for schedule(static)
    for (long y = 0; y < n; y++)
        for (long at = y * n * n; at < (y + 1) * n * n; at++)
            for (int m = 0; m < 5; m++) u[at][m] += factor * change[at][m];
    residual();
}

static void set(void (*value)(const long *, double *)) {
#pragma omp parallel for schedule(static)
    for (long y = 0; y < n; y++)
        for (long z = 0; z < n; z++)
            for (long x = 0; x < n; x++) value((long[]){x, y, z}, u[(y * n + z) * n + x]);
}

static int is_near(double value, double expected) { return fabs(value / expected - 1) <= 1e-8; }

static int verified(const struct problem *problem) {
    state errors = {0}, residuals = {0};
    for (long y = 1; y < n - 1; y++)
        for (long z = 1; z < n - 1; z++)
            for (long x = 1; x < n - 1; x++) {
                long at = (y * n + z) * n + x;
                state right;
                solution((long[]){x, y, z}, right);
                for (int m = 0; m < 5; m++) errors[m] += pow(right[m] - u[at][m], 2), residuals[m] += change[at][m] * change[at][m];
            }
    int right = 1;
    for (int m = 0; m < 5; m++) {
        right &= is_near(sqrt(errors[m] / pow(n - 2, 3)), problem->errors[m]);
        right &= is_near(sqrt(residuals[m] / pow(n - 2, 3)), problem->residuals[m]);
    }
    /* The integral of the pressure over the faces of a box inside, by the box's first and last points. */
    long ends[3][2] = {{1, n - 2}, {1, n - 3}, {2, n - 2}};
    double sum = 0;
    for (int axis = 0; axis < 3; axis++) {
        int one = (axis + 1) % 3, other = (axis + 2) % 3;
        for (int end = 0; end < 2; end++)
            for (long a = ends[one][0]; a < ends[one][1]; a++)
                for (long b = ends[other][0]; b < ends[other][1]; b++)
                    for (int corner = 0; corner < 4; corner++) {
                        long at = ends[axis][end] * stride[axis] + (a + corner / 2) * stride[one] + (b + corner % 2) * stride[other];
                        sum += pressure(u[at]);
                    }
    }
    return right && is_near(0.25 * sum / pow(n - 1, 2), problem->surface);
}

int main(int argc, char **argv) {
    const struct problem *problem = NULL;
    for (size_t k = 0; argc == 3 && k < sizeof PROBLEMS / sizeof *PROBLEMS; k++)
        if (PROBLEMS[k].class == argv[1][0]) problem = PROBLEMS + k;
    if (!problem) return fprintf(stderr, "usage: ssor_wavefront CLASS RUNS, with class S, W or A\n"), 2;
    n = problem->n, dt = problem->dt;
    /* Rows along x, then planes along z, then y. */
    stride[0] = 1, stride[1] = n * n, stride[2] = n;
    state **arrays[] = {&u, &forcing, &change};
    for (int k = 0; k < 3; k++) {
        state *array = *arrays[k] = malloc(sizeof(state) * n * n * n);
#pragma omp parallel for schedule(static)
        for (long y = 0; y < n; y++) memset(array + y * n * n, 0, sizeof(state) * n * n);
    }
    /* The forcing is the right-hand side of the solution, which so is steady. */
    set(solution);
    residual();
    state *made = forcing;
    forcing = change, change = made;
    for (int run = 0; run < atoi(argv[2]); run++) {
        set(start_value);
        residual();
        double start = omp_get_wtime();
        for (int done = 0; done < problem->steps; done++) step();
        double seconds = omp_get_wtime() - start;
        printf("%.6f %s\n", seconds, verified(problem) ? "true" : "false");
    }
    return 0;
}

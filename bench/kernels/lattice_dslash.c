/* The kernel lattice_dslash (conjugate gradients with the Wilson operator on the normal equations) in C with OpenMP, to compare with ours:
 * bench/kernels-vs-c. Own code.
 *
 * gcc -O3 -march=native -fopenmp lattice_dslash.c -lm; ./a.out CLASS RUNS
 * Prints for each run its seconds and whether the solution (within 1e-8) and a plane wave (within 1e-12) are the known ones.
 *
 * Four sites that lie a quarter of the lattice apart along x are worked on at once, each in a lane of a vector. */
#include <complex.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

enum { LANES = 4, ITERATIONS = 100 };
static const double PI = 3.14159265358979323846, KAPPA = 0.1;

typedef double complex number;
typedef number matrix[3][3];
typedef double lanes __attribute__((vector_size(8 * LANES)));
typedef struct { lanes re, im; } numbers;
/* Four spins of three colours; two of them; the matrices that lead forward in each direction. */
typedef struct { numbers at[12]; } spinor;
typedef struct { numbers at[2][3]; } half;
typedef struct { numbers at[4][9]; } links_of;
enum turn { ONE, TIMES_I, MINUS_ONE, MINUS_I };

static long size[4], extent[4], stride[4], blocks;
static links_of *links;
static spinor *x, *r, *p, *middle, *q;

#define ALWAYS static inline __attribute__((always_inline))

ALWAYS numbers add(numbers a, numbers b) { return (numbers){a.re + b.re, a.im + b.im}; }

ALWAYS numbers turned(int turn, numbers a) {
    switch (turn % 4) {
    case ONE: return a;
    case TIMES_I: return (numbers){-a.im, a.re};
    case MINUS_ONE: return (numbers){-a.re, -a.im};
    default: return (numbers){a.im, -a.re};
    }
}

/* A gamma matrix has one element in each row: its column and its factor. */
struct gamma { int column[4], turn[4]; };

/* The upper half of (1 +- gamma) psi; minus turns by half a circle more. */
ALWAYS half project(const struct gamma gamma, int minus, const spinor *psi) {
    half to;
    for (int spin = 0; spin < 2; spin++)
        for (int colour = 0; colour < 3; colour++)
            to.at[spin][colour] = add(psi->at[3 * spin + colour], turned(gamma.turn[spin] + minus, psi->at[3 * gamma.column[spin] + colour]));
    return to;
}

/* Adds a projected spinor of which this is the upper half. */
ALWAYS void reconstruct(const struct gamma gamma, int minus, half from, spinor *sum) {
    for (int colour = 0; colour < 3; colour++)
        for (int spin = 0; spin < 2; spin++) {
            numbers *upper = sum->at + 3 * spin + colour, *lower = upper + 6;
            *upper = add(*upper, from.at[spin][colour]);
            *lower = add(*lower, turned(gamma.turn[spin + 2] + minus, from.at[gamma.column[spin + 2]][colour]));
        }
}

ALWAYS half multiply(const numbers *link, int adjoint, half from) {
    half to;
    for (int spin = 0; spin < 2; spin++)
        for (int row = 0; row < 3; row++) {
            numbers sum = {{0}, {0}};
            for (int column = 0; column < 3; column++) {
                numbers a = link[adjoint ? 3 * column + row : 3 * row + column], b = from.at[spin][column];
                if (adjoint) a.im = -a.im;
                sum.re += a.re * b.re - a.im * b.im;
                sum.im += a.re * b.im + a.im * b.re;
            }
            to.at[spin][row] = sum;
        }
    return to;
}

/* Each lane gets what the one beside it has. */
#define ROTATED(a, ...) ((numbers){__builtin_shufflevector((a).re, (a).re, __VA_ARGS__), __builtin_shufflevector((a).im, (a).im, __VA_ARGS__)})

ALWAYS void hop(int direction, const struct gamma gamma, int adjoint, const spinor *from, long block, spinor *sum) {
    long place = block / stride[direction] % extent[direction], last = extent[direction] - 1;
    int plus = adjoint ? 0 : 2;
    long there = place < last ? block + stride[direction] : block - last * stride[direction];
    half of;
    if (direction == 0 && place == last) {
        spinor beside;
        for (int k = 0; k < 12; k++) beside.at[k] = ROTATED(from[there].at[k], 1, 2, 3, 0);
        of = project(gamma, plus, &beside);
    } else {
        of = project(gamma, plus, from + there);
    }
    reconstruct(gamma, plus, multiply(links[block].at[direction], 0, of), sum);
    there = place > 0 ? block - stride[direction] : block + last * stride[direction];
    of = multiply(links[there].at[direction], 1, project(gamma, 2 - plus, from + there));
    if (direction == 0 && place == 0)
        for (int spin = 0; spin < 2; spin++)
            for (int colour = 0; colour < 3; colour++) of.at[spin][colour] = ROTATED(of.at[spin][colour], 3, 0, 1, 2);
    reconstruct(gamma, 2 - plus, of, sum);
}

/* A block of to = M from, or of to = M^+ from. */
ALWAYS void apply(int adjoint, const spinor *from, long block, spinor *to) {
    spinor sum;
    memset(&sum, 0, sizeof sum);
    hop(0, (struct gamma){{3, 2, 1, 0}, {TIMES_I, TIMES_I, MINUS_I, MINUS_I}}, adjoint, from, block, &sum);
    hop(1, (struct gamma){{3, 2, 1, 0}, {MINUS_ONE, ONE, ONE, MINUS_ONE}}, adjoint, from, block, &sum);
    hop(2, (struct gamma){{2, 3, 0, 1}, {TIMES_I, MINUS_I, MINUS_I, TIMES_I}}, adjoint, from, block, &sum);
    hop(3, (struct gamma){{2, 3, 0, 1}, {ONE, ONE, ONE, ONE}}, adjoint, from, block, &sum);
    for (int k = 0; k < 12; k++) {
        to[block].at[k].re = from[block].at[k].re - KAPPA * sum.at[k].re;
        to[block].at[k].im = from[block].at[k].im - KAPPA * sum.at[k].im;
    }
}

ALWAYS double product(const spinor *a, const spinor *b) {
    lanes sum = {0};
    for (int k = 0; k < 12; k++) sum += a->at[k].re * b->at[k].re + a->at[k].im * b->at[k].im;
    return sum[0] + sum[1] + sum[2] + sum[3];
}

/* to = a to + b from */
ALWAYS void combine(double a, spinor *to, double b, const spinor *from) {
    for (int k = 0; k < 12; k++) {
        to->at[k].re = a * to->at[k].re + b * from->at[k].re;
        to->at[k].im = a * to->at[k].im + b * from->at[k].im;
    }
}

/* q = M^+ M p; the inner product of p and q. */
static double multiply_all(void) {
    double sum = 0;
#pragma omp parallel
    {
#pragma omp for schedule(static)
        for (long block = 0; block < blocks; block++) apply(0, p, block, middle);
#pragma omp for schedule(static) reduction(+ : sum)
        for (long block = 0; block < blocks; block++) {
            apply(1, middle, block, q);
            sum += product(p + block, q + block);
        }
    }
    return sum;
}

static double iterate(double rr) {
    double alpha = rr / multiply_all(), next = 0;
#pragma omp parallel for schedule(static) reduction(+ : next)
    for (long block = 0; block < blocks; block++) {
        combine(1, x + block, alpha, p + block);
        combine(1, r + block, -alpha, q + block);
        next += product(r + block, r + block);
    }
    double beta = next / rr;
#pragma omp parallel for schedule(static)
    for (long block = 0; block < blocks; block++) combine(beta, p + block, 1, r + block);
    return next;
}

static void unit(number *row) {
    double sum = 0;
    for (int k = 0; k < 3; k++) sum += creal(row[k] * conj(row[k]));
    for (int k = 0; k < 3; k++) row[k] /= sqrt(sum);
}

/* A random matrix of SU(3) that depends on nothing but the site. */
static void random_matrix(long site, matrix to) {
    uint64_t random = random_ahead(271828183, 12 * site + 1);
    for (int k = 0; k < 6; k++) {
        double re = next_random(&random) - 0.5;
        to[k / 3][k % 3] = re + I * (next_random(&random) - 0.5);
    }
    unit(to[0]);
    number overlap = 0;
    for (int k = 0; k < 3; k++) overlap += conj(to[0][k]) * to[1][k];
    for (int k = 0; k < 3; k++) to[1][k] -= overlap * to[0][k];
    unit(to[1]);
    for (int k = 0; k < 3; k++) {
        int next = (k + 1) % 3, last = (k + 2) % 3;
        to[2][k] = conj(to[0][next] * to[1][last] - to[0][last] * to[1][next]);
    }
}

static void site_of(long block, int lane, long *site) {
    for (int direction = 0; direction < 4; direction++) site[direction] = block / stride[direction] % extent[direction];
    site[0] += lane * extent[0];
}

static long number_of(const long *site) { return ((site[3] * size[2] + site[2]) * size[1] + site[1]) * size[0] + site[0]; }

/* U_mu(x) = g(x) g(x + mu)^+ */
static void make_links(long block) {
    for (int lane = 0; lane < LANES; lane++) {
        long site[4];
        matrix here, there;
        site_of(block, lane, site);
        random_matrix(number_of(site), here);
        for (int direction = 0; direction < 4; direction++) {
            long next[4];
            memcpy(next, site, sizeof next);
            next[direction] = (site[direction] + 1) % size[direction];
            random_matrix(number_of(next), there);
            for (int k = 0; k < 9; k++) {
                number sum = 0;
                for (int at = 0; at < 3; at++) sum += here[k / 3][at] * conj(there[k % 3][at]);
                links[block].at[direction][k].re[lane] = creal(sum), links[block].at[direction][k].im[lane] = cimag(sum);
            }
        }
    }
}

static void random_spinor(long block, spinor *to) {
    uint64_t random = random_ahead(161803399, 24 * LANES * block);
    for (int k = 0; k < 12; k++) {
        for (int lane = 0; lane < LANES; lane++) to->at[k].re[lane] = next_random(&random) - 0.5;
        for (int lane = 0; lane < LANES; lane++) to->at[k].im[lane] = next_random(&random) - 0.5;
    }
}

/* A plane wave that is turned by g; it returns what M^+ M multiplies it by. */
static double wave(long block, spinor *to) {
    double momentum[4], cosines = 0, sines = 0;
    for (int direction = 0; direction < 4; direction++) {
        momentum[direction] = 2 * PI * (1 + direction % 2) / size[direction];
        cosines += cos(momentum[direction]), sines += pow(sin(momentum[direction]), 2);
    }
    for (int lane = 0; lane < LANES; lane++) {
        long site[4];
        matrix turn;
        double angle = 0;
        site_of(block, lane, site);
        for (int direction = 0; direction < 4; direction++) angle += momentum[direction] * site[direction];
        random_matrix(number_of(site), turn);
        for (int k = 0; k < 12; k++) {
            number value = turn[k % 3][k / 3 % 3] * cexp(I * angle);
            to->at[k].re[lane] = creal(value), to->at[k].im[lane] = cimag(value);
        }
    }
    return pow(1 - 2 * KAPPA * cosines, 2) + 4 * KAPPA * KAPPA * sines;
}

static int verified(void) {
    double wrong = 0, all = 0, eigenvalue = 0;
    for (long block = 0; block < blocks; block++) {
        spinor known, difference = x[block];
        random_spinor(block, &known);
        combine(1, &difference, -1, &known);
        wrong += product(&difference, &difference), all += product(&known, &known);
    }
    int solved = sqrt(wrong / all) <= 1e-8;
    for (long block = 0; block < blocks; block++) eigenvalue = wave(block, p + block);
    multiply_all();
    wrong = all = 0;
    for (long block = 0; block < blocks; block++) {
        all += product(q + block, q + block);
        combine(-eigenvalue, p + block, 1, q + block);
        wrong += product(p + block, p + block);
    }
    return solved && sqrt(wrong / all) <= 1e-12;
}

int main(int argc, char **argv) {
    static const struct { char class; long size[4]; } CLASSES[] = {
        {'S', {8, 4, 4, 4}}, {'W', {8, 8, 8, 16}}, {'A', {16, 16, 16, 16}}, {'B', {24, 24, 24, 32}}, {'C', {32, 32, 32, 64}},
    };
    for (size_t k = 0; argc == 3 && k < sizeof CLASSES / sizeof *CLASSES; k++)
        if (CLASSES[k].class == argv[1][0]) memcpy(size, CLASSES[k].size, sizeof size);
    if (!size[0]) return fprintf(stderr, "usage: lattice_dslash CLASS RUNS\n"), 2;
    blocks = 1;
    for (int direction = 0; direction < 4; direction++) {
        extent[direction] = direction ? size[direction] : size[0] / LANES;
        stride[direction] = blocks;
        blocks *= extent[direction];
    }
    links = aligned_alloc(64, sizeof *links * blocks);
    spinor **vectors[] = {&x, &r, &p, &middle, &q};
    for (int k = 0; k < 5; k++) *vectors[k] = aligned_alloc(64, sizeof(spinor) * blocks);
#pragma omp parallel for schedule(static)
    for (long block = 0; block < blocks; block++) {
        make_links(block);
        for (int k = 0; k < 5; k++) memset(*vectors[k] + block, 0, sizeof(spinor));
    }
    for (int run = 0; run < atoi(argv[2]); run++) {
#pragma omp parallel for schedule(static)
        for (long block = 0; block < blocks; block++) random_spinor(block, p + block);
        multiply_all();
        double rr = 0;
#pragma omp parallel for schedule(static) reduction(+ : rr)
        for (long block = 0; block < blocks; block++) {
            memset(x + block, 0, sizeof *x);
            r[block] = p[block] = q[block];
            rr += product(q + block, q + block);
        }
        double start = omp_get_wtime();
        for (int iteration = 0; iteration < ITERATIONS; iteration++) rr = iterate(rr);
        double seconds = omp_get_wtime() - start;
        printf("%.6f %s\n", seconds, verified() ? "true" : "false");
    }
    return 0;
}

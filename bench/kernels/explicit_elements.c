/* The kernel explicit_elements (tetrahedra of constant strain, central differences) in C with OpenMP, to compare with ours:
 * bench/kernels-vs-c. Own code.
 *
 * gcc -O3 -march=native -fopenmp explicit_elements.c -lm; ./a.out CLASS RUNS
 * Prints for each run its seconds and whether the body flew as far as it must and kept its energy, within 1e-10. */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

enum { STEPS = 100 };
static const double DT = 0.1, LAMBDA = 2, MU = 1, FLIGHT[3] = {0.3, -0.2, 0.1};

typedef double vector[3];
typedef struct { uint32_t node[4]; } element;
typedef vector forces_of[4];

static long side, element_count, node_count;
static element *elements;
static vector *positions, *displacement, *velocity;
static forces_of *forces;
static double *masses;
static uint32_t *starts, *corners;

static inline void difference(const double *a, const double *b, double *to) {
    for (int i = 0; i < 3; i++) to[i] = a[i] - b[i];
}

static inline void cross(const double *a, const double *b, double *to) {
    to[0] = a[1] * b[2] - a[2] * b[1], to[1] = a[2] * b[0] - a[0] * b[2], to[2] = a[0] * b[1] - a[1] * b[0];
}

/* The rows of areas are six times the volume times the gradients of the shape functions; six times the volume. */
static inline double shape(const element *e, vector areas[3]) {
    vector edge[3];
    for (int k = 0; k < 3; k++) difference(positions[e->node[k + 1]], positions[e->node[0]], edge[k]);
    for (int k = 0; k < 3; k++) cross(edge[(k + 1) % 3], edge[(k + 2) % 3], areas[k]);
    return edge[0][0] * areas[0][0] + edge[0][1] * areas[0][1] + edge[0][2] * areas[0][2];
}

static inline void forces_on(const element *restrict e, forces_of to) {
    vector areas[3], stretch[3], gradient[3], stress[3];
    double by_volume = 1 / shape(e, areas);
    for (int k = 0; k < 3; k++) difference(displacement[e->node[k + 1]], displacement[e->node[0]], stretch[k]);
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++)
            gradient[i][j] = by_volume * (stretch[0][i] * areas[0][j] + stretch[1][i] * areas[1][j] + stretch[2][i] * areas[2][j]);
    double pressure = LAMBDA * (gradient[0][0] + gradient[1][1] + gradient[2][2]);
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) stress[i][j] = MU * (gradient[i][j] + gradient[j][i]) + (i == j ? pressure : 0);
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 3; i++)
            to[k + 1][i] = (stress[i][0] * areas[k][0] + stress[i][1] * areas[k][1] + stress[i][2] * areas[k][2]) * (-1.0 / 6);
    for (int i = 0; i < 3; i++) to[0][i] = -(to[1][i] + to[2][i] + to[3][i]);
}

/* The sum of the forces on a node. */
static inline void gather(long node, double *restrict sum) {
    sum[0] = sum[1] = sum[2] = 0;
    for (uint32_t at = starts[node]; at < starts[node + 1]; at++) {
        const double *force = forces[corners[at] / 4][corners[at] % 4];
        for (int i = 0; i < 3; i++) sum[i] += force[i];
    }
}

static void find_forces(void) {
#pragma omp parallel for schedule(static)
    for (long k = 0; k < element_count; k++) forces_on(elements + k, forces[k]);
}

static void step(void) {
    find_forces();
#pragma omp parallel for schedule(static)
    for (long node = 0; node < node_count; node++) {
        vector force;
        gather(node, force);
        double factor = DT / masses[node];
        for (int i = 0; i < 3; i++) {
            velocity[node][i] += factor * force[i];
            displacement[node][i] += DT * velocity[node][i];
        }
    }
}

/* A cube of cubes, six tetrahedra in each; nodes are numbered at random within their layer. */
static void make_mesh(void) {
    static const int WAYS[6][3] = {{0, 1, 2}, {1, 2, 0}, {2, 0, 1}, {0, 2, 1}, {2, 1, 0}, {1, 0, 2}};
    long edge = side + 1, layer = edge * edge;
    element_count = 6 * side * side * side, node_count = layer * edge;
    uint32_t *order = malloc(sizeof *order * node_count), *places = malloc(sizeof *places * node_count);
    for (long k = 0; k < node_count; k++) order[k] = k;
    uint64_t seed = 161803399;
    for (long from = 0; from < node_count; from += layer)
        for (long at = layer - 1; at > 0; at--) {
            long other = (long)(next_random(&seed) * (at + 1));
            uint32_t swapped = order[from + at];
            order[from + at] = order[from + other], order[from + other] = swapped;
        }
    for (long place = 0; place < node_count; place++) places[order[place]] = place;
    elements = malloc(sizeof *elements * element_count);
    forces = malloc(sizeof *forces * element_count);
    positions = malloc(sizeof *positions * node_count), masses = malloc(sizeof *masses * node_count);
    displacement = malloc(sizeof *displacement * node_count), velocity = malloc(sizeof *velocity * node_count);
    starts = calloc(node_count + 1, sizeof *starts);
#pragma omp parallel
    {
#pragma omp for schedule(static)
        for (long k = 0; k < element_count; k++) {
            long cube = k / 6, at[3] = {cube % side, cube / side % side, cube / (side * side)};
            element e;
            for (int node = 0; node < 4; node++) {
                e.node[node] = order[(at[2] * edge + at[1]) * edge + at[0]];
                if (node < 3) at[WAYS[k % 6][node]]++;
            }
            /* A way that turns left has the volume of the other sign. */
            if (k % 6 >= 3) e = (element){{e.node[0], e.node[2], e.node[1], e.node[3]}};
            elements[k] = e;
            memset(forces[k], 0, sizeof *forces);
        }
#pragma omp for schedule(static)
        for (long node = 0; node < node_count; node++) {
            long place = places[node], at[3] = {place % edge, place / edge % edge, place / layer};
            uint64_t random = random_ahead(271828183, 3 * node);
            for (int i = 0; i < 3; i++) positions[node][i] = at[i] + 0.2 * (next_random(&random) - 0.5);
            masses[node] = 0;
            memset(displacement[node], 0, sizeof(vector)), memset(velocity[node], 0, sizeof(vector));
        }
    }
    for (long k = 0; k < 4 * element_count; k++) starts[elements[k / 4].node[k % 4] + 1]++;
    for (long node = 0; node < node_count; node++) starts[node + 1] += starts[node];
    uint32_t *filled = calloc(node_count, sizeof *filled), *all = malloc(sizeof *all * 4 * element_count);
    for (long k = 0; k < 4 * element_count; k++) {
        uint32_t node = elements[k / 4].node[k % 4];
        all[starts[node] + filled[node]++] = k;
    }
    corners = malloc(sizeof *corners * 4 * element_count);
#pragma omp parallel for schedule(static)
    for (long node = 0; node < node_count; node++)
        for (uint32_t at = starts[node]; at < starts[node + 1]; at++) {
            vector areas[3];
            corners[at] = all[at];
            masses[node] += shape(elements + corners[at] / 4, areas) / 24;
        }
    free(order), free(places), free(filled), free(all);
}

struct sums { double momentum, moment, energy; };

/* Velocities stand half a step before displacements: the kinetic energy is the product of those before and behind. */
static struct sums sums(void) {
    double momentum = 0, moment = 0, energy = 0;
#pragma omp parallel for schedule(static) reduction(+ : momentum, moment, energy)
    for (long node = 0; node < node_count; node++) {
        vector force;
        gather(node, force);
        for (int i = 0; i < 3; i++) {
            double before = velocity[node][i], behind = before + DT / masses[node] * force[i];
            energy += 0.5 * masses[node] * before * behind - 0.5 * displacement[node][i] * force[i];
        }
        momentum += masses[node] * velocity[node][0];
        moment += masses[node] * displacement[node][0];
    }
    return (struct sums){momentum, moment, energy};
}

int main(int argc, char **argv) {
    char class = argc == 3 ? argv[1][0] : 0;
    side = class == 'S' ? 6 : class == 'W' ? 20 : class == 'A' ? 50 : class == 'B' ? 100 : class == 'C' ? 160 : 0;
    if (!side) return fprintf(stderr, "usage: explicit_elements CLASS RUNS\n"), 2;
    make_mesh();
    for (int run = 0; run < atoi(argv[2]); run++) {
#pragma omp parallel for schedule(static)
        for (long node = 0; node < node_count; node++) {
            uint64_t random = random_ahead(314159265, 3 * node);
            for (int i = 0; i < 3; i++) {
                displacement[node][i] = 0;
                velocity[node][i] = FLIGHT[i] + 0.02 * (next_random(&random) - 0.5);
            }
        }
        find_forces();
        struct sums before = sums();
        double start = omp_get_wtime();
        for (int done = 0; done < STEPS; done++) step();
        double seconds = omp_get_wtime() - start;
        find_forces();
        struct sums after = sums();
        int flown = fabs(after.moment / after.momentum / (DT * STEPS) - 1) <= 1e-10;
        printf("%.6f %s\n", seconds, flown && fabs(after.energy / before.energy - 1) <= 1e-10 ? "true" : "false");
    }
    return 0;
}

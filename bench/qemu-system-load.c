// A process that tools take for a VM of QEMU: threads named as vCPUs, memory that vCPU 0 fills first (as a booting guest does), then CPU time
// spent on touching it, page by page in no order. For bench/compare-in-lab: real guests inside an emulated machine are too slow and hang at times.
//
//   LOAD_PERCENT=60 LOAD_SECONDS=50 LOAD_FILE=/tmp/a qemu-system-load -name a,debug-threads=on -smp 2 -m 320
//
// Writes a line a second to LOAD_FILE: name, second, CPU time of all vCPUs by node they ran on [us], its pages (4 KiB) by node as the kernel's
// numa_maps says, how often a vCPU was seen on another node than before, CPU time wanted [us]. All but pages are sums from the start.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { NODES = 4, VCPUS = 64, PAGE = 4096, HUGE = 2 << 20 };
static const int64_t SECOND = 1000000000, PERIOD = 50000000, MOST_LATE = 200000000;

static char *memory;
static size_t size;
static double percent;
static atomic_int filled, over;
static struct {
    _Atomic int64_t ran[NODES], wanted;
    atomic_int moves;
} vcpu_of[VCPUS];

static int64_t now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * SECOND + time.tv_nsec;
}

static void nap(int64_t length) {
    if (length > 0) nanosleep(&(struct timespec){length / SECOND, length % SECOND}, NULL);
}

// About 200 us under emulation: random pages, and work on what is already near.
static void touch(uint64_t *random) {
    for (int page = 0; page < 20; page++) {
        *random = *random * 6364136223846793005u + 1442695040888963407u;
        volatile char *place = memory + (*random >> 33) * PAGE % size;
        for (int step = 0; step < 200; step++) *place += 1;
    }
}

static void *vcpu(void *argument) {
    long index = (long)argument;
    char name[16];
    snprintf(name, sizeof name, "CPU %ld/KVM", index);
    pthread_setname_np(pthread_self(), name);
    if (index == 0) {
        for (size_t at = 0; at < size; at += PAGE) memory[at] = 1;
        filled = 1;
    }
    while (!filled) nap(PERIOD / 5);
    uint64_t random = index + 1;
    int64_t start = now(CLOCK_MONOTONIC), before = now(CLOCK_THREAD_CPUTIME_ID), wanted = 0, got = 0;
    int at_node = -1;
    while (!over) {
        // What it wants by now; what it could not have for a while is lost, as in a guest whose users went away.
        wanted = (int64_t)((now(CLOCK_MONOTONIC) - start + PERIOD) * percent / 100);
        int64_t aim = wanted - got > MOST_LATE ? got + MOST_LATE : wanted;
        while (got < aim && !over) {
            touch(&random);
            int64_t used = now(CLOCK_THREAD_CPUTIME_ID);
            unsigned cpu, node;
            getcpu(&cpu, &node);
            node %= NODES;
            vcpu_of[index].ran[node] += used - before;
            if (at_node >= 0 && at_node != (int)node) vcpu_of[index].moves++;
            at_node = node;
            got += used - before;
            before = used;
        }
        vcpu_of[index].wanted = wanted;
        nap(PERIOD - (now(CLOCK_MONOTONIC) - start) % PERIOD);
    }
    return NULL;
}

// Pages of the VM's memory by node; the kernel may have split the mapping.
static void resident(int64_t pages[NODES]) {
    FILE *maps = fopen("/proc/self/numa_maps", "r");
    char line[4096];
    while (maps && fgets(line, sizeof line, maps)) {
        char *at = (char *)strtoul(line, NULL, 16);
        if (at < memory || at >= memory + size) continue;
        for (char *word = strtok(line, " \n"); word; word = strtok(NULL, " \n")) {
            unsigned node;
            long count;
            if (sscanf(word, "N%u=%ld", &node, &count) == 2 && node < NODES) pages[node] += count;
        }
    }
    if (maps) fclose(maps);
}

static void sample(FILE *out, const char *name, int vcpus, int64_t second) {
    int64_t ran[NODES] = {0}, pages[NODES] = {0}, wanted = 0;
    int moves = 0;
    for (int index = 0; index < vcpus; index++) {
        for (int node = 0; node < NODES; node++) ran[node] += vcpu_of[index].ran[node];
        wanted += vcpu_of[index].wanted;
        moves += vcpu_of[index].moves;
    }
    resident(pages);
    fprintf(out, "%s %ld", name, (long)second);
    for (int node = 0; node < NODES; node++) fprintf(out, " %ld", (long)(ran[node] / 1000));
    for (int node = 0; node < NODES; node++) fprintf(out, " %ld", (long)pages[node]);
    fprintf(out, " %d %ld\n", moves, (long)(wanted / 1000));
    fflush(out);
}

static const char *given(const char *name, const char *otherwise) { return getenv(name) ? getenv(name) : otherwise; }

int main(int count, char **arguments) {
    char name[64] = "load";
    int vcpus = 1;
    long mebibytes = 64;
    for (int index = 1; index + 1 < count; index++) {
        if (!strcmp(arguments[index], "-name")) sscanf(arguments[index + 1], "%63[^,]", name);
        if (!strcmp(arguments[index], "-smp")) vcpus = atoi(arguments[index + 1]);
        if (!strcmp(arguments[index], "-m")) mebibytes = atol(arguments[index + 1]);
    }
    percent = atof(given("LOAD_PERCENT", "60"));
    int seconds = atoi(given("LOAD_SECONDS", "10"));
    FILE *out = fopen(given("LOAD_FILE", "/dev/stdout"), "w");
    if (!out || vcpus < 1 || vcpus > VCPUS || mebibytes < 2 || !(percent > 0 && percent <= 100)) return 2;
    // As QEMU does: a hole around it keeps the kernel from merging it with another mapping, and huge pages are welcome.
    size = (size_t)mebibytes << 20;
    char *hole = mmap(NULL, size + 2 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (hole == MAP_FAILED) return 1;
    memory = (char *)(((uintptr_t)hole + HUGE) / HUGE * HUGE);
    if (mmap(memory, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) return 1;
    madvise(memory, size, MADV_HUGEPAGE);
    pthread_t threads[VCPUS];
    int64_t start = now(CLOCK_MONOTONIC);
    for (long index = 0; index < vcpus; index++)
        if (pthread_create(&threads[index], NULL, vcpu, (void *)index)) return 1;
    while (!filled) nap(PERIOD);
    for (int second = 1; now(CLOCK_MONOTONIC) - start < seconds * SECOND; second++) {
        nap(start + second * SECOND - now(CLOCK_MONOTONIC));
        sample(out, name, vcpus, (now(CLOCK_MONOTONIC) - start) / SECOND);
    }
    over = 1;
    for (int index = 0; index < vcpus; index++) pthread_join(threads[index], NULL);
    return 0;
}

/* What numactl does, in a program without libraries:
 *
 *   policy MODE NODES PROGRAM...        PROGRAM under this policy: bind, bind-static, preferred, preferred-many,
 *                                       interleave, weighted-interleave, local (set_mempolicy(2))
 *   policy MODE NODES file PATH BYTES   the policy of a file of shared memory, which is made (mbind(2))
 *   policy serve PATH                   a process that names a socket on its command line, and a child: as virtiofsd
 *
 * NODES is a mask. Exit code 3: this kernel has no such policy. */
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
    const char *name;
    int mode;
} modes[] = {
    {"bind", MPOL_BIND}, {"bind-static", MPOL_BIND | (1 << 15)}, {"preferred", MPOL_PREFERRED},
    {"preferred-many", 5}, {"interleave", MPOL_INTERLEAVE}, {"weighted-interleave", 6}, {"local", 4},
};

int main(int argc, char **argv)
{
    unsigned long nodes = argc > 2 ? strtoul(argv[2], NULL, 0) : 0;
    unsigned long *mask = nodes ? &nodes : NULL;
    int mode = -1;
    if (argc == 3 && !strcmp(argv[1], "serve")) {
        fork();
        for (;;)
            pause();
    }
    for (unsigned i = 0; argc > 3 && i < sizeof modes / sizeof *modes; i++)
        if (!strcmp(argv[1], modes[i].name))
            mode = modes[i].mode;
    if (mode < 0) {
        fprintf(stderr, "policy: see its first lines\n");
        return 2;
    }
    if (!strcmp(argv[3], "file") && argc > 5) {
        size_t bytes = strtoul(argv[5], NULL, 0);
        int file = open(argv[4], O_RDWR | O_CREAT, 0600);
        void *at;
        if (file < 0 || ftruncate(file, bytes))
            return perror(argv[4]), 1;
        at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (at == MAP_FAILED)
            return perror("mmap"), 1;
        if (syscall(SYS_mbind, at, bytes, mode, mask, 64, 0))
            return perror("mbind"), 3;
        return 0;
    }
    if (syscall(SYS_set_mempolicy, mode, mask, 64))
        return perror("set_mempolicy"), 3;
    execvp(argv[3], argv + 3);
    perror(argv[3]);
    return 127;
}

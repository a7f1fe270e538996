/* What a process may do to process PID: one line for each way in, `NAME: 0` where it is open, else the error. service.sh runs it under the sandbox
 * of the balancer's unit. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static void say(const char *name, long result)
{
    printf("%s: %s\n", name, result >= 0 ? "0" : strerrorname_np(errno));
}

static void opens(const char *file, const char *pid, int flags)
{
    char path[64], name[64];
    snprintf(path, sizeof path, "/proc/%s/%s", pid, file);
    snprintf(name, sizeof name, "/proc/PID/%s", file);
    say(name, open(path, flags));
}

int main(int count, char **arguments)
{
    if (count != 2)
        return 2;
    long pid = atol(arguments[1]);
    char byte = 0;
    struct iovec ours = {&byte, 1}, theirs = {(void *)0x1000, 1};
    long pidfd = syscall(SYS_pidfd_open, pid, 0);
    unsigned long nodes = 1;
    struct sched_param batch = {0};
    cpu_set_t cpus;
    char attributes[128] = {0}, ring[256] = {0};
    sched_getaffinity(pid, sizeof cpus, &cpus);
    say("sched_setaffinity", sched_setaffinity(pid, sizeof cpus, &cpus));
    say("ptrace", ptrace(PTRACE_SEIZE, pid, 0, 0));
    say("process_vm_readv", process_vm_readv(pid, &ours, 1, &theirs, 1, 0));
    say("process_vm_writev", process_vm_writev(pid, &ours, 1, &theirs, 1, 0));
    say("process_madvise", syscall(SYS_process_madvise, pidfd, &theirs, 1, 20, 0));
    say("pidfd_getfd", syscall(SYS_pidfd_getfd, pidfd, 0, 0));
    say("kcmp", syscall(SYS_kcmp, getpid(), pid, 0, 0, 0));
    say("userfaultfd", syscall(SYS_userfaultfd, 0));
    say("perf_event_open", syscall(SYS_perf_event_open, attributes, pid, -1, -1, 0));
    say("migrate_pages", syscall(SYS_migrate_pages, pid, 8, &nodes, &nodes));
    say("sched_setscheduler", sched_setscheduler(pid, SCHED_BATCH, &batch));
    say("setpriority", setpriority(PRIO_PROCESS, pid, 0));
    say("io_uring_setup", syscall(SYS_io_uring_setup, 1, ring));
    say("socket", socket(AF_UNIX, SOCK_STREAM, 0));
    say("socket AF_INET", socket(AF_INET, SOCK_STREAM, 0));
    opens("mem", arguments[1], O_RDWR);
    opens("fd", arguments[1], O_RDONLY);
    opens("root/etc/passwd", arguments[1], O_RDONLY);
    say("/run/homenode", open("/run/homenode", O_RDONLY | O_DIRECTORY));
    return 0;
}

/* Holds one KVM VM with one vCPU, for as long as it lives. The kernel patches its own code when the first VM or vCPU comes and when the last one goes
 * (static keys); under emulation with several threads such a patch can hang the machine for good, so the lab's machine does it once.
 * With arguments it holds nothing and only lives: under another name, a process that claims to be a VM. */
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

int main(int count, char **)
{
    int kvm = count > 1 ? -1 : open("/dev/kvm", O_RDWR);
    int vm = ioctl(kvm, KVM_CREATE_VM, 0);
    if (count == 1 && (vm < 0 || ioctl(vm, KVM_CREATE_IRQCHIP) < 0 || ioctl(vm, KVM_CREATE_VCPU, 0) < 0)) {
        perror("lab: KVM");
        return 1;
    }
    for (;;)
        pause();
}

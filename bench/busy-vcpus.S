# A firmware whose vCPUs all spin: what a VM under full load is to the host's scheduler, without a
# system in it. The first processor enters protected mode, to reach its local APIC, and starts all
# others at the ROM's first byte; then every one spins.
#
#   gcc -c -m32 -nostdlib busy-vcpus.S && objcopy -O binary busy-vcpus.o ROM    (64 KiB, for -bios)
    .code16
others:
    jmp     others                      # at F000:0000, where the start-up message sends them
    .org    0x10
descriptors:
    .quad   0
    .quad   0x00cf9a000000ffff          # code: 4 GiB from 0
    .quad   0x00cf92000000ffff          # data: the same
table:
    .word   23
    .long   0xf0000 + 0x10
first:
    cli
    lgdtl   %cs:0x28                    # `table`
    movl    %cr0, %eax
    orl     $1, %eax
    movl    %eax, %cr0
    ljmpl   $8, $0xf0000 + 0x60
    .code32
    .org    0x60
    movl    $0x10, %eax
    movl    %eax, %ds
    movl    $0xfee00000, %ebx
    movl    $0x1ff, 0xf0(%ebx)          # its APIC on
    movl    $0x000c4500, 0x300(%ebx)    # INIT to all others
    movl    $1000000, %ecx
1:  loop    1b
2:  movl    $0x000c46f0, 0x300(%ebx)    # start-up at page 0xf0, again and again: a processor whose
    movl    $2000000, %ecx              # thread has not seen INIT yet drops it, one that runs too
3:  loop    3b
    jmp     2b
    .org    0xfff0
    .code16
    jmp     first
    .org    0x10000

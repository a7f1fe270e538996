#!/usr/bin/awk -f
# The table of bench/compare-in-lab from what the machines said: lines BEFORE and AFTER (counters of the kernel), then lines RAW
# (policy, VM, second, CPU time by node [us], pages by node, moves over nodes, CPU time wanted [us]; all but pages are sums).
$1 == "BEFORE" { before[$2, $3] = $4 }
$1 == "AFTER" { moved[$2, $3] = $4 - before[$2, $3] }
$1 == "RAW" {
    if (!($2 in seen)) { seen[$2] = 1; order[++policies] = $2 }
    vm = $2 SUBSEP $3
    if (!(vm in wanted)) { vms[$2] = vms[$2] SUBSEP $3 }
    pages = $9 + $10 + $11 + $12
    if (pages == 0) next
    for (node = 0; node < 4; node++) {
        ran = $(5 + node) - last[vm, node]
        last[vm, node] = $(5 + node)
        cpu[vm] += ran
        # Its memory is used all alike: so much of what this CPU time touched was local.
        near[vm] += ran * $(9 + node) / pages
    }
    moves[vm] = $13
    wanted[vm] = $14
}
END {
    print "| in the lab | CPU time beside its memory | worst VM of that | CPU got | worst VM of that | moved MiB | threads over nodes |"
    print "|---|---|---|---|---|---|---|"
    for (p = 1; p <= policies; p++) {
        policy = order[p]
        split("", sum)
        least_near = least_got = 100
        count = split(substr(vms[policy], 2), names, SUBSEP)
        for (n = 1; n <= count; n++) {
            vm = policy SUBSEP names[n]
            if (wanted[vm] == 0 || cpu[vm] == 0) continue
            sum["cpu"] += cpu[vm]; sum["near"] += near[vm]; sum["wanted"] += wanted[vm]; sum["moves"] += moves[vm]
            if (100 * near[vm] / cpu[vm] < least_near) least_near = 100 * near[vm] / cpu[vm]
            if (100 * cpu[vm] / wanted[vm] < least_got) least_got = 100 * cpu[vm] / wanted[vm]
        }
        printf "| %s | %.1f %% | %.1f %% | %.1f %% | %.1f %% | %d | %d |\n", policy, 100 * sum["near"] / sum["cpu"], least_near,
            100 * sum["cpu"] / sum["wanted"], least_got, moved[policy, "pgmigrate_success"] / 256, sum["moves"]
    }
}

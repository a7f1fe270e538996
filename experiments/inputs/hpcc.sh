# Writes hpccinf.txt, the input of HPC Challenge, for RANKS ranks and MEMORY_MIB of memory:
#   sh hpcc.sh RANKS MEMORY_MIB
# The matrix takes half of that memory, since STREAM and the others need arrays beside it; HPL's
# advice is 80 % of all memory, where a run takes hours.
ranks=$1
memory_mib=$2

# Rows: a matrix of N x N doubles of 8 bytes, N a multiple of the block.
block=128
rows=$(awk -v mib="$memory_mib" -v block=$block \
    'BEGIN { n = int(sqrt(mib * 1048576 / 2 / 8) / block) * block; print n < block ? block : n }')
# The process grid: as square as the number of ranks lets it be, no higher than wide: HPL's advice.
p=$(awk -v ranks="$ranks" 'BEGIN { for (p = int(sqrt(ranks)); ranks % p; p--); print p }')
q=$((ranks / p))

cat >hpccinf.txt <<END
HPC Challenge
as written by hpcc.sh
hpccoutf.txt output file
8            device out (8: the file)
1            # of problems sizes (N)
$rows        Ns
1            # of NBs
$block       NBs
0            PMAP process mapping (0: by rows)
1            # of process grids (P x Q)
$p           Ps
$q           Qs
16.0         threshold of the residual
1            # of panel fact
2            PFACTs (right)
1            # of recursive stopping criterium
4            NBMINs
1            # of panels in recursion
2            NDIVs
1            # of recursive panel fact.
1            RFACTs (Crout)
1            # of broadcast
1            BCASTs (1rM)
1            # of lookahead depth
1            DEPTHs
2            SWAP (mix)
64           swapping threshold
0            L1 in (transposed)
0            U  in (transposed)
1            Equilibration (yes)
8            memory alignment in double
# line 32 is not read
0            Number of additional problem sizes for PTRANS
0            values of N
0            number of additional blocking sizes for PTRANS
0            values of NB
END

# Writes an OpenFOAM case into this directory: a cube of 0.1 m full of fluid, whose lid moves at
# 1 m/s, at Reynolds number 10, solved by icoFoam in steps of a Courant number of about 0.5:
#   sh openfoam-cavity.sh CELLS STEPS RANKS
# CELLS in each direction. Laminar and incompressible: most of its time goes into the pressure.
cells=$1
steps=$2
ranks=$3
time_step=$(awk -v cells="$cells" 'BEGIN { printf "%.6g", 0.05 / cells }')
end=$(awk -v step="$time_step" -v steps="$steps" 'BEGIN { printf "%.10g", step * steps }')
# Bricks, one a rank, as close to cubes as the number of ranks lets them be. Debian's OpenFOAM has
# no library to cut otherwise.
parts=$(awk -v ranks="$ranks" 'BEGIN {
    for (x = 1; (x + 1) ^ 3 <= ranks; x++);
    while (ranks % x) x--
    rest = ranks / x
    for (y = 1; (y + 1) ^ 2 <= rest; y++);
    while (rest % y) y--
    print x, y, rest / y
}')

mkdir -p 0 constant system

# file CLASS PATH: a file of OpenFOAM, its text from standard input.
file() {
    printf 'FoamFile { version 2.0; format ascii; class %s; object %s; }\n' "$1" "${2##*/}" >"$2"
    cat >>"$2"
}

file dictionary system/blockMeshDict <<END
scale 0.1;
vertices ((0 0 0) (1 0 0) (1 1 0) (0 1 0) (0 0 1) (1 0 1) (1 1 1) (0 1 1));
blocks (hex (0 1 2 3 4 5 6 7) ($cells $cells $cells) simpleGrading (1 1 1));
edges ();
boundary
(
    lid { type wall; faces ((3 7 6 2)); }
    walls { type wall; faces ((0 4 7 3) (2 6 5 1) (1 5 4 0) (0 3 2 1) (4 5 6 7)); }
);
END

file dictionary system/controlDict <<END
application icoFoam;
startFrom startTime;
startTime 0;
stopAt endTime;
endTime $end;
deltaT $time_step;
writeControl timeStep;
writeInterval $steps;
writeFormat binary;
writePrecision 9;
timePrecision 9;
functions
{
    // The check value: the velocity half way between the cube's middle and its lid.
    probes
    {
        type probes;
        libs ("libsampling.so");
        writeControl timeStep;
        writeInterval $steps;
        fields (U);
        interpolationScheme cell;
        probeLocations ((0.0501 0.0751 0.0501));
    }
}
END

file dictionary system/fvSchemes <<END
ddtSchemes { default Euler; }
gradSchemes { default Gauss linear; }
divSchemes { default none; div(phi,U) Gauss linear; }
laplacianSchemes { default Gauss linear orthogonal; }
interpolationSchemes { default linear; }
snGradSchemes { default orthogonal; }
END

# An absolute tolerance that is tight: the result is then the same on any number of ranks.
file dictionary system/fvSolution <<END
solvers
{
    p { solver PCG; preconditioner DIC; tolerance 1e-8; relTol 0; maxIter 5000; }
    pFinal { \$p; }
    U { solver smoothSolver; smoother symGaussSeidel; tolerance 1e-8; relTol 0; }
}
PISO { nCorrectors 2; nNonOrthogonalCorrectors 0; pRefPoint (0.001 0.001 0.001); pRefValue 0; }
END

file dictionary system/decomposeParDict <<END
numberOfSubdomains $ranks;
method simple;
simpleCoeffs { n ($parts); delta 0.001; }
END

file dictionary constant/transportProperties <<END
nu 0.01;
END

file volScalarField 0/p <<END
dimensions [0 2 -2 0 0 0 0];
internalField uniform 0;
boundaryField { lid { type zeroGradient; } walls { type zeroGradient; } }
END

file volVectorField 0/U <<END
dimensions [0 1 -1 0 0 0 0];
internalField uniform (0 0 0);
boundaryField
{
    lid { type fixedValue; value uniform (1 0 0); }
    walls { type noSlip; }
}
END

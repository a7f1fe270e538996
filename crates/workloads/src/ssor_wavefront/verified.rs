//! What NPB's LU must give for each class: root mean squares of the residual and of the error of
//! the five values, and a surface integral of the pressure. From its published verification.

use crate::kernel::Class;

pub(super) const RESIDUALS: [&str; 5] = [
    "residual of density",
    "residual of momentum x",
    "residual of momentum y",
    "residual of momentum z",
    "residual of energy",
];
pub(super) const ERRORS: [&str; 5] =
    ["error of density", "error of momentum x", "error of momentum y", "error of momentum z", "error of energy"];

pub(super) struct Expected {
    pub(super) residuals: [f64; 5],
    pub(super) errors: [f64; 5],
    pub(super) surface: f64,
}

pub(super) fn expected(class: Class) -> Expected {
    let (residuals, errors, surface) = match class {
        Class::S => (
            [
                1.6196343210976702e-2,
                2.197_674_516_482_132e-3,
                1.5179927653399185e-3,
                1.5029584435994323e-3,
                3.426_407_315_589_646e-2,
            ],
            [
                6.422_331_995_796_092e-4,
                8.414_434_204_734_792e-5,
                5.8588269616485186e-5,
                5.847_422_259_515_735e-5,
                1.3103347914111294e-3,
            ],
            7.841_892_886_593_708,
        ),
        Class::W => (
            [12.36511638192, 1.317228477799, 2.550120713095, 2.326187750252, 28.26799444189],
            [0.4867877144216, 0.05064652880982, 0.0928181810196, 0.08570126542733, 1.084277417792],
            11.61399311023,
        ),
        Class::A => (
            [
                7.790_210_760_668_937e2,
                6.340_276_525_969_287e1,
                1.949_924_972_729_248e2,
                1.7845301160418537e2,
                1.8384760349464247e3,
            ],
            [
                2.9964085685471943e1,
                2.819_457_636_500_335,
                7.347_341_269_877_474,
                6.713_922_568_777_705,
                7.071_531_568_839_258e1,
            ],
            2.6030925604886277e1,
        ),
        Class::B => (
            [
                3.5532672969982736e3,
                2.621_475_079_531_069e2,
                8.833_372_185_095_219e2,
                7.781_277_473_942_527e2,
                7.308_796_959_254_531e3,
            ],
            [
                1.1401176380212709e2,
                8.109_896_365_542_157,
                2.8480597317698308e1,
                2.590_539_456_783_294e1,
                2.6054907504857413e2,
            ],
            4.788_716_270_330_823e1,
        ),
        Class::C => (
            [
                1.037_669_803_235_378_5e4,
                8.922_124_588_010_086e2,
                2.562_388_145_826_608_7e3,
                2.191_943_438_578_314_3e3,
                1.780_780_572_610_612e4,
            ],
            [
                2.159_863_997_169_492_8e2,
                1.557_895_592_398_636e1,
                5.413_188_630_772_078e1,
                4.822_626_431_540_454e1,
                4.559_029_100_432_503_6e2,
            ],
            6.664_045_535_721_813e1,
        ),
    };
    Expected { residuals, errors, surface }
}

"""Table 1 of the paper: (test MSE, mean distance to the set). Missing there: cs proj-iaa (cost), disk exp (undefined)."""

PUBLISHED: dict[str, dict[str, tuple[float, float]]] = {
    "sphere": {
        "regular": (4.97e-3, 2.44e-2),
        "proj-iaa": (6.29e-3, 2.35e-8),
        "exp-iaa": (8.86e-3, 2.19e-9),
        "flow-iaa": (9.69e-3, 2.70e-2),
        "prob": (7.48e-3, 1.50e-2),
        "proj-faa": (5.03e-3, 2.21e-8),
        "exp-faa": (2.16e-1, 1.99e-9),
        "flow-faa": (7.69e-3, 2.53e-2),
    },
    "disk": {
        "regular": (4.95e-4, 7.36e-3),
        "proj-iaa": (4.23e-7, 1.09e-9),
        "flow-iaa": (1.45e-3, 7.93e-3),
        "prob": (2.58e-3, 0.0),
        "proj-faa": (7.33e-7, 1.89e-9),
        "flow-faa": (8.52e-4, 5.44e-3),
    },
    "so3": {
        "regular": (1.10e-1, 1.40),
        "proj-iaa": (2.22e-1, 8.00e-7),
        "exp-iaa": (3.10e-1, 3.14e-6),
        "flow-iaa": (1.12e-1, 1.21),
        "prob": (1.68e-1, 1.48),
        "proj-faa": (2.52e-1, 8.26e-7),
        "exp-faa": (2.47e-1, 1.47e-6),
        "flow-faa": (1.31e-1, 1.43),
    },
    "cs": {
        "regular": (3.33e-1, 2.72),
        "exp-iaa": (6.39e-1, 4.78e-6),
        "flow-iaa": (3.35e-1, 2.71),
        "prob": (3.32e-1, 2.72),
        "proj-faa": (6.38e-1, 8.42e-7),
        "exp-faa": (6.36e-1, 1.89e-6),
        "flow-faa": (3.34e-1, 2.72),
    },
    "protein": {
        "regular": (1.19e-1, 2.28),
        "proj-iaa": (1.90e-1, 8.73e-7),
        "exp-iaa": (2.39e-1, 7.63e-3),
        "flow-iaa": (1.19e-1, 2.28),
        "prob": (5.50e-1, 2.15),
        "proj-faa": (1.88e-1, 8.36e-7),
        "exp-faa": (2.41e-1, 7.63e-3),
        "flow-faa": (1.19e-1, 2.28),
    },
}
OTHER_DATA = {"sphere", "protein"}  # another draw of the random field; ProteinNet casp8 instead of the chains shipped here

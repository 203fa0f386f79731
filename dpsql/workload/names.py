"""The names of mechanisms, as users write them.

Imports nothing, so that a wrong name is refused without numpy.
"""

#: Compares those whose choice and error are functions of the workload, and takes the best.
AUTO = "auto"
#: Mechanisms whose choice and error are functions of the workload.
DATA_INDEPENDENT = (
    *("identity", "workload", "opt_kron", "opt_plus", "opt_m", "residual_planner", "opt_0"),
    "eigen_design",
)
#: Mechanisms that are used when they are asked for: their error is not known before.
ON_REQUEST = ("aim", "aim_pgm", "pairs")
#: Those that have no Laplace form.
GAUSSIAN_ONLY = ("residual_planner", "eigen_design", "aim", "aim_pgm", "pairs")
MECHANISMS = (AUTO, *DATA_INDEPENDENT, *ON_REQUEST)

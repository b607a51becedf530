"""The tunable GEMM kernel of CLBlast: what its configurations do to a GPU, and how long that takes."""

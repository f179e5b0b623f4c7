"""Closed-form batched numerics with their own derivatives. Imports torch and nothing else."""

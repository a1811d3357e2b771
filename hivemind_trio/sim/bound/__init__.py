"""Lower bound of the makespan: work, supply curves and the bound itself."""

"""LiveCodeBench (Jain et al. 2024): problems of programming contests, with the day on which each was published."""

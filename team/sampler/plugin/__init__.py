"""What runs in the project's own interpreter. This directory goes on its path, so it holds nothing else."""

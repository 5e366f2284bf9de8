"""Programs around the workflow: benchmarks, mismatch, mutation tests, soak test, doctor."""

"""GPUs: drivers, toolkit and operator."""

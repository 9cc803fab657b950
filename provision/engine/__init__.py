"""Plan and run; knows no domain."""

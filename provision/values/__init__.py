"""The floor: values that every layer may use, without I/O."""

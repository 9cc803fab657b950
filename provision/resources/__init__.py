"""Desired states as data with pure functions, and the drivers that ask and act."""

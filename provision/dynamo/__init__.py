"""NVIDIA Dynamo."""

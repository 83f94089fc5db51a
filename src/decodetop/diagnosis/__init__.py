"""Measured, broken down, judged, noted: one diagnosis of a server from its stages to its moves."""

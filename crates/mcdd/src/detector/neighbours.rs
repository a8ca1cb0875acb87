//! Exact nearest neighbours.

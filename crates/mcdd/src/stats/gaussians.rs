//! Gaussians of classes.

//! The adversarial loop.

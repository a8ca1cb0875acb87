//! One-class support vector machines.

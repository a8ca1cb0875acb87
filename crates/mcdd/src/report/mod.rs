//! What people look at: tables, pages.

pub mod bench;

//! What people look at: figures of what methods do, tables and pages of how well they do it.
//!
//! [`figure`] draws numbers; the functions here get the numbers from models and tables, [`mod@bench`] from the results of a grid.

pub mod bench;
pub mod figure;
mod html;
mod latent;
pub mod model;
mod samples;

pub use latent::{Shown, latent_space};
pub use samples::{Chosen, choose_images, choose_samples};

/// A method as papers write it: `Deep-MCDD` for `deep-mcdd`.
pub fn method_name(name: &str) -> &str {
    match name {
        "deep-mcdd" => "Deep-MCDD",
        "soft-mcdd" => "Soft-MCDD",
        "softmax" => "Softmax",
        "protonet" => "ProtoNet",
        "deep-ncm" => "Deep-NCM",
        "deep-svdd" => "Deep-SVDD",
        "alad" => "ALAD",
        "gda" => "GDA",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_method_has_a_name_for_people() {
        for entry in crate::head::ALL {
            assert_ne!(super::method_name(entry.name), entry.name);
            assert_eq!(super::method_name(entry.name).to_lowercase(), entry.name);
        }
    }
}

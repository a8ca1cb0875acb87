//! Stub.
use super::{About, Detector, Method, Needs, Store, Training};
use crate::error::{Error, Result};
use crate::net::cpu::pool::Pool;
use serde::{Deserialize, Serialize};
/// Settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {}
impl Method for Config {
    const ABOUT: About =
        About { name: "svdd", summary: "", reference: "", needs: Needs { features: true, ..Needs::NONE } };
    fn fit(&self, _training: &Training, _pool: &Pool) -> Result<Box<dyn Detector>> {
        Err(Error::setting("not yet"))
    }
    fn load(&self, _store: &mut Store) -> Result<Box<dyn Detector>> {
        Err(Error::setting("not yet"))
    }
}

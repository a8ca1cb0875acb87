//! Reusable buffers for any network.

use std::any::Any;
use std::fmt;

/// Buffers of one thread that runs networks. Each kind of network keeps a type of its own in here, which is created on
/// first use and reused after that.
#[derive(Default)]
pub struct NetworkBuffers(Vec<Box<dyn Any + Send + Sync>>);

impl NetworkBuffers {
    /// The buffers of type `T`.
    pub fn get<T: Any + Send + Sync + Default>(&mut self) -> &mut T {
        let found = self.0.iter().position(|buffers| (**buffers).is::<T>());
        let at = found.unwrap_or_else(|| {
            self.0.push(Box::<T>::default());
            self.0.len() - 1
        });
        match (*self.0[at]).downcast_mut() {
            Some(buffers) => buffers,
            None => unreachable!("the position was found by its type"),
        }
    }
}

/// A clone starts empty: buffers hold nothing worth copying.
impl Clone for NetworkBuffers {
    fn clone(&self) -> Self {
        NetworkBuffers::default()
    }
}

impl fmt::Debug for NetworkBuffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NetworkBuffers({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_keeps_its_own_buffers() {
        let mut buffers = NetworkBuffers::default();
        buffers.get::<Vec<f32>>().push(1.0);
        buffers.get::<Vec<u8>>().push(7);
        buffers.get::<Vec<f32>>().push(2.0);
        assert_eq!(buffers.get::<Vec<f32>>(), &[1.0, 2.0]);
        assert_eq!(buffers.get::<Vec<u8>>(), &[7]);
        assert!(buffers.clone().get::<Vec<u8>>().is_empty());
    }
}

//! The items with the lowest keys of a stream.

/// Keeps the items with the lowest keys; of equal keys the first ones.
#[derive(Clone, Debug)]
pub(super) struct Lowest<T> {
    most: usize,
    items: Vec<(f64, T)>,
}

impl<T> Lowest<T> {
    pub(super) fn new(most: usize) -> Self {
        Lowest { most, items: Vec::new() }
    }

    /// Offers an item, which is created only if it is kept.
    pub(super) fn offer(&mut self, key: f64, item: impl FnOnce() -> T) {
        let at = self.items.partition_point(|(k, _)| k.total_cmp(&key).is_le());
        if at >= self.most {
            return;
        }
        self.items.truncate(self.most - 1);
        self.items.insert(at, (key, item()));
    }

    /// The items, the lowest first.
    pub(super) fn into_items(self) -> impl Iterator<Item = T> {
        self.items.into_iter().map(|(_, item)| item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_lowest_are_kept(keys in proptest::collection::vec(-5i32..5, 0..40), most in 0usize..8) {
            let mut lowest = Lowest::new(most);
            keys.iter().enumerate().for_each(|(i, &k)| lowest.offer(f64::from(k), || i));
            let mut order: Vec<usize> = (0..keys.len()).collect();
            order.sort_by_key(|&i| keys[i]);
            order.truncate(most);
            prop_assert_eq!(lowest.into_items().collect::<Vec<_>>(), order);
        }
    }
}

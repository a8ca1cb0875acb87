//! The linear layer between features and logits.

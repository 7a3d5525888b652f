//! Tokens of a track -> embedding and class logits: the AETHER temporal head.

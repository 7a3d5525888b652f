//! `aetherd ports`.

